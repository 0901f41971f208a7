"""Every occurrence is fired exactly once, wherever the host dies in between (B17).

The store keeps whole batches: a crash loses those that were not durable yet.  What is judged is what is in the store:
the queue's messages, none of which is ever taken out here.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.engine.schedules import schedules
from raybroker.engine.schedules.recurrence import recurrence
from tests.unit.engine.rig import Client, Rig
from tests.unit.engine.scheduling import reclaim, schedule, sent

STEPS = 9
EVERY_MS = 10_000


def created() -> Rig:
    rig = Rig()
    rig.create()
    schedule(rig, name="all", catch_up=True)
    schedule(rig, name="some")
    schedule(rig, name="three", repeat=3)
    return rig


def step(rig: Rig, number: int) -> None:
    """Time passes and the host does what is due; in one step it writes a checkpoint as well."""
    rig.clock.ms += EVERY_MS
    rig.store.checkpoint_after_entries = 1 if number == STEPS // 2 else 10_000
    rig.host.tick()


def commit(rig: Rig, batches: int) -> None:
    """So many of the batches that wait become durable."""
    waiting = rig.committer.waiting
    rig.committer.waiting = waiting[:batches]
    rig.committer.sync()
    rig.committer.waiting += waiting[batches:]


def check(rig: Rig, began_ms: int) -> None:
    """Sequences without a gap and without a double; the one that catches up has every occurrence."""
    found = sent(rig)
    for name in ("all", "some", "three"):
        own = [(sequence, at) for who, sequence, at in found if who == name]
        assert [sequence for sequence, _ in own] == list(range(1, len(own) + 1)), f"{name}: {own}"
        times = [at for _, at in own]
        assert times == sorted(set(times)), f"{name}: {times}"
    every = [at for who, _, at in found if who == "all"]
    assert every == [began_ms + EVERY_MS * n for n in range(1, len(every) + 1)]
    assert len([1 for who, _, _ in found if who == "three"]) <= 3


@pytest.mark.parametrize("crash_at", range(STEPS))
@pytest.mark.parametrize("durable", range(6))
def test_a_crash_at_any_step_with_any_part_of_it_durable_loses_and_doubles_nothing(crash_at: int, durable: int) -> None:
    rig = created()
    began_ms = rig.clock.ms
    for number in range(STEPS):
        step(rig, number)
        if number == crash_at:
            commit(rig, durable)
            reclaim(rig)
            rig = rig.restart()
            rig.host.tick()
        rig.sync()
    check(rig, began_ms)
    rows = {row["id"]: row["fired"] for row in rig.host.schedules.schedule_rows()}
    assert rows == {"all": STEPS, "some": STEPS}
    assert len(sent(rig)) == 2 * STEPS + 3


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_any_mixture_of_crashes_checkpoints_pauses_and_clocks_fires_each_occurrence_once(seed: int) -> None:
    rng = Random(seed)
    rig = created()
    began_ms = rig.clock.ms
    for _ in range(rng.randrange(5, 60)):
        what = rng.random()
        if what < 0.45:
            rig.clock.ms += rng.choice((1, 999, 3_000, EVERY_MS, 47_000))
        elif what < 0.5:
            rig.clock.ms -= min(rng.choice((5_000, 15_000)), rig.clock.ms - began_ms)
        rig.store.checkpoint_after_entries = rng.choice((1, 4, 10_000))
        if rng.random() < 0.2:
            rig.host.administration.pause("q", "producers", 0)
        if rng.random() < 0.3:
            rig.host.administration.resume("q", "producers")
        rig.host.tick()
        commit(rig, rng.choice((0, 1, 2, 5, 100)))
        if rng.random() < 0.3:
            rig.store.maintain(1 << 20)
        if rng.random() < 0.3:
            reclaim(rig)
        if rng.random() < 0.25:
            rig = rig.restart()
    rig.sync()
    found = sent(rig)
    for name in ("all", "some", "three"):
        own = [sequence for who, sequence, _ in found if who == name]
        assert own == list(range(1, len(own) + 1)), f"{name}: {own}"
    fired = {row["id"]: row["fired"] for row in rig.host.schedules.schedule_rows()}
    for name in ("all", "some"):
        assert fired[name] == len([1 for who, _, _ in found if who == name])
    rig.host.administration.resume("q", "producers")
    for _ in range(4):
        rig.tick(max(EVERY_MS, schedules.AGAIN_MS))
    assert len([1 for who, _, _ in sent(rig) if who == "three"]) == 3


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_the_calendars_occurrences_are_fired_once_over_crashes_on_the_day_that_has_an_hour_twice(seed: int) -> None:
    rng = Random(seed)
    rig = Rig()
    rig.clock.ms = began_ms = 1_792_877_400_000  # 2026-10-24 23:30 in Berlin; the clocks go back at three.
    rig.create()
    expression = rng.choice(("30 2 * * *", "*/20 * * * *", "0 1-4 * * *"))
    schedule(rig, schedule=expression, timezone="Europe/Berlin", catch_up=True)
    for _ in range(60):
        rig.clock.ms += rng.choice((60_000, 600_000, 1_500_000))
        rig.host.tick()
        commit(rig, rng.choice((0, 1, 100)))
        if rng.random() < 0.2:
            rig = rig.restart()
    rig = rig.restart()
    rig.tick()
    rule, at_ms, expected = recurrence(expression, "Europe/Berlin"), began_ms, []
    while (at_ms := rule.after(at_ms) or 0) <= rig.clock.ms:
        expected.append(at_ms)
    assert [at for _, _, at in sent(rig)] == expected


def test_a_consumer_that_has_got_it_before_a_crash_gets_it_again_and_flagged() -> None:
    rig = created()
    step(rig, 0)
    rig.sync()
    client = Client(rig)
    client.consumer()
    assert client.got() == ["tick"] * 3
    rig.sync()
    rig = rig.restart()
    client = Client(rig)
    client.consumer()
    assert client.got() == ["tick(2)"] * 3
