"""A destination from what a store gave back.

A snapshot says which blocks live; entries after it say what happened since.  A block that the snapshot calls alive and
that the store does not give back is damage, not absence: recovery stops and names it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, compress, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks import ranges
from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.blocks.block_index import spans
from raybroker.core.counters import Counters
from raybroker.core.delivery.checkpoints import Checkpoints
from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.run import Run
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable import snapshot as snap
from raybroker.core.durable.records import BlockMeta, JournalRecord, RecordRow
from raybroker.core.queue import Queue
from raybroker.core.settlement import QUEUE_ALL
from raybroker.core.staged_transaction import StagedBlock, stage
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.model.blocks.block import PRIORITY_MAX
from raybroker.model.blocks.record import BLOCK, EntryRun, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.model.settings.settings import DestinationAttributes

KINDS: Final[dict[str, type[Destination]]] = {"queue": Queue, "topic": Topic}
TOGETHER: Final = 1 << 18
"""Blocks of one message that are put to their places together, at about so many: it bounds memory."""
_IS_LEVEL: Final = tuple([bytes([byte == level for byte in range(256)]) for level in range(PRIORITY_MAX + 1)])
Parts = list[tuple[int, int, int, int]]
"""Messages of a block with their attempts, failures and until when they rest, milliseconds."""


class DeliveryQueueFound:
    """What the log says about one delivery queue; masks by ordinal."""

    __slots__ = (
        "checkpoints",
        "consumed",
        "failed",
        "left",
        "live",
        "owed",
        "settled",
        "staged",
        "subscription",
        "tried",
        "tried_whole",
        "version",
        "whole",
    )

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.live: ranges.Ranges = []
        self.owed: dict[int, int] = {}
        self.settled: dict[int, int] = {}
        self.whole: ranges.Ranges = []
        """Blocks of which it has settled all."""
        self.left: ranges.Ranges = []
        """Blocks of which the rest left otherwise than to a consumer, or is among the totals already."""
        self.consumed: dict[int, int] = {}
        """Single messages that consumers had since the totals were written down."""
        self.tried: dict[int, list[RecordRow]] = {}
        self.tried_whole: dict[int, int] = {}
        self.failed: dict[int, list[RecordRow]] = {}
        self.staged: dict[int, list[RecordRow]] = {}
        self.checkpoints: dict[tuple[int, int], bytes] = {}
        """(block, mask of one message) → its last checkpoint."""
        self.version: int | None = None
        """The last one that was published."""

    def put_checkpoints(self, checkpoints: Checkpoints, owed: Callable[[int], int]) -> None:
        """Put back those of messages that are there still."""
        for (ordinal, mask), state in self.checkpoints.items():
            if owed(ordinal) & mask:
                checkpoints.put(ordinal, mask.bit_length() - 1, state)

    def counted_already(self) -> None:
        """The totals were written down here: they have all that is settled."""
        self.left = list(self.whole)
        self.consumed.clear()

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


class AloneRun(NamedTuple):
    """Blocks of one message, from ``first`` on, of which nothing more is of interest than sizes and priorities."""

    first: int
    sizes: array[int]
    priorities: bytes

    @property
    def end(self) -> int:
        """The ordinal behind the last."""
        return self.first + len(self.sizes)

    def part(self, start: int, end: int) -> AloneRun:
        """Blocks ``start … end - 1``, which it has."""
        if start == self.first and end == self.end:
            return self
        a, b = start - self.first, end - self.first
        return AloneRun(start, self.sizes[a:b], self.priorities[a:b])

    def meta(self, ordinal: int) -> BlockMeta:
        """Return the meta of one of its blocks; who sent it is not asked any more."""
        return BlockMeta(1, 0, 0, self.sizes[ordinal - self.first], self.priorities[ordinal - self.first])


class DestinationRecovery:
    """Collects what a store gives back about one destination; :meth:`finish` makes it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_ordinal = 1
        self.next_queue = 1
        self.queues: dict[int, DeliveryQueueFound] = {0: DeliveryQueueFound()}
        self.blocks: dict[int, BlockMeta] = {}
        self.alone: list[AloneRun] = []
        """Blocks that the store gave back together, in no certain order; the others are ``blocks``."""
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
        self.counters = Counters()
        self._counted: set[int] = set()
        """Prepared transactions whose messages are among the totals that were written down."""
        self.snapshot_end = 1
        """Blocks below were given out before the snapshot."""

    def load(self, data: bytes) -> None:
        """Start from a snapshot; called before any entry."""
        self.next_ordinal, self.next_queue, _ = snap.HEAD.unpack_from(data)
        self.snapshot_end = self.next_ordinal
        pieces = snap.sections(data, snap.HEAD.size)
        for producer, start, end in snap.TAKEN.iter_unpack(next(pieces)):
            ranges.add(self.taken.setdefault(producer, []), start, end)
        self.dedup = records.decode_dedup(next(pieces))
        for piece in pieces:
            self._apply_record(records.decode(piece))
        for queue in self.queues.values():
            queue.counted_already()

    def apply(self, entry: LogEntry) -> None:
        """One BLOCK or NOTE of this destination, in the order of the log; ATTRIBUTES and GONE are the engine's."""
        if entry.kind == BLOCK:
            self._block(entry.ordinal, records.decode_block_meta(entry.meta))
        else:
            self._apply_record(records.decode(entry.meta))

    def apply_run(self, run: EntryRun) -> None:
        """BLOCK entries of this destination that are side by side, in their place in the log.

        Messages that were sent alone to a queue are kept as columns, others are applied one by one.
        """
        start, end = run.first, run.first + run.blocks
        found = records.decode_alone(run.metas, run.blocks) if len(self.queues) == 1 else None
        if found is None or start < self.snapshot_end < end or self._looks_at_any(start, end):
            for entry in run.entries():
                self.apply(entry)
            return
        sizes, priorities, came = found
        whole = AloneRun(start, sizes, priorities)
        if end <= self.snapshot_end:
            gone = list(ranges.missing(self.queues[0].live, start, end))
            for first, stop in gone:
                self.dead.extend(range(first, stop))
            self.alone.extend(whole.part(first, stop) for first, stop in ranges.missing(gone, start, end))
        else:
            self._take_sequences(run.metas)
            self._count_alone(sizes, came)
            self.next_ordinal = max(self.next_ordinal, end)
            self.alone.append(whole)

    def _looks_at_any(self, start: int, end: int) -> bool:
        """Whether what is known of a block before it comes decides what becomes of it."""
        return any(start <= ordinal < end for ordinal in chain(self.late, self.waiting, self.refused))

    def _take_sequences(self, metas: bytes) -> None:
        """The sequence numbers of messages that were sent alone are taken."""
        growing: dict[int, tuple[int, int]] = {}
        for producer, seq in records.senders_of(metas):
            start, end = growing.get(producer, (seq, seq))
            if seq != end:
                ranges.add(self.taken[producer], start, end)
                start = seq
            elif start == end:
                self.taken.setdefault(producer, [])
            growing[producer] = start, seq + 1
        for producer, (start, end) in growing.items():
            ranges.add(self.taken[producer], start, end)

    def ordinals(self) -> list[int]:
        """The blocks that were found and are not dead."""
        return [*self.blocks, *(ordinal for run in self.alone for ordinal in range(run.first, run.end))]

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
        for row in record.rows:  # Before the spans: the last part of a block is written as the whole of it.
            if ranges.has(queue.whole, row.ordinal):
                continue
            known = queue.settled.get(row.ordinal, 0)
            if not record.rest:
                queue.consumed[row.ordinal] = queue.consumed.get(row.ordinal, 0) | (row.mask & ~known)
            queue.settled[row.ordinal] = known | row.mask
        for first, last, _ in record.spans:
            ranges.add(queue.whole, first, last + 1)
            if not record.queue:
                span = range(first, last + 1)
                few = span if len(span) <= len(self.blocks) else [o for o in self.blocks if o in span]
                for ordinal in few:
                    meta = self.blocks.pop(ordinal, None)
                    if meta is not None:
                        self.dead.append(ordinal)
                        self._count_settled(queue, ordinal, meta, left=bool(record.rest))
            if record.rest:
                ranges.add(queue.left, first, last + 1)

    # ---- totals ----------------------------------------------------------------------------------------------------

    def _totals(self, record: JournalRecord) -> None:
        """What came before is among these totals."""
        found = records.decode_counts(record.rest)
        self.counters.restore(found.totals, found.base, found.since_ms)
        for queue in self.queues.values():
            queue.counted_already()
        self._counted = set(self.waiting.values()) - set(found.waiting)

    def _count_in(self, ordinal: int, meta: BlockMeta) -> None:
        """A block came."""
        if meta.came == records.COMPOSED:
            return
        mask = pk.span(0, meta.messages) & ~self.refused.get(ordinal, 0)
        self.counters.count_received(mask.bit_count(), _bytes_of(meta, mask), moved=meta.came == records.MOVED)

    def _count_alone(self, sizes: array[int], came: bytes) -> None:
        """Blocks of one message came."""
        moved = came.count(records.MOVED)
        sent = len(sizes) - moved - came.count(records.COMPOSED)
        self.counters.count_received(moved, 0, moved=True)
        nbytes = sum(compress(sizes, [how == records.SENT for how in came])) if came else sum(sizes)
        self.counters.count_received(sent, nbytes, moved=False)

    def _count_out(self, meta: BlockMeta, mask: int) -> None:
        self.counters.messages_out += mask.bit_count()
        self.counters.bytes_out += _bytes_of(meta, mask)

    def _count_settled(self, queue: DeliveryQueueFound, ordinal: int, meta: BlockMeta, *, left: bool) -> None:
        """The block of a queue is settled as a whole: the rest of it, and what was before."""
        txn = self.waiting.get(ordinal, 0)
        if txn and txn not in self._counted:
            self._count_in(ordinal, meta)
        mask = queue.consumed.pop(ordinal, 0)
        if not left:
            mask |= pk.span(0, meta.messages) & ~self.refused.get(ordinal, 0) & ~queue.settled.get(ordinal, 0)
        self._count_out(meta, mask)

    def _count_settled_alone(self, queue: DeliveryQueueFound, run: AloneRun) -> None:
        """Blocks of one message are settled, nearly all of them as a whole."""
        apart = {o for found in (queue.settled, self.refused) for o in found if run.first <= o < run.end}
        for ordinal in apart:
            left = ranges.has(queue.left, ordinal)
            self._count_settled(queue, ordinal, run.meta(ordinal), left=left)
        for low, high in ranges.missing(queue.left, run.first, run.end):
            sizes = run.part(low, high).sizes
            self.counters.messages_out += len(sizes) - sum(low <= ordinal < high for ordinal in apart)
            self.counters.bytes_out += sum(sizes) - sum(sizes[o - low] for o in apart if low <= o < high)

    def _count_rest(self, decided: dict[int, bool]) -> None:
        """Blocks that were prepared and are committed came; single messages were consumed, and blocks of topics."""
        for ordinal, txn in self.waiting.items():
            meta = self.blocks.get(ordinal)
            if meta is not None and decided.get(txn) and txn not in self._counted and ordinal not in self.gone:
                self._count_in(ordinal, meta)
        for number, found in self.queues.items():
            self._count_consumed(number, found)

    def _count_consumed(self, number: int, found: DeliveryQueueFound) -> None:
        for first, last in found.whole if number else ():
            for ordinal in range(first, last):
                if ordinal in self.blocks and not ranges.has(found.left, ordinal):
                    owed = self._owed_by(number, found, ordinal, self.blocks[ordinal])
                    found.consumed[ordinal] = found.consumed.get(ordinal, 0) | owed
        for ordinal, mask in found.consumed.items():
            meta = self.blocks.get(ordinal)
            if meta is not None:
                self._count_out(meta, mask)
            else:  # The store has not given the block back.
                self.counters.messages_out += mask.bit_count()

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

    def _checkpoint(self, record: JournalRecord) -> None:
        for row in record.rows:
            self._queue(record.queue).checkpoints[row.ordinal, row.mask] = record.rest

    def _version(self, record: JournalRecord) -> None:
        self._queue(record.queue).version = records.decode_number(record.rest)

    def _subscribed(self, record: JournalRecord) -> None:
        self._queue(record.queue).subscription = Subscription.decode(record.rest)
        self.next_queue = max(self.next_queue, record.queue + 1)

    def _unsubscribed(self, record: JournalRecord) -> None:
        found = self.queues.pop(record.queue, None)
        if found is not None:
            self._count_consumed(record.queue, found)

    def _live(self, record: JournalRecord) -> None:
        live = self._queue(record.queue).live
        for first, last, _ in record.spans:
            ranges.add(live, first, last + 1)

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
        if ordinal < self.snapshot_end and ordinal not in self.late:
            if ordinal not in self.waiting and not any(
                ranges.has(queue.live, ordinal) for queue in self.queues.values()
            ):
                self.dead.append(ordinal)
                return
        else:
            taken = self.taken.setdefault(meta.producer, [])
            for a, b in pk.runs_of(pk.span(0, meta.messages) & ~self.refused.get(ordinal, 0)):
                ranges.add(taken, meta.first_seq + a, meta.first_seq + b)
            if meta.txn:
                self.waiting[ordinal] = meta.txn
            else:
                self._count_in(ordinal, meta)
        self.next_ordinal = max(self.next_ordinal, ordinal + 1)
        if meta.claims is None and ranges.has(self.queues[0].whole, ordinal):
            self.dead.append(ordinal)
            self._count_settled(self.queues[0], ordinal, meta, left=ranges.has(self.queues[0].left, ordinal))
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
        ahead_ms: int = 0,
        decided: dict[int, bool] | None = None,
    ) -> Destination:
        """The destination as it was; raises StoreDamagedError when a block that must be there is not.

        ``decided``: how transactions ended; one that is not there is still prepared.  ``now_ms`` and ``ahead_ms`` as
        of a step: what was written is by the wall clock, and nothing that has happened is later than now.
        """
        decided = decided or {}
        self._check_complete(name)
        destination = KINDS[kind](self.number, name, attributes, reap_ms=reap_ms)
        destination.current.at(now_ms, ahead_ms)
        destination.producers.taken = self.taken
        known = sorted([(text, min(at_ms - ahead_ms, now_ms)) for text, at_ms in self.dedup], key=lambda row: row[1])
        destination.duplicates.take_ids(known, attributes.duplicateIdsMax, persistent=True)
        if isinstance(destination, Topic):
            destination.next_queue = self.next_queue
            for number, found in sorted(self.queues.items()):
                if found.subscription is not None:
                    destination.new_queue(number, found.subscription)
        runs = self._untouched()  # Before transactions end: what was settled as a whole was counted as it was then.
        for found in self.queues.values():
            _end_staged(found, decided)
        self._count_rest(decided)
        counters = self.counters
        destination.counters.restore(counters.lasting(), counters.base, counters.since_ms)
        destination.counters.recovered = counters.lasting()
        singles, together, count = deque(sorted(self.blocks)), list[AloneRun](), 0
        for run in runs:
            if count >= TOGETHER or (singles and singles[0] < run.first):
                self._restore_alone(destination, together, decided)
                together, count = [], 0
                while singles and singles[0] < run.first:
                    self._restore(destination, singles.popleft(), decided)
            together.append(run)
            count += len(run.sizes)
        self._restore_alone(destination, together, decided)
        for ordinal in singles:
            self._restore(destination, ordinal, decided)
        destination.block_index.next_ordinal = self.next_ordinal
        destination.block_index.note_peak()
        for queue in destination.queues.values():
            queue.settle_units()
            if queue.number in self.queues:
                version = self.queues[queue.number].version
                if version is not None and isinstance(queue.plain, VersionPending):
                    queue.plain.publish(version)
                self.queues[queue.number].put_checkpoints(queue.consumers.checkpoints, queue.owed)
        destination.ended_before = any(
            run.failures for queue in destination.queues.values() for _, run in queue.contents(tried=True)
        )
        return destination

    def _untouched(self) -> list[AloneRun]:
        """``alone`` in order, without blocks of which the log says more: these become ``blocks``, or are dead."""
        queue, left = self.queues[0], list[AloneRun]()
        staged = (row.ordinal for rows in queue.staged.values() for row in rows)
        touched = sorted(
            {
                *queue.settled,
                *queue.tried,
                *queue.tried_whole,
                *queue.failed,
                *staged,
                *self.gone,
                *self.refused,
                *self.told,
                *self.waiting,
            }
        )
        done = 0
        for run in sorted(self.alone, key=attrgetter("first")):
            first, done = max(run.first, done), max(run.end, done)
            held = list(ranges.missing(queue.whole, first, run.end))
            for start, end in ranges.missing(held, first, run.end):
                self.dead.extend(range(start, end))
                self._count_settled_alone(queue, run.part(start, end))
            for start, end in held:
                cuts = touched[bisect_left(touched, start) : bisect_left(touched, end)]
                self.blocks.update((ordinal, run.meta(ordinal)) for ordinal in cuts)
                for before, after in pairwise([start - 1, *cuts, end]):
                    if before + 1 < after:
                        left.append(run.part(before + 1, after))
        self.alone = []
        return left

    def _restore_alone(self, destination: Destination, runs: list[AloneRun], decided: dict[int, bool]) -> None:
        """Blocks of one message that wait, as they are; one by one where somebody looks at each."""
        queue = destination.queues.get(0)
        if queue is None or destination.works.enabled or queue.pending is not queue.plain or queue.plain.by_keys:
            for run in runs:
                for ordinal in range(run.first, run.end):
                    self.blocks[ordinal] = run.meta(ordinal)
                    self._restore(destination, ordinal, decided)
            return
        if not runs:
            return
        destination.block_index.accept_alone(runs)
        ordinals: Sequence[int] = range(runs[0].first, runs[-1].end)
        if len(ordinals) > sum([len(run.sizes) for run in runs]):
            ordinals = array("Q", chain.from_iterable([range(run.first, run.end) for run in runs]))
        arrival = queue.next_arrival(len(ordinals))
        arrivals = range(arrival, arrival + len(ordinals))
        priorities = b"".join([run.priorities for run in runs])
        for level in dict.fromkeys(priorities):  # As if they had come one by one: in this order buckets are made.
            queue.plain.backlog.append_alone(
                _of_level(level, priorities, arrivals), _of_level(level, priorities, ordinals), level
            )

    def _restore(self, destination: Destination, ordinal: int, decided: dict[int, bool]) -> None:
        meta = self.blocks[ordinal]
        txn = self.waiting.get(ordinal, 0)
        everything = pk.span(0, meta.messages)
        if ordinal in self.gone or (txn and not decided.get(txn, True)):
            self.dead.append(ordinal)
            return
        owed = self._owed_of(destination, ordinal, meta)
        if not owed and not (txn and txn not in decided):
            self.dead.append(ordinal)
            return
        works, current = meta.works, destination.current
        if works is not None:
            works = works.later(min(-current.ahead_ms, current.now_ms - works.at_ms))
        columns = Columns(meta.priority, meta.priorities, meta.expires, meta.deliver_at, meta.units, works)
        block = BlockEntry(meta.messages, meta.sizes, True, columns, stored=True)
        block.told_dead = self.told.get(ordinal, 0)
        destination.block_index.accept(block, ordinal, whole=False)
        some = everything & ~self.refused.get(ordinal, 0) if txn and txn not in decided else 0
        for mask in owed.values():
            some |= mask
        if everything & ~some:
            destination.block_index.settle_messages(ordinal, everything & ~some)
        if txn and txn not in decided:
            staged = stage(destination.staged, txn)
            staged.prepared = True
            staged.claims[ordinal] = owed
            staged.blocks.append(StagedBlock(ordinal, some, meta.producer, meta.first_seq, None, ("", ""), True))
            for number, mask in owed.items() if block.ordered else ():
                destination.queues[number].reserve(ordinal, mask)
            if destination.works.enabled:
                destination.works.restage(block, some)
            return
        block.claims = len(owed)
        self._place(destination, ordinal, owed)

    def _owed_of(self, destination: Destination, ordinal: int, meta: BlockMeta) -> dict[int, int]:
        """DeliveryQueue → what it has not settled of the block."""
        owed: dict[int, int] = {}
        for number in destination.queues:
            found = self.queues.get(number)
            if found is None or ranges.has(found.whole, ordinal):
                continue
            mask = self._owed_by(number, found, ordinal, meta)
            if mask:
                owed[number] = mask
        return owed

    def _owed_by(self, number: int, found: DeliveryQueueFound, ordinal: int, meta: BlockMeta) -> int:
        """What the block owes a delivery queue that has not settled it as a whole."""
        everything = pk.span(0, meta.messages)
        if meta.claims is None:
            mask = everything & ~self.refused.get(ordinal, 0)
        elif ordinal < self.snapshot_end and ordinal not in self.waiting and ordinal not in self.late:
            mask = found.owed.get(ordinal, 0)
        elif number in meta.claims:
            claim = meta.claims[number]
            mask = everything if claim is None else claim
        else:
            mask = 0
        return mask & ~found.settled.get(ordinal, 0)

    def _place(self, destination: Destination, ordinal: int, owed: dict[int, int]) -> None:
        """Put what each delivery queue is owed where it was: waiting, resting, or consumed in a prepared
        transaction."""
        fresh: dict[int, int] = {}
        arrivals: dict[int, int] = {}
        block, current = destination.block_index.held[ordinal], destination.current
        for number, mask in owed.items():
            queue, found = destination.queues[number], self.queues[number]
            arrival = arrivals[number] = queue.next_arrival()
            if queue.owes is not None:
                queue.owes[ordinal] = mask
            left = mask & ~self._restage(destination, number, ordinal, mask, arrival)
            for chosen, attempts, failures, until_ms in found.parts(ordinal, left) if left else ():
                if not attempts and not failures:
                    fresh[number] = fresh.get(number, 0) | chosen
                    continue
                for priority, some in block.by_priority(chosen):
                    run = Run(arrival, ordinal, some, max(attempts, 1), failures, priority)
                    if until_ms > current.wall_ms:
                        queue.rest(until_ms - current.ahead_ms, run)
                    else:
                        queue.put_back(run)
        destination.arrived(ordinal, fresh, None, arrivals)

    def _restage(self, destination: Destination, number: int, ordinal: int, mask: int, arrival: int) -> int:
        """Messages of a block that prepared transactions have consumed; returns which those are."""
        found, block, consumed = self.queues[number], destination.block_index.held[ordinal], 0
        for txn, rows in found.staged.items():
            for row in rows:
                hit = row.mask & mask & ~consumed if row.ordinal == ordinal else 0
                consumed |= hit
                for chosen, attempts, failures, _ in found.parts(ordinal, hit) if hit else ():
                    for priority, some in block.by_priority(chosen):
                        run = Run(arrival, ordinal, some, max(attempts, row.value, 1), failures, priority)
                        staged = stage(destination.staged, txn)
                        staged.prepared = True
                        staged.acks.append((number, Delivery(0, some.bit_count(), run, 0)))
                        destination.queues[number].pending_with(ordinal).restage(run, txn)
        return consumed

    def missing(self) -> list[int]:
        """Blocks that the snapshot calls alive, and that the store did not give back."""
        lost: set[int] = set()
        alone: ranges.Ranges = []
        for run in sorted(self.alone, key=attrgetter("first")):
            ranges.add(alone, run.first, run.end)
        for queue in self.queues.values():
            for first, last in queue.live:
                lost.update(
                    ordinal
                    for start, end in ranges.missing(alone, first, last)
                    for ordinal in range(start, end)
                    if ordinal not in self.blocks and ordinal not in self.gone and not ranges.has(queue.whole, ordinal)
                )
        return sorted(lost)

    def _check_complete(self, name: str) -> None:
        lost = self.missing()
        if lost:
            raise StoreDamagedError(
                f"destination {name}: the store does not hold blocks {shown_spans(lost)}, which are not acknowledged;"
                " restore the store's files, or salvage what is left of it"
            )


