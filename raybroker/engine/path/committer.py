"""Group commit: batches become durable while the engine's thread collects the next.

A small group is committed in the engine's own thread at the end of its turn, and a larger one too while the disk proves
quick: two changes of thread cost more than the sync.  Everything else goes to a thread.  Exactly one commit is in
flight, and completions come in the order of the commits.  What waits is bounded: past ``PENDING_BYTES_HIGH`` the
committer says it is ``overloaded`` and whoever reads from producers must stop until ``relieved``.  Any error but one
ends the thread for good and is reported once: nothing of the failed batch, and nothing after it, is ever called done.

The one is StoreFullError: nothing of the group was written, so it waits and is tried again, and meanwhile the engine is
asked for a checkpoint.  A checkpoint supersedes the notes before it, so when it has come it is written in their place:
that takes room that is kept for it, and gives back the room of what it supersedes.

Where the log has copies on other nodes, a group that is durable here waits until as many copies have it as must.  What
waits for them is pending as well, so that nothing more is taken from producers when they do not answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raybroker.engine.ports import CommitStamps, LogCopies, Store
from raybroker.model import histogram
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, LogEntry
from raybroker.model.errors import BrokerError, StoreError, StoreFullError
from raybroker.model.histogram import Histogram

COMMIT_BYTES_MAX: Final = 4 << 20
"""A commit takes at most this much of what waits: larger ones only make the next one wait."""
PENDING_BYTES_HIGH: Final = 64 << 20
PENDING_BYTES_LOW: Final = 16 << 20
MAINTAIN_BYTES: Final = 4 << 20
"""Survivors copied between two looks at the queue."""
INLINE_SMALL_BYTES: Final = 32 << 10
INLINE_BYTES_MAX: Final = 512 << 10
"""Larger groups go to the thread, so that the next one is received meanwhile."""
INLINE_NS_MAX: Final = 1_000_000
"""After a commit that took longer than this the thread takes the next one: the engine must not wait for a slow disk."""
INLINE_QUICK_NS: Final = 400_000
"""While commits in the engine's thread take no longer than this on average, groups of more than ``INLINE_SMALL_BYTES``
stay there: about what two changes of thread and the waiting for one's turn in between cost."""
INLINE_RUN_MAX: Final = 256
INLINE_RUN_BYTES: Final = 8 << 20
"""So many commits, or bytes of them, in the engine's thread before the other one gets a chance to tidy the store."""
FULL_RETRY_S: Final = 0.5
"""How long what found no room waits for a checkpoint, or for space, before it is tried again."""
INLINE_TRIAL_EVERY: Final = 256
"""Commits that go to the thread because it was not quick enough in the engine's, before that is tried again."""

SLOW_S: Final = 1.0
"""A commit that takes longer is counted as slow, and told to the log."""
SLOW_NS: Final = int(SLOW_S * 1e9)
THREAD_NAME: Final = "raybroker-commit"
NOTED_MAX: Final = 256
"""Commits that are noted before their figures are put into histograms."""

Done = Callable[[], None]
Batch = tuple[Sequence[LogEntry], int, Done]
"""Entries, how many bytes they are, and whom to tell."""


def entry_bytes(entries: Sequence[LogEntry]) -> int:
    """How much a batch will add to a log, to the nearest few bytes an entry."""
    nbytes = 64 * len(entries)
    for entry in entries:
        nbytes += len(entry.meta)
        for part in entry.payload:
            nbytes += part.nbytes if isinstance(part, memoryview) else len(part)
    return nbytes


