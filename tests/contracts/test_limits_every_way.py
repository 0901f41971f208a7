"""Limits hold whichever way messages come in: each way, with each behaviour at the limit and each kind of limit.

Eight messages of ten bytes are to come into a queue that may hold three.  Under REJECT_NEWEST what clients send to the
full queue is refused, and what administrators and the broker itself would put there stays where it is, under
FLOW_CONTROL as well.  A queue that removes (REMOVE_OLDEST, REMOVE_LOW_PRIORITY) ends up with the three newest.  How
FLOW_CONTROL makes native clients wait is in ``test_limits.py``; those of gateways are not answered before there is
room, and a transaction does not begin at a full queue.  One that has begun goes on, however much it sends, and so does
every transaction of a STOMP client.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import pytest

import raybroker as rb
from raybroker.client.session.xa import TMRESUME, TMSUSPEND
from raybroker.errors import BrokerError, ResourceAllocationError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S, take
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_services import Outside, until

pytestmark = pytest.mark.xdist_group("limits_every_way")  # One worker makes what they share.

SENT: Final = 8
ROOM: Final = 3
BODIES: Final = [f"message {n:02}" for n in range(SENT)]
REMOVING: Final = ("REMOVE_OLDEST", "REMOVE_LOW_PRIORITY")
BEHAVIOURS: Final = ("REJECT_NEWEST", "FLOW_CONTROL", *REMOVING)
LIMITS: Final = ("count", "bytes", "policy", "quota")
DELAY_MS: Final = 300
DMQ: Final = "mq.sys.dmq"
_numbers = count(1)


class Limited(Outside):
    """A broker with a way in of each kind, and one queue that is limited in one way."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        services = "jms,admin,httpjms,stomp"
        super().__init__(folder, opened, **{"imq.service.activelist": services})
        self.client = self.connect(SendTimeout=200)
        self.patient = self.connect()
        self.queue = ""

    def make(self) -> None:
        self.queue = f"limited{next(_numbers)}"
        self.admin.create_destination("queue", self.queue)

    def limit(self, behaviour: str, limit: str) -> None:
        """From now on the queue may hold so many messages."""
        own: dict[str, object] = {"limitBehavior": behaviour}
        if limit == "quota":
            self.admin.create_quota(self.queue, MessagesMaximum=ROOM)
            own["quota"] = self.queue
        elif limit == "bytes":
            own["maxTotalMsgBytes"] = ROOM * len(BODIES[0])
        else:
            own["maxNumMsgs"] = ROOM
        if limit == "policy":
            self.admin.create_policy(self.queue, self.queue, **own)
        else:
            self.admin.update_destination("queue", self.queue, **own)

    def held(self, name: str = "") -> int:
        return int(self.admin.query_destination("queue", name or self.queue)["messages"])

    def source(self, **attributes: object) -> str:
        """Another queue, with the messages in it."""
        name = f"{self.queue}source"
        self.admin.create_destination("queue", name, **attributes)
        self.patient.session().producer(name).send_many(BODIES)
        return name


def alone(send: Callable[[str], object]) -> None:
    """Send them one by one; whoever is refused or waits too long goes on with the next."""
    for body in BODIES:
        with contextlib.suppress(BrokerError):
            send(body)


def sent(limited: Limited) -> None:
    alone(limited.client.session().producer(limited.queue).send)


def sent_async(limited: Limited) -> None:
    producer = limited.client.session().producer(limited.queue)
    alone(lambda body: producer.send_async(body).result(20))


def sent_many(limited: Limited) -> None:
    producer = limited.client.session().producer(limited.queue)
    alone(lambda body: producer.send_many([body]))


def sent_without_waiting(limited: Limited) -> None:
    alone(limited.client.session().producer(limited.queue, persistent=False).send)


Unit = Callable[[list[str]], None]
"""Commits the bodies as one transaction, or rolls it back and raises."""


def local_transactions(limited: Limited, client: rb.Connection) -> tuple[rb.Session, Unit]:
    session = client.session(transacted=True)
    producer = session.producer(limited.queue)

    def unit(bodies: list[str]) -> None:
        try:
            for body in bodies:
                producer.send(body)
            session.commit()
        except BrokerError:
            session.rollback()
            raise

    return session, unit


def branches(limited: Limited, **options: object) -> tuple[rb.XaSession, Unit]:
    connection = rb.connect_xa(limited.url(), username="ann", password="secret", **options)
    limited._opened.callback(connection.close)
    connection.start()
    session = connection.session()
    producer = session.producer(limited.queue)

    def unit(bodies: list[str]) -> None:
        xid = rb.Xid(1, bodies[0].encode(), limited.queue.encode())
        session.xa.start(xid)
        try:
            for body in bodies:
                producer.send(body)
        finally:
            session.xa.end(xid)
            session.xa.prepare(xid)
            session.xa.commit(xid)

    return session, unit


