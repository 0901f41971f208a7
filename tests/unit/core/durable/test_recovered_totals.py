"""What was counted of stored messages before a crash is counted after it."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.recovery import DestinationRecovery
from raybroker.core.durable.snapshot import counted, snapshot
from raybroker.core.outcome import Outcome
from raybroker.model.blocks.record import BLOCK, NOTE, EntryRun, LogEntry
from raybroker.model.blocks.record import in_runs as runs_of
from tests.unit.core.driven_destination import DrivenDestination, rebuilt
from tests.unit.core.driver import Driver, limits, seeds

STORED = ("messages_in", "messages_out", "bytes_in", "bytes_out", "moved_in")


class Stored(Driver):
    """A queue of which every message is stored, some of them from elsewhere."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, **(limits(Random(seed)) | {"duplicateWindowMs": 0}))

    def send(self, *args: Any, **more: Any) -> Outcome:
        return super().send(*args, **(more | {"persistent": True, "moved": self.rng.random() < 0.2}))


def totals(destination: Destination) -> dict[str, int]:
    return {name: getattr(destination.counters, name) for name in STORED}


@settings(max_examples=60)
@given(seeds(), st.integers(0, 60), st.booleans(), st.booleans(), st.booleans())
def test_a_snapshot_and_what_came_after_have_the_totals(
    seed: int, cut: int, moved: bool, noted: bool, together: bool
) -> None:
    driver = Stored(seed)
    for _ in range(cut):
        driver.act()
    state, at = snapshot(driver.core), len(driver.log)
    live = set(driver.core.block_index.held)
    driver.decided.clear()
    for step in range(60):
        driver.act()
        if noted and step == 30:
            driver.log.append(LogEntry(NOTE, 1, 0, counted(driver.core)))
    before = [entry for entry in driver.log[:at] if entry.kind == BLOCK and entry.ordinal in live]
    log = driver.log[at:] + before if moved else before + driver.log[at:]
    recovery = DestinationRecovery(1)
    recovery.load(state)
    for entry in runs_of(log) if together else log:
        (recovery.apply_run if isinstance(entry, EntryRun) else recovery.apply)(entry)  # type: ignore[arg-type]
    again = recovery.finish("d", driver.core.attributes, now_ms=driver.now_ms, decided=driver.decided)
    assert totals(again) == totals(driver.core)
    assert again.counters.recovered == again.counters.lasting()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_topic_counts_what_each_durable_subscription_had(checkpoint: bool) -> None:
    destination = DrivenDestination("topic")
    one = destination.subscriber(client_id="c", name="one", durable=True)
    destination.subscriber(client_id="c", name="two", durable=True)
    producer = destination.producer()
    destination.send(producer, [1, 2, 3])
    destination.ack(one, 1)
    destination.ack(one, 2, 3)
    destination.send(producer, [4])
    destination.do(cmd.Purge())
    again = destination.crash(checkpoint=checkpoint)
    assert (
        totals(again.core)
        == totals(destination.core)
        == {
            "messages_in": 4,
            "messages_out": 3,
            "bytes_in": 10,
            "bytes_out": 6,
            "moved_in": 0,
        }
    )


def test_the_rest_of_a_block_that_was_purged_was_not_consumed() -> None:
    destination = DrivenDestination()
    consumer = destination.consumer(limit=2)
    destination.send(destination.producer(), [1] * 5)
    destination.ack(consumer, 1, 2)
    destination.do(cmd.DetachConsumer(consumer, lost=True))
    destination.do(cmd.Purge())
    assert totals(destination.crash().core)["messages_out"] == destination.core.counters.messages_out == 2


def test_what_leaves_no_record_is_as_it_was_at_the_last_snapshot() -> None:
    destination = DrivenDestination(maxNumMsgs=1, limitBehavior="REJECT_NEWEST")
    producer = destination.producer()
    for size in (1, 2):
        destination.send(producer, [size])
    state, at = snapshot(destination.core), len(destination.log)
    destination.send(producer, [3])
    assert destination.core.counters.refused == 2
    again = rebuilt(destination.core, state, destination.log[:1] + destination.log[at:], {}, destination.now_ms)
    assert (again.counters.refused, again.counters.messages_in) == (1, 1)


def test_a_total_of_a_newer_release_is_passed_over() -> None:
    counts = records.Counts(5, {"messages_in": 7}, {"dead": 1}, (3, 1 << 40))
    rest = records.decode(records.encode_counts(counts)).rest
    assert records.decode_counts(rest) == counts
    one = struct.calcsize("<BQ")
    head, rows = len(rest) - 2 * one - 2 * 8, struct.pack("<BQ", 254, 9)
    newer = struct.pack("<QBBI", 5, 2, 1, 2) + rows + rest[head:]
    assert records.decode_counts(newer) == counts
