"""A destination that is rebuilt from a snapshot and what was recorded since is the destination as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.recovery import DestinationRecovery
from raybroker.core.durable.snapshot import snapshot
from raybroker.core.invariants import check
from raybroker.model.blocks.record import BLOCK, NOTE_BYTES_MAX, LogEntry
from raybroker.model.errors import StoreDamagedError
from tests.unit.core.driven_destination import DrivenDestination, columns, handed, rebuilt
from tests.unit.core.driver import Driver, durable, seeds

KINDS = st.sampled_from(["queue", "topic"])


def assert_same(found: Destination, expected: Destination) -> None:
    """Message by message; one whose end was decided comes back as waiting or as rejected."""
    check(found)
    here, there = durable(found), durable(expected)
    assert here["prepared"] == there["prepared"]
    assert here["lanes"].keys() == there["lanes"].keys()
    for own, rows in there["lanes"].items():
        assert here["lanes"][own].keys() == rows.keys()
        for key, row in rows.items():
            if row != "dying":
                assert _rested(here["lanes"][own][key], found.current.now_ms) == _rested(row, found.current.now_ms), key
    if expected.kind == "topic":
        return  # What no durable subscription wanted is not written down, and nobody is left who could get it twice.
    for producer, taken in expected.producers.taken.items():
        back = {n for a, b in found.producers.taken.get(producer, []) for n in range(a, b)}
        assert {n for a, b in taken for n in range(a, b)} <= back


def _rested(row: Any, now_ms: int) -> Any:
    priority, attempts, failures, due_ms = row
    return priority, attempts, failures, due_ms if due_ms > now_ms else 0


def blocks_of(driver: Driver, until: int) -> list[LogEntry]:
    """What a store still has of the blocks from before a checkpoint."""
    return [e for e in driver.log[:until] if e.kind == BLOCK and e.ordinal in driver.core.block_index.held]


@settings(max_examples=60)
@given(seeds(), KINDS, st.integers(0, 80), st.booleans())
def test_a_snapshot_and_what_came_after_make_the_same_state(seed: int, kind: str, cut: int, reclaimed: bool) -> None:
    driver = Driver(seed, kind)
    for _ in range(cut):
        driver.act()
    state, at = snapshot(driver.core), len(driver.log)
    live = {e.ordinal for e in blocks_of(driver, at)}
    driver.decided.clear()
    for _ in range(60):
        driver.act()
    before = [e for e in driver.log[:at] if e.kind == BLOCK and e.ordinal in live]
    if reclaimed:
        before = blocks_of(driver, at)
    after = driver.log[at:]
    again = rebuilt(driver.core, state, before + after, driver.decided, driver.now_ms)
    assert_same(again, driver.core)
    assert again.block_index.next_ordinal <= driver.core.block_index.next_ordinal
    moved = rebuilt(driver.core, state, after + before, driver.decided, driver.now_ms)
    assert durable(moved) == durable(again), "the store may have moved old blocks behind newer entries"


@settings(max_examples=40)
@given(seeds(), KINDS)
def test_the_log_alone_makes_the_same_state(seed: int, kind: str) -> None:
    driver = Driver(seed, kind)
    for _ in range(90):
        driver.act()
    assert_same(rebuilt(driver.core, None, driver.log, driver.decided, driver.now_ms), driver.core)


@settings(max_examples=40)
@given(seeds(), KINDS)
def test_a_snapshot_of_a_recovered_state_is_the_same_snapshot(seed: int, kind: str) -> None:
    driver = Driver(seed, kind)
    for _ in range(70):
        driver.act()
    blocks = blocks_of(driver, len(driver.log))
    again = rebuilt(driver.core, snapshot(driver.core), blocks, {}, driver.now_ms)
    assert_same(again, driver.core)
    twice = rebuilt(again, snapshot(again), blocks, {}, driver.now_ms)
    assert durable(again) == durable(twice)
    assert snapshot(twice) == snapshot(again)


@settings(max_examples=25)
@given(seeds(), KINDS)
def test_what_was_recovered_goes_on_as_if_nothing_had_happened(seed: int, kind: str) -> None:
    driver = Driver(seed, kind)
    for _ in range(60):
        driver.act()
    driver.use(rebuilt(driver.core, None, driver.log, driver.decided, driver.now_ms))
    driver.consumers.clear()
    driver.graves.clear()
    driver.open_txns = {n: True for n in driver.open_txns if n in driver.core.staged}
    driver.me = driver.producer()
    for _ in range(60):
        driver.act()
    assert_same(rebuilt(driver.core, None, driver.log, driver.decided, driver.now_ms), driver.core)


# ---- by hand -------------------------------------------------------------------------------------------------------


def test_a_block_that_has_to_be_there_and_is_not_is_damage() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    destination.send(producer, [1] * 3)
    destination.send(producer, [1] * 3)
    with pytest.raises(StoreDamagedError, match=r"destination d: the store does not hold blocks 1-2"):
        rebuilt(destination.core, snapshot(destination.core), [], {}, 0)


def test_a_note_of_an_unknown_kind_is_damage() -> None:
    with pytest.raises(StoreDamagedError, match="unknown kind 99"):
        DestinationRecovery(1).apply(LogEntry(2, 1, 0, records.encode(99, 0)))


def test_a_block_settled_in_parts_may_be_gone_before_the_next_snapshot() -> None:
    destination = DrivenDestination()
    consumer = destination.consumer()
    destination.send(destination.producer(), [1] * 3)
    state, at = snapshot(destination.core), len(destination.log)
    for tag in (1, 3, 2):
        destination.ack(consumer, tag)
    again = rebuilt(destination.core, state, destination.log[at:], {}, 0)
    assert again.block_index.messages == 0


def test_blocks_that_nobody_is_owed_are_named_for_the_store() -> None:
    destination = DrivenDestination()
    consumer = destination.consumer(limit=1)
    producer = destination.producer()
    destination.send(producer, [1])
    destination.send(producer, [1])
    destination.ack(consumer, 1)
    recovery = DestinationRecovery(1)
    for entry in destination.log:
        recovery.apply(entry)
    recovery.finish("d", destination.core.attributes)
    assert sorted(set(recovery.dead)) == [1]


def test_notes_of_a_very_scattered_queue_stay_small() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    blocks = records.ROWS_MAX + 10
    core = destination.core
    log = destination.log
    for seq in range(1, blocks + 1):
        log += core.step(cmd.Send(producer, 7, seq, [1, 1], True, 1), now_ms=0).records
    for number in (1, 2):
        log += core.step(cmd.AttachConsumer(number, "credit", -1, False, False), now_ms=0).records
        if number == 1:
            log += core.step(cmd.DetachConsumer(1), now_ms=0).records
    tags = [(tag, tag) for tag in range(1, 2 * blocks + 1, 4)]
    log += core.step(cmd.Acknowledge(2, tags, 1), now_ms=0).records
    assert max(len(e.meta) for e in log) < NOTE_BYTES_MAX // 2
    again = rebuilt(core, None, log, {}, 0)
    assert durable(again) == durable(core)
    assert {row[1] for row in durable(again)["lanes"][None].values()} == {2}


def test_a_prepared_acknowledgement_comes_back_as_what_it_was() -> None:
    """Priority and failures of messages whose acknowledgement was prepared are known after a restart."""
    for checkpoint in (False, True):
        destination = DrivenDestination(redeliveryLimit=-1)
        consumer = destination.consumer()
        destination.send(destination.producer(), [1, 1], columns=columns(2, priorities=[3, 8]))
        destination.settle(consumer, "fail", tag=2)
        destination.do(cmd.StageAcks(5, consumer, [(1, 1), (3, 3)]))
        destination.do(cmd.Prepare(5))
        again = destination.crash(checkpoint=checkpoint)
        again.do(cmd.Decide(5, False))
        assert sorted(again.queue.plain.backlog.buckets) == [(3, 0), (8, 0)]
        assert [run.failures for run in again.queue.plain.backlog.runs()] == [1, 2]


def test_what_was_refused_of_a_prepared_block_stays_away_after_a_checkpoint() -> None:
    for checkpoint in (False, True):
        destination = DrivenDestination(maxNumMsgs=2)
        destination.send(destination.producer(), [1] * 3, txn=5)
        destination.do(cmd.Prepare(5))
        again = destination.crash(checkpoint=checkpoint)
        assert again.core.block_index.messages == 2
        again.do(cmd.Decide(5, True))
        _, out = again.open()
        assert handed(out) == [(1, 0, 1), (1, 1, 1)]


def test_a_message_that_is_not_born_yet_is_still_not_after_a_restart() -> None:  # W-65
    destination = DrivenDestination()
    destination.send(destination.producer(), [1, 1], columns=columns(2, delay=[0, 500]))
    destination.now_ms += 499
    again = destination.crash()
    consumer, out = again.open()
    assert handed(out) == [(1, 0, 1)]
    assert handed(again.tick(1), consumer) == [(1, 1, 1)]


def test_a_resting_message_rests_on_after_a_restart() -> None:  # W-67
    for checkpoint in (False, True):
        destination = DrivenDestination()
        consumer = destination.consumer()
        destination.send(destination.producer(), [1])
        destination.settle(consumer, "fail", delay_ms=500)
        again = destination.crash(checkpoint=checkpoint)
        _, out = again.open()
        assert handed(out) == []
        assert out.wake_at == again.now_ms + 500
        assert handed(again.tick(500)) == [(1, 0, 2)]
