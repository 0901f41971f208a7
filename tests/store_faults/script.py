"""The workload of the fault tests: a small host on a journal, and what its state must be after each of its operations.

Operation ``k`` of a script is a function of the seed and of the state after ``k - 1``, so that whoever writes and
whoever checks can both compute it.  Every operation is one batch: new blocks, acknowledgements of older ones, and, as
the last entry, a note with its number.  The recovered number tells which operation was the last, the set of live blocks
tells whether all of it and nothing else is there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.store.journal import FileIO, Journal
from raybroker.store.journal.own_files import OwnFileOptions
from raybroker.system.entropy import token

SEGMENT_BYTES = 32 << 10
COMPACT_EVERY = 17
"""An administrator asks for a compaction after so many operations."""
EMPTIED_AT, EMPTIED_EVERY = 23, 100
"""The operation of every so many that acknowledges everything, so that the active segment has nothing live in it.

It is rare, so that logs grow to several segments in between, of which most have something live in them.
"""
UNMARKED_EVERY = 7
"""After so many operations the host is busy again before it has noted how far its log is durable."""
IDLE_EVERY = 4
"""After so many operations the host has a moment without work, in which it gives space back."""
Live = dict[tuple[int, int], int]
"""(destination, ordinal) → payload bytes."""


class UnsyncedIO(FileIO):
    """Syncs nothing: for tests in which the machine lives on, so that files are what was written, synced or not."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: Path) -> None:
        pass


def moody_clock() -> Iterator[int]:
    """Nanoseconds that pass fast for a while, and then slowly, as often as one looks."""
    now = 0
    for looks in itertools.count():
        now += 100_000_000 if looks // 40 % 2 else 5_000_000_000
        yield now


def open_journal(
    directory: Path,
    io: FileIO | None = None,
    *,
    sync: bool = True,
    record_bytes: int = 2500,
    segment_bytes: int = SEGMENT_BYTES,
) -> Journal:
    """``record_bytes``: larger payloads have files of their own, which is about every tenth; -1: none has.

    Its clock makes it believe by turns that it is busy and that hardly anything happens.
    """
    return Journal(
        directory,
        monotonic_ns=moody_clock().__next__,
        entropy=token,
        sync=sync,
        segment_bytes=segment_bytes,
        own_files=OwnFileOptions(record_bytes, pool_limit=4, clean_percent=50),
        io=io,
    )


def abandon(journal: Journal) -> None:
    """Let go of the directory as a dying process does: nothing more is written."""
    journal._log.dead = "the process died"
    journal.close()


def payload_of(destination: int, ordinal: int, nbytes: int) -> bytes:
    """Bytes that no other block has, not even in part."""
    return hashlib.shake_128(b"%d/%d" % (destination, ordinal)).digest(nbytes)


@dataclass(frozen=True)
class Operation:
    number: int
    blocks: tuple[tuple[int, int, int], ...]
    acks: tuple[tuple[int, int], ...]

    def entries(self) -> list[LogEntry]:
        made = []
        for destination, ordinal, nbytes in self.blocks:
            payload = payload_of(destination, ordinal, nbytes)
            half = nbytes // 2
            made.append(LogEntry(BLOCK, destination, ordinal, b"%d" % nbytes, (payload[:half], payload[half:])))
        made.append(LogEntry(NOTE, 0, 0, json.dumps([self.number, self.acks]).encode()))
        return made