class CommitMeter:
    """What commits took and brought; one commit is in flight at a time, so one thread counts at a time.

    A commit is only noted; its figures reach the histograms when these are read, or when ``NOTED_MAX`` have come.

    slow        commits that took longer than ``SLOW_S``
    slowest_ns  the longest of those that the log has not heard of
    began_ns    when the commit began that is under way, monotonic; 0 without one
    """

    __slots__ = ("_batches", "_bytes", "_lock", "_noted", "_seconds", "began_ns", "slow", "slowest_ns")

    def __init__(self) -> None:
        self.slow = self.slowest_ns = self.began_ns = 0
        self._noted: deque[tuple[int, int, int]] = deque()
        self._lock = threading.Lock()
        self._seconds = Histogram(histogram.SECONDS)
        self._bytes = Histogram(histogram.BATCH_BYTES)
        self._batches = Histogram(histogram.BATCH)

    def count(self, took_ns: int, nbytes: int, batches: int) -> None:
        if took_ns > SLOW_NS:
            self.slow += 1
            self.slowest_ns = max(self.slowest_ns, took_ns)
        self._noted.append((took_ns, nbytes, batches))
        if len(self._noted) >= NOTED_MAX:
            self._fold()

    @property
    def seconds(self) -> Histogram:
        """How long commits took."""
        self._fold()
        return self._seconds

    @property
    def bytes(self) -> Histogram:
        """How much they wrote."""
        self._fold()
        return self._bytes

    @property
    def batches(self) -> Histogram:
        """How many batches shared one."""
        self._fold()
        return self._batches

    def _fold(self) -> None:
        with self._lock:
            rows = [self._noted.popleft() for _ in range(len(self._noted))]
            if rows:
                self._seconds.observe_all([took_ns / 1e9 for took_ns, _, _ in rows])
                self._bytes.observe_all([nbytes for _, nbytes, _ in rows])
                self._batches.observe_all([batches for _, _, batches in rows])


def release_each(group: Sequence[Done]) -> None:
    """Tell those who wait for one group."""
    for done in group:
        done()


def call_at_once(action: Done) -> None:
    """Call it: for engines whose callbacks leave at once what they write."""
    action()


class InlineCommitter:
    """Commits in the caller's thread: for stores that do not wait for a disk."""

    def __init__(self, store: Store, *, failed: Callable[[BrokerError], None]) -> None:
        self._store = store
        self._failed = failed
        self._dead = False
        self.overloaded = False
        self.pending_bytes = 0

    def trace(self, stamps: CommitStamps | None) -> None:
        """Nobody waits for a disk here: there is nothing to stamp."""

    def submit(self, entries: Sequence[LogEntry], done: Done) -> None:
        if self._dead:
            return
        try:
            if entries:
                self._store.commit(entries)
        except StoreError as error:
            self._dead = True
            self._failed(error)
            return
        done()

    def tidy(self) -> None:
        if not self._dead:
            while self._store.maintain(MAINTAIN_BYTES):
                pass

    def close(self) -> None:
        """Nothing is ever left to do."""


class EngineCalls(NamedTuple):
    """What a committer calls of its engine.

    post      runs a callable in the engine's thread, from any thread
    soon      runs one there later in its turn, from that thread
    relieved  the committer is overloaded no longer
    failed    the store has failed, and nothing is committed any more
    full      the store has no room for what is next
    release   calls those who wait for one group, in order, in the engine's thread
    behind    runs a callable there when what those have written has left
    copies    of the log on other nodes; None: there are none
    """

    post: Callable[[Done], object]
    soon: Callable[[Done], object]
    relieved: Done
    failed: Callable[[BrokerError], None]
    full: Callable[[StoreFullError], None]
    release: Callable[[Sequence[Done]], None] = release_each
    behind: Callable[[Done], object] = call_at_once
    copies: LogCopies | None = None


