"""Where a group is committed: in the engine's thread while that is quick, else in a thread of its own."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from raybroker.engine.path import committer as cm
from raybroker.engine.path.committer import EngineCalls, ThreadCommitter, entry_bytes
from raybroker.engine.ports import CommitStamps
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry, StoreStats
from raybroker.model.errors import BrokerError, StoreError, StoreFullError

PATIENCE_S = 60.0
SMALL, MIDDLE, LARGE = 1 << 10, 100 << 10, 600 << 10
US = 1_000


class Engine:
    """A committer's surroundings: a store that takes the time it is told, and the engine's loop, turned by hand."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.takes_ns = 50 * US
        self.fails = False
        self.free = threading.Event()
        self.free.set()
        self.threads: list[str] = []
        self.done: list[int] = []
        self.failures: list[BrokerError] = []
        self.relieved = 0
        self.room = -1
        """Bytes that the store still takes; -1 for any number. A checkpoint is always taken, and makes room."""
        self.stored: list[LogEntry] = []
        self.asked = 0
        self.turn: list[Callable[[], Any]] = []
        self.later: list[Callable[[], Any]] = []
        """For when the engine has written what it has to write."""
        self.posted: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.tidied: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The threads that tidied up."""
        self.marks: list[tuple[str, int]] = []
        """By whom the store was marked, and how many entries it had."""
        self._submitted = 0
        store: Any = self
        calls = EngineCalls(
            post=self.posted.put,
            soon=self.turn.append,
            relieved=self._relieved,
            failed=self.failures.append,
            full=self._full,
            behind=self.later.append,
        )
        self.committer = ThreadCommitter(store, calls, lambda: self.now_ns)

    def _full(self, error: StoreFullError) -> None:
        self.asked += 1
        if self.asked == 1:
            self.checkpoint()

    def checkpoint(self) -> None:
        number = self._submitted
        self._submitted += 1
        self.committer.submit([LogEntry(CHECKPOINT, 0, 0, b"state")], lambda: self.done.append(number))

    def note(self) -> None:
        number = self._submitted
        self._submitted += 1
        self.committer.submit([LogEntry(NOTE, 1, 0, b"%d" % number)], lambda: self.done.append(number))

    def _relieved(self) -> None:
        self.relieved += 1

    def commit(self, entries: Sequence[LogEntry]) -> Callable[[], None]:
        """The store's."""
        assert self.free.wait(PATIENCE_S)
        self.threads.append("own" if threading.current_thread().name == "raybroker-commit" else "engine")
        self.now_ns += self.takes_ns
        if self.fails:
            raise StoreError("the disk is gone")
        if self.room >= 0 and not all(entry.kind == CHECKPOINT for entry in entries):
            if entry_bytes(entries) > self.room:
                raise StoreFullError("no room")
            self.room -= entry_bytes(entries)
        if any(entry.kind == CHECKPOINT for entry in entries):
            self.room = LARGE if self.room >= 0 else -1
        self.stored += entries
        return self.mark

    def stats(self) -> StoreStats:
        """The store's."""
        return StoreStats(sync_ns_last=20 * US)

    def mark(self) -> None:
        """What a commit leaves to be done."""
        if self.fails:
            raise StoreError("the disk is gone")
        self.marks.append((threading.current_thread().name, len(self.stored)))

    def maintain(self, budget_bytes: int) -> bool:
        self.tidied.put(threading.current_thread().name)
        return False

    def submit(self, nbytes: int) -> None:
        """One batch of about so many bytes."""
        number = self._submitted
        self._submitted += 1
        self.committer.submit([LogEntry(BLOCK, 1, number, b"", (bytes(nbytes),))], lambda: self.done.append(number))

    def go_on(self) -> None:
        """To the end of the engine's turn."""
        while self.turn:
            self.turn.pop(0)()

    def finish(self) -> None:
        """Until everything submitted is done, or has failed."""
        while len(self.done) < self._submitted and not self.failures:
            self.go_on()
            if len(self.done) < self._submitted and not self.failures:
                self.posted.get(timeout=PATIENCE_S)()

    def is_still(self) -> bool:
        """The other thread has nothing to do."""
        committer = self.committer
        return not committer._busy and (committer._armed or not committer._waiting)

    def submit_nothing(self) -> None:
        """What has nothing to store, and comes after what was submitted before."""
        number = self._submitted
        self._submitted += 1
        self.committer.submit([], lambda: self.done.append(number))

    def commits(self, nbytes: int) -> str:
        """Commit one batch; which thread did it."""
        self.submit(nbytes)
        self.finish()
        return self.threads[-1]


