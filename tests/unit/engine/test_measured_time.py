"""The machine's clock is set while a host runs: what takes a while takes as long, points in time are as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.engine.host import WRITTEN_EVERY_MS
from raybroker.engine.measured_time import READ_MS, STEP_MS, MeasuredTime
from tests.unit.engine.rig import Client, Clock, Rig

HOUR_MS = 3_600_000
SPAN_MS = 60_000
HOURS = [-1, 1]
Over = Callable[[Rig], bool]


def rig_of(**config: Any) -> Rig:
    clock = Clock()
    clock.ms = 100 * HOUR_MS
    return Rig(clock=clock, **config)


# ---- the two clocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [STEP_MS, -STEP_MS, HOUR_MS, -HOUR_MS])
def test_measured_time_goes_on_and_the_wall_clock_is_followed_from_the_next_look_on(step_ms: int) -> None:
    clock = Clock()
    time = MeasuredTime(clock)
    start_ms = clock.ms
    clock.ms += 10
    clock.stepped_ms = step_ms
    assert (time.read(), time.ahead_ms, time.wall_ms()) == (start_ms + 10, step_ms, clock.now_ms())
    assert (time.measured(clock.now_ms()), time.take_step(), time.take_step()) == (start_ms + 10, step_ms, 0)
    clock.stepped_ms = 0
    assert (time.wall_ms(), time.ahead_ms, time.take_step()) == (clock.now_ms(), 0, -step_ms)


@pytest.mark.parametrize("off_ms", [STEP_MS - 1, 1 - STEP_MS])
def test_what_is_less_than_a_step_is_none(off_ms: int) -> None:
    clock = Clock()
    time = MeasuredTime(clock)
    clock.stepped_ms = off_ms
    assert (time.read(), time.ahead_ms, time.take_step()) == (clock.ms, 0, 0)


def test_a_thread_that_was_stopped_between_two_reads_has_seen_no_step() -> None:
    clock = Clock()
    time = MeasuredTime(clock)
    wall_ms = clock.now_ms

    def late() -> int:
        clock.ms += max(STEP_MS, READ_MS + 1)
        return wall_ms()

    time._read_wall_ms = late
    time.read()
    assert (time.ahead_ms, time.take_step()) == (0, 0)


# ---- what takes a while ----------------------------------------------------------------------------------------------


def lease(rig: Rig) -> Over:
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a")
    first = client.consumer(lease_ms=SPAN_MS)
    assert client.got(first) == ["a"]
    second = client.consumer()
    return lambda rig: client.got(second) == ["a(2)"]


def redelivery(rig: Rig) -> Over:
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a")
    consumer = client.consumer()
    assert client.got() == ["a"]
    client.settle(consumer, "fail", "a", delay_ms=SPAN_MS)
    rig.sync()
    client.session.close()
    rig.sync()
    return lambda rig: [state for state, _ in rig.destination().queues[0].contents()] == ["waiting"]


def window(rig: Rig) -> Over:
    rig.create(duplicateWindowMs=SPAN_MS - 1)
    client = Client(rig)
    client.send(client.producer(), "a", dedup=True)
    rig.sync()
    sent = [1]

    def over(rig: Rig) -> bool:
        sent[0] += 1
        other = Client(rig)
        handle = other.producer(number=100 + sent[0])
        other.send(handle, "a", dedup=True)
        return other.refused() != ["duplicate"]

    return over


def gathering(rig: Rig) -> Over:
    rig.create(consumersBeforeDispatch=2, delayBeforeDispatch=SPAN_MS)
    client = Client(rig)
    client.send(client.producer(), "a")
    client.consumer()
    return lambda rig: client.got() == ["a"]


def unused(rig: Rig) -> Over:
    rig.create("auto", auto_created=True)
    rig.tick()
    return lambda rig: rig.idle == [("queue", "auto")]


DURATIONS = {"lease": lease, "redelivery delay": redelivery, "window": window, "gathering": gathering, "unused": unused}


@pytest.mark.parametrize("hours", HOURS)
@pytest.mark.parametrize("name", DURATIONS)
def test_what_takes_a_while_takes_as_long(name: str, hours: int) -> None:
    rig = rig_of(imq__autocreate__reaptime=SPAN_MS // 1000)
    over = DURATIONS[name](rig)
    rig.tick(SPAN_MS // 2)
    rig.clock.stepped_ms = hours * HOUR_MS
    rig.tick(SPAN_MS // 2 - 1)
    assert not over(rig)
    rig.tick(1)
    assert over(rig)


@pytest.mark.parametrize("hours", HOURS)
@pytest.mark.parametrize("name", ["redelivery delay", "window"])
def test_and_goes_on_so_after_a_restart(name: str, hours: int) -> None:
    rig = rig_of()
    over = DURATIONS[name](rig)
    rig.tick(SPAN_MS // 2)
    rig.clock.stepped_ms = hours * HOUR_MS
    rig.tick(1)
    rig = rig.restart()
    rig.tick(SPAN_MS // 2 - 2)
    assert not over(rig)
    rig.tick(1)
    assert over(rig)


@pytest.mark.parametrize("name", ["redelivery delay", "window"])
def test_what_is_written_after_the_step_is_by_the_clock_as_it_is_then(name: str) -> None:
    rig = rig_of()
    rig.clock.stepped_ms = HOUR_MS
    over = DURATIONS[name](rig)
    rig = rig.restart()
    rig.tick(SPAN_MS - 1)
    assert not over(rig)
    rig.tick(1)
    assert over(rig)


# ---- points in time --------------------------------------------------------------------------------------------------


def expiration(rig: Rig, in_ms: int) -> Over:
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a", ttl=in_ms)
    return lambda rig: rig.held() == 0


def delivery(rig: Rig, in_ms: int) -> Over:
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a", delay=in_ms)
    client.consumer()
    return lambda rig: client.got() == ["a"]


def pause(rig: Rig, in_ms: int) -> Over:
    rig.create()
    rig.host.administration.pause("q", "consumers", rig.clock.now_ms() + in_ms)
    return lambda rig: not rig.destination().paused


POINTS = {"expiration": expiration, "delivery": delivery, "pause": pause}


@pytest.mark.parametrize("hours", HOURS)
@pytest.mark.parametrize("name", POINTS)
def test_what_comes_at_a_point_in_time_comes_then(name: str, hours: int) -> None:
    rig = rig_of(imq__message__expiration__interval=1)
    over = POINTS[name](rig, 2 * HOUR_MS)
    rig.clock.stepped_ms = hours * HOUR_MS
    rig.tick()
    rig.tick((2 - hours) * HOUR_MS - 1)
    assert not over(rig)
    rig.tick(1)
    rig.tick(1000)  # The scan for what has expired comes by the second.
    assert over(rig)


@pytest.mark.parametrize("name", POINTS)
def test_what_the_clock_has_stepped_over_is_due_at_once(name: str) -> None:
    rig = rig_of(imq__message__expiration__interval=1)
    over = POINTS[name](rig, HOUR_MS)
    rig.clock.stepped_ms = HOUR_MS
    rig.tick()
    rig.tick(1000)
    assert over(rig)


def test_what_is_sent_after_the_clock_was_put_back_has_its_time_to_live() -> None:
    rig = rig_of()
    rig.create()
    client = Client(rig)
    client.consumer()
    rig.clock.stepped_ms = -HOUR_MS
    client.send(client.producer(), "a", ttl=SPAN_MS)
    assert client.got() == ["a"], "before anybody has ticked"


# ---- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "way"), [(-1, "back"), (1, "forward")])
def test_a_step_is_logged_once_and_the_state_written_once(hours: int, way: str) -> None:
    rig = rig_of()
    rig.create()
    rig.clock.stepped_ms = hours * HOUR_MS
    for _ in range(3):
        rig.tick(1000)
    (line,) = rig.reports
    assert f"was put {way} by 3600.000 s" in line


def test_a_clock_that_is_set_again_and_again_writes_the_state_now_and_then() -> None:
    rig = rig_of()
    rig.create()
    written: list[int] = []
    write = rig.host.executor.checkpoint
    rig.host.executor.checkpoint = lambda done=None: (written.append(rig.clock.ms), write(done))[1]  # type: ignore[method-assign]
    for step in range(1, 21):
        rig.clock.stepped_ms = step * HOUR_MS
        rig.tick(WRITTEN_EVERY_MS // 10)
    assert len(written) == 2
    assert len(rig.reports) == 20