def waits(session: rb.Session) -> bool:
    """Somebody waits for room in one of its producers."""
    return any(producer._room.waiters.some for producer in session._core.current.producers)


def committed(limited: Limited) -> None:
    unit = local_transactions(limited, limited.client)[1]
    alone(lambda body: unit([body]))


def committed_xa(limited: Limited) -> None:
    unit = branches(limited, SendTimeout=200)[1]
    alone(lambda body: unit([body]))


def delayed(limited: Limited) -> None:
    producer = limited.client.session().producer(limited.queue, delivery_delay_ms=DELAY_MS)
    alone(producer.send)
    until(lambda: limited.held() <= ROOM)
    assert limited.held() == ROOM, "what is not to be seen yet counts"
    until(lambda: limited.admin.query_destination("queue", limited.queue)["waiting"] == ROOM)


def scheduled(limited: Limited) -> None:
    producer = limited.client.session().producer(limited.queue)
    alone(lambda body: producer.send(body, schedule="@every 1s", repeat=1))
    time.sleep(1.3)
    for row in limited.admin.list_schedules():
        limited.admin.destroy_schedule(row["id"])


def moved(limited: Limited) -> None:
    source = limited.source()
    limited.admin.pause_destination("queue", source, "consumers")
    tell(limited, source, lambda: limited.admin.move_messages("queue", source, limited.queue))


def tell(limited: Limited, source: str, move: Callable[[], int]) -> None:
    """What is moved and what stays are all, and it is said how many were moved."""
    try:
        assert move() == SENT
    except ResourceAllocationError as error:
        found = str(error)
        assert found.startswith(f"{ROOM} messages of queue {source} were "), found
        assert f"the others stay in queue {source}: " in found
        assert f"{ROOM} messages" in found or f"={ROOM * len(BODIES[0])} bytes" in found
        assert limited.held(source) == SENT - ROOM
    else:
        assert limited.held(source) == (0 if source != DMQ else SENT - ROOM), "what is removed is dead"


def imported(limited: Limited) -> None:
    blocks = limited.admin.export_messages("queue", limited.source())["blocks"]
    assert len(blocks) == 1
    try:
        assert limited.admin.import_messages("queue", limited.queue, blocks) == SENT
    except ResourceAllocationError:
        assert limited.held() == 0
        some = f"{limited.queue}some"
        limited.admin.create_destination("queue", some)
        limited.patient.session().producer(some).send_many(BODIES[:ROOM])
        limited.admin.import_messages("queue", limited.queue, limited.admin.export_messages("queue", some)["blocks"])
        with pytest.raises(ResourceAllocationError, match="gets none"):
            limited.admin.import_messages("queue", limited.queue, blocks)


def retried(limited: Limited) -> None:
    tell(limited, DMQ, limited.admin.retry_messages)


def died(limited: Limited) -> None:
    source = limited.source(errorDestination=limited.queue)
    session = limited.patient.session(ack="client")
    for message in take(session.consumer(source), SENT):
        message.reject("it is wrong")
    session.close()
    until(lambda: limited.held() == ROOM)
    removing = limited.admin.query_destination("queue", limited.queue)["effective"]["limitBehavior"] in REMOVING
    assert limited.held(source) == (0 if removing else SENT - ROOM)


def by_rest(limited: Limited) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{limited.ports['httpjms']}", auth=("ann", "secret")) as client:
        for body in BODIES:
            try:
                client.post(f"/queues/{limited.queue}/messages", json={"body": body}, timeout=3).raise_for_status()
            except httpx.HTTPError:
                return


def by_stomp(limited: Limited) -> None:
    client = Bare(limited.ports["stomp"])
    client.login("ann")
    client.socket.settimeout(3)
    try:
        for body in BODIES:
            client.send("SEND", {"destination": f"/queue/{limited.queue}", "receipt": body}, body.encode())
            if (frame := client.receive()) is None or frame.command != "RECEIPT":
                return
    except TimeoutError:
        return
    finally:
        client.close()


def patient_rest(limited: Limited) -> list[str]:
    with httpx.Client(base_url=f"http://127.0.0.1:{limited.ports['httpjms']}", auth=("ann", "secret")) as client:
        path = f"/queues/{limited.queue}/messages"
        return [str(client.post(path, json={"body": body}, timeout=WAIT_S).status_code) for body in BODIES]


