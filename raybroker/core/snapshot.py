"""Everything durable about a destination but its attributes and message bodies, as bytes, for a checkpoint.

    next ordinal; next lane
    lanes: each with its subscription and what it owes: spans of blocks, picks settled of some of them, picks handed out
      or failed, in notes of the same forms as in the log
    sequence numbers taken, by producer; deduplication ids; blocks and acknowledgements of prepared transactions

Sections are length-prefixed; what reads them is ``recovery.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from raybroker.core import notes
from raybroker.core.backlog import Run
from raybroker.core.destination import Destination
from raybroker.core.lane import Lane
from raybroker.core.ledger import spans
from raybroker.core.staged import Staged
from raybroker.core.topic import Topic
from raybroker.core.transaction import rows_of

HEAD: Final = struct.Struct("<QII")
SECTION: Final = struct.Struct("<I")
TAKEN: Final = struct.Struct("<QQQ")


def section(data: bytes) -> bytes:
    return SECTION.pack(len(data)) + data


def sections(data: bytes, at: int) -> Iterator[bytes]:
    """Length-prefixed pieces to the end."""
    while at < len(data):
        (size,) = SECTION.unpack_from(data, at)
        at += SECTION.size
        yield data[at : at + size]
        at += size


def snapshot(home: Destination) -> bytes:
    next_lane = home.next_lane if isinstance(home, Topic) else 1
    parts = [HEAD.pack(home.ledger.next_ordinal, next_lane, 0)]
    rows = [(producer, a, b) for producer, taken in home.producers.taken.items() for a, b in taken]
    parts.append(section(b"".join(TAKEN.pack(*row) for row in rows)))
    parts.append(section(notes.encode_dedup(list(home.duplicates.taken.items()))))
    for lane in home.lanes.values():
        if lane.durable:
            parts.extend(section(note) for note in _lane(home, lane))
    told = [notes.Row(o, picks) for o, picks in _told(home)]
    parts.extend(section(notes.encode(notes.BURIED, 0, (), some)) for some, _ in notes.in_notes(told, ()))
    late = sorted(b.ordinal for s in home.staged.values() if not s.prepared for b in s.blocks)
    live = [notes.Span(a, b) for a, b in spans(late)]
    parts.append(section(notes.encode(notes.WAITING, 0, live, (), notes.encode_number(0))))
    for txn, staged in home.staged.items():
        if staged.prepared:
            parts.extend(section(note) for note in _staged(home, txn, staged))
    return b"".join(parts)


def _told(home: Destination) -> Iterator[tuple[int, int]]:
    """Messages whose death was told, and is settled somewhere."""
    for ordinal, block in home.ledger.held.items():
        picks = block.buried if block.stored else 0
        for lane in home.lanes.values():
            picks &= ~lane.dying.get(ordinal, 0)
        if picks:
            yield ordinal, picks


def _lane(home: Destination, lane: Lane) -> Iterator[bytes]:
    """Notes from which the lane can be made again."""
    if lane.subscription is not None:
        yield notes.encode(notes.LANE, lane.number, (), (), lane.subscription.encode())
    held = home.ledger.held
    waiting = {block.ordinal for staged in home.staged.values() for block in staged.blocks}
    owed = sorted(o for o in (held if lane.owes is None else lane.owes) if held[o].stored and o not in waiting)
    live = [notes.Span(a, b) for a, b in spans(owed)]
    yield notes.encode(notes.LIVE, lane.number, live)
    if lane.owes is None:
        rows = [notes.Row(o, held[o].done) for o in owed if held[o].done]
    else:
        rows = [notes.Row(o, lane.owes[o]) for o in owed]
    for some, _ in notes.in_notes(rows, ()):
        yield notes.encode(notes.ACKED if lane.owes is None else notes.OWED, lane.number, (), some)
    acked = [d.run for staged in home.staged.values() for number, d in staged.acks if number == lane.number]
    runs = [run for run in (*(run for _, run in lane.places()), *acked) if held[run.ordinal].stored]
    tried = [run for run in runs if run.attempts]
    yield from _rows(notes.DISPATCHED, lane, [(run, run.attempts, 0) for run in tried])
    failed = [(run, run.failures, 0) for run in runs if run.failures]
    failed += [
        (run, run.failures, due_ms)
        for due_ms, run in lane.timetable.runs()
        if run.attempts and held[run.ordinal].stored
    ]
    yield from _rows(notes.FAILED, lane, failed)
    doomed = [run for runs in lane.doomed.values() for run in runs if held[run.ordinal].stored]
    yield from _rows(notes.DISPATCHED, lane, [(run, run.attempts, 0) for run in doomed if run.attempts])
    yield from _rows(notes.FAILED, lane, [(run, run.failures, 0) for run in doomed if run.failures])


def _rows(kind: int, lane: Lane, runs: Sequence[tuple[Run, int, int]]) -> Iterator[bytes]:
    """Runs with a value and a time; blocks of which the lane has nothing else are written as spans, where they can."""
    loose: list[notes.Row] = []
    whole: list[notes.Span] = []
    for run, value, until_ms in sorted(runs, key=lambda item: item[0].ordinal):
        if kind == notes.FAILED or run.picks != lane.owed(run.ordinal):
            loose.append(notes.Row(run.ordinal, run.picks, value, until_ms))
        elif whole and whole[-1].last + 1 == run.ordinal and whole[-1].value == value:
            whole[-1] = notes.Span(whole[-1].first, run.ordinal, value)
        else:
            whole.append(notes.Span(run.ordinal, run.ordinal, value))
    for some, others in notes.in_notes(whole, loose):
        yield notes.encode(kind, lane.number, some, others)


def _staged(home: Destination, txn: int, staged: Staged) -> Iterator[bytes]:
    ordinals = sorted(b.ordinal for b in staged.blocks if home.ledger.held[b.ordinal].stored)
    live = [notes.Span(a, b) for a, b in spans(ordinals)]
    yield notes.encode(notes.WAITING, 0, live, (), notes.encode_number(txn))
    missing = [notes.Row(o, done) for o in ordinals if (done := home.ledger.held[o].done)]
    for some, _ in notes.in_notes(missing, ()):
        yield notes.encode(notes.REFUSED, 0, (), some)
    for number, rows in rows_of(home, staged.acks).items():
        yield notes.encode(notes.STAGED, number, (), rows, notes.encode_number(txn))
