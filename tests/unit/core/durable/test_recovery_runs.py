"""Blocks that a store gives back together recover as the same blocks by themselves."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.blocks.block_index import spans
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.records import BlockMeta, PartColumn, PartKey, RecordRow, Span
from raybroker.core.durable.recovery import DestinationRecovery
from raybroker.core.durable.snapshot import HEAD, TAKEN, section, snapshot
from raybroker.core.invariants import check
from raybroker.model.blocks.record import BLOCK, NOTE, EntryRun, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.model.settings.settings import DestinationAttributes
from tests.unit.core.driver import Driver, durable, seeds

NOW = 1_000
OPEN, COMMITTED, ROLLED_BACK = 5, 6, 7
"""Transactions, as they have ended."""
DECIDED = {COMMITTED: True, ROLLED_BACK: False}


def in_runs(entries: Iterable[LogEntry], rng: Random, longest: int = 1 << 20) -> list[LogEntry | EntryRun]:
    """The entries, with blocks that are side by side in runs of any length up to ``longest``."""
    found: list[LogEntry | EntryRun] = []
    for entry in entries:
        last = found[-1] if found else None
        if entry.kind != BLOCK or rng.random() < 0.02:
            found.append(entry)
        elif (
            isinstance(last, EntryRun)
            and last.blocks < longest
            and last.first + last.blocks == entry.ordinal
            and len(last.metas) == last.blocks * len(entry.meta)
        ):
            found[-1] = EntryRun(last.destination, last.first, last.blocks + 1, last.metas + entry.meta)
        else:
            found.append(EntryRun(entry.destination, entry.ordinal, 1, entry.meta))
    return found


def recovered(
    state: bytes | None, entries: Iterable[LogEntry | EntryRun], kind: str = "queue", **attributes: Any
) -> tuple[Any, ...]:
    """What comes of it, and what it does then; or the error."""
    recovery = DestinationRecovery(1)
    if state is not None:
        recovery.load(state)
    for entry in entries:
        if isinstance(entry, EntryRun):
            recovery.apply_run(entry)
        else:
            recovery.apply(entry)
    found = sorted(set(recovery.ordinals()) | set(recovery.dead))
    try:
        destination = recovery.finish("d", DestinationAttributes(**attributes), kind=kind, now_ms=NOW, decided=DECIDED)
    except StoreDamagedError as error:
        return found, str(error)
    check(destination)
    return found, sorted(set(recovery.dead)), *looks_of(destination), answers_of(destination)


def looks_of(destination: Destination) -> tuple[Any, ...]:
    index = destination.block_index
    queues = [
        (number, list(queue.contents()), sorted(queue.contents(tried=True)), list(queue.delayed.runs()), queue.owes)
        for number, queue in destination.queues.items()
    ]
    totals = index.messages, index.bytes_held, index.peak_messages, index.peak_bytes, index.next_ordinal
    blocks = [(ordinal, fields(entry)) for ordinal, entry in index.held.items()]
    return snapshot(destination), queues, blocks, totals, index.held.oldest(), destination.ended_before


def fields(entry: BlockEntry) -> tuple[Any, ...]:
    return tuple(getattr(entry, name) for name in BlockEntry.__slots__)


def answers_of(destination: Destination) -> list[Any]:
    """What the destination answers whoever uses it."""
    if destination.kind == "topic":
        return []
    commands: list[cmd.Command] = [
        cmd.Tick(),
        cmd.AttachProducer(3, 9, 1),
        cmd.AttachConsumer(5, "credit", 7, False, False),
        cmd.Grant(5, 1_000),
        cmd.Acknowledge(5, ((1, 3), (5, 6)), 1),
        cmd.DetachConsumer(5),
        cmd.AttachConsumer(6, "credit", -1, False, False),
    ]
    found: list[Any] = []
    for command in commands:
        try:
            out = destination.step(command, now_ms=NOW + 1)
        except Exception as error:  # noqa: BLE001 - the same one is wanted on both sides
            found.append(repr(error))
        else:
            found.append((out.immediate, out.after_durable, out.records, out.wake_at))
    check(destination)
    return found


def meta_of(kind: int, ordinal: int, rng: Random) -> BlockMeta:
    """Kind 0 is a message that was sent alone. Transactions that are open are in the histories of the driver."""
    producer = rng.choice((1, 1, 2, 9))
    alone = BlockMeta(1, producer, ordinal * 10, 100 + rng.choice((0, 0, 7)), rng.choice((4, 4, 4, 0, 9)))
    match kind:
        case 1:
            return alone._replace(expires=array("Q", [NOW + rng.randrange(-500, 500)]))
        case 2:
            return alone._replace(units=("a",))
        case 3:
            return alone._replace(messages=3, sizes=array("I", (5, 6, 7)), priorities=bytes((1, 4, 4)))
        case 4:
            return alone._replace(sizes=array("I", (5,)))
        case 5:
            return alone._replace(deliver_at=array("Q", [NOW + rng.randrange(-500, 500)]))
        case 6:
            return alone._replace(txn=rng.choice((COMMITTED, ROLLED_BACK)))
        case 7:
            return alone._replace(works=PartColumn(1, (PartKey("w", ordinal, False),)))
        case _:
            return alone


def note_of(rng: Random, most: int) -> bytes:
    first = rng.randrange(1, most + 1)
    spans = [Span(first, min(first + rng.choice((0, 1, 9)), most))]
    counted = [span._replace(value=rng.randrange(1, 4)) for span in spans]
    rows = [RecordRow(first, 1)]
    match rng.randrange(9):
        case 0 | 1:
            return records.encode(records.ACKED, 0, spans)
        case 2:
            return records.encode(records.ACKED, 0, (), rows)
        case 3:
            return records.encode(records.DISPATCHED, 0, counted)
        case 4:
            return records.encode(records.DISPATCHED, 0, (), [RecordRow(first, 1, 2)])
        case 5:
            failures = rng.choice((1, 3, records.REJECTED))
            return records.encode(
                records.FAILED, 0, (), [RecordRow(first, 1, failures, NOW + rng.randrange(-500, 500))]
            )
        case 6:
            txn = records.encode_number(rng.choice((OPEN, COMMITTED, ROLLED_BACK)))
            return records.encode(records.STAGED, 0, (), rows, txn)
        case 7:
            return records.encode(records.BURIED, 0, (), rows)
        case _:
            return records.encode(records.DEDUP, 0, (), (), records.encode_dedup([(f"id{first}", first)]))


def a_snapshot(rng: Random, last: int, live: Sequence[int]) -> bytes:
    parts = [HEAD.pack(last + 1, 1, 0), section(TAKEN.pack(9, 1, 10)), section(records.encode_dedup([("id", 3)]))]
    parts.append(section(records.encode(records.LIVE, 0, [Span(a, b) for a, b in spans(sorted(live))])))
    if rng.random() < 0.3:
        parts.append(section(records.encode(records.ACKED, 0, (), [RecordRow(rng.randrange(1, last + 2), 1)])))
        parts.append(section(records.encode(records.DISPATCHED, 0, [Span(1, 3, 2)])))
    for txn in rng.choice(((), (), (0,), (COMMITTED, ROLLED_BACK))):
        first = rng.randrange(1, last + 2)
        record = records.encode(records.WAITING, 0, [Span(first, first + 1)], (), records.encode_number(txn))
        parts.append(section(record))
    return b"".join(parts)


@settings(max_examples=60)
@given(seeds(), st.integers(0, 600), st.integers(0, 600), st.sampled_from((0.0, 0.01, 0.3)), st.booleans())
def test_any_blocks_recover_alike(seed: int, old: int, new: int, mixed: float, composes: bool) -> None:
    rng = Random(seed)
    last = old + new
    alive = rng.choice((0.5, 0.9, 1))
    live = [ordinal for ordinal in range(1, old + 1) if rng.random() < alive]
    stored = {*live, *(ordinal for ordinal in range(1, last + 1) if rng.random() < 0.95)}
    if rng.random() < 0.1 and live:
        stored.discard(rng.choice(live))
    entries, noisy = [], rng.choice((0, 0.05))
    for ordinal in sorted(stored):
        kind = rng.randrange(1, 8) if rng.random() < mixed else 0
        meta = meta_of(kind, ordinal, rng)
        if ordinal > old and rng.random() < mixed / 4:
            entries.append(LogEntry(NOTE, 1, 0, records.encode(records.REFUSED, 0, (), [RecordRow(ordinal, 1)])))
        entries.append(LogEntry(BLOCK, 1, ordinal, records.encode_block_meta(meta)))
        if ordinal > old and rng.random() < noisy:
            entries.append(LogEntry(NOTE, 1, 0, note_of(rng, last)))
    entries += [LogEntry(NOTE, 1, 0, note_of(rng, last)) for _ in range(rng.randrange(5)) if last]
    if rng.random() < 0.3:  # Survivors of old segments stand where they were copied to.
        before = [entry for entry in entries if entry.kind == BLOCK and entry.ordinal <= old]
        moved = rng.sample(before, len(before) // 3)
        entries = [entry for entry in entries if entry not in moved]
        place = rng.choice((0, len(entries)))
        entries[place:place] = sorted(moved, key=lambda entry: entry.ordinal)
    state = a_snapshot(rng, old, live)
    policy = {"unitOfWorkHandlingPolicy": "SingleMessageDelivery"} if composes else {}
    if rng.random() < 0.1:
        policy["destinationKeys"] = "JMSPriority"
    single = recovered(state, entries, **policy)
    assert recovered(state, in_runs(entries, rng, rng.choice((1, 3, 300, 1 << 20))), **policy) == single


@settings(max_examples=30)
@given(seeds(), st.sampled_from(["queue", "topic"]), st.integers(0, 60), st.booleans())
def test_any_history_recovers_alike(seed: int, kind: str, cut: int, moved: bool) -> None:
    driver = Driver(seed, kind)
    for _ in range(cut):
        driver.act()
    state, at = snapshot(driver.core), len(driver.log)
    live = set(driver.core.block_index.held)
    driver.decided.clear()
    for _ in range(60):
        driver.act()
    before = [entry for entry in driver.log[:at] if entry.kind == BLOCK and entry.ordinal in live]
    log = driver.log[at:] + before if moved else before + driver.log[at:]
    destinations = []
    for entries in (log, in_runs(log, Random(seed))):
        recovery = DestinationRecovery(driver.core.number)
        recovery.load(state)
        for entry in entries:
            (recovery.apply_run if isinstance(entry, EntryRun) else recovery.apply)(entry)  # type: ignore[operator]
        destination = recovery.finish(
            "d", driver.core.attributes, kind=kind, now_ms=driver.now_ms, decided=driver.decided
        )
        check(destination)
        destinations.append((durable(destination), looks_of(destination), sorted(set(recovery.dead))))
    assert destinations[0] == destinations[1]


def test_messages_sent_alone_recover_without_an_object_each() -> None:
    metas = [records.encode_block_meta(BlockMeta(1, 9, n, 100 + n % 2, n % 10)) for n in range(1, 5_001)]
    recovery = DestinationRecovery(1)
    recovery.apply_run(EntryRun(1, 1, len(metas), b"".join(metas)))
    recovery.apply(LogEntry(NOTE, 1, 0, records.encode(records.ACKED, 0, [Span(1_000, 1_999), Span(3_000, 3_000)])))
    destination = recovery.finish("d", DestinationAttributes())
    check(destination)
    assert destination.producers.taken == {9: [(1, 5_001)]}
    assert len(destination.block_index.held) == destination.block_index.messages == 3_999
    assert len(list(destination.block_index.held.unpacked())) < 256
    assert sorted(recovery.dead) == [*range(1_000, 2_000), 3_000]


def test_a_run_with_a_block_that_is_lost_names_it() -> None:
    meta = records.encode_block_meta(BlockMeta(1, 9, 1, 100))
    recovery = DestinationRecovery(1)
    recovery.load(a_snapshot(Random(1), 600, range(1, 601)))
    recovery.apply_run(EntryRun(1, 1, 299, meta * 299))
    recovery.apply_run(EntryRun(1, 301, 300, meta * 300))
    with pytest.raises(StoreDamagedError, match="does not hold blocks 300, which"):
        recovery.finish("d", DestinationAttributes())
