"""What Qpid Proton's Python client sees of a broker: one JSON line for each case, as its neighbours write.

python -m tests.amqp_clients.clients.proton_client HOST PORT USER PASSWORD PLAIN-QUEUE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from proton import ConnectionException, Delivery, Described, Endpoint, Message, Terminus, Timeout, int32, symbol, ulong
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached, SendException

WAIT_S: Final = 15.0
ABSENT_S: Final = 0.3


class Queue(LinkOption):
    """The address of a link names a queue."""

    def apply(self, link: Any) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_object(symbol("queue"))


class Client:
    """``plain``: a queue that is addressed by its name alone."""

    def __init__(self, host: str, port: str, user: str, password: str, plain: str) -> None:
        self.url, self.user, self.password, self.plain = f"amqp://{host}:{port}", user, password, plain
        self._number = 0

    def connect(self, password: str | None = None) -> BlockingConnection:
        return BlockingConnection(
            self.url,
            timeout=WAIT_S,
            user=self.user,
            password=password or self.password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            reconnect=False,
        )

    def name(self) -> str:
        self._number += 1
        return f"proton_{time.time_ns()}_{self._number}"


def nothing(receiver: Any) -> None:
    try:
        found = receiver.receive(timeout=ABSENT_S)
    except Timeout:
        return
    raise AssertionError(f"a message has come: {found.body!r}")


def connect(client: Client) -> None:
    connection = client.connect()
    assert connection.conn.state & Endpoint.REMOTE_ACTIVE
    connection.close()


def refused(client: Client) -> None:
    try:
        client.connect("wrong").close()
    except ConnectionException:
        return
    raise AssertionError("a wrong password was taken")


def plain_address(client: Client) -> None:
    connection = client.connect()
    connection.create_sender(client.plain).send(Message("by its name"))
    receiver = connection.create_receiver(client.plain)
    assert receiver.receive(timeout=WAIT_S).body == "by its name"
    receiver.accept()
    connection.close()


def send_and_receive(client: Client) -> None:
    connection, name = client.connect(), client.name()
    sender = connection.create_sender(name, options=Queue())
    for number in range(20):
        delivery = sender.send(Message(f"m{number}", id=f"id-{number}", properties={"number": int32(number)}))
        assert delivery.remote_state == Delivery.ACCEPTED
    receiver = connection.create_receiver(name, options=Queue(), credit=5)
    for number in range(20):
        found = receiver.receive(timeout=WAIT_S)
        assert (found.body, found.id, found.properties["number"]) == (f"m{number}", f"id-{number}", number), found
        receiver.accept()
    connection.close()


def bodies(client: Client) -> None:
    connection, name = client.connect(), client.name()
    sender = connection.create_sender(name, options=Queue())
    receiver = connection.create_receiver(name, options=Queue())
    for body in (
        "text – Größe",
        b"\x00bytes",
        {"k": [1, None, True]},
        ["a", 1.5, b"x"],
        2**40,
        True,
        None,
        "x" * 3_000_000,
    ):
        sender.send(Message(body))
        found = receiver.receive(timeout=WAIT_S)
        kept = found.body.tobytes() if isinstance(found.body, memoryview) else found.body
        assert kept == body, f"{str(kept)[:80]} instead of {str(body)[:80]}"
        receiver.accept()
    connection.close()


def headers(client: Client) -> None:
    connection, name = client.connect(), client.name()
    sent = Message(
        "h", subject="s", reply_to="answers", correlation_id="c", content_type=symbol("text/x"), group_id="g"
    )
    sent.durable, sent.priority, sent.ttl, sent.user_id = True, 7, 60, client.user.encode()
    sent.properties = {"text": "t", "flag": True, "long": ulong(2**63)}
    sent.annotations = {symbol("x-opt-of-ours"): "kept"}
    connection.create_sender(name, options=Queue()).send(sent)
    receiver = connection.create_receiver(name, options=Queue())
    found = receiver.receive(timeout=WAIT_S)
    receiver.accept()
    for field in (
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "group_id",
        "priority",
        "durable",
        "properties",
    ):
        assert getattr(found, field) == getattr(sent, field), f"{field}: {getattr(found, field)!r}"
    assert found.annotations[symbol("x-opt-of-ours")] == "kept"
    assert 0 < found.ttl <= 60
    connection.close()


def accepted_is_gone(client: Client) -> None:
    connection, name = client.connect(), client.name()
    sender = connection.create_sender(name, options=Queue())
    sender.send(Message("1"))
    receiver = connection.create_receiver(name, options=Queue())
    receiver.receive(timeout=WAIT_S)
    receiver.accept()
    connection.close()
    again = client.connect()
    nothing(again.create_receiver(name, options=Queue()))
    again.close()


def released_comes_again(client: Client) -> None:
    connection, name = client.connect(), client.name()
    connection.create_sender(name, options=Queue()).send(Message("1"))
    receiver = connection.create_receiver(name, options=Queue())
    assert receiver.receive(timeout=WAIT_S).delivery_count == 0
    receiver.release(delivered=False)
    found = receiver.receive(timeout=WAIT_S)
    assert (found.body, found.delivery_count) == ("1", 0), found.delivery_count
    receiver.accept()
    nothing(receiver)
    connection.close()


def modified_is_counted(client: Client) -> None:
    connection, name = client.connect(), client.name()
    connection.create_sender(name, options=Queue()).send(Message("1"))
    receiver = connection.create_receiver(name, options=Queue())
    for count in range(3):
        found = receiver.receive(timeout=WAIT_S)
        assert (found.body, found.delivery_count) == ("1", count), found.delivery_count
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.failed = True
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
    receiver.receive(timeout=WAIT_S)
    receiver.accept()
    connection.close()


def rejected_is_gone(client: Client) -> None:
    connection, name = client.connect(), client.name()
    sender = connection.create_sender(name, options=Queue())
    sender.send(Message("bad"))
    sender.send(Message("good"))
    receiver = connection.create_receiver(name, options=Queue())
    receiver.receive(timeout=WAIT_S)
    receiver.reject()
    assert receiver.receive(timeout=WAIT_S).body == "good"
    receiver.accept()
    nothing(receiver)
    connection.close()


def filters(client: Client) -> None:
    connection, name = client.connect(), client.name()
    sender = connection.create_sender(name, options=Queue())
    for number in range(6):
        sender.send(Message(f"m{number}", properties={"n": int32(number)}))
    chosen = connection.create_receiver(name, options=[Queue(), Selector("n >= 4")], name="chosen")
    answered = chosen.link.remote_source.filter
    answered.rewind()
    assert answered.next(), "there is no filter in the answer"
    assert answered.get_dict(), "the filter is not in the answer"
    for number in (4, 5):
        assert chosen.receive(timeout=WAIT_S).body == f"m{number}"
        chosen.accept()
    nothing(chosen)
    connection.close()


def invalid_filter(client: Client) -> None:
    connection = client.connect()
    try:
        connection.create_receiver(client.name(), options=[Queue(), Selector("= n")])
    except LinkDetached as error:
        refusal = str(error)
    else:
        raise AssertionError("a selector that cannot be was taken")
    assert "amqp:invalid-field" in refusal, refusal
    connection.close()


def request_and_reply(client: Client) -> None:
    connection, name = client.connect(), client.name()
    replies = connection.create_receiver(None, dynamic=True)
    address = replies.link.remote_source.address
    connection.create_sender(name, options=Queue()).send(Message("q", reply_to=address, correlation_id="c1"))
    server = client.connect()
    requests = server.create_receiver(name, options=Queue())
    found = requests.receive(timeout=WAIT_S)
    requests.accept()
    server.create_sender(found.reply_to).send(Message("a", correlation_id=found.correlation_id))
    answer = replies.receive(timeout=WAIT_S)
    assert (answer.body, answer.correlation_id) == ("a", "c1")
    replies.accept()
    server.close()
    connection.close()


def relay(client: Client) -> None:
    connection, name = client.connect(), client.name()
    connection.create_receiver(name, options=Queue()).close()
    connection.create_sender(None).send(Message("by its own address", address=name))
    receiver = connection.create_receiver(name, options=Queue())
    assert receiver.receive(timeout=WAIT_S).body == "by its own address"
    receiver.accept()
    connection.close()


class InTransactions(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Sends two messages and rolls back, sends two and commits, takes both and rolls back, takes both and commits."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._client, self._name = client, name
        self.steps: list[str] = []
        self.got: list[tuple[str, str, int]] = []
        self.failed = ""
        self._work = ["abort-sends", "commit-sends", "abort-takes", "commit-takes"]
        self._taken = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            self._client.url,
            user=self._client.user,
            password=self._client.password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            reconnect=False,
        )
        self._connection, self._container = connection, event.container
        self._sender = event.container.create_sender(connection, self._name, options=Queue())
        self._receiver = event.container.create_receiver(connection, self._name, options=Queue())
        self._guard = event.container.schedule(2 * WAIT_S, self)

    def on_timer_task(self, event: Any) -> None:
        self.failed = f"it hangs after {self.steps}"
        self._connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.failed = str(event.transport.condition)
        self._guard.cancel()

    def on_sendable(self, event: Any) -> None:
        if event.sender == self._sender and not self.steps:
            self.steps.append("begin")
            self._next()

    def _next(self) -> None:
        if not self._work:
            self._guard.cancel()
            self._connection.close()
            return
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        if "sends" in self._work[0]:
            for number in (1, 2):
                event.transaction.send(self._sender, Message(f"{self._work[0]} {number}"))
            self._end()
        else:
            self._taken = 0
            self._receiver.flow(2)

    def on_message(self, event: Any) -> None:
        self.got.append((self._work[0], event.message.body, event.message.delivery_count))
        self._transaction.accept(event.delivery)
        self._taken += 1
        if self._taken == 2:
            self._end()

    def _end(self) -> None:
        if "abort" in self._work[0]:
            self._transaction.abort()
        else:
            self._transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.steps.append(f"{self._work.pop(0)}: committed")
        self._next()

    def on_transaction_aborted(self, event: Any) -> None:
        self.steps.append(f"{self._work.pop(0)}: aborted")
        self._next()

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.failed = "declare was refused"
        self._connection.close()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.failed = "commit was refused"
        self._connection.close()


def transactions(client: Client) -> None:
    name = client.name()
    handler = InTransactions(client, name)
    Container(handler).run()
    assert not handler.failed, handler.failed
    assert handler.steps[1:] == [
        "abort-sends: aborted",
        "commit-sends: committed",
        "abort-takes: aborted",
        "commit-takes: committed",
    ], handler.steps
    assert [(step, body) for step, body, _ in handler.got] == [
        (step, f"commit-sends {number}") for step in ("abort-takes", "commit-takes") for number in (1, 2)
    ], handler.got
    after = client.connect()
    nothing(after.create_receiver(name, options=Queue()))
    after.close()


def coordinator_without_declare(client: Client) -> None:
    """A transaction that nobody has declared cannot be discharged."""
    connection = client.connect()
    sender = connection.create_sender(None, options=Coordinator(), name="coordinator")
    try:
        sender.send(Message(body=Described(symbol("amqp:discharge:list"), [b"unknown", False])))
    except (SendException, LinkDetached):
        connection.close()
        return
    raise AssertionError("it was discharged")


class Coordinator(LinkOption):
    """The link leads to the coordinator of transactions."""

    def apply(self, link: Any) -> None:
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol("amqp:local-transactions"))


CASES: Final[tuple[Callable[[Client], None], ...]] = (
    connect,
    refused,
    plain_address,
    send_and_receive,
    bodies,
    headers,
    accepted_is_gone,
    released_comes_again,
    modified_is_counted,
    rejected_is_gone,
    filters,
    invalid_filter,
    request_and_reply,
    relay,
    transactions,
    coordinator_without_declare,
)


def main(arguments: list[str]) -> int:
    client, good = Client(*arguments), True
    for case in CASES:
        began, why = time.monotonic(), None
        try:
            case(client)
        except Exception as error:  # noqa: BLE001 (each case says what it has come to)
            why, good = f"{type(error).__name__}: {error}", False
        result = {"case": f"proton.{case.__name__}", "result": "failed" if why else "passed"}
        print(json.dumps(result | {"seconds": round(time.monotonic() - began, 3), "why": why}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
