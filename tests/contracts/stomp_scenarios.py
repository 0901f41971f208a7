"""What a program with stomp.py sees of a broker: one function a scenario, the same for raybroker and for ActiveMQ.

A scenario returns a short text that says what happened, without names and numbers that differ from run to run.  Beside
it stands what raybroker does (``ours``) and, where that is something else, what ActiveMQ does (``theirs``).
``test_stomp_parity.py`` holds both servers to it, and ``python -m tests.contracts.stomp_parity`` prints the table.  Why
they differ is in ``raybroker/services/stomp/__init__.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import stomp

from tests.contracts.stomp_sides import PATIENCE_S, QUIET_S, Client, Side, wait


@dataclass(frozen=True, slots=True)
class Scenario:
    """``theirs``: None when ActiveMQ does the same."""

    name: str
    play: Callable[[Side], str]
    ours: str
    theirs: str | None
    versions: tuple[str, ...]

    def expected(self, peer: bool) -> str:
        return self.theirs if peer and self.theirs is not None else self.ours


SCENARIOS: Final[list[Scenario]] = []
ALL: Final = ("1.0", "1.1", "1.2")
LATER: Final = ("1.1", "1.2")
LAST: Final = ("1.2",)


def scenario(ours: str, theirs: str | None = None, versions: tuple[str, ...] = LAST) -> Callable[[Any], Any]:
    def known(play: Callable[[Side], str]) -> Callable[[Side], str]:
        SCENARIOS.append(Scenario(play.__name__, play, ours, theirs, versions))
        return play

    return known


def play(one: Scenario, version: str, port: int) -> str:
    """What is seen of the server at a port."""
    with ExitStack() as opened:
        try:
            return one.play(Side(port, version, one.name, opened))
        except Exception as error:  # noqa: BLE001 - it is what is seen
            return f"{type(error).__name__}: {error}"


# ---- connecting ------------------------------------------------------------------------------------------------------


@scenario("the version asked for, a session", versions=ALL)
def connected(side: Side) -> str:
    headers = side.client().seen.connected
    version = "the version asked for" if headers.get("version") == side.version else headers.get("version", "none")
    return f"{version}, {'a session' if headers.get('session') else 'no session'}"


@scenario("refused, with an error", versions=ALL)
def wrong_user(side: Side) -> str:
    try:
        side.client(user="nobody")
    except stomp.exception.ConnectFailedException:
        return "refused, with an error"
    return "let in"


@scenario("beats both ways, nothing lost", versions=LATER)
def heart_beats(side: Side) -> str:
    client = side.client(heartbeats=(1000, 1000))
    theirs, wanted = client.seen.connected["heart-beat"].split(",")
    time.sleep(4)
    lost = client.seen.beats_lost + client.seen.disconnections
    both = "beats both ways" if theirs != "0" and wanted != "0" else f"{theirs},{wanted}"
    return f"{both}, {'nothing lost' if not lost and client.send(side.queue) == 'done' else 'lost'}"


@scenario("SEND SUBSCRIBE BEGIN COMMIT ABORT ACK UNSUBSCRIBE DISCONNECT", versions=LATER)
def receipts(side: Side) -> str:
    client, found = side.client(), []
    found.append(("SEND", client.send(side.queue)))
    found.append(("SUBSCRIBE", client.subscribe(side.queue, "client")))
    client.got(1)
    for command, transaction in (("BEGIN", "a"), ("COMMIT", "a"), ("BEGIN", "b"), ("ABORT", "b")):
        found.append((command, client.frame(command, transaction=transaction)))
    found.append(("ACK", client.acknowledge(client.seen.messages[0])))
    found += [("UNSUBSCRIBE", client.frame("UNSUBSCRIBE", id=1)), ("DISCONNECT", client.frame("DISCONNECT"))]
    return " ".join(dict.fromkeys(name if answer == "done" else f"{name}:{answer}" for name, answer in found))


# ---- messages --------------------------------------------------------------------------------------------------------


@scenario("the same bytes, content-length 10240", versions=ALL)
def bytes_with_nul(side: Side) -> str:
    client, data = side.client(auto_decode=False), bytes(range(256)) * 40
    client.subscribe(side.queue)
    client.stomp.send(side.queue, data)
    client.got(1)
    (frame,) = client.seen.messages
    return f"{'the same' if frame.body == data else 'other'} bytes, content-length {frame.headers['content-length']}"


@scenario("grüße €, with a content-length", "grüße €, without a content-length", versions=ALL)
def text_without_length(side: Side) -> str:
    client = side.client(auto_content_length=False)
    client.subscribe(side.queue)
    client.send(side.queue, "grüße €")
    client.got(1)
    (frame,) = client.seen.messages
    return f"{frame.body}, {'with' if 'content-length' in frame.headers else 'without'} a content-length"


@scenario("''")
def empty_body(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    client.send(side.queue, "")
    return repr("".join(client.got(1)))


@scenario("error", "done")
def body_of_a_mebibyte_in_a_queue_that_nobody_has_made(side: Side) -> str:
    return side.client().send(side.queue, "x" * (1 << 20))


@scenario(
    "content-type destination expires message-id persistent priority subscription timestamp",
    "destination expires message-id priority subscription timestamp",
    versions=("1.0", "1.1"),
)
def headers_of_a_message(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    client.stomp.send(side.queue, "x")
    client.got(1)
    return " ".join(sorted(set(client.seen.messages[0].headers) - {"content-length"}))


@scenario(
    "price type=kind correlation-id=c-1 reply-to=/queue/answers persistent=true content-type=text/plain", versions=ALL
)
def headers_that_are_sent(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    sent = {
        "price": "3",
        "type": "kind",
        "correlation-id": "c-1",
        "reply-to": "/queue/answers",
        "persistent": "true",
        "content-type": "text/plain",
    }
    client.stomp.send(side.queue, "x", headers=sent)
    client.got(1)
    found = client.seen.messages[0].headers
    return " ".join(name if name == "price" else f"{name}={found.get(name)}" for name in sent)


@scenario("colon backslash newline cr dotted hyphen", versions=LAST)
def escapes(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    sent = {"colon": "a:b", "backslash": "a\\b", "newline": "a\nb", "cr": "a\rb", "dotted.x": "1", "hyphen-x": "2"}
    client.stomp.send(side.queue, "x", headers=sent)
    client.got(1)
    found = client.seen.messages[0].headers
    same = (name for name, value in sent.items() if found.get(name) == value)
    return " ".join(name.partition(".")[0].partition("-")[0] for name in same)


@scenario("stored", "not stored")
def persistent_unless_said_otherwise(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    client.stomp.send(side.queue, "x")
    client.got(1)
    return "stored" if client.seen.messages[0].headers.get("persistent") == "true" else "not stored"


@scenario("9 5 4 0", "0 4 9 5")
def priorities(side: Side) -> str:
    client = side.client()
    for priority in (0, 4, 9, 5):
        client.send(side.queue, str(priority), priority=priority)
    client.subscribe(side.queue)
    return " ".join(client.got(4))


@scenario("stays", versions=ALL)
def expired(side: Side) -> str:
    client = side.client()
    client.send(side.queue, "gone", expires=round(time.time() * 1000) + 500)
    client.send(side.queue, "stays", expires=round(time.time() * 1000) + 600_000)
    time.sleep(1.5)
    return side.rest()


@scenario("at once then later")
def scheduled(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    client.stomp.send(side.queue, "later", headers={"AMQ_SCHEDULED_DELAY": "2000"})
    client.send(side.queue, "at once")
    return " then ".join(client.got(2))


# ---- acknowledgement -------------------------------------------------------------------------------------------------


def _three(side: Side, ack: str, **headers: Any) -> Client:
    client = side.client()
    client.subscribe(side.queue, ack, **headers)
    for body in "abc":
        client.send(side.queue, body)
    client.got(3)
    return client


@scenario("nothing", versions=ALL)
def ack_auto(side: Side) -> str:
    client = _three(side, "auto")
    client.frame("DISCONNECT")
    return side.rest()


@scenario("c!", versions=ALL)
def ack_client_is_cumulative(side: Side) -> str:
    client = _three(side, "client")
    client.acknowledge(client.seen.messages[1])
    client.frame("DISCONNECT")
    return side.rest()


@scenario("a! c!", versions=LATER)
def ack_client_individual(side: Side) -> str:
    client = _three(side, "client-individual")
    client.acknowledge(client.seen.messages[1])
    client.frame("DISCONNECT")
    return side.rest()


@scenario("done, then b redelivered", "done, then nothing", versions=LATER)
def nack(side: Side) -> str:
    client = _three(side, "client-individual")
    answer = client.acknowledge(client.seen.messages[1], "NACK")
    again = client.settled()[3:]
    return f"{answer}, then {' '.join(again) + ' redelivered' if again else 'nothing'}"


@scenario("nothing", versions=LATER)
def nack_without_requeue(side: Side) -> str:
    client = _three(side, "client-individual")
    client.acknowledge(client.seen.messages[1], "NACK", requeue="false")
    return " ".join(client.settled()[3:]) or "nothing"


@scenario("2 unacknowledged, 3 after one ACK")
def prefetch(side: Side) -> str:
    client = side.client()
    for body in "abcde":
        client.send(side.queue, body)
    client.stomp.subscribe(side.queue, 1, ack="client-individual", headers={"activemq.prefetchSize": "2"})
    first = len(client.settled())
    client.acknowledge(client.seen.messages[0])
    return f"{first} unacknowledged, {len(client.settled())} after one ACK"


@scenario("100", "150")
def prefetch_unless_said_otherwise(side: Side) -> str:
    client = side.client()
    for number in range(150):
        client.stomp.send(side.queue, str(number))
    client.send(f"{side.queue}.fence")
    client.subscribe(side.queue, "client-individual")
    return str(len(client.settled()))


@scenario("each once, both busy")
def competing_consumers(side: Side) -> str:
    clients = [side.client(), side.client()]
    for client in clients:
        client.stomp.subscribe(side.queue, 1, ack="client-individual", headers={"activemq.prefetchSize": "1"})
        client.frame("BEGIN", transaction="fence")
    for number in range(10):
        clients[0].send(side.queue, str(number))
    done: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(done) < 10 and time.monotonic() < deadline:
        for client in clients:
            for frame in client.seen.messages[sum(body in client.seen.bodies for body in done) :]:
                client.acknowledge(frame)
                done.append(frame.body)
        time.sleep(0.01)
    each = "each once" if sorted(done, key=int) == [str(number) for number in range(10)] else " ".join(done)
    return f"{each}, {'both busy' if all(client.seen.messages for client in clients) else 'one idle'}"


@scenario("0 alone, then 1")
def message_groups(side: Side) -> str:
    clients = [side.client(), side.client()]
    for client in clients:
        client.stomp.subscribe(side.queue, 1, ack="client-individual", headers={"activemq.prefetchSize": "1"})
        client.frame("BEGIN", transaction="fence")
    for number in range(2):
        clients[0].stomp.send(side.queue, str(number), headers={"JMSXGroupID": "g"})
    wait(lambda: any(client.seen.messages for client in clients), PATIENCE_S)
    first = [client for client in clients if client.settled()]
    alone = "alone" if [client.seen.bodies for client in first] == [["0"]] else "with another"
    first[0].acknowledge(first[0].seen.messages[0])
    wait(lambda: sum(len(client.seen.messages) for client in clients) == 2, PATIENCE_S)
    return f"0 {alone}, then {' '.join(body for client in clients for body in client.seen.bodies if body != '0')}"


# ---- transactions ----------------------------------------------------------------------------------------------------


@scenario("nothing before, a b after", versions=ALL)
def commit(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    client.frame("BEGIN", transaction="t")
    for body in "ab":
        client.send(side.queue, body, transaction="t")
    before = " ".join(client.settled()) or "nothing"
    client.frame("COMMIT", transaction="t")
    return f"{before} before, {' '.join(client.got(2))} after"


@scenario("after", versions=ALL)
def abort(side: Side) -> str:
    client = side.client()
    client.frame("BEGIN", transaction="t")
    client.send(side.queue, "in it", transaction="t")
    client.frame("ABORT", transaction="t")
    client.send(side.queue, "after")
    return side.rest()


@scenario("nothing, 1 sent")
def acknowledged_and_sent_in_one_transaction(side: Side) -> str:
    client = _three(side, "client")
    client.frame("BEGIN", transaction="t")
    client.acknowledge(client.seen.messages[2], transaction="t")
    client.send(f"{side.queue}.out", "1", transaction="t")
    client.frame("COMMIT", transaction="t")
    client.frame("DISCONNECT")
    return f"{side.rest()}, {side.rest(f'{side.queue}.out')} sent"


@scenario("acknowledged again: done, then nothing")
def acknowledged_in_an_aborted_transaction(side: Side) -> str:
    client = _three(side, "client")
    client.frame("BEGIN", transaction="t")
    client.acknowledge(client.seen.messages[2], transaction="t")
    client.frame("ABORT", transaction="t")
    answer = client.acknowledge(client.seen.messages[2])
    client.frame("DISCONNECT")
    return f"acknowledged again: {answer}, then {side.rest()}"


@scenario("a! b! c!")
def transaction_of_a_lost_connection(side: Side) -> str:
    client = _three(side, "client")
    client.frame("BEGIN", transaction="t")
    client.acknowledge(client.seen.messages[2], transaction="t")
    client.send(side.queue, "d", transaction="t")
    client.frame("DISCONNECT")
    return side.rest()


# ---- selectors, topics -----------------------------------------------------------------------------------------------


@scenario("hot", versions=ALL)
def selector_of_texts(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue, selector="kind = 'hot' AND place LIKE 'r%'")
    for kind in ("hot", "cold"):
        client.send(side.queue, kind, kind=kind, place="rome")
    return " ".join(client.settled())


@scenario("nothing", "x")
def selector_of_numbers(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue, selector="price > 5")
    client.send(side.queue, "x", price=7)
    return " ".join(client.settled()) or "nothing"


@scenario("each x, none y")
def topics(side: Side) -> str:
    clients = [side.client(), side.client()]
    clients[0].send(side.topic, "before")
    for client in clients:
        client.subscribe(side.topic)
    clients[0].send(side.topic, "x")
    bodies = [client.got(1) for client in clients]
    clients[0].frame("UNSUBSCRIBE", id=1)
    clients[1].send(side.topic, "y")
    return f"{'each x' if bodies == [['x'], ['x']] else bodies}, {' '.join(clients[0].settled()[1:]) or 'none y'}"


@scenario("x y")
def patterns_of_topics(side: Side) -> str:
    client = side.client()
    for number, name in enumerate("ab", 2):
        client.subscribe(f"{side.topic}.{name}", "auto", number)
        client.frame("UNSUBSCRIBE", id=number)
    client.subscribe(f"{side.topic}.*")
    client.send(f"{side.topic}.a", "x")
    client.send(f"{side.topic}.b", "y")
    return " ".join(client.got(2))


@scenario("others'")
def no_local(side: Side) -> str:
    client = side.client()
    client.stomp.subscribe(side.topic, 1, headers={"activemq.noLocal": "true"})
    client.send(side.topic, "own")
    side.client().send(side.topic, "others'")
    return " ".join(client.settled())


@scenario("kept, then nothing", versions=LATER)
def durable_subscription(side: Side) -> str:
    # ActiveMQ takes the name of the subscription for the client's id in an UNSUBSCRIBE of STOMP 1.2.
    named, identity = {"activemq.subscriptionName": side.name}, {"client-id": side.name}

    def subscribed() -> Client:
        client = side.client(headers=identity)
        client.stomp.subscribe(side.topic, 1, headers={**named, "receipt": "s"})
        client.answer("s")
        return client

    def left(client: Client) -> None:
        client.frame("DISCONNECT")
        wait(lambda: client.seen.disconnections, PATIENCE_S)

    left(subscribed())
    publisher = side.client()
    publisher.send(side.topic, "kept")
    client = subscribed()
    kept = " ".join(client.got(1))
    client.frame("UNSUBSCRIBE", id=1)
    client.stomp.unsubscribe(1, headers={**named, "receipt": "u"})
    client.answer("u")
    left(client)
    publisher.send(side.topic, "not kept")
    return f"{kept}, then {' '.join(subscribed().settled()) or 'nothing'}"


@scenario("a request, an answer", versions=LATER)
def temporary_queues(side: Side) -> str:
    asker, answerer = side.client(), side.client()
    answerer.subscribe(side.queue)
    asker.subscribe("/temp-queue/answers")
    asker.send(side.queue, "21", reply_to="/temp-queue/answers")
    answerer.got(1)
    answerer.send(answerer.seen.messages[0].headers["reply-to"], "42")
    return "a request, an answer" if asker.got(1) == ["42"] else "no answer"


@scenario("/remote-temp-queue/, /temp-queue/answers")
def names_of_temporary_queues(side: Side) -> str:
    asker, answerer = side.client(), side.client()
    answerer.subscribe(side.queue)
    asker.subscribe("/temp-queue/answers")
    asker.send(side.queue, "21", reply_to="/temp-queue/answers")
    answerer.got(1)
    reply_to = answerer.seen.messages[0].headers["reply-to"]
    answerer.send(reply_to, "42")
    asker.got(1)
    begun = "/remote-temp-queue/" if reply_to.startswith("/remote-temp-queue/") else reply_to
    return f"{begun}, {asker.seen.messages[0].headers['destination']}"


# ---- errors ----------------------------------------------------------------------------------------------------------


def _error(side: Side, command: str, /, **headers: Any) -> str:
    """The answer, and whether the connection is there afterwards."""
    client = side.client()
    answer = client.frame(command, **headers)
    gone = wait(lambda: client.seen.disconnections, QUIET_S)
    return f"{answer}, {'closed' if gone else 'open'}"


@scenario("error, closed", "done, open")
def send_to_no_destination(side: Side) -> str:
    return _error(side, "SEND", destination="nowhere")


@scenario("error, closed", "error, open")
def send_without_a_destination(side: Side) -> str:
    return _error(side, "SEND")


@scenario("error, closed", "error, open")
def send_in_an_unknown_transaction(side: Side) -> str:
    return _error(side, "SEND", destination=side.queue, transaction="t")


@scenario("error, closed", "error, open", versions=ALL)
def commit_an_unknown_transaction(side: Side) -> str:
    return _error(side, "COMMIT", transaction="t")


@scenario("error, closed", "error, open")
def acknowledge_an_unknown_message(side: Side) -> str:
    return _error(side, "ACK", id="1-1")


@scenario("error, closed", "error, open")
def subscribe_with_a_wrong_selector(side: Side) -> str:
    return _error(side, "SUBSCRIBE", destination=side.queue, id=1, selector="a =")


@scenario("error, closed", "done, open")
def subscribe_with_an_unknown_mode(side: Side) -> str:
    return _error(side, "SUBSCRIBE", destination=side.queue, id=1, ack="never")


@scenario("error, closed", "error, open")
def subscribe_without_an_id(side: Side) -> str:
    return _error(side, "SUBSCRIBE", destination=side.queue)


@scenario("error, closed", "done, open")
def subscribe_twice_with_one_id(side: Side) -> str:
    client = side.client()
    client.subscribe(side.queue)
    answer = client.subscribe(f"{side.queue}.other")
    gone = wait(lambda: client.seen.disconnections, QUIET_S)
    return f"{answer}, {'closed' if gone else 'open'}"


@scenario("error, closed", "error, open")
def unsubscribe_from_nothing(side: Side) -> str:
    return _error(side, "UNSUBSCRIBE", id=9)


@scenario("error, closed")
def unknown_command(side: Side) -> str:
    return _error(side, "FETCH")


@scenario("error, closed", "done, open")
def browse(side: Side) -> str:
    return _error(side, "SUBSCRIBE", destination=side.queue, id=1, browser="true")


@scenario("error, closed", "done, open")
def composite_destination(side: Side) -> str:
    return _error(side, "SEND", destination=f"{side.queue},{side.queue}.too")


@scenario("error, closed", "done, open")
def patterns_of_queues(side: Side) -> str:
    return _error(side, "SUBSCRIBE", destination=f"{side.queue}.>", id=1)
