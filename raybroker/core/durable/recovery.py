"""A destination from what a store gave back.

A snapshot says which blocks live; entries after it say what happened since.  A block that the snapshot calls alive and
that the store does not give back is damage, not absence: recovery stops and names it.
"""

from __future__ import annotations

from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks import ranges
from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.blocks.block_index import spans
from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.run import Run
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable import snapshot as snap
from raybroker.core.durable.records import BlockMeta, JournalRecord, Row
from raybroker.core.queue import Queue
from raybroker.core.settlement import QUEUE_ALL
from raybroker.core.staged_transaction import StagedBlock, stage
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.model.errors import StoreDamagedError
from raybroker.model.record import BLOCK, Entry
from raybroker.model.settings import DestinationAttributes

KINDS: Final[dict[str, type[Destination]]] = {"queue": Queue, "topic": Topic}
Parts = list[tuple[int, int, int, int]]
"""Messages of a block with their attempts, failures and until when they rest, milliseconds."""


class DeliveryQueueFound:
    """What the log says about one delivery queue; masks by ordinal."""

    __slots__ = ("failed", "live", "owed", "settled", "staged", "subscription", "tried", "tried_whole", "whole")

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.live: list[records.Span] = []
        self.owed: dict[int, int] = {}
        self.settled: dict[int, int] = {}
        self.whole: set[int] = set()
        self.tried: dict[int, list[Row]] = {}
        self.tried_whole: dict[int, int] = {}
        self.failed: dict[int, list[Row]] = {}
        self.staged: dict[int, list[Row]] = {}

    def is_live(self, ordinal: int) -> bool:
        return any(first <= ordinal <= last for first, last, _ in self.live)

    def parts(self, ordinal: int, mask: int) -> Parts:
        """``mask`` of a block as (messages, attempts, failures, until when they rest)."""
        groups: Parts = [(mask, self.tried_whole.get(ordinal, 0), 0, 0)]
        for row in self.tried.get(ordinal, ()):
            groups = _tried(groups, row.mask, row.value)
        for row in self.failed.get(ordinal, ()):
            groups = _raised(groups, row.mask, 0, row.value, row.until_ms)
        return groups


def _tried(groups: Parts, mask: int, attempts: int) -> Parts:
    """Those messages of every group that are among ``mask`` have so many attempts."""
    rest = [(some & ~mask, a, f, u) for some, a, f, u in groups if some & ~mask]
    return [*((some & mask, attempts, f, u) for some, _, f, u in groups if some & mask), *rest]


def _raised(groups: Parts, mask: int, attempts: int, failures: int, until_ms: int) -> Parts:
    """Those messages of every group that are among ``mask`` have at least so many attempts and failures."""
    found: Parts = []
    for some, a, f, u in groups:
        if some & mask:
            found.append((some & mask, max(a, attempts), max(f, failures), max(u, until_ms)))
        if some & ~mask:
            found.append((some & ~mask, a, f, u))
    return found