def patient_stomp(limited: Limited) -> list[str]:
    client, answers = Bare(limited.ports["stomp"]), []
    client.login("ann")
    client.socket.settimeout(WAIT_S)
    for body in BODIES:
        client.send("SEND", {"destination": f"/queue/{limited.queue}", "receipt": body}, body.encode())
        frame = client.receive()
        answers.append(frame.command if frame is not None else "")
    client.close()
    return answers


PATIENT: Final = {"rest": patient_rest, "stomp": patient_stomp}
CLIENTS: Final = {
    "send": sent,
    "async": sent_async,
    "many": sent_many,
    "non-persistent": sent_without_waiting,
    "transaction": committed,
    "xa": committed_xa,
    "delayed": delayed,
    "rest": by_rest,
    "stomp": by_stomp,
}
BROKERS: Final = {"scheduled": scheduled, "moved": moved, "imported": imported, "retried": retried, "died": died}
GATEWAYS: Final = ("rest", "stomp")
WAYS: Final = {**CLIENTS, **BROKERS}
TABLE: Final = [
    (limit, behaviour, way)
    for limit in LIMITS
    for behaviour in BEHAVIOURS
    for way in WAYS
    if behaviour != "FLOW_CONTROL" or way in BROKERS or way in GATEWAYS
    if limit != "quota" or behaviour == "REJECT_NEWEST"
]
"""A quota refuses, whatever the queue does at its own limits."""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    with ExitStack() as opened:
        yield Limited(tmp_path_factory.mktemp("limited"), opened)


@pytest.mark.parametrize(("limit", "behaviour", "way"), TABLE)
def test_no_way_in_goes_beyond_the_limit(limited: Limited, limit: str, behaviour: str, way: str) -> None:
    """D-09 … D-13, W-05"""
    limited.make()
    if way == "retried":
        session = limited.patient.session(ack="client")
        limited.patient.session().producer(limited.queue).send_many(BODIES)
        for message in take(session.consumer(limited.queue), SENT):
            message.reject("it is wrong")
        session.close()
        until(lambda: limited.held(DMQ) == SENT)
    limited.limit(behaviour, limit)
    WAYS[way](limited)
    until(lambda: limited.held() == ROOM)
    bodies = [message.body for message in limited.patient.session().browser(limited.queue)]
    found = [body.decode() if isinstance(body, bytes) else body for body in bodies]
    if behaviour not in REMOVING:
        assert sorted(found) == BODIES[:ROOM]
    elif way != "scheduled":
        assert found == BODIES[-ROOM:]
    limited.admin.purge_destination("queue", DMQ)


@pytest.mark.parametrize("way", GATEWAYS)
def test_who_is_held_over_a_gateway_is_answered_when_there_is_room(limited: Limited, way: str) -> None:
    """D-10: with a receipt, or a status of success, and no message is taken twice or lost"""
    limited.make()
    limited.limit("FLOW_CONTROL", "count")
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.extend(PATIENT[way](limited)))
    thread.start()
    until(lambda: limited.admin.query_destination("queue", limited.queue)["throttled"])
    assert limited.held() == ROOM
    assert thread.is_alive(), "it is not answered"
    consumer = limited.patient.session(ack="none").consumer(limited.queue)
    found = [message.body for message in take(consumer, SENT)]
    thread.join(WAIT_S)
    assert [body.decode() if isinstance(body, bytes) else body for body in found] == BODIES
    assert answers == [{"rest": "201", "stomp": "RECEIPT"}[way]] * SENT


TRANSACTIONS: Final = {
    "transaction": lambda limited: local_transactions(limited, limited.patient),
    "xa": branches,
}


@pytest.mark.parametrize("limit", ["count", "bytes", "policy"])
@pytest.mark.parametrize("way", TRANSACTIONS)
def test_a_transaction_waits_for_room_before_it_begins(limited: Limited, limit: str, way: str) -> None:
    """D-10, T-07: transactions of one message each, one after the other"""
    limited.make()
    limited.limit("FLOW_CONTROL", limit)
    session, unit = TRANSACTIONS[way](limited)
    ended: list[str] = []

    def send() -> None:
        for body in BODIES:
            unit([body])
            ended.append(body)

    thread = threading.Thread(target=send)
    thread.start()
    until(lambda: len(ended) >= ROOM and waits(session))
    assert ended == BODIES[:ROOM]
    assert limited.held() == ROOM
    found = take(limited.patient.session(ack="none").consumer(limited.queue), SENT)
    thread.join(WAIT_S)
    assert [message.body for message in found] == ended == BODIES


