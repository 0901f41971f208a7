"""A queue that is rebuilt from a snapshot and what was recorded since is the queue as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import notes
from raybroker.core.invariants import check
from raybroker.core.notes import Part, Tried
from raybroker.core.queue import Queue
from raybroker.core.recovery import Recovery, snapshot
from raybroker.model.errors import StoreDamagedError
from raybroker.model.record import BLOCK, NOTE_BYTES_MAX, Entry
from raybroker.model.settings import DestinationAttributes
from tests.unit.core.driver import Driver, seeds


def durable(queue: Queue) -> dict[tuple[int, int], int]:
    """(block, index) → attempts of every persistent message."""
    held = queue.ledger.held
    rows: list[Any] = [*queue.backlog.returned, *queue.backlog.fresh]
    for consumer in queue.consumers.by_attachment.values():
        rows += consumer.unsettled
    return {(r.ordinal, i): r.attempts for r in rows if held[r.ordinal].persistent for i in range(r.start, r.end)}


def rebuilt(state: bytes | None, entries: list[Entry], attributes: DestinationAttributes) -> Queue:
    recovery = Recovery(1)
    if state is not None:
        recovery.load(state)
    for entry in entries:
        recovery.apply(entry)
    return recovery.finish("q", attributes, reap_ms=None)


@settings(max_examples=60)
@given(seeds(), st.integers(0, 80), st.booleans())
def test_a_snapshot_and_what_came_after_make_the_same_queue(seed: int, cut: int, reclaimed: bool) -> None:
    driver = Driver(seed)
    for _ in range(cut):
        driver.act()
    state, before = snapshot(driver.queue), [e for e in driver.log if e.kind == BLOCK]
    if reclaimed:
        before = [e for e in before if e.ordinal in driver.queue.ledger.held]
    at = len(driver.log)
    for _ in range(60):
        driver.act()
    if reclaimed:
        before = [e for e in before if e.ordinal in driver.queue.ledger.held]
    after = driver.log[at:]
    again = rebuilt(state, before + after, driver.queue.attributes)
    check(again)
    assert durable(again) == durable(driver.queue)
    assert again.mark == driver.queue.mark
    assert again.ledger.next_ordinal <= driver.queue.ledger.next_ordinal
    moved = rebuilt(state, [*after, *before], driver.queue.attributes)
    assert durable(moved) == durable(driver.queue), "the store may have moved old blocks behind newer entries"


@settings(max_examples=30)
@given(seeds())
def test_the_log_alone_makes_the_same_queue(seed: int) -> None:
    driver = Driver(seed)
    for _ in range(80):
        driver.act()
    again = rebuilt(None, driver.log, driver.queue.attributes)
    check(again)
    assert durable(again) == durable(driver.queue)
    for producer, rows in driver.queue.producers.taken.items():
        back = {n for a, b in again.producers.taken.get(producer, []) for n in range(a, b)}
        assert {n for a, b in rows for n in range(a, b)} <= back


@settings(max_examples=30)
@given(seeds())
def test_a_snapshot_of_a_recovered_queue_is_the_same_snapshot(seed: int) -> None:
    driver = Driver(seed)
    for _ in range(60):
        driver.act()
    blocks = [e for e in driver.log if e.kind == BLOCK]
    state = snapshot(driver.queue)
    again = rebuilt(state, blocks, driver.queue.attributes)
    twice = rebuilt(snapshot(again), blocks, driver.queue.attributes)
    assert durable(again) == durable(twice)
    assert snapshot(twice) == snapshot(again)


def test_a_block_that_has_to_be_there_and_is_not_is_damage() -> None:
    driver = Driver(0)
    driver.send(count=3, persistent=True)
    driver.send(count=3, persistent=True)
    with pytest.raises(StoreDamagedError, match=r"destination q: the store does not hold blocks 1-2"):
        rebuilt(snapshot(driver.queue), [], driver.queue.attributes)


def test_a_note_of_an_unknown_kind_is_damage() -> None:
    with pytest.raises(StoreDamagedError, match="unknown kind 99"):
        Recovery(1).apply(Entry(2, 1, 0, bytes([99]) + bytes(8)))


def test_a_block_settled_in_parts_may_be_gone_before_the_next_snapshot() -> None:
    driver = Driver(0)
    driver.attach_consumer(limit=10)
    driver.send(count=3, persistent=True)
    state, at = snapshot(driver.queue), len(driver.log)
    for tag in (1, 3, 2):
        driver.acknowledge([(tag, tag)])
    again = rebuilt(state, driver.log[at:], driver.queue.attributes)
    assert again.ledger.messages == 0


def test_notes_of_a_very_scattered_queue_stay_small() -> None:
    driver = Driver(0, attributes=DestinationAttributes())
    blocks = notes.ROWS_MAX + 10
    for _ in range(blocks):
        driver.send(count=1, persistent=True)
    first = driver.attach_consumer(limit=-1)
    driver.detach_consumer(first)
    driver.attach_consumer(limit=-1)
    driver.acknowledge([(tag, tag) for tag in range(1, blocks + 1, 2)])
    assert max(len(e.meta) for e in driver.log) < NOTE_BYTES_MAX // 2
    again = rebuilt(None, driver.log, driver.queue.attributes)
    assert durable(again) == durable(driver.queue)
    assert set(durable(again).values()) == {2}


PARTS = st.lists(st.builds(Part, st.integers(0, 2**40), st.integers(0, 1023), st.integers(1, 1024)), max_size=20)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=20), PARTS)
def test_acknowledgements_are_read_as_they_were_written(whole: list[tuple[int, int]], parts: list[Part]) -> None:
    note = notes.encode_acked(whole, parts)
    assert notes.kind_of(note) == notes.ACKED
    assert notes.decode_acked(note) == (whole, parts)


@given(PARTS)
def test_refusals_are_read_as_they_were_written(parts: list[Part]) -> None:
    note = notes.encode_refused(parts)
    assert notes.kind_of(note) == notes.REFUSED
    assert notes.decode_refused(note) == parts


@given(
    st.none() | st.tuples(st.integers(0, 2**40), st.integers(0, 1024)),
    st.lists(st.builds(Tried, *[st.integers(0, 2**30)] * 4), max_size=9),
)
def test_deliveries_are_read_as_they_were_written(mark: tuple[int, int] | None, tried: list[Tried]) -> None:
    note = notes.encode_dispatched(mark, tried)
    assert notes.kind_of(note) == notes.DISPATCHED
    assert notes.decode_dispatched(note) == (mark, tried)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=30), st.integers(0, 2**64 - 1), st.integers(0, 2**63))
def test_the_meta_of_a_block_is_read_as_it_was_written(sizes: list[int], producer: int, first_seq: int) -> None:
    column = notes.pack_sizes(sizes)
    found = notes.decode_block_meta(notes.encode_block_meta(len(sizes), producer, first_seq, column))
    assert found == (len(sizes), producer, first_seq, column)
