"""A queue's state as bytes, and a queue from what a store gave back (B-20).

A snapshot says which blocks live; entries after it say what happened since.  A block that the snapshot calls alive and
that the store does not give back is damage, not absence: recovery stops and names it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from raybroker.core import notes, ranges
from raybroker.core.backlog import Run
from raybroker.core.ledger import Held, spans
from raybroker.core.notes import BlockMeta, Cursor, Part, Tried
from raybroker.core.queue import Queue
from raybroker.model.errors import StoreDamagedError
from raybroker.model.record import BLOCK, Entry
from raybroker.model.settings import DestinationAttributes

_NEXT: Final = struct.Struct("<Q")
_TAKEN: Final = struct.Struct("<QQQ")


def snapshot(queue: Queue) -> bytes:
    """Everything durable about a queue but its attributes and message bodies."""
    ledger = queue.ledger
    live = ledger.live_spans(persistent=True)
    done = [
        Part(ordinal, a, b)
        for ordinal, block in ledger.held.items()
        if block.persistent and block.done
        for a, b in block.done
    ]
    taken = [(producer, a, b) for producer, rows in queue.producers.taken.items() for a, b in rows]
    return b"".join(
        (
            _NEXT.pack(ledger.next_ordinal),
            notes.MARK.pack(*queue.mark),
            notes.table(notes.SPAN, live),
            notes.table(notes.PART, done),
            notes.table(notes.TRIED, list(_tried(queue))),
            notes.table(_TAKEN, taken),
        )
    )


def _tried(queue: Queue) -> Iterator[Tried]:
    """Persistent messages that were handed out more than once."""
    held = queue.ledger.held
    for run in queue.backlog.returned:
        if run.attempts > 1 and held[run.ordinal].persistent:
            yield Tried(run.ordinal, run.start, run.end, run.attempts)
    for consumer in queue.consumers.by_attachment.values():
        for item in consumer.unsettled:
            if item.attempts > 1 and held[item.ordinal].persistent:
                yield Tried(item.ordinal, item.start, item.end, item.attempts)


class Recovery:
    """Collects what a store gives back about one queue; :meth:`finish` makes the queue."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_ordinal = 1
        self.mark = (0, 0)
        self.live: list[tuple[int, int]] = []
        self.blocks: dict[int, BlockMeta] = {}
        self.dead: list[int] = []
        self.gone: set[int] = set()
        """Blocks acknowledged whole before the store gave them back, which a moved copy can cause."""
        self.settled: dict[int, ranges.Ranges] = {}
        self.refused: dict[int, ranges.Ranges] = {}
        self.tried: dict[int, list[Tried]] = {}
        self.taken: dict[int, ranges.Ranges] = {}
        self._snapshot_end = 1

    def load(self, data: bytes) -> None:
        """Start from a snapshot; called before any entry."""
        cursor = Cursor(data)
        (self.next_ordinal,) = cursor.row(_NEXT)
        self._snapshot_end = self.next_ordinal
        first, second = cursor.row(notes.MARK)
        self.mark = (first, second)
        self.live = [(row[0], row[1]) for row in cursor.rows(notes.SPAN)]
        for row in cursor.rows(notes.PART):
            self._settle(Part(*row))
        for row in cursor.rows(notes.TRIED):
            self.tried.setdefault(row[0], []).append(Tried(*row))
        for producer, start, end in cursor.rows(_TAKEN):
            ranges.add(self.taken.setdefault(producer, []), start, end)

    def apply(self, entry: Entry) -> None:
        """One BLOCK or NOTE of this queue, in the order of the store's log; ATTRIBUTES and GONE are the engine's."""
        if entry.kind == BLOCK:
            self._block(entry.ordinal, notes.decode_block_meta(entry.meta))
            return
        kind = notes.kind_of(entry.meta)
        if kind == notes.ACKED:
            whole, parts = notes.decode_acked(entry.meta)
            for first, last in whole:
                for ordinal in range(first, last + 1):
                    if self.blocks.pop(ordinal, None) is not None:
                        self.dead.append(ordinal)
                    else:
                        self.gone.add(ordinal)
                    self._drop_live(ordinal)
            for part in parts:
                self._settle(part)
        elif kind == notes.REFUSED:
            for part in notes.decode_refused(entry.meta):
                ranges.add(self.refused.setdefault(part.ordinal, []), part.start, part.end)
                self._settle(part)
        elif kind == notes.DISPATCHED:
            mark, tried = notes.decode_dispatched(entry.meta)
            self.mark = max(self.mark, mark or self.mark)
            for row in tried:
                self.tried.setdefault(row.ordinal, []).append(row)
        else:
            raise StoreDamagedError(f"destination {self.number}: a note of unknown kind {kind}")

    def _block(self, ordinal: int, meta: BlockMeta) -> None:
        if ordinal < self._snapshot_end:
            if not self._is_live(ordinal):
                self.dead.append(ordinal)
                return
        else:
            taken = self.taken.setdefault(meta.producer, [])
            for a, b in ranges.missing(self.refused.get(ordinal, []), 0, meta.messages):
                ranges.add(taken, meta.first_seq + a, meta.first_seq + b)
        self.next_ordinal = max(self.next_ordinal, ordinal + 1)
        if ordinal in self.gone:
            self.dead.append(ordinal)
            return
        self.blocks[ordinal] = meta

    def _is_live(self, ordinal: int) -> bool:
        return any(first <= ordinal <= last for first, last in self.live)

    def _drop_live(self, ordinal: int) -> None:
        for index, (first, last) in enumerate(self.live):
            if first <= ordinal <= last:
                self.live[index : index + 1] = [
                    s for s in ((first, ordinal - 1), (ordinal + 1, last)) if s[0] <= s[1]
                ]  # fmt: skip
                return

    def _settle(self, part: Part) -> None:
        ranges.add(self.settled.setdefault(part.ordinal, []), part.start, part.end)

    def finish(self, name: str, attributes: DestinationAttributes, *, reap_ms: int | None) -> Queue:
        """The queue as it was; raises StoreDamagedError when a block that must be there is not."""
        self._check_complete(name)
        queue = Queue(self.number, name, attributes, reap_ms=reap_ms)
        queue.mark = self.mark
        queue.producers.taken = self.taken
        returned: list[Run] = []
        for ordinal in sorted(self.blocks):
            meta = self.blocks[ordinal]
            settled = self.settled.get(ordinal, [])
            if ranges.total(settled) == meta.messages:
                self.dead.append(ordinal)
                continue
            queue.ledger.restore(ordinal, Held(meta.messages, meta.sizes, persistent=True))
            for a, b in settled:
                queue.ledger.settle(Part(ordinal, a, b))
            for run in self._runs(ordinal, queue.ledger.open_parts(ordinal)):
                if run.attempts:
                    returned.append(run)
                else:
                    queue.backlog.append(run)
        for run in reversed(returned):
            queue.backlog.give_back(run)
        queue.ledger.next_ordinal = self.next_ordinal
        queue.ledger.note_peak()
        return queue

    def _check_complete(self, name: str) -> None:
        lost: list[int] = []
        for first, last in self.live:
            lost.extend(ordinal for ordinal in range(first, last + 1) if ordinal not in self.blocks)
        if lost:
            names = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans(lost))
            raise StoreDamagedError(
                f"destination {name}: the store does not hold blocks {names}, which are not acknowledged;"
                " restore the store's files, or salvage what is left of it"
            )

    def _runs(self, ordinal: int, parts: Iterable[Part]) -> Iterator[Run]:
        """Split parts where the number of attempts changes."""
        tried = self.tried.get(ordinal)
        fresh_from = self.mark[1] if ordinal == self.mark[0] else (0 if ordinal > self.mark[0] else 1 << 62)
        for part in parts:
            if tried is None and not part.start < fresh_from < part.end:
                yield Run(ordinal, part.start, part.end, int(part.start < fresh_from))
                continue
            attempts = {i: int(i < fresh_from) for i in range(part.start, part.end)}
            for row in tried or ():
                for i in range(max(row.start, part.start), min(row.end, part.end)):
                    attempts[i] = max(attempts[i], row.attempts)
            for count, group in groupby(attempts.items(), key=lambda item: item[1]):
                indexes = [i for i, _ in group]
                yield Run(ordinal, indexes[0], indexes[-1] + 1, count)