class MeasuredStore:
    """A store whose commits are measured; one is in flight at a time."""

    __slots__ = ("_monotonic_ns", "_note", "_store", "last_ns", "mark_due", "meter", "next_stamps", "stamps")

    def __init__(self, store: Store, monotonic_ns: Callable[[], int]) -> None:
        self._store = store
        self._monotonic_ns = monotonic_ns
        self.meter = CommitMeter()
        self.last_ns = 0
        """How long the last commit took."""
        self.mark_due = False
        """The engine's thread is to call :meth:`note_durable`."""
        self._note: Done | None = None
        """What notes that the last commit is durable."""
        self.next_stamps: CommitStamps | None = None
        """Of the batch that comes next, if that is traced."""
        self.stamps: dict[Done, CommitStamps] = {}
        """Of traced batches that are not committed."""

    def commit(self, entries: Sequence[LogEntry], size: int, batches: int) -> None:
        """Raises what the store raises; then nothing is counted."""
        began = self.meter.began_ns = self._monotonic_ns()
        try:
            self._note = self._store.commit(entries)
        finally:
            self.meter.began_ns = 0
        took = self.last_ns = self._monotonic_ns() - began
        self.meter.count(took, size, batches)

    def stamp(self, group: Sequence[Batch], *, written: bool) -> None:
        """These were committed, and some batch is traced; ``written``: they had something to be stored."""
        ended_ns = self._monotonic_ns()
        for _, _, done in group:
            stamps = self.stamps.pop(done, None)
            if stamps is not None and written:
                stamps.began_ns, stamps.ended_ns = ended_ns - self.last_ns, ended_ns
                stamps.elsewhere = threading.current_thread().name == THREAD_NAME
                stamps.sync_ns = min(self._store.stats().sync_ns_last, self.last_ns)

    def note_durable(self) -> None:
        """Have the store note that the last commit is durable, once."""
        note, self._note = self._note, None
        if note is not None:
            note()

    def maintain(self, budget_bytes: int) -> bool:
        """Do what the store does."""
        return self._store.maintain(budget_bytes)


class InlineLimit:
    """Which groups are committed in the engine's thread: small ones, and larger ones while the disk proves quick.

    ``last_ns_max``: after a commit that took longer the thread takes the next one.
    """

    __slots__ = ("_bytes", "_last_ns_max", "_not_quick", "_run", "_smoothed_ns")

    def __init__(self, last_ns_max: int) -> None:
        self._last_ns_max = last_ns_max
        self._run = self._bytes = 0
        """Commits in the engine's thread since the other one had a chance, and bytes of them."""
        self._smoothed_ns = 0
        """What commits in the engine's thread take, smoothed."""
        self._not_quick = 0
        """Commits that go to the thread, if they are not small, before the engine's thread tries one again."""

    def allows(self, pending_bytes: int, last_ns: int) -> bool:
        return (
            pending_bytes <= (INLINE_SMALL_BYTES if self._not_quick else INLINE_BYTES_MAX)
            and last_ns <= self._last_ns_max
            and self._run < INLINE_RUN_MAX
            and self._bytes < INLINE_RUN_BYTES
        )

    def count_group(self, size: int) -> None:
        """A group is committed in the engine's thread."""
        self._run += 1
        self._bytes += size

    def took(self, took_ns: int) -> None:
        """One commit that took long is bad luck; a slow disk shows within three."""
        self._smoothed_ns += (took_ns - self._smoothed_ns) // 8
        if self._smoothed_ns > INLINE_QUICK_NS:
            self._smoothed_ns, self._not_quick = 0, INLINE_TRIAL_EVERY

    def pause(self) -> None:
        """The other thread has its chance."""
        self._run = self._bytes = 0

    def elsewhere(self) -> None:
        """A group was committed in the other thread."""
        self._not_quick = max(0, self._not_quick - 1)


class CommitQueue:
    """Batches that wait to be committed; whoever uses it from several threads holds a lock."""

    __slots__ = ("_batches", "stalled")

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self.stalled = False
        """The store was full for what is next; from then on the thread commits, until something fits."""

    def __len__(self) -> int:
        return len(self._batches)

    def append(self, batch: Batch) -> None:
        self._batches.append(batch)

    def clear(self) -> None:
        self._batches.clear()

    def put_back(self, group: list[Batch]) -> None:
        """They found no room, and are the next again."""
        self._batches.extendleft(reversed(group))
        self.stalled = True

    def take_group(self) -> tuple[list[Batch], int]:
        """The next group, and how many bytes it has."""
        if self.stalled:
            return self._take_for_full()
        batches = self._batches
        group = [batches.popleft()]
        size = group[0][1]
        while batches and size + batches[0][1] <= COMMIT_BYTES_MAX:
            group.append(batches.popleft())
            size += group[-1][1]
        return group, size

    def _take_for_full(self) -> tuple[list[Batch], int]:
        """Take one batch; or all up to a checkpoint that supersedes them, and no more than it is to be written."""
        at = self.checkpoint_at()
        group = [self._batches.popleft() for _ in range(max(at, 0) + 1)]
        size = sum(size for _, size, _ in group)
        if at > 0:
            entries, done = [e for e in group[-1][0] if e.kind == CHECKPOINT], group[-1][2]
            group = [*(((), 0, earlier) for _, _, earlier in group[:-1]), (entries, size, done)]
        return group, size

    def checkpoint_at(self) -> int:
        """Return where among what waits there is a checkpoint with nothing but notes before it; -1 if there is none."""
        for at, (entries, _, _) in enumerate(self._batches):
            kinds = [entry.kind for entry in entries]
            if BLOCK in kinds:
                break
            if kinds and kinds[-1] == CHECKPOINT:
                return at
        return -1


