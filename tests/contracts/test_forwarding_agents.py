"""Agents that take messages of one cluster to another, whatever dies on the way (W-121, W-122)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.client.forwarding.agent import ForwardingAgent
from raybroker.errors import InvalidDestinationError
from raybroker.model.definitions.forwarding import forwarding
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import bodies, take, until

SMALL = {"raybroker__store__segment_bytes": "1m"}
FAST = {"retryDelayBase": 20, "retryDelayMaximum": 50}


class Crash(BaseException):
    """The agent's process dies here."""


class Two:
    """Two clusters; ``near`` has the agents."""

    def __init__(self, directory: Path, brokers: int = 1) -> None:
        self.near = ClusterRig(directory / "near", brokers, **SMALL)
        self.far = ClusterRig(directory / "far", brokers, **SMALL)
        self.agents: list[Agent] = []

    def close(self) -> None:
        for agent in self.agents:
            agent.end()
        self.near.close()
        self.far.close()

    def agent(
        self, queue: str = "out", to: str = "far/in", crash_at: str = "", name: str = "agent", **attributes: Any
    ) -> Agent:
        found = Agent(self, name, crash_at, {"queue": queue, "to": to, **FAST, **attributes})
        self.agents.append(found)
        return found

    def send(self, count: int, queue: str = "out", **options: Any) -> None:
        with self.near.connect() as connection:
            connection.session().producer(queue, **options).send_many(range(count))

    def left(self) -> int:
        found = self.near.connect().admin().query_destination("queue", "out")["messages"]
        assert isinstance(found, int)
        return found