def shown_spans(ordinals: list[int]) -> str:
    """Numbers of blocks, sorted, for people."""
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans(ordinals))


def _of_level(level: int, priorities: bytes, column: Sequence[int]) -> Sequence[int]:
    """What of a column belongs to messages of one priority."""
    if priorities.count(level) == len(priorities):
        return column
    return array("Q", compress(column, priorities.translate(_IS_LEVEL[level])))


def _end_staged(found: DeliveryQueueFound, decided: dict[int, bool]) -> None:
    """Acknowledgements of transactions that have ended count, or are as if they had not been given."""
    for txn in [t for t in found.staged if t in decided]:
        for row in found.staged.pop(txn):
            if decided[txn] and not ranges.has(found.whole, row.ordinal):
                known = found.settled.get(row.ordinal, 0)
                found.consumed[row.ordinal] = found.consumed.get(row.ordinal, 0) | (row.mask & ~known)
                found.settled[row.ordinal] = known | row.mask


def _bytes_of(meta: BlockMeta, mask: int) -> int:
    if isinstance(meta.sizes, int):
        return meta.sizes * mask.bit_count()
    return sum([meta.sizes[index] for index in pk.indexes(mask)])


_HANDLERS_OF_KIND: Final = {
    records.ACKED: DestinationRecovery._acked,
    records.REFUSED: DestinationRecovery._refused,
    records.TAKEN: DestinationRecovery._taken,
    records.BURIED: DestinationRecovery._buried,
    records.DISPATCHED: DestinationRecovery._dispatched,
    records.FAILED: DestinationRecovery._failed,
    records.CHECKPOINT: DestinationRecovery._checkpoint,
    records.VERSION: DestinationRecovery._version,
    records.QUEUE: DestinationRecovery._subscribed,
    records.QUEUE_GONE: DestinationRecovery._unsubscribed,
    records.LIVE: DestinationRecovery._live,
    records.OWED: DestinationRecovery._owed,
    records.STAGED: DestinationRecovery._staged,
    records.WAITING: DestinationRecovery._waiting,
    records.DEDUP: DestinationRecovery._ids,
    records.COUNTED: DestinationRecovery._totals,
}
