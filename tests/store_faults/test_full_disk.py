"""A full disk: what is stored can be acknowledged, in any order and across restarts, and then there is room again."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import QuotaExceededError, StoreFullError
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.store.journal import verify
from raybroker.store.journal.format import SECTOR_BYTES
from raybroker.store.journal.reserve import RESERVE_FILES, CheckpointEstimate, Use
from tests.store_faults.script import SEGMENT_BYTES, UnsyncedIO, abandon, open_journal

ROOM_BYTES = 40 * SEGMENT_BYTES
ROW_BYTES = 24
"""What a checkpoint of the small host below holds of each block: more than a row of the log."""


class FullIO(UnsyncedIO):
    """A disk of so many bytes of segment files; ``others`` is what other programs have taken of it."""

    def __init__(self, room_bytes: int) -> None:
        self.room = room_bytes
        self.others = 0
        self._sizes: dict[Path, int] = {}
        self._names: dict[int, Path] = {}

    @property
    def used(self) -> int:
        return sum(self._sizes.values()) + self.others

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self._names[fd] = path
        return fd

    def open(self, path: Path, *, write: bool = True) -> int:
        fd = super().open(path, write=write)
        self._names[fd] = path
        return fd

    def fallocate(self, fd: int, nbytes: int) -> None:
        path = self._names[fd]
        more = max(nbytes - self._sizes.get(path, 0), 0)
        if more and self.used + more > self.room:
            raise OSError(errno.ENOSPC, "full")
        self._sizes[path] = self._sizes.get(path, 0) + more
        super().fallocate(fd, nbytes)

    def allocated(self, fd: int) -> int:
        return self._sizes[self._names[fd]]

    def punch(self, fd: int, start: int, end: int) -> bool:
        path = self._names[fd]
        if end >= self._sizes.get(path, 0):
            self._sizes[path] = min(self._sizes.get(path, 0), start)
        return super().punch(fd, start, end)

    def unlink(self, path: Path) -> None:
        self._sizes.pop(path, None)
        super().unlink(path)

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._sizes.pop(new, None)
        if old in self._sizes:
            self._sizes[new] = self._sizes.pop(old)

    def free_bytes(self, path: Path) -> int:
        return self.room - self.used + SEGMENT_BYTES - 8 * SECTOR_BYTES


class Drainer:
    """A host as small as can be: blocks, acknowledgements one by one, a checkpoint when one is due or none fits."""

    def __init__(self, directory: Path, io: FullIO, **options: int) -> None:
        self.journal = open_journal(directory, io, **options)
        self.live: set[int] = set()
        self.next = 0
        self.forced = 0
        owed: set[int] = set()
        gone: list[int] = []
        for entry in self.journal.recover():
            if entry.kind == CHECKPOINT:
                self.next, rows = json.loads(entry.meta)[:2]
                owed = set(rows)
            elif entry.kind == BLOCK:
                live = entry.ordinal in owed or entry.ordinal >= self.next
                (self.live.add if live else gone.append)(entry.ordinal)
            elif entry.meta.isdigit():
                self.live.remove(int(entry.meta))
                gone.append(int(entry.meta))
        self.journal.free(1, gone)
        self.next = max([self.next, *(o + 1 for o in self.live)])

    def send(self, nbytes: int) -> bool:
        if not self.journal.has_room(nbytes + 100):
            self._checkpoint_if_due()
            self.journal.maintain(8 << 10)
            return False
        self.journal.commit([LogEntry(BLOCK, 1, self.next, b"m" * 16, (os.urandom(4) * (nbytes // 4),))])
        self.live.add(self.next)
        self.next += 1
        self._checkpoint_if_due()
        return True

    def acknowledge(self, ordinal: int) -> None:
        """As a committer does it: a note that finds no room is superseded by a checkpoint."""
        self.live.remove(ordinal)
        try:
            self.journal.commit([LogEntry(NOTE, 1, 0, b"%d" % ordinal)])
        except StoreFullError:
            self.forced += 1
            self._checkpoint()
        self.journal.free(1, [ordinal])
        self._checkpoint_if_due()

    def rest(self) -> None:
        """Some seconds without work."""
        for _ in range(5):
            if self.journal.checkpoint_helps():
                self._checkpoint()
            if self.journal.tidy_helps() or self.journal.maintain(8 << 10):
                self.journal.maintain(8 << 10)

    def _checkpoint_if_due(self) -> None:
        if self.journal.checkpoint_due():
            self._checkpoint()
            self.journal.maintain(8 << 10)

    def _checkpoint(self) -> None:
        state = json.dumps([self.next, sorted(self.live), "x" * (ROW_BYTES * len(self.live))])
        self.journal.commit([LogEntry(CHECKPOINT, 0, 0, state.encode())])


@pytest.mark.parametrize("seed", range(6))
def test_everything_can_be_acknowledged_on_a_full_disk_in_any_order(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    io = FullIO(ROOM_BYTES)
    host = Drainer(tmp_path / "store", io)
    sizes = draw.choice([(40,), (1000,), (40, 3000), (40, SEGMENT_BYTES * 2)])
    while host.send(draw.choice(sizes)):
        pass
    io.others = max(0, io.room - io.used)
    stored = len(host.live)
    assert stored > 15
    order = sorted(host.live)
    if seed % 2:
        draw.shuffle(order)
    for done, ordinal in enumerate(order):
        host.acknowledge(ordinal)
        if done % (stored // 5 + 1) == 3:
            live = set(host.live)
            abandon(host.journal) if draw.random() < 0.5 else host.journal.close()
            host = Drainer(tmp_path / "store", io)
            assert host.live == live, "what was acknowledged is, and nothing else"
    io.others = 0
    assert not host.live
    again = 0
    while any(host.send(1000) for _ in range(3)):
        again += 1
    assert again * 1000 > ROOM_BYTES // 5, "and then there is room again"
    host.journal.close()
    assert verify(tmp_path / "store").sound


def test_when_every_second_message_is_acknowledged_there_is_room_for_others(tmp_path: Path) -> None:
    io = FullIO(ROOM_BYTES)
    host = Drainer(tmp_path / "store", io)
    while host.send(1000):
        pass
    for ordinal in sorted(host.live):
        if ordinal % 4:
            host.acknowledge(ordinal)
    sent = 0
    for _ in range(1000):
        sent += host.send(1000)
        host.journal.maintain(1 << 20)
    assert sent > 100
    host.journal.close()
    assert verify(tmp_path / "store").sound


def test_a_store_opens_on_a_full_disk_and_says_that_it_only_drains(tmp_path: Path) -> None:
    io = FullIO(ROOM_BYTES)
    journal = open_journal(tmp_path / "store", io)
    list(journal.recover())
    journal.commit([LogEntry(BLOCK, 1, 1, b"", (b"x" * 100,))])
    journal.close()
    for name in (tmp_path / "store").glob("segment-*"):
        if name.stat().st_size != SEGMENT_BYTES:
            io.unlink(name)
    io.others = io.room
    journal = open_journal(tmp_path / "store", io)
    assert [entry.ordinal for entry in journal.recover()] == [1]
    assert "the disk is full" in " ".join(journal.notices())
    assert not journal.has_room(100)
    journal.commit([LogEntry(NOTE, 1, 0, b"acknowledged")])
    io.others = 0
    assert journal.has_room(100), "as soon as there is space"
    journal.commit([LogEntry(BLOCK, 1, 2, b"", (b"x" * 100,))])
    journal.close()


LARGE = {"segment_bytes": 4 << 20, "record_bytes": -1}
"""A segment that is much larger than a file of the reserve, as by default."""
BODY_BYTES = 20_000
ALONE_BYTES = RESERVE_FILES * CheckpointEstimate(LARGE["segment_bytes"]).roomy_bytes() + (9 << 19)
"""A disk that has room for a segment and the reserve, and not for another segment."""


def send_all_that_fits(host: Drainer) -> int:
    sent = 0
    while host.send(BODY_BYTES):
        sent += 1
    return sent


@pytest.mark.parametrize("reopened", [False, True], ids=["", "after a restart"])
def test_a_full_disk_has_room_again_when_all_is_consumed_that_is_in_the_active_segment(
    tmp_path: Path, reopened: bool
) -> None:
    io = FullIO(ALONE_BYTES)
    host = Drainer(tmp_path / "store", io, **LARGE)
    first = send_all_that_fits(host)
    assert first > 100
    for _ in range(3):
        for ordinal in sorted(host.live):
            host.acknowledge(ordinal)
        if reopened:
            host.journal.close()
            host = Drainer(tmp_path / "store", io, **LARGE)
        host.rest()
        assert send_all_that_fits(host) > first // 2
    host.journal.close()
    assert verify(tmp_path / "store").sound


def test_a_store_that_is_emptied_leaves_the_disk_to_others_though_nothing_is_sent(tmp_path: Path) -> None:
    io = FullIO(2 * ALONE_BYTES)
    idle, other = [Drainer(tmp_path / name, io, **LARGE) for name in ("a", "b")]
    while sum(host.send(BODY_BYTES) for host in (idle, other)):
        pass
    stored = len(idle.live)
    for ordinal in sorted(idle.live):
        idle.acknowledge(ordinal)
    idle.rest()
    other.send(BODY_BYTES)
    assert send_all_that_fits(other) > stored // 2
    for host in (idle, other):
        host.journal.close()
        assert verify(host.journal.directory).sound


class CountingIO(FullIO):
    """``refused``: how often room was asked for that was not there."""

    refused = 0

    def fallocate(self, fd: int, nbytes: int) -> None:
        try:
            super().fallocate(fd, nbytes)
        except OSError:
            self.refused += 1
            raise

    def free_bytes(self, path: Path) -> int:
        return self.room - self.used


def test_acknowledgements_on_a_full_disk_do_not_ask_for_room_that_is_not_there(tmp_path: Path) -> None:
    """A file system that allocates what it can, finds out that the rest is missing and undoes it takes milliseconds."""
    io = CountingIO(ALONE_BYTES)
    host = Drainer(tmp_path / "store", io, **LARGE)
    while host.send(1000):
        pass
    io.others = io.room - io.used - 3 * SECTOR_BYTES
    order, io.refused = sorted(host.live), 0
    assert len(order) > 500
    for ordinal in order[:500]:
        host.acknowledge(ordinal)
        host.journal.maintain(8 << 10)
    assert io.refused < 10
    host.journal.close()


def test_the_reserve_grows_with_what_a_checkpoint_needs(tmp_path: Path) -> None:
    host = Drainer(tmp_path / "store", FullIO(100 * ROOM_BYTES))
    files = host.journal._files
    for _ in range(3000):
        assert host.send(40)
    state = ROW_BYTES * len(host.live)
    assert len(files.reserve) == RESERVE_FILES
    assert all(files.size(slot) > state for slot in files.reserve)
    host.journal.close()


def test_who_may_use_the_reserve_leaves_room_for_those_after_it() -> None:
    assert Use.CHECKPOINT.leaves < Use.NOTES.leaves < Use.BLOCKS.leaves < RESERVE_FILES
    estimate = CheckpointEstimate(SEGMENT_BYTES)
    empty = estimate.reserve_bytes()
    estimate.checkpoint(100_000)
    estimate.written(1_000, blocks=True)
    assert estimate.nbytes == 101_000
    assert estimate.reserve_bytes() > empty + 101_000


# ---- a real one ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 10 MiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=10m,mode=0700", "tmpfs", str(mounted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = done.stderr.strip() if done.returncode else ""
    except FileNotFoundError:
        reason = "there is no mount command"
    if reason:
        assert not (os.environ.get("CI") and os.geteuid() == 0), f"in CI root can mount: {reason}"
        pytest.skip(f"a tmpfs cannot be mounted here: {reason}")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def opened(disk: Path) -> Any:
    connection = rb.loopback(disk / "store", properties={"raybroker.store.segment_bytes": "1m"})
    connection.start()
    return connection


def take_what_is_left(path: Path) -> None:
    """As other programs do."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_consumers_drain_a_queue_that_has_filled_a_real_disk(small_disk: Path) -> None:
    connection = opened(small_disk)
    connection.admin().create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
    producer = connection.session().producer("q")
    stored = 0
    refused = None
    while refused is None:
        try:
            producer.send(b"x" * 1000)
            stored += 1
        except (StoreFullError, QuotaExceededError) as error:
            refused = error
        assert stored < 50_000
    assert refused.definite
    connection.close()
    rest = small_disk / "rest"
    take_what_is_left(rest)
    connection = opened(small_disk)
    taken = 0
    for part in range(2):
        consumer = connection.session(ack="client").consumer("q")
        while taken < (stored // 2, stored)[part]:
            message = consumer.receive(20)
            assert message is not None, f"after {taken} of {stored}"
            message.acknowledge_this()
            taken += 1
        connection.close()
        connection = opened(small_disk)
    assert connection.session().consumer("q").receive(0.2) is None
    rest.unlink()
    producer = connection.session().producer("q")
    with suppress(StoreFullError):  # The first one may still be refused: it asks for a checkpoint.
        producer.send(b"again")
    connection.admin().query_destination("queue", "q")
    producer.send(b"and again")
    connection.close()
    assert verify(small_disk / "store").sound


def test_what_administrators_change_on_a_full_disk_is_there_after_a_restart_or_was_refused(small_disk: Path) -> None:
    connection = opened(small_disk)
    admin = connection.admin()
    for name in ("q", "updated", "destroyed"):
        admin.create_destination("queue", name, maxNumMsgs=-1, maxTotalMsgBytes=-1)
    producer = connection.session().producer("q")
    stored = 0
    with suppress(StoreFullError):
        while stored < 50_000:
            producer.send(b"x" * 1000)
            stored += 1
    assert stored < 50_000
    take_what_is_left(small_disk / "rest")
    expected, refused = {"q", "updated"}, 0
    for number in range(500):
        try:
            admin.create_destination("queue", f"new{number}")
            expected.add(f"new{number}")
        except StoreFullError:
            refused += 1
    admin.update_destination("queue", "updated", maxNumMsgs=7)
    admin.destroy_destination("queue", "destroyed")
    assert refused < 500
    connection.close()
    connection = opened(small_disk)
    admin = connection.admin()
    names = {row["name"] for row in admin.list_destinations("queue")}
    assert {name for name in names if not name.startswith("mq.")} == expected
    assert admin.query_destination("queue", "updated")["attributes"]["maxNumMsgs"] == 7
    connection.close()
