"""The machine's clock is set by an hour: what takes a while takes as long, and points in time follow."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.system.clock import SystemClock
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import OneStore
from tests.contracts.handles import LoopbackBroker, bodies, create, nothing, state_of, take, until

HOUR_MS = 3_600_000
SPAN_S = 0.7
SPAN_MS = 700
FACES = pytest.mark.parametrize("make_broker", ["memory", "store"], indirect=True)
HOURS = pytest.mark.parametrize("hours", [-1, 1])


class WallClock:
    """That of this process, for brokers and clients alike; ``stepped_ms``: by so much it was set."""

    def __init__(self) -> None:
        self.stepped_ms = 0

    def set(self, hours: int) -> None:
        self.stepped_ms += hours * HOUR_MS

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.stepped_ms


@pytest.fixture(autouse=True)
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: clock.now_ms())
    return clock


def steps(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of steps of the clock."""
    return [text for record in caplog.records if "[B2176]" in (text := record.getMessage())]


def taken_after(consumer: Any, body: str, since_s: float) -> None:
    """The message comes, and not before its time, which the broker counts in whole milliseconds."""
    assert bodies(take(consumer, 1)) == [body]
    assert time.monotonic() - since_s >= SPAN_S - 0.001


# ---- what takes a while ----------------------------------------------------------------------------------------------


@FACES
@HOURS
def test_a_message_may_be_held_as_long_before_its_acknowledgement(
    wall: WallClock, broker: LoopbackBroker, hours: int
) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("a")
    since_s = time.monotonic()  # It is held from when it leaves for the consumer's buffer.
    holder = connection.session(ack="client").consumer(name, ack_timeout_ms=SPAN_MS)
    take(holder, 1)
    other = broker.connect().session().consumer(name)
    wall.set(hours)
    taken_after(other, "a", since_s)


@FACES
@HOURS
def test_a_failed_message_rests_as_long(wall: WallClock, broker: LoopbackBroker, hours: int) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("a")
    consumer = connection.session(ack="client").consumer(name)
    (message,) = take(consumer, 1)
    since_s = time.monotonic()
    message.fail(delay_ms=SPAN_MS)
    wall.set(hours)
    taken_after(consumer, "a", since_s)


@FACES
@HOURS
def test_an_id_is_in_the_window_as_long(wall: WallClock, broker: LoopbackBroker, hours: int) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), duplicateWindowMs=SPAN_MS)

    def send() -> int:
        connection.session().producer(name).send("a", dedup_id="1")
        return int(state_of(connection, name)["messages"])

    since_s = time.monotonic()
    assert send() == 1
    wall.set(hours)
    until(lambda: send() == 2)
    assert time.monotonic() - since_s >= SPAN_S


@HOURS
def test_a_failed_message_rests_as_long_over_a_restart(
    store: OneStore, wall: WallClock, hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    session = store.open().connect().session(ack="client")
    session.producer("q").send("a")
    (message,) = take(session.consumer("q"), 1)
    since_s = time.monotonic()
    message.fail(delay_ms=4 * SPAN_MS)
    wall.set(hours)
    until(lambda: steps(caplog))
    session.producer("other").send("b")  # What the step made the host write is on the disk when this is.
    after = store.crash()
    assert bodies(take(after.connect().session().consumer("q"), 1)) == ["a"]
    assert time.monotonic() - since_s >= 4 * SPAN_S


# ---- points in time --------------------------------------------------------------------------------------------------


@FACES
def test_what_the_clock_has_stepped_over_is_due(wall: WallClock, broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    session.producer(name).send("later", delivery_delay_ms=HOUR_MS)
    session.producer(name).send("over", ttl_ms=HOUR_MS)
    wall.set(1)
    consumer = session.consumer(name)
    assert bodies(take(consumer, 1)) == ["later"]
    assert nothing(consumer)
    until(lambda: state_of(connection, name)["messages"] == 0)


@FACES
def test_after_the_clock_was_put_back_a_message_has_its_time_to_live(wall: WallClock, broker: LoopbackBroker) -> None:
    session, name = broker.connect().session(), broker.name()
    consumer = session.consumer(name)
    wall.set(-1)
    session.producer(name).send("a", ttl_ms=60_000)
    assert bodies(take(consumer, 1)) == ["a"]


@FACES
def test_a_step_is_in_the_log_once(wall: WallClock, broker: LoopbackBroker, caplog: pytest.LogCaptureFixture) -> None:
    session, name = broker.connect().session(), broker.name()
    wall.set(-1)
    for _ in range(3):
        session.producer(name).send("a")
    until(lambda: steps(caplog))
    session.producer(name).send("a")
    (line,) = steps(caplog)
    assert re.search(r"was put back by (3599\.9|3600\.0)\d\d s", line), "to what reading two clocks leaves open"


# ---- brokers of a cluster --------------------------------------------------------------------------------------------


@pytest.fixture
def rig(wall: WallClock, tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path) as made:
        yield made


@HOURS
def test_a_broker_that_is_lost_is_noticed_as_soon(wall: WallClock, rig: ClusterRig, hours: int) -> None:
    admin = rig.connect("b1").admin()

    def states() -> list[str]:
        return [row["state"] for row in admin.list_brokers()]

    wall.set(hours)
    assert states() == ["UP"] * 3
    rig.kill("b3")
    until(lambda: states()[2] != "UP")
    assert states()[:2] == ["UP", "UP"]