class ThreadCommitter:
    """Commits as the module says. Without ``inline`` every commit goes to the thread."""

    def __init__(
        self, store: Store, engine: EngineCalls, monotonic_ns: Callable[[], int], *, inline: bool = True
    ) -> None:
        self._measured = MeasuredStore(store, monotonic_ns)
        self._engine = engine
        self._here = InlineLimit(INLINE_NS_MAX if inline else -1)
        self._waiting = CommitQueue()
        self._committed: deque[tuple[list[Batch], int, int]] = deque()
        """Groups that are durable here, with their bytes and the entry that copies must have before those who wait for
        them are told; 0 without copies."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._busy = False
        """The thread is using the store."""
        self._tidying = False
        """The thread is to reclaim space; it is busy with that."""
        self._armed = False
        """A commit in the engine's thread is due."""
        self._closing = False
        self._dead = False
        self.overloaded = False
        self.pending_bytes = 0
        self._thread = threading.Thread(target=self._guarded, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @property
    def meter(self) -> CommitMeter:
        """What commits took and brought."""
        return self._measured.meter

    def submit(self, entries: Sequence[LogEntry], done: Done) -> None:
        """Called in the engine's thread only."""
        size = entry_bytes(entries)
        with self._lock:
            if self._dead or self._closing:
                return
            self._waiting.append((entries, size, done))
            if self._measured.next_stamps is not None:
                self._measured.stamps[done], self._measured.next_stamps = self._measured.next_stamps, None
            self.pending_bytes += size
            if self.pending_bytes > PENDING_BYTES_HIGH:
                self.overloaded = True
            if self._armed:
                return
            if self._may_commit_here():
                self._armed = True
                self._engine.soon(self._commit_here)
            elif not self._busy or self._waiting.stalled:
                self._wake.notify()

    def trace(self, stamps: CommitStamps | None) -> None:
        """Stamp the commit of the batch that is submitted next; None: of none. Called in the engine's thread only."""
        self._measured.next_stamps = stamps

    def tidy(self) -> None:
        """Let the store reclaim space in the thread, unless that is at work: it tidies up after each commit of its own.

        Called in the engine's thread only, so that no commit is under way in it.
        """
        with self._lock:
            if not (self._dead or self._closing or self._busy or self._waiting):
                self._busy = self._tidying = True
                self._wake.notify()

    def finish_released(self) -> None:
        """More copies have the log: tell those who waited for that.  Called in the engine's thread."""
        self._finish()

    def close(self) -> None:
        """Finish what waits, then end the thread."""
        with self._lock:
            self._closing = True
            self._armed = False
            self._wake.notify()
        self._thread.join()

    # ---- in the engine's thread ------------------------------------------------------------------------------------

    def _may_commit_here(self) -> bool:
        return (
            not self._busy
            and not self._waiting.stalled
            and self._here.allows(self.pending_bytes, self._measured.last_ns)
        )

    def _commit_here(self) -> None:
        with self._lock:
            if not self._armed:
                return
            self._armed = False
            # More has come since this was put off, or the thread has the store: then that commits.
            if not self._may_commit_here():
                self._wake.notify()
                return
            group, size = self._waiting.take_group()
            self._here.count_group(size)
        if not self._commit(group, self._engine.failed, self._engine.full, size):
            return
        self._here.took(self._measured.last_ns)
        self._committed.append((group, size, self._entry()))
        self._finish()
        # Nobody waits for that, and who sends one message after the other does wait for the confirmation.
        if not self._measured.mark_due:
            self._measured.mark_due = True
            self._engine.behind(self._note_durable)

    def _note_durable(self) -> None:
        self._measured.mark_due = False
        try:
            with self._lock:
                # The thread has the store, or is about to: it notes what it finds.
                if not (self._busy or self._closing or self._dead or (self._waiting and not self._armed)):
                    self._measured.note_durable()
        except Exception as error:  # noqa: BLE001 - a store that cannot be written is at its end
            self._die(error, self._engine.failed)

    # ---- in the thread ---------------------------------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - a thread that ends unseen would leave everybody waiting
            self._die(error, self._post_failed)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._busy = False
                # What waits while a commit of the engine's thread is due belongs to that one.
                while (not self._waiting or self._armed) and not self._closing and not self._tidying:
                    self._wake.wait()
                tidying, self._tidying = self._tidying, False
                if not self._waiting and not tidying:
                    return
                self._busy = True
                self._here.pause()
                group, size = ([], 0) if tidying else self._waiting.take_group()
            if tidying:
                if not self._tidy_up():
                    return
                continue
            if not self._commit(group, self._post_failed, self._post_full, size):
                if self._dead:
                    return
                self._wait_for_room()
                continue
            self._here.elsewhere()
            self._committed.append((group, size, self._entry()))
            self._engine.post(self._finish)
            if not self._tidy_up():
                return

    def _wait_for_room(self) -> None:
        """Wait until a checkpoint has come, or for a while; dead segments go meanwhile."""
        if not self._tidy_up(always=True):
            return
        with self._lock:
            self._wake.wait_for(lambda: self._closing or self._waiting.checkpoint_at() > 0, FULL_RETRY_S)

    def _post_failed(self, reason: BrokerError) -> None:
        self._engine.post(lambda: self._engine.failed(reason))

    def _post_full(self, reason: StoreFullError) -> None:
        self._engine.post(lambda: self._engine.full(reason))

    def _tidy_up(self, *, always: bool = False) -> bool:
        """Note how far the store is durable, and reclaim space while nobody waits for a commit."""
        try:
            self._measured.note_durable()
            while (always or not self._waiting) and not self._closing and self._measured.maintain(MAINTAIN_BYTES):
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
            self._die(error, self._post_failed)
            return False
        return True

    # ---- both ------------------------------------------------------------------------------------------------------

    def _put_back(self, group: list[Batch]) -> None:
        with self._lock:
            self._waiting.put_back(group)
            self._wake.notify()

    def _commit(
        self,
        group: list[Batch],
        failed: Callable[[BrokerError], object],
        full: Callable[[StoreFullError], object],
        size: int,
    ) -> bool:
        """False: it failed, or it found no room and waits again."""
        entries = group[0][0] if len(group) == 1 else [entry for batch, _, _ in group for entry in batch]
        try:
            if entries:  # What waits for nothing but its turn says nothing about the disk.
                self._measured.commit(entries, size, len(group))
                self._waiting.stalled = False
        except StoreFullError as error:
            if self._closing:
                self._die(error, failed)
            else:
                self._put_back(group)
                full(error)
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
            self._die(error, failed)
            return False
        if self._measured.stamps:
            self._measured.stamp(group, written=bool(entries))
        return True

    def _entry(self) -> int:
        copies = self._engine.copies
        return 0 if copies is None else copies.last_index()

    def _die(self, error: Exception, failed: Callable[[BrokerError], object]) -> None:
        with self._lock:
            self._dead = True
            self._waiting.clear()
            self._wake.notify()
        failed(error if isinstance(error, BrokerError) else StoreError(f"the store failed: {error!r}"))

    def _finish(self) -> None:
        """Say of all groups that are durable that they are, in order: in the engine's thread, which alone counts what
        is pending.  It may commit a group before it comes to what the other thread has posted of an earlier one."""
        copies = self._engine.copies
        released = 0 if copies is None else copies.released_index()
        while self._committed and self._committed[0][2] <= released:
            group, size, _ = self._committed.popleft()
            self.pending_bytes -= size
            relieved = self.overloaded and self.pending_bytes < PENDING_BYTES_LOW
            if relieved:
                self.overloaded = False
            self._engine.release([group[0][2]] if len(group) == 1 else [done for _, _, done in group])
            if relieved:
                self._engine.relieved()