class DyingAgent(ForwardingAgent):
    """``crash_at``: the call at which it dies, the first time that it comes there."""

    crash_at = ""

    def _reach(self) -> None:
        super()._reach()
        for where, part, names in (
            ("near", self._session, ("commit",)),
            ("far", self._xa, ("start", "end", "prepare", "commit")),
        ):
            for name in names:
                setattr(part, name, self._dies(f"{where} {name}", getattr(part, name)))

    def _dies(self, place: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:
            if self.crash_at == f"{place} before":
                raise Crash
            found = work(*args, **more)
            if self.crash_at == f"{place} after":
                raise Crash
            return found

        return run

    def _close(self) -> None:
        if not isinstance(sys.exception(), Crash):
            super()._close()


class Agent:
    """A relay in a thread."""

    def __init__(self, two: Two, name: str, crash_at: str, attributes: dict[str, Any]) -> None:
        self.two = two
        self.opened: list[Any] = []
        kind = DyingAgent if crash_at else ForwardingAgent
        self.relay = kind(name, forwarding(attributes), self._own, self._other)
        if isinstance(self.relay, DyingAgent):
            self.relay.crash_at = crash_at
        self.dead = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _own(self) -> Any:
        self.opened.append(self.two.near.connect(started=False, raybroker__reconnect__timeout_ms=2000))
        return self.opened[-1]

    def _other(self) -> Any:
        self.opened.append(self.two.far.connect(started=False, xa=True, raybroker__reconnect__timeout_ms=500))
        return self.opened[-1]

    def _run(self) -> None:
        try:
            self.relay.run()
        except Crash:
            self._abort()
        finally:
            self.dead.set()

    def _abort(self) -> None:
        """What the death of a process does to its connections."""
        for connection in self.opened:
            core = connection._core
            core.tasks.closed = True

            def cut(core: Any = core) -> None:
                for channel in core.channels.all():
                    channel.link.abort()

            core.io.post(cut)

    def end(self) -> None:
        self.relay.stop()
        assert self.dead.wait(20)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    found = Two(tmp_path)
    yield found
    found.close()


def received(two: Two, count: int, queue: str = "in") -> list[Any]:
    with two.far.connect() as connection:
        session = connection.session()
        consumer = session.consumer(queue)
        found = take(consumer, count)
        assert consumer.receive(timeout=0.2) is None, "no message comes twice"
        return found


@pytest.mark.parametrize("qos", ["Exactly-once", "At-least-once", "At-most-once"])
def test_all_messages_go_over_in_order(two: Two, qos: str) -> None:  # W-121
    two.send(105)
    agent = two.agent(qos=qos)
    assert bodies(received(two, 105)) == list(range(105))
    until(lambda: two.left() == 0)
    until(lambda: agent.relay.agent_row()["forwarded"] == 105)
    assert agent.relay.agent_row()["state"] == "RUNNING"
    assert two.far.connect().admin().list_transactions() == []


def test_messages_go_over_as_they_are(two: Two) -> None:
    with two.near.connect() as connection:
        session = connection.session()
        producer = session.producer("out", serializer="pickle")
        producer.send(
            {1, 2},
            {"n": 1, "colour": "red"},
            correlation_id="c",
            type="T",
            priority=7,
            ttl_ms=60_000,
            reply_to="queue:back",
        )
        producer.send("z" * 3000, {"JMS_SUN_COMPRESS": True}, unit_of_order="u", persistent=False)
        until(lambda: two.left() == 2)
        sent = list(session.browser("out", serializer="pickle"))
    two.agent()
    with two.far.connect() as connection:
        consumer = connection.session().consumer("in", serializer="pickle")
        found = sorted(take(consumer, 2), key=lambda m: m.priority, reverse=True)
    for one, other in zip(sent, found, strict=True):
        for name in (
            "body",
            "properties",
            "correlation_id",
            "type",
            "priority",
            "reply_to",
            "unit_of_order",
            "persistent",
            "expiration",
            "timestamp",
            "body_type",
        ):
            assert getattr(one, name) == getattr(other, name), name


PLACES = [
    f"{call} {when}"
    for call in ("far start", "far end", "far prepare", "near commit", "far commit")
    for when in ("before", "after")
]


@pytest.mark.parametrize("place", PLACES)
def test_wherever_the_agent_dies_every_message_is_there_once(two: Two, place: str) -> None:  # W-122
    two.send(25)
    dying = two.agent(crash_at=place)
    assert dying.dead.wait(20)
    decided = place in ("near commit after", "far commit before", "far commit after")
    until(lambda: two.left() == (15 if decided else 25))
    open_there = place in ("far prepare after", "near commit before", "near commit after", "far commit before")
    until(lambda: len(two.far.connect().admin().list_transactions()) == open_there)
    two.agent()
    assert sorted(bodies(received(two, 25))) == list(range(25))
    until(lambda: two.left() == 0)
    assert two.far.connect().admin().list_transactions() == []


def test_a_branch_is_ended_by_no_other_agent(two: Two) -> None:  # W-122
    two.send(5)
    dying = two.agent(crash_at="far prepare after")
    assert dying.dead.wait(20)
    two.agent("elsewhere", name="another")
    until(lambda: two.agents[-1].relay.agent_row()["state"] == "RUNNING")
    assert len(two.far.connect().admin().list_transactions()) == 1
    two.agent()
    assert sorted(bodies(received(two, 5))) == list(range(5))


def test_a_window_that_waits_for_more_is_confirmed_in_time(two: Two) -> None:  # W-121
    agent = two.agent(windowSize=100, windowInterval=60_000, acknowledgeInterval=300)
    two.send(3)
    assert bodies(received(two, 3)) == [0, 1, 2]
    until(lambda: agent.relay.agent_row()["forwarded"] == 3)
    assert two.left() == 0


def test_without_a_limit_a_window_waits_for_as_long_as_it_may(two: Two) -> None:  # W-121
    agent = two.agent(windowSize=5, windowInterval=60_000)
    two.send(4)
    time.sleep(1.0)
    assert agent.relay.agent_row()["forwarded"] == 0
    two.send(1)
    assert sorted(bodies(received(two, 5))) == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("qos", ["Exactly-once", "At-least-once", "At-most-once"])
def test_an_idle_agent_leaves_the_other_cluster_and_comes_back(two: Two, qos: str) -> None:  # W-121
    def connections() -> int:
        return len(two.far.brokers["b1"].host.service.connections)

    agent = two.agent(qos=qos, conversationIdleTimeMaximum=200)
    two.send(3)
    until(lambda: agent.relay.agent_row()["forwarded"] == 3)
    until(lambda: agent.relay.agent_row()["state"] == "IDLE")
    until(lambda: connections() == 0)
    assert bodies(received(two, 3)) == [0, 1, 2]
    two.send(2)
    assert bodies(received(two, 2)) == [0, 1]
    until(lambda: agent.relay.agent_row()["state"] == "IDLE")
    assert agent.relay.agent_row()["retries"] == 0


def test_an_idle_agent_waits_for_the_other_cluster_as_ever(two: Two) -> None:  # W-121, W-122
    agent = two.agent(conversationIdleTimeMaximum=100)
    until(lambda: agent.relay.agent_row()["state"] == "IDLE")
    two.far.kill("b1")
    two.send(12)
    until(lambda: agent.relay.agent_row()["retries"] >= 2)
    assert two.left() == 12
    two.far.start("b1")
    assert bodies(received(two, 12)) == list(range(12))
    until(lambda: two.left() == 0)


def test_without_a_limit_the_conversation_stays_open(two: Two) -> None:  # W-121
    agent = two.agent()
    until(lambda: agent.relay.agent_row()["state"] == "RUNNING")
    time.sleep(1.5)
    assert agent.relay.agent_row()["state"] == "RUNNING"
    assert len(two.far.brokers["b1"].host.service.connections) == 1


def test_an_agent_waits_for_the_other_cluster(two: Two) -> None:  # W-121
    two.far.kill("b1")
    agent = two.agent()
    two.send(12)
    until(lambda: agent.relay.agent_row()["retries"] >= 2)
    assert agent.relay.agent_row()["state"] in ("RETRYING", "CONNECTING")
    assert two.left() == 12
    two.far.start("b1")
    assert bodies(received(two, 12)) == list(range(12))


def test_a_broker_of_the_other_cluster_dies_under_way(two: Two) -> None:  # W-122
    agent = two.agent(windowSize=3)
    two.send(30)
    until(lambda: agent.relay.agent_row()["forwarded"] >= 6)
    two.far.kill("b1")
    two.far.start("b1")
    assert sorted(bodies(received(two, 30))) == list(range(30))


def test_the_own_broker_dies_under_way(two: Two) -> None:  # W-122
    agent = two.agent(windowSize=3)
    two.send(30)
    until(lambda: agent.relay.agent_row()["forwarded"] >= 6)
    two.near.kill("b1")
    two.near.start("b1")
    assert sorted(bodies(received(two, 30))) == list(range(30))
    until(lambda: two.left() == 0)


@pytest.mark.parametrize("qos", ["Exactly-once", "At-least-once"])
@pytest.mark.parametrize("policy", ["Discard", "Log", "Redirect"])
def test_what_the_other_cluster_never_takes_is_given_up(two: Two, qos: str, policy: str) -> None:  # W-122
    two.far.connect().admin().create_destination("queue", "in", maxBytesPerMsg=20)
    more = {"errorDestination": "errors"} if policy == "Redirect" else {}
    with two.near.connect() as connection:
        connection.session().producer("out").send_many(["a", "x" * 100, "b"])
    agent = two.agent(qos=qos, errorPolicy=policy, **more)
    if qos == "Exactly-once":
        assert bodies(received(two, 2)) == ["a", "b"]
    else:
        with two.far.connect() as connection:
            assert set(bodies(take(connection.session().consumer("in"), 4))) == {"a", "b"}
    until(lambda: two.left() == 0)
    row = agent.relay.agent_row()
    assert (row["discarded"], row["redirected"]) == ((0, 1) if policy == "Redirect" else (1, 0))
    if policy == "Redirect":
        with two.near.connect() as connection:
            assert bodies(take(connection.session().consumer("errors"), 1)) == ["x" * 100]


@pytest.mark.parametrize("qos", ["Exactly-once", "At-least-once", "At-most-once"])
def test_bodies_above_the_threshold_of_the_agent_are_compressed_for_the_way(two: Two, qos: str) -> None:  # W-50
    sent: list[Any] = ["flight " * 200, b"x" * 1_000, "small", {"k": ["v"] * 300}]
    with two.near.connect() as connection:
        producer = connection.session().producer("out")
        for body in sent:
            producer.send(body)
        producer.send("y" * 1_000, properties={"JMS_SUN_COMPRESS": True})
        admin = connection.admin()
        rows = {row["name"]: row for row in admin.list_destinations("queue")}
        assert rows["out"]["bytes"] > 3_000, "in its own cluster nothing is compressed by the agent"
    two.agent(qos=qos, compressionThreshold=500)
    with two.far.connect() as connection:
        until(lambda: two.left() == 0)
        (row,) = (row for row in connection.admin().list_destinations("queue") if row["name"] == "in")
        assert row["bytes"] < 200
        found = take(connection.session().consumer("in"), 5)
        assert bodies(found) == [*sent, "y" * 1_000]
        assert found[4].properties["JMS_SUN_UNCOMPRESSED_SIZE"] == 1_000


def test_a_full_queue_is_waited_for(two: Two) -> None:  # W-121
    two.far.connect().admin().create_destination("queue", "in", maxNumMsgs=3)
    two.send(9)
    agent = two.agent(windowSize=2)
    until(lambda: agent.relay.agent_row()["retries"] >= 2)
    assert sorted(bodies(received(two, 9))) == list(range(9))


def test_what_is_too_old_is_given_up(two: Two) -> None:  # W-122
    two.send(3)
    until(lambda: two.near.connect().admin().browse_messages("queue", "out")["messages"])
    agent = two.agent(timeToLive=0)
    until(lambda: agent.relay.agent_row()["discarded"] == 3)
    assert two.left() == 0


def test_always_forward_does_not_mind_the_age(two: Two) -> None:  # W-122
    two.send(3, ttl_ms=600_000)
    two.agent(timeToLive=0, errorPolicy="Always-forward")
    found = received(two, 3)
    assert bodies(found) == [0, 1, 2]
    assert {m.expiration for m in found} == {0}


def test_over_several_brokers_units_keep_their_order(tmp_path: Path) -> None:  # W-118, W-121
    two = Two(tmp_path, 3)
    try:
        units = [f"u{n % 5}" for n in range(60)]
        for home in ("b1", "b2"):
            with two.near.connect(home) as connection:
                producer = connection.session().producer("out")
                producer.send_many([[home, n] for n in range(60)], unit_of_order=units)
        two.agent(windowSize=20)
        with two.far.connect() as connection:
            found = take(connection.session().consumer("in"), 120)
        for unit in set(units):
            for home in ("b1", "b2"):
                mine = [m.body[1] for m in found if m.unit_of_order == unit and m.body[0] == home]
                assert mine == [n for n in range(60) if units[n] == unit], "each sender's in its order"
    finally:
        two.close()


# ---- definitions -----------------------------------------------------------------------------------------------------


def test_definitions_are_in_the_record_of_all_brokers(tmp_path: Path) -> None:  # K-07, W-121
    with ClusterRig(tmp_path, 3, **SMALL) as rig:
        rig.connect("b2").admin().create_forwarding("agent", "out", "far/in", windowSize=7)
        for home in ("b1", "b2", "b3"):
            (row,) = rig.connect(home).admin().list_forwardings()
            assert (row["name"], row["queue"], row["to"], row["windowSize"]) == ("agent", "out", "far/in", 7)
        rig.stop("b3")
        rig.connect("b1").admin().destroy_forwarding("agent")
        rig.start("b3")
        until(lambda: rig.brokers["b3"].cluster.clustering.member.opened)
        until(lambda: set(rig.brokers["b3"].cluster.live()) == {"b1", "b2", "b3"})
        assert rig.connect("b3").admin().list_forwardings() == []
        with pytest.raises(InvalidDestinationError, match="no forwarding agent"):
            rig.connect("b1").admin().query_forwarding("agent")
