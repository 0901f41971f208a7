"""What people do with queues, over queues with three copies on three Ray nodes: the node of their leader is lost in the
middle of everything.  What of it one process shows is in tests/contracts/test_over_copies.py."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.admin.audit import findings, look
from raybroker.client.session.xa import TMSUCCESS, XA_OK
from raybroker.errors import BrokerError, ConnectionLostError, TransactionRolledBackError
from raybroker.system.clock import SystemClock
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts.handles import bodies, take, until

pytestmark = [pytest.mark.timeout(420), pytest.mark.long]
CLUSTER, OTHER = "over", "near"
COPIED: dict[str, Any] = {"replicas": 3, "useDMQ": False}
QUEUES = ("orders", "bills", "late")
PATIENT: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}
MASTER_MOVES = "imq.cluster.dynamicChangeMasterBrokerEnabled"
FAST = {"retryDelayBase": 100, "retryDelayMaximum": 500, "windowSize": 20}
CREATED_S = 120.0
XID = rb.Xid(1, b"global", b"branch")
LATER_MS = 15_000

Story = Generator[None, None, None]
"""What is done before the leader is lost, and after it."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(3) as found:
        yield found


@pytest.fixture(scope="module")
def clusters(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    near = rb.start(
        OTHER, only="b1", config=rays.small_store(tmp_path_factory.mktemp(OTHER))
    )  # On the head, which stays.
    settings = {**rays.small_store(tmp_path_factory.mktemp(CLUSTER)), MASTER_MOVES: True}
    over = rb.start(CLUSTER, brokers=3, config=settings)
    yield over, near
    for cluster in (near, over):
        with contextlib.suppress(ConnectionLostError):  # Of the node that is lost.
            cluster.stop()


def create(admin: Any, name: str, **attributes: Any) -> None:
    """A busy machine makes three processes for longer than a client waits for an answer."""

    def made() -> bool:
        try:
            admin.create_destination("queue", name, if_exists="keep", **attributes)
        except ConnectionLostError:
            return False
        return True

    until(made, f"{name} is made", CREATED_S)


def led_by(admin: Any, name: str) -> str:
    return str(admin.query_destination("queue", name)["replication"]["leader"])


def over_hosts(connection: Any) -> Story:
    """Transactions with a queue that has one copy and two that have three."""
    work = connection.session(transacted=True)

    def move(body: str) -> None:
        connection.session().producer("plain").send(body)
        assert bodies(take(work.consumer("plain"), 1)) == [body]
        work.producer("orders").send(body)
        work.producer("bills").send(body)

    move("one")
    work.commit()
    move("two")
    yield
    taken = connection.session()
    try:
        work.commit()
    except TransactionRolledBackError:
        (again,) = take(work.consumer("plain"), 1)
        assert (again.body, again.redelivered) == ("two", True)
        work.producer("orders").send("two")
        work.producer("bills").send("two")
        work.commit()
    move("three")
    work.rollback()
    (again,) = take(work.consumer("plain"), 1)
    assert (again.body, again.redelivered) == ("three", True)
    work.commit()
    for name in ("orders", "bills"):
        assert bodies(take(taken.consumer(name, selector="JMSPriority = 4"), 2)) == ["one", "two"]


def prepared(connection: Any, manager: Any) -> Story:
    """A branch that is prepared, and has a part at two queues with copies."""
    connection.session().producer("late").send("in")
    session = manager.session()
    session.xa.start(XID)
    assert bodies(take(session.consumer("late"), 1)) == ["in"]
    session.producer("orders").send("out", priority=9)
    session.xa.end(XID, TMSUCCESS)
    assert session.xa.prepare(XID) == XA_OK
    yield
    xa = manager.session().xa
    with pytest.raises(ConnectionLostError, match="cannot be asked for now"):
        xa.recover()  # The lost broker may have others, in what has one copy.
    xa.commit(XID)
    assert bodies(take(connection.session().consumer("orders", selector="JMSPriority = 9"), 1)) == ["out"]


def ordered(connection: Any) -> Story:
    """A unit of order whose first message is under way."""
    work = connection.session(ack="client")
    for number in range(4):
        work.producer("bills").send(number, unit_of_order="a", priority=9)
    assert bodies(take(work.consumer("bills", selector="JMSPriority = 9"), 1)) == [0]
    yield
    work.close()
    other = connection.session(ack="client")
    found = take(other.consumer("bills", selector="JMSPriority = 9"), 4)
    assert (bodies(found), found[0].redelivered) == ([0, 1, 2, 3], True)
    found[-1].acknowledge()
    other.close()


def later(connection: Any) -> Story:
    """A delayed message, a schedule, and one that is deduplicated."""
    producer = connection.session().producer("late")
    producer.send("delayed", delivery_delay_ms=LATER_MS)
    producer.send("tick", schedule="@every 2s")
    producer.send("once", dedup_id="order-7")
    yield
    producer.send("once", dedup_id="order-7")
    assert producer.duplicates == 1
    consumer, seen = connection.session().consumer("late"), list[Any]()
    until(lambda: seen.append(consumer.receive(timeout=1)) or {"once", "delayed", "tick"} <= _known(seen), str(seen))
    admin = connection.admin()
    (schedule,) = admin.list_schedules()
    admin.destroy_schedule(schedule["id"])
    assert [one.body for one in seen if one].count("once") == 1
    consumer.close()


def whole(admin: Any, verb: str, part: str, name: str) -> list[Any]:
    """All pages: the first broker that is asked is not always the one that has the queue."""
    page = getattr(admin, verb)("queue", name)
    found = list(page[part])
    while page["next"] is not None:
        page = getattr(admin, verb)("queue", name, start=page["next"])
        found += page[part]
    return found


def _known(seen: list[Any]) -> set[Any]:
    return {one.body for one in seen if one is not None}


def administered(connection: Any) -> Story:
    """Browse, move, export and import, die and retry."""
    create(connection.admin(), "parts", replicas=3, errorDestination="late", redeliveryLimit=0)
    connection.session().producer("parts").send_many(range(10))
    yield
    admin = connection.admin()
    create(admin, "plain.parts")
    assert len(whole(admin, "browse_messages", "messages", "parts")) == 10
    admin.pause_destination("queue", "parts", "consumers")
    assert admin.move_messages("queue", "parts", "plain.parts") == 10
    admin.resume_destination("queue", "parts", "consumers")
    assert admin.query_destination("queue", "parts")["messages"] == 0
    blocks = whole(admin, "export_messages", "blocks", "plain.parts")
    assert admin.import_messages("queue", "parts", blocks) == 10
    work = connection.session(ack="client")
    take(work.consumer("parts"), 1)[0].reject()
    work.close()
    until(lambda: whole(admin, "browse_messages", "messages", "late"), "it is dead")
    admin.pause_destination("queue", "late", "consumers")
    assert admin.retry_messages("queue", "late") == 1
    assert admin.query_destination("queue", "parts")["messages"] == 10


def forwarded(connection: Any, other: Any) -> Story:
    """Agents to a queue with copies and from one."""
    near, over = other.admin(), connection.admin()
    create(near, "out")
    near.create_forwarding("there", "out", f"{CLUSTER}/born", **FAST)
    over.create_forwarding("back", "born", f"{OTHER}/home", **FAST)
    other.session().producer("out").send_many(range(100))
    consumer = other.session().consumer("home")
    assert bodies(take(consumer, 100)) == list(range(100))
    yield
    other.session().producer("out").send_many(range(100, 200))
    assert bodies(take(consumer, 100)) == list(range(100, 200))
    near.destroy_forwarding("there")
    over.destroy_forwarding("back")


def told(connection: Any, lost: str) -> None:
    """What administrators see of it."""
    led = [row for broker in connection.admin().metrics("*") for row in broker["destinations"] if "leader_term" in row]
    assert {row["name"] for row in led} == {*QUEUES, "born", "parts"}
    rows = {row["broker"]: row for row in connection.admin().list_brokers()}
    assert sum(row["copies_led"] for row in rows.values()) == rows[lost]["copies"] == rows[lost]["copies_behind"]
    assert {row["copies_unconfirmed"] for row in rows.values()} == {0}
    definitions = connection.admin().export_definitions()
    assert str(definitions).count("'replicas': 3") == len(QUEUES) + 2
    assert connection.admin().import_definitions(definitions, dry_run=True)["steps"] == []
    assert findings(look(connection.admin(), SystemClock().now_ms), {23}) == []  # With two nodes there is no third.


def test_everything_goes_on_over_queues_with_copies(nodes: Nodes, clusters: Any) -> None:
    over, _ = clusters
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(rb.connect(cluster=CLUSTER, broker="b1", **PATIENT))
        for name in (*QUEUES, "born"):
            create(first.admin(), name, **COPIED, **({"duplicateWindowMs": 600_000} if name == "late" else {}))
        lost = led_by(first.admin(), "orders")
        here = next(name for name in over.brokers if name != lost)
        if first.admin().query_cluster()["master"] == lost:
            first.admin().change_master(here)
        connection, other = (
            stack.enter_context(rb.connect(cluster=CLUSTER, broker=here, **PATIENT)),
            stack.enter_context(rb.connect(cluster=OTHER, **PATIENT)),
        )
        manager = stack.enter_context(rb.connect_xa(cluster=CLUSTER, broker=here, **PATIENT))
        stories = [
            prepared(connection, manager),
            over_hosts(connection),
            ordered(connection),
            later(connection),
            administered(connection),
            forwarded(connection, other),
        ]
        for story in stories:
            next(story)
        nodes.kill(over.state(lost)["node"])
        failed: list[str] = []
        for story in stories:
            try:
                next(story, None)
            except (AssertionError, BrokerError) as error:
                failed.append(f"{story.__name__}: {error!r}")
        assert not failed, "\n".join(failed)
        until(lambda: led_by(connection.admin(), "orders") not in ("", lost), "another broker leads")
        told(connection, lost)