class Recovery:
    """Collects what a store gives back about one destination; :meth:`finish` makes it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_ordinal = 1
        self.next_queue = 1
        self.queues: dict[int, DeliveryQueueFound] = {0: DeliveryQueueFound()}
        self.blocks: dict[int, BlockMeta] = {}
        self.dead: list[int] = []
        self.gone: set[int] = set()
        """Blocks of transactions that were rolled back."""
        self.refused: dict[int, int] = {}
        self.told: dict[int, int] = {}
        """Messages whose death was told."""
        self.waiting: dict[int, int] = {}
        """Block → the transaction it waits for."""
        self.late: set[int] = set()
        """Blocks that had come and were not written when the snapshot was made."""
        self.taken: dict[int, ranges.Ranges] = {}
        self.dedup: list[tuple[str, int]] = []
        self._snapshot_end = 1

    def load(self, data: bytes) -> None:
        """Start from a snapshot; called before any entry."""
        self.next_ordinal, self.next_queue, _ = snap.HEAD.unpack_from(data)
        self._snapshot_end = self.next_ordinal
        pieces = snap.sections(data, snap.HEAD.size)
        for producer, start, end in snap.TAKEN.iter_unpack(next(pieces)):
            ranges.add(self.taken.setdefault(producer, []), start, end)
        self.dedup = records.decode_dedup(next(pieces))
        for piece in pieces:
            self._apply_record(records.decode(piece))

    def apply(self, entry: Entry) -> None:
        """One BLOCK or NOTE of this destination, in the order of the log; ATTRIBUTES and GONE are the engine's."""
        if entry.kind == BLOCK:
            self._block(entry.ordinal, records.decode_block_meta(entry.meta))
        else:
            self._apply_record(records.decode(entry.meta))

    def _apply_record(self, record: JournalRecord) -> None:
        handler = _HANDLERS_OF_KIND.get(record.kind)
        if handler is None:
            raise StoreDamagedError(f"destination {self.number}: a record of unknown kind {record.kind}")
        handler(self, record)

    def _queue(self, number: int) -> DeliveryQueueFound:
        return self.queues.setdefault(number, DeliveryQueueFound())

    def _acked(self, record: JournalRecord) -> None:
        if record.queue == QUEUE_ALL:
            self.gone.update(o for first, last, _ in record.spans for o in range(first, last + 1))
            return
        queue = self._queue(record.queue)
        for first, last, _ in record.spans:
            queue.whole.update(range(first, last + 1))
            if not record.queue:
                for ordinal in range(first, last + 1):
                    if self.blocks.pop(ordinal, None) is not None:
                        self.dead.append(ordinal)
        for row in record.rows:
            queue.settled[row.ordinal] = queue.settled.get(row.ordinal, 0) | row.mask

    def _buried(self, record: JournalRecord) -> None:
        for row in record.rows:
            self.told[row.ordinal] = self.told.get(row.ordinal, 0) | row.mask

    def _taken(self, record: JournalRecord) -> None:
        taken = self.taken.setdefault(records.decode_number(record.rest), [])
        for first, last, _ in record.spans:
            ranges.add(taken, first, last + 1)

    def _refused(self, record: JournalRecord) -> None:
        for row in record.rows:
            self.refused[row.ordinal] = self.refused.get(row.ordinal, 0) | row.mask

    def _dispatched(self, record: JournalRecord) -> None:
        queue = self._queue(record.queue)
        for first, last, attempts in record.spans:
            for ordinal in range(first, last + 1):  # What was handed out and never seen has less than before.
                queue.tried_whole[ordinal] = attempts
                queue.tried.pop(ordinal, None)
        for row in record.rows:
            queue.tried.setdefault(row.ordinal, []).append(row)

    def _failed(self, record: JournalRecord) -> None:
        queue = self._queue(record.queue)
        for row in record.rows:
            queue.failed.setdefault(row.ordinal, []).append(row)

    def _subscribed(self, record: JournalRecord) -> None:
        self._queue(record.queue).subscription = Subscription.decode(record.rest)
        self.next_queue = max(self.next_queue, record.queue + 1)

    def _unsubscribed(self, record: JournalRecord) -> None:
        self.queues.pop(record.queue, None)

    def _live(self, record: JournalRecord) -> None:
        self._queue(record.queue).live.extend(record.spans)

    def _owed(self, record: JournalRecord) -> None:
        self._queue(record.queue).owed.update((row.ordinal, row.mask) for row in record.rows)

    def _staged(self, record: JournalRecord) -> None:
        self._queue(record.queue).staged.setdefault(records.decode_number(record.rest), []).extend(record.rows)

    def _waiting(self, record: JournalRecord) -> None:
        txn = records.decode_number(record.rest)
        if not txn:
            self.late.update(o for first, last, _ in record.spans for o in range(first, last + 1))
            return
        self.waiting.update((o, txn) for first, last, _ in record.spans for o in range(first, last + 1))

    def _ids(self, record: JournalRecord) -> None:
        self.dedup.extend(records.decode_dedup(record.rest))

    def _block(self, ordinal: int, meta: BlockMeta) -> None:
        if ordinal < self._snapshot_end and ordinal not in self.late:
            if ordinal not in self.waiting and not any(queue.is_live(ordinal) for queue in self.queues.values()):
                self.dead.append(ordinal)
                return
        else:
            taken = self.taken.setdefault(meta.producer, [])
            for a, b in pk.runs_of(pk.span(0, meta.messages) & ~self.refused.get(ordinal, 0)):
                ranges.add(taken, meta.first_seq + a, meta.first_seq + b)
            if meta.txn:
                self.waiting[ordinal] = meta.txn
        self.next_ordinal = max(self.next_ordinal, ordinal + 1)
        if meta.claims is None and ordinal in self.queues[0].whole:
            self.dead.append(ordinal)
            return
        self.blocks[ordinal] = meta

    # ---- the end ---------------------------------------------------------------------------------------------------

    def finish(
        self,
        name: str,
        attributes: DestinationAttributes,
        *,
        kind: str = "queue",
        reap_ms: int | None = None,
        now_ms: int = 0,
        decided: dict[int, bool] | None = None,
    ) -> Destination:
        """The destination as it was; raises StoreDamagedError when a block that must be there is not.

        ``decided``: how transactions ended; one that is not there is still prepared.
        """
        decided = decided or {}
        self._check_complete(name, decided)
        home = KINDS[kind](self.number, name, attributes, reap_ms=reap_ms)
        home.current.now_ms = now_ms
        home.producers.taken = self.taken
        home.duplicates.take(sorted(self.dedup, key=lambda row: row[1]), attributes.duplicateIdsMax)
        if isinstance(home, Topic):
            home.next_queue = self.next_queue
            for number, found in sorted(self.queues.items()):
                if found.subscription is not None:
                    home.new_queue(number, found.subscription)
        for found in self.queues.values():
            _end_staged(found, decided)
        for ordinal in sorted(self.blocks):
            self._restore(home, ordinal, decided)
        home.block_index.next_ordinal = self.next_ordinal
        home.block_index.note_peak()
        for queue in home.queues.values():
            queue.settle_units()
        home.ended_before = any(run.failures for queue in home.queues.values() for _, run in queue.contents(tried=True))
        return home

    def _restore(self, home: Destination, ordinal: int, decided: dict[int, bool]) -> None:
        meta = self.blocks[ordinal]
        txn = self.waiting.get(ordinal, 0)
        everything = pk.span(0, meta.messages)
        if ordinal in self.gone or (txn and not decided.get(txn, True)):
            self.dead.append(ordinal)
            return
        owed = self._owed_of(home, ordinal, meta, everything)
        if not owed and not (txn and txn not in decided):
            self.dead.append(ordinal)
            return
        columns = Columns(meta.priority, meta.priorities, meta.expires, meta.deliver_at, meta.units, meta.works)
        block = BlockEntry(meta.messages, meta.sizes, True, columns, stored=True)
        block.told_dead = self.told.get(ordinal, 0)
        home.block_index.accept(block, ordinal, whole=False)
        some = everything & ~self.refused.get(ordinal, 0) if txn and txn not in decided else 0
        for mask in owed.values():
            some |= mask
        if everything & ~some:
            home.block_index.settle(ordinal, everything & ~some)
        if txn and txn not in decided:
            staged = stage(home.staged, txn)
            staged.prepared = True
            staged.claims[ordinal] = owed
            staged.blocks.append(StagedBlock(ordinal, some, meta.producer, meta.first_seq, None, ("", ""), True))
            for number, mask in owed.items() if block.ordered else ():
                home.queues[number].reserve(ordinal, mask)
            if home.works.enabled:
                home.works.restage(block, some)
            return
        block.claims = len(owed)
        self._place(home, ordinal, owed)

    def _owed_of(self, home: Destination, ordinal: int, meta: BlockMeta, everything: int) -> dict[int, int]:
        """DeliveryQueue → what it has not settled of the block."""
        owed: dict[int, int] = {}
        for number in home.queues:
            found = self.queues.get(number)
            if found is None or ordinal in found.whole:
                continue
            if meta.claims is None:
                mask = everything & ~self.refused.get(ordinal, 0)
            elif ordinal < self._snapshot_end and ordinal not in self.waiting and ordinal not in self.late:
                mask = found.owed.get(ordinal, 0)
            elif number in meta.claims:
                claim = meta.claims[number]
                mask = everything if claim is None else claim
            else:
                continue
            mask &= ~found.settled.get(ordinal, 0)
            if mask:
                owed[number] = mask
        return owed

    def _place(self, home: Destination, ordinal: int, owed: dict[int, int]) -> None:
        """Put what each delivery queue is owed where it was: waiting, resting, or consumed in a prepared
        transaction."""
        fresh: dict[int, int] = {}
        arrivals: dict[int, int] = {}
        block = home.block_index.held[ordinal]
        for number, mask in owed.items():
            queue, found = home.queues[number], self.queues[number]
            arrival = arrivals[number] = queue.next_arrival()
            if queue.owes is not None:
                queue.owes[ordinal] = mask
            left = mask & ~self._restage(home, number, ordinal, mask, arrival)
            for chosen, attempts, failures, until_ms in found.parts(ordinal, left) if left else ():
                if not attempts and not failures:
                    fresh[number] = fresh.get(number, 0) | chosen
                    continue
                for priority, some in block.by_priority(chosen):
                    run = Run(arrival, ordinal, some, max(attempts, 1), failures, priority)
                    if until_ms > home.current.now_ms:
                        queue.rest(until_ms, run)
                    else:
                        queue.put_back(run)
        home.arrived(ordinal, fresh, None, arrivals)

    def _restage(self, home: Destination, number: int, ordinal: int, mask: int, arrival: int) -> int:
        """Messages of a block that prepared transactions have consumed; returns which those are."""
        found, block, consumed = self.queues[number], home.block_index.held[ordinal], 0
        for txn, rows in found.staged.items():
            for row in rows:
                hit = row.mask & mask & ~consumed if row.ordinal == ordinal else 0
                consumed |= hit
                for chosen, attempts, failures, _ in found.parts(ordinal, hit) if hit else ():
                    for priority, some in block.by_priority(chosen):
                        run = Run(arrival, ordinal, some, max(attempts, row.value, 1), failures, priority)
                        staged = stage(home.staged, txn)
                        staged.prepared = True
                        staged.acks.append((number, Delivery(0, some.bit_count(), run, 0)))
                        home.queues[number].pending_with(ordinal).restage(run, txn)
        return consumed

    def _check_complete(self, name: str, decided: dict[int, bool]) -> None:
        lost: list[int] = []
        for queue in self.queues.values():
            for first, last, _ in queue.live:
                lost.extend(
                    ordinal
                    for ordinal in range(first, last + 1)
                    if ordinal not in self.blocks and ordinal not in queue.whole and ordinal not in self.gone
                )
        if lost:
            cut = spans(sorted(set(lost)))
            names = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in cut)
            raise StoreDamagedError(
                f"destination {name}: the store does not hold blocks {names}, which are not acknowledged;"
                " restore the store's files, or salvage what is left of it"
            )


def _end_staged(found: DeliveryQueueFound, decided: dict[int, bool]) -> None:
    """Acknowledgements of transactions that have ended count, or are as if they had not been given."""
    for txn in [t for t in found.staged if t in decided]:
        for row in found.staged.pop(txn):
            if decided[txn]:
                found.settled[row.ordinal] = found.settled.get(row.ordinal, 0) | row.mask


_HANDLERS_OF_KIND: Final = {
    records.ACKED: Recovery._acked,
    records.REFUSED: Recovery._refused,
    records.TAKEN: Recovery._taken,
    records.BURIED: Recovery._buried,
    records.DISPATCHED: Recovery._dispatched,
    records.FAILED: Recovery._failed,
    records.QUEUE: Recovery._subscribed,
    records.QUEUE_GONE: Recovery._unsubscribed,
    records.LIVE: Recovery._live,
    records.OWED: Recovery._owed,
    records.STAGED: Recovery._staged,
    records.WAITING: Recovery._waiting,
    records.DEDUP: Recovery._ids,
}