class Model:
    """The state after ``number`` operations of the script of ``seed``."""

    def __init__(self, seed: int, number: int = 0, live: Live | None = None) -> None:
        self.seed = seed
        self.number = number
        self.live: Live = dict(live or {})

    def next(self) -> Operation:
        number = self.number + 1
        draw = random.Random(f"{self.seed}/{number}")
        blocks = []
        for i in range(draw.choice((0, 1, 1, 1, 2, 4))):
            nbytes = draw.choice((0, draw.randrange(300), draw.randrange(3000), draw.randrange(3000)))
            if draw.random() < 0.02:
                nbytes = draw.randrange(SEGMENT_BYTES * 2)
            blocks.append((draw.choice((1, 1, 2)), number * 10 + i, nbytes))
        # One block in ten stays for long, so that segments get sparse and their survivors move.
        old = sorted(key for key in self.live if key[1] // 10 % 10 or len(self.live) > 60)
        acks = draw.sample(old, min(len(old), draw.choice((0, 1, 2, 3))))
        if len(self.live) > 80:
            acks = old[:20]
        if number % EMPTIED_EVERY == EMPTIED_AT:
            acks = sorted(self.live)
        return Operation(number, tuple(blocks), tuple(acks))

    def apply(self, operation: Operation) -> None:
        assert operation.number == self.number + 1
        self.number = operation.number
        for destination, ordinal, nbytes in operation.blocks:
            self.live[destination, ordinal] = nbytes
        for key in operation.acks:
            del self.live[key]

    def advance_to(self, number: int) -> None:
        while self.number < number:
            self.apply(self.next())

    def copy(self) -> Model:
        return Model(self.seed, self.number, self.live)


class Host:
    """Runs a script on a journal as an engine would: commit, then free, checkpoint when due, maintain."""

    def __init__(self, journal: Journal, seed: int) -> None:
        self.journal = journal
        self.model = Model(seed)
        self._mark: Callable[[], None] | None = None
        """Notes that the last operation is durable."""
        self._recover()

    def _recover(self) -> None:
        live: Live = {}
        number = 0
        dropped: list[tuple[int, int]] = []
        before: Live | None = None
        for entry in self.journal.recover():
            key = entry.destination, entry.ordinal
            if entry.kind == CHECKPOINT:
                number, rows = json.loads(entry.meta)
                before = {(destination, ordinal): nbytes for destination, ordinal, nbytes in rows}
            elif entry.kind == NOTE:
                note, acks = json.loads(entry.meta)
                assert note == number + 1, f"operation {number} is followed by {note}"
                number = note
                for destination, ordinal in acks:
                    del live[destination, ordinal]
                    dropped.append((destination, ordinal))
            elif before is not None and key not in before and ordinal_is_old(key, number):
                dropped.append(key)
            else:
                assert key not in live, f"{key} came twice"
                live[key] = int(entry.meta)
        missing = set(before or ()) - set(live) - set(dropped)
        assert not missing, f"blocks of the checkpoint are not there: {sorted(missing)}"
        for destination, ordinal in dropped:
            self.journal.free(destination, [ordinal])
        self.model.number = number
        self.model.live = live

    def step(self, started: Callable[[int], None] | None = None) -> int:
        """One operation; on return it is acknowledged."""
        operation = self.model.next()
        if started is not None:
            started(operation.number)
        self._mark = self.journal.commit(operation.entries())
        self.model.apply(operation)
        return operation.number

    def settle(self) -> None:
        """What an engine does after the acknowledgement."""
        operation_live = self.model.live
        marked = self.model.number % UNMARKED_EVERY != 0
        if marked and self._mark is not None:
            self._mark()
        for destination in {key[0] for key in self._freed()}:
            self.journal.free(destination, [o for d, o in self._freed() if d == destination])
        if self.model.number % COMPACT_EVERY == 0 and not self.journal.compacting:
            self.journal.compact()
        idle = self.model.number % IDLE_EVERY < 2 and self.journal.checkpoint_helps()
        if idle or self.journal.checkpoint_due():
            state = [self.model.number, [[d, o, n] for (d, o), n in operation_live.items()]]
            self.journal.commit([LogEntry(CHECKPOINT, 0, 0, json.dumps(state).encode())])
        if marked:
            self.journal.maintain(8 << 10)

    def _freed(self) -> list[tuple[int, int]]:
        index = self.journal._index
        there = [(d, o) for d, known in index.items() for a, b in known.spans() for o in range(a, b + 1)]
        return [key for key in there if key not in self.model.live]

    def check(self, model: Model) -> None:
        """Everything that ``model`` holds is here, nothing else, and every byte is right."""
        assert self.model.number == model.number
        assert self.model.live == model.live
        for (destination, ordinal), nbytes in model.live.items():
            assert self.journal.read(destination, ordinal) == payload_of(destination, ordinal, nbytes)


def ordinal_is_old(key: tuple[int, int], number: int) -> bool:
    """Whether a block is of an operation that was already applied: not in the checkpoint means it is dead."""
    return key[1] // 10 <= number