def until(holds: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S * 1000)):
        if holds():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it does not come to hold")


@contextmanager
def running() -> Iterator[Engine]:
    engine = Engine()
    try:
        yield engine
    finally:
        engine.free.set()
        engine.committer.close()
        assert not engine.committer._thread.is_alive()


def test_the_store_is_tidied_when_asked_though_nothing_is_committed() -> None:
    with running() as engine:
        for _ in range(2):
            engine.committer.tidy()
            assert engine.tidied.get(timeout=PATIENCE_S) == "raybroker-commit"
            assert engine.commits(100) in ("engine", "own"), "and commits go on"
        engine.submit(100)
        engine.committer.tidy()
        engine.finish()
        assert len(engine.stored) == 3, "what waits for its turn in the engine's thread is committed there first"


def test_a_group_is_what_was_submitted_in_one_turn_and_is_done_in_order() -> None:
    with running() as engine:
        for _ in range(5):
            engine.submit(SMALL)
        assert engine.done == []
        engine.go_on()
        assert (engine.threads, engine.done) == (["engine"], [0, 1, 2, 3, 4])
        assert engine.committer.pending_bytes == 0


def test_what_the_engine_commits_at_once_is_done_after_what_the_thread_committed_before() -> None:
    with running() as engine:
        engine.takes_ns = cm.INLINE_NS_MAX + 1
        engine.commits(SMALL)
        engine.takes_ns = 50 * US
        engine.submit(SMALL)
        engine.go_on()
        posted = engine.posted.get(timeout=PATIENCE_S)
        until(engine.is_still)
        engine.submit(SMALL)
        engine.go_on()
        assert engine.threads == ["engine", "own", "engine"], "the loop had not come to what was posted"
        assert engine.done == [0, 1, 2]
        posted()
        assert engine.done == [0, 1, 2], "it is told once"
        assert engine.committer.pending_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_done_in_order_whatever_the_loop_comes_to_first(seed: int) -> None:
    chance = random.Random(seed)
    with running() as engine:
        for _ in range(60):
            engine.takes_ns = chance.choice((50 * US, 600 * US, cm.INLINE_NS_MAX + 1))
            for _ in range(chance.randrange(4)):
                engine.submit(LARGE if chance.random() < 0.02 else SMALL)
            if chance.random() < 0.2:
                engine.submit_nothing()
            if chance.random() < 0.7:
                engine.go_on()
            if chance.random() < 0.5:
                until(engine.is_still)
            while chance.random() < 0.4 and not engine.posted.empty():
                engine.posted.get()()
            assert engine.done == sorted(engine.done)
        engine.finish()
        assert engine.done == list(range(engine._submitted))
        assert engine.committer.pending_bytes == 0


@pytest.mark.parametrize(("nbytes", "thread"), [(SMALL, "engine"), (MIDDLE, "engine"), (LARGE, "own")])
def test_while_the_disk_is_quick_only_large_groups_go_to_the_thread(nbytes: int, thread: str) -> None:
    with running() as engine:
        assert {engine.commits(nbytes) for _ in range(20)} == {thread}


