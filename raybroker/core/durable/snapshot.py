"""Everything durable about a destination but its attributes and message bodies, as bytes, for a checkpoint.

    next ordinal; next delivery queue
    delivery queues: each with its subscription and what it owes: spans of blocks, masks settled of some of them, masks
    handed out
      or failed, in records of the same forms as in the log
    sequence numbers taken, by producer; deduplication ids; blocks and acknowledgements of prepared transactions
    lasting totals

Sections are length-prefixed; what reads them is ``recovery.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from raybroker.core.admission.admission import Admission
from raybroker.core.blocks.block_index import spans
from raybroker.core.counters import Counters
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import records
from raybroker.core.staged_transaction import StagedTransaction
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.step import Step
from raybroker.core.transaction import Acknowledging, rows_of

HEAD: Final = struct.Struct("<QII")
SECTION: Final = struct.Struct("<I")
TAKEN: Final = struct.Struct("<QQQ")


class Counting(Protocol):
    """What a record of totals needs of a destination; see there."""

    counters: Counters
    staged: dict[int, StagedTransaction]


class Saving(Acknowledging, Protocol):
    """What a snapshot needs of a destination; see there."""

    current: Step
    next_queue: int
    admission: Admission
    counters: Counters
    staged: dict[int, StagedTransaction]


def section(data: bytes) -> bytes:
    return SECTION.pack(len(data)) + data


def sections(data: bytes, at: int) -> Iterator[bytes]:
    """Length-prefixed pieces to the end."""
    while at < len(data):
        (size,) = SECTION.unpack_from(data, at)
        at += SECTION.size
        yield data[at : at + size]
        at += size


def snapshot(destination: Saving) -> bytes:
    producers, duplicates = destination.admission.producers, destination.admission.duplicates
    parts = [HEAD.pack(destination.block_index.next_ordinal, destination.next_queue, 0)]
    rows = [(producer, a, b) for producer, taken in producers.taken.items() for a, b in taken]
    parts.append(section(b"".join(TAKEN.pack(*row) for row in rows)))
    ahead_ms = destination.current.ahead_ms
    parts.append(section(records.encode_dedup([(text, at_ms + ahead_ms) for text, at_ms in duplicates.lasting()])))
    for queue in destination.queues.values():
        if queue.durable:
            parts.extend(section(record) for record in _queue(destination, queue))
    told = [records.RecordRow(o, mask) for o, mask in _told(destination)]
    parts.extend(section(records.encode(records.BURIED, 0, (), some)) for some, _ in records.in_records(told, ()))
    late = sorted(b.ordinal for s in destination.staged.values() if not s.prepared for b in s.blocks)
    live = [records.Span(a, b) for a, b in spans(late)]
    parts.append(section(records.encode(records.WAITING, 0, live, (), records.encode_number(0))))
    for txn, staged in destination.staged.items():
        if staged.prepared:
            parts.extend(section(record) for record in _staged(destination, txn, staged))
    parts.append(section(counted(destination)))
    return b"".join(parts)


def counted(destination: Counting) -> bytes:
    """The lasting totals as a record."""
    counters = destination.counters
    waiting = tuple([txn for txn, staged in destination.staged.items() if staged.prepared])
    return records.encode_counts(records.Counts(counters.since_ms, counters.lasting(), dict(counters.base), waiting))


def _told(destination: Saving) -> Iterator[tuple[int, int]]:
    """Messages whose death was told, and is settled somewhere."""
    for ordinal, block in destination.block_index.held.unpacked():
        mask = block.told_dead if block.stored else 0
        for queue in destination.queues.values():
            mask &= ~queue.dead_letters.masks.get(ordinal, 0)
        if mask:
            yield ordinal, mask


def _queue(destination: Saving, queue: DeliveryQueue) -> Iterator[bytes]:
    """Records from which the delivery queue can be made again."""
    if queue.subscription is not None:
        yield records.encode(records.QUEUE, queue.number, (), (), queue.subscription.encode())
    held = destination.block_index.held
    waiting = {block.ordinal for staged in destination.staged.values() for block in staged.blocks}
    if queue.owes is None:
        live = [records.Span(a, b) for a, b in held.stored_spans(waiting)]
        rows = [records.RecordRow(o, b.done) for o, b in held.unpacked() if b.done and b.stored and o not in waiting]
    else:
        owed = [o for o in queue.owes if held.is_stored(o) and o not in waiting]
        live = [records.Span(a, b) for a, b in spans(sorted(owed))]
        rows = [records.RecordRow(o, queue.owes[o]) for o in owed]
    yield records.encode(records.LIVE, queue.number, live)
    for some, _ in records.in_records(sorted(rows), ()):
        yield records.encode(records.ACKED if queue.owes is None else records.OWED, queue.number, (), some)
    acked = [d.run for staged in destination.staged.values() for number, d in staged.acks if number == queue.number]
    there = [run for _, run in queue.contents(tried=True)]
    runs = [run for run in (*there, *acked) if held.is_stored(run.ordinal)]
    tried = [run for run in runs if run.attempts]
    yield from _rows(records.DISPATCHED, queue, [(run, run.attempts, 0) for run in tried])
    failed = [(run, run.failures, 0) for run in runs if run.failures]
    failed += [
        (run, run.failures, due_ms + destination.current.ahead_ms)
        for due_ms, run in queue.delayed.runs()
        if run.attempts and held.is_stored(run.ordinal)
    ]
    yield from _rows(records.FAILED, queue, failed)
    dead = [run for run in queue.dead_letters.runs() if held.is_stored(run.ordinal)]
    yield from _rows(records.DISPATCHED, queue, [(run, run.attempts, 0) for run in dead if run.attempts])
    yield from _rows(records.FAILED, queue, [(run, run.failures, 0) for run in dead if run.failures])
    if isinstance(queue.plain, VersionPending) and queue.plain.versions.published is not None:
        version = records.encode_number(queue.plain.versions.published)
        yield records.encode(records.VERSION, queue.number, (), (), version)
    for ordinal, index, state in queue.consumers.checkpoints:
        if held.is_stored(ordinal):
            yield records.encode(records.CHECKPOINT, queue.number, (), [records.RecordRow(ordinal, 1 << index)], state)


def _rows(kind: int, queue: DeliveryQueue, runs: Sequence[tuple[Run, int, int]]) -> Iterator[bytes]:
    """Runs with a value and a time; blocks of which the delivery queue has nothing else are written as spans, where
    they can."""
    loose: list[records.RecordRow] = []
    whole: list[records.Span] = []
    for run, value, until_ms in sorted(runs, key=lambda item: (item[0].ordinal, item[0].mask)):
        if kind == records.FAILED or run.mask != queue.owed(run.ordinal):
            loose.append(records.RecordRow(run.ordinal, run.mask, value, until_ms))
        elif whole and whole[-1].last + 1 == run.ordinal and whole[-1].value == value:
            whole[-1] = records.Span(whole[-1].first, run.ordinal, value)
        else:
            whole.append(records.Span(run.ordinal, run.ordinal, value))
    for some, others in records.in_records(whole, loose):
        yield records.encode(kind, queue.number, some, others)


def _staged(destination: Saving, txn: int, staged: StagedTransaction) -> Iterator[bytes]:
    ordinals = sorted(b.ordinal for b in staged.blocks if destination.block_index.held[b.ordinal].stored)
    live = [records.Span(a, b) for a, b in spans(ordinals)]
    yield records.encode(records.WAITING, 0, live, (), records.encode_number(txn))
    missing = [records.RecordRow(o, done) for o in ordinals if (done := destination.block_index.held[o].done)]
    for some, _ in records.in_records(missing, ()):
        yield records.encode(records.REFUSED, 0, (), some)
    for number, rows in rows_of(destination, staged.acks).items():
        yield records.encode(records.STAGED, number, (), rows, records.encode_number(txn))