@pytest.mark.parametrize("way", TRANSACTIONS)
def test_a_transaction_that_is_larger_than_the_limit_goes_on_and_the_next_one_waits(limited: Limited, way: str) -> None:
    """D-10: nobody could consume what it holds, so that no room would ever come"""
    limited.make()
    limited.limit("FLOW_CONTROL", "count")
    session, unit = TRANSACTIONS[way](limited)
    unit(BODIES)
    assert limited.held() == SENT
    thread = threading.Thread(target=lambda: unit(["next"]))
    thread.start()
    until(lambda: waits(session))
    assert limited.held() == SENT
    found = take(limited.patient.session(ack="none").consumer(limited.queue), SENT + 1)
    thread.join(WAIT_S)
    assert [message.body for message in found] == [*BODIES, "next"]


def test_a_branch_that_has_received_something_does_not_wait(limited: Limited) -> None:
    """D-10, T-07: its commit is what makes room, also when it is resumed after the part that received"""
    limited.make()
    limited.limit("FLOW_CONTROL", "count")
    session, unit = branches(limited)
    unit(BODIES[:ROOM])
    consumer, producer = session.consumer(limited.queue), session.producer(limited.queue)
    xid = rb.Xid(1, b"exchange", limited.queue.encode())
    session.xa.start(xid)
    producer.send(take(consumer, 1)[0].body + " again")
    session.xa.end(xid, TMSUSPEND)
    session.xa.start(xid, TMRESUME)
    producer.send("and again")
    session.xa.end(xid)
    session.xa.prepare(xid)
    session.xa.commit(xid)
    consumer.close()
    found = take(limited.patient.session(ack="none").consumer(limited.queue), ROOM + 1)
    assert [message.body for message in found] == [*BODIES[1:ROOM], f"{BODIES[0]} again", "and again"]


def test_transactions_that_fill_each_others_queues_do_not_wait_for_each_other(limited: Limited) -> None:
    """D-10: who holds something waits for nobody"""
    names = []
    for _ in range(2):
        limited.make()
        limited.admin.update_destination("queue", limited.queue, limitBehavior="FLOW_CONTROL", maxNumMsgs=1)
        names.append(limited.queue)
    sessions = [limited.patient.session(transacted=True) for _ in names]
    producers = [[session.producer(name) for name in names] for session in sessions]
    for mine in range(2):
        producers[mine][mine].send(f"first of {mine}")
        until(lambda mine=mine: limited.admin.query_destination("queue", names[mine])["throttled"])
    for mine in range(2):
        producers[mine][1 - mine].send(f"second of {mine}")
    for session in sessions:
        session.commit()
    assert [limited.held(name) for name in names] == [2, 2]


def test_transactions_of_stomp_clients_do_not_wait(limited: Limited) -> None:
    """D-10: the frames that acknowledge what makes room come after those that send"""
    limited.make()
    limited.limit("FLOW_CONTROL", "count")
    client = Bare(limited.ports["stomp"])
    client.login("ann")
    client.socket.settimeout(WAIT_S)
    for body in BODIES:
        client.send("BEGIN", {"transaction": body}, b"")
        client.send("SEND", {"destination": f"/queue/{limited.queue}", "transaction": body}, body.encode())
        client.send("COMMIT", {"transaction": body, "receipt": body}, b"")
        frame = client.receive()
        assert frame is not None
        assert (frame.command, frame.headers["receipt-id"]) == ("RECEIPT", body)
    client.close()
    assert limited.held() == SENT


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("limit", ["count", "bytes"])
def test_forwarding_fills_another_member_up_and_keeps_the_rest(tmp_path: Path, limit: str, behaviour: str) -> None:
    """W-115"""
    with ClusterRig(tmp_path, 2, raybroker__store__segment_bytes="1m") as rig:
        admin = rig.connect("b1").admin()
        admin.create_destination("queue", "shared", distributed=True, forwardDelay=0)
        with rig.connect("b1", pinned=True) as connection:
            connection.session().producer("shared").send_many(BODIES)
        most = {"maxNumMsgs": ROOM} if limit == "count" else {"maxTotalMsgBytes": ROOM * len(BODIES[0])}
        admin.update_destination("queue", "shared", limitBehavior=behaviour, **most)
        consumer = rig.connect("b2").session(ack="client").consumer("shared", prefetch=1)

        def members() -> list[int]:
            return [row["messages"] for row in admin.query_destination("queue", "shared")["members"]]

        rig.io.run(rig.brokers["b1"].cluster.forwarding.forward_overdue())
        if behaviour in REMOVING:
            until(lambda: members()[0] == 0)
            assert members()[1] <= ROOM + 1, "the one that the consumer has is not removed"
            return
        assert members() == [SENT - ROOM, ROOM]
        got = 0
        while got < SENT:
            for message in consumer.receive_many(SENT, timeout=20):
                message.acknowledge()
                got += 1
        assert members() == [0, 0]