def test_a_group_that_grew_too_large_within_the_turn_goes_to_the_thread() -> None:
    with running() as engine:
        for _ in range(LARGE // MIDDLE + 1):
            engine.submit(MIDDLE)
        engine.finish()
        assert engine.threads == ["own"]
        assert engine.done == sorted(engine.done)


def test_on_a_disk_that_is_not_quick_small_groups_stay_and_others_go_until_the_next_trial() -> None:
    with running() as engine:
        engine.takes_ns = cm.INLINE_NS_MAX
        taken = [engine.commits(MIDDLE) for _ in range(cm.INLINE_TRIAL_EVERY + 20)]
        trial = taken.index("own")
        assert 1 <= trial <= 5
        again = trial + cm.INLINE_TRIAL_EVERY
        assert taken[:again] == ["engine"] * trial + ["own"] * cm.INLINE_TRIAL_EVERY
        assert taken[again : again + trial] == ["engine"] * trial
        assert engine.commits(MIDDLE) == "own"
        assert engine.commits(SMALL) == "engine"


def test_what_has_nothing_to_store_does_not_make_a_slow_disk_quick() -> None:
    with running() as engine:
        engine.takes_ns = cm.INLINE_NS_MAX * 10
        assert [engine.commits(SMALL) for _ in range(3)] == ["engine", "own", "own"]
        engine.submit_nothing()
        engine.finish()
        assert engine.commits(SMALL) == "own"
        assert engine.done == [0, 1, 2, 3, 4]


def test_one_commit_that_took_long_is_no_slow_disk() -> None:
    with running() as engine:
        engine.commits(MIDDLE)
        engine.takes_ns = cm.INLINE_NS_MAX
        assert engine.commits(MIDDLE) == "engine"
        engine.takes_ns = 50 * US
        assert engine.commits(MIDDLE) == "engine"


def test_after_a_commit_that_took_too_long_the_engine_does_not_wait_for_the_next() -> None:
    with running() as engine:
        engine.takes_ns = cm.INLINE_NS_MAX + 1
        assert [engine.commits(SMALL) for _ in range(3)] == ["engine", "own", "own"]
        engine.takes_ns = 50 * US
        assert [engine.commits(SMALL) for _ in range(2)] == ["own", "engine"]


@pytest.mark.parametrize(("nbytes", "run"), [(SMALL, cm.INLINE_RUN_MAX), (MIDDLE, cm.INLINE_RUN_BYTES // MIDDLE + 1)])
def test_the_thread_gets_its_turn_to_tidy_up(nbytes: int, run: int) -> None:
    with running() as engine:
        taken = [engine.commits(nbytes) for _ in range(2 * run)]
        assert taken.index("own") == run
        assert taken.count("own") == 1


def test_too_much_that_waits_is_said_until_there_is_room_again() -> None:
    with running() as engine:
        engine.free.clear()
        engine.submit(LARGE)
        while engine.committer.pending_bytes <= cm.PENDING_BYTES_HIGH:
            assert not engine.committer.overloaded
            engine.submit(LARGE)
        assert engine.committer.overloaded
        engine.free.set()
        engine.finish()
        assert (engine.committer.overloaded, engine.relieved) == (False, 1)
        assert engine.done == list(range(len(engine.done)))
        assert engine.committer.meter.batches.count < len(engine.done), "they were committed in groups"


@pytest.mark.parametrize("nbytes", [SMALL, LARGE])
def test_after_a_failure_nothing_is_ever_called_done(nbytes: int) -> None:
    with running() as engine:
        engine.fails = True
        engine.submit(nbytes)
        engine.finish()
        engine.fails = False
        engine.submit(nbytes)
        engine.go_on()
        assert [str(failure) for failure in engine.failures] == ["the disk is gone"]
        assert (engine.done, len(engine.threads)) == ([], 1)


def test_the_size_of_a_batch_counts_all_its_parts() -> None:
    parts = (b"12345", memoryview(b"123"), bytearray(7))
    assert (
        entry_bytes([LogEntry(BLOCK, 1, 1, b"meta", parts), LogEntry(BLOCK, 1, 2, b"", ())]) == 2 * 64 + 4 + 5 + 3 + 7
    )


def test_notes_that_find_no_room_wait_for_a_checkpoint_that_takes_their_place() -> None:
    with running() as engine:
        engine.note()
        engine.finish()
        engine.room = 0
        for _ in range(3):
            engine.note()
        engine.finish()
        assert engine.done == [0, 1, 2, 3, 4], "in the order of the calls, the checkpoint behind what it supersedes"
        assert [(entry.kind, entry.meta) for entry in engine.stored] == [(NOTE, b"0"), (CHECKPOINT, b"state")]
        assert not engine.failures
        assert engine.committer.pending_bytes == 0
        engine.note()
        engine.finish()
        assert engine.stored[-1].meta == b"5", "and then it goes on as before"


def test_messages_that_find_no_room_wait_until_there_is_some() -> None:
    with running() as engine:
        engine.room = 0
        engine.submit(SMALL)
        engine.note()
        engine.go_on()
        while not engine.asked:
            engine.posted.get(timeout=PATIENCE_S)()
        engine.room = LARGE
        engine.finish()
        assert engine.done == [0, 1, 2]
        assert [entry.kind for entry in engine.stored] == [BLOCK, NOTE, CHECKPOINT]


def test_what_still_finds_no_room_at_the_end_has_failed() -> None:
    engine = Engine()
    engine.room = 0
    engine.submit(SMALL)
    engine.go_on()
    engine.committer.close()
    while not engine.failures:
        engine.posted.get(timeout=PATIENCE_S)()
    assert (engine.done, [str(failure) for failure in engine.failures]) == ([], ["no room"])


def test_the_store_is_marked_behind_the_confirmations_once_for_all_of_a_turn() -> None:
    with running() as engine:
        for nbytes in (SMALL, SMALL):
            engine.submit(nbytes)
            engine.go_on()
        assert (engine.done, engine.marks) == ([0, 1], []), "who waits is told first"
        (mark,) = engine.later
        mark()
        assert engine.marks == [(threading.current_thread().name, 2)]
        engine.later.clear()
        engine.submit(SMALL)
        engine.go_on()
        assert len(engine.later) == 1


def test_the_thread_marks_what_it_has_committed() -> None:
    with running() as engine:
        assert engine.commits(LARGE) == "own"
        until(lambda: engine.marks == [("raybroker-commit", 1)])
        assert engine.later == []


def test_while_the_thread_has_the_store_it_marks_also_what_the_engine_committed() -> None:
    with running() as engine:
        assert engine.commits(SMALL) == "engine"
        engine.free.clear()
        engine.submit(LARGE)
        (mark,) = engine.later
        mark()
        assert engine.marks == []
        engine.free.set()
        engine.finish()
        until(lambda: engine.marks == [("raybroker-commit", 2)])


def test_a_store_that_cannot_be_marked_is_at_its_end_though_what_was_confirmed_holds() -> None:
    with running() as engine:
        assert engine.commits(SMALL) == "engine"
        engine.fails = True
        (mark,) = engine.later
        mark()
        assert [str(failure) for failure in engine.failures] == ["the disk is gone"]
        engine.submit(SMALL)
        engine.go_on()
        assert engine.done == [0]


@pytest.mark.parametrize(("nbytes", "thread"), [(SMALL, "engine"), (LARGE, "own")])
def test_the_batch_that_is_traced_is_stamped_and_no_other(nbytes: int, thread: str) -> None:
    with running() as engine:
        engine.takes_ns = 50 * US
        engine.commits(SMALL)
        before, stamps = engine.now_ns, CommitStamps()
        engine.committer.trace(stamps)
        assert engine.commits(nbytes) == thread
        assert (stamps.began_ns, stamps.ended_ns, stamps.sync_ns) == (before, before + 50 * US, 20 * US)
        assert stamps.elsewhere is (thread == "own")
        engine.commits(SMALL)
        assert stamps.ended_ns == before + 50 * US
        nothing = CommitStamps()
        engine.committer.trace(nothing)
        engine.submit_nothing()
        engine.finish()
        assert nothing.ended_ns == 0, "nothing was written for it"
        engine.committer.trace(nothing)
        engine.committer.trace(None)
        engine.commits(SMALL)
        assert nothing.ended_ns == 0
        assert not engine.committer._measured.stamps
