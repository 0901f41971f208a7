"""T4: every system call of a fixed workload fails once; the journal stops, and loses and invents nothing."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, Buffer, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.store.journal import FileIO, Journal, verify
from tests.store_faults.script import Host, Model, UnsyncedIO, abandon, open_journal, payload_of
from tests.sweep import Deadline, until

ROOT = Path(__file__).parents[2]
SEED = 5
OPERATIONS = 60
IN_CI = bool(os.environ.get("CI"))


class FailingIO(UnsyncedIO):
    """Fails call number ``at`` of the kinds that ``failure`` speaks of, and keeps a list of what was called."""

    def __init__(self, at: int, failure: str) -> None:
        self.left = at
        self.failure = failure
        self.hit = ""
        self.after: list[str] = []

    def _fails(self, name: str, failures: tuple[str, ...]) -> bool:
        if self.hit:
            self.after.append(name)
            return False
        if self.failure not in failures:
            return False
        self.left -= 1
        if self.left == 0:
            self.hit = name
            return True
        return False

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        failures = ("write-eio", "short", "torn-eio", "nothing")
        if self._fails("pwritev", failures if data else failures[:-1]):  # Nothing is all that was asked for.
            if self.failure == "nothing":
                return 0
            if self.failure in ("short", "torn-eio") and len(data) > 1:
                taken = super().pwritev(fd, [data[: len(data) // 2]], offset)
                if self.failure == "short":
                    return taken
            elif self.failure == "short":
                return super().pwritev(fd, buffers, offset)
            raise OSError(errno.EIO, "injected")
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        if self._fails("fdatasync", ("sync-eio",)):
            raise OSError(errno.EIO, "injected")
        super().fdatasync(fd)

    def fsync_dir(self, path: Path) -> None:
        if self._fails("fsync_dir", ("sync-eio",)):
            raise OSError(errno.EIO, "injected")
        super().fsync_dir(path)

    def fallocate(self, fd: int, nbytes: int) -> None:
        if self._fails("fallocate", ("full", "allocate-eio")):
            super().fallocate(fd, nbytes // 2)
            raise OSError(errno.ENOSPC if self.failure == "full" else errno.EIO, "injected")
        super().fallocate(fd, nbytes)

    def truncate(self, fd: int, nbytes: int) -> None:
        if self._fails("truncate", ("full", "allocate-eio")):
            raise OSError(errno.ENOSPC if self.failure == "full" else errno.EIO, "injected")
        super().truncate(fd, nbytes)

    def punch(self, fd: int, start: int, end: int) -> bool:
        if self._fails("punch", ("punch-eio",)):
            raise OSError(errno.EIO, "injected")
        return super().punch(fd, start, end)

    def create(self, path: Path) -> int:
        if self._fails("create", ("full", "allocate-eio")):
            raise OSError(errno.ENOSPC if self.failure == "full" else errno.EIO, "injected")
        return super().create(path)

    def unlink(self, path: Path) -> None:
        if self._fails("unlink", ("unlink-eio",)):
            raise OSError(errno.EIO, "injected")
        super().unlink(path)

    def pread(self, fd: int, nbytes: int, offset: int) -> bytes:
        if self._fails("pread", ("read-eio",)):
            raise OSError(errno.EIO, "injected")
        return super().pread(fd, nbytes, offset)


def workload(directory: Path, io: FileIO, operations: int, acked: Callable[[int], None]) -> None:
    """Two lives of a host, the second one on what the first left."""
    for life in (1, 2):
        journal = open_journal(directory, io)
        try:
            host = Host(journal, SEED)
            for _ in range(operations // 2):
                acked(host.step())
                host.settle()
            if life == 2:
                host.check(host.model)
        except (StoreDamagedError, StoreFullError):
            abandon(journal)
            raise
        except StoreError:
            with pytest.raises(StoreError):
                journal.commit([LogEntry(NOTE, 0, 0, b"")])
            with pytest.raises(StoreError):
                journal.maintain(1)
            journal.close()
            raise
        journal.close()


def check(directory: Path, acked: int) -> None:
    """What was acknowledged is there, and at most one operation more."""
    journal = open_journal(directory, UnsyncedIO())
    host = Host(journal, SEED)
    assert host.model.number in (acked, acked + 1)
    model = Model(SEED)
    model.advance_to(host.model.number)
    host.check(model)
    journal.close()


def injections(
    tmp_path: Path, failure: str, stride: int, operations: int = OPERATIONS
) -> Iterator[tuple[Path, FailingIO, int, StoreError | None]]:
    """(directory, io, last acknowledged, error) for each call that can fail so, every ``stride``-th of them."""
    for at in range(1, 100_000, stride):
        directory = tmp_path / "store"
        io = FailingIO(at, failure)
        acks = [0]
        error: StoreError | None = None
        try:
            workload(directory, io, operations, acks.append)
        except StoreError as caught:
            error = caught
        if not io.hit:
            assert error is None
            assert at > stride, "hardly anything could fail"
            return
        yield directory, io, acks[-1], error
        shutil.rmtree(directory, ignore_errors=True)


FAILURES = [
    ("write-eio", 3, 60),
    ("torn-eio", 3, 60),
    ("nothing", 5, 60),
    ("sync-eio", 2, 60),
    ("allocate-eio", 2, 100),
    ("unlink-eio", 4, 400),
    ("punch-eio", 1, 400),
]
"""Kinds of failure, how many calls are passed over from one that fails to the next, and operations of the workload."""
Injection = tuple[Path, FailingIO, int, StoreError | None]


def check_it_is_dead(failed: Injection) -> None:
    directory, io, acked, error = failed
    assert error is not None, f"{io.hit} failed and nobody noticed"
    assert not isinstance(error, StoreDamagedError | StoreFullError)
    changing = {"pwritev", "fdatasync", "fallocate", "truncate", "punch"}
    assert not changing & set(io.after), f"after {io.hit}: {io.after}"
    check(directory, acked)


@pytest.mark.parametrize(("failure", "stride", "operations"), FAILURES)
def test_after_a_failed_call_the_journal_is_dead_and_retries_nothing(
    tmp_path: Path, failure: str, stride: int, operations: int
) -> None:
    for failed in injections(tmp_path, failure, stride, operations):
        check_it_is_dead(failed)


@pytest.mark.sweep
@pytest.mark.parametrize(("failure", "operations"), [(failure, operations) for failure, _, operations in FAILURES])
def test_no_call_is_passed_over(tmp_path: Path, failure: str, operations: int, sweep_seconds: float) -> None:
    for failed in until(Deadline(sweep_seconds), injections(tmp_path, failure, 1, operations)):
        check_it_is_dead(failed)


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    for directory, _, acked, error in injections(tmp_path, "short", 5):
        assert error is None
        check(directory, acked)


def test_a_lack_of_room_is_found_before_anything_is_written(tmp_path: Path) -> None:
    for directory, io, acked, error in injections(tmp_path, "full", 1):
        if error is not None:
            fresh = acked == 0 and isinstance(error, StoreError)
            assert fresh or isinstance(error, StoreFullError), f"{io.hit}: {error!r}"
        check(directory, acked)


def test_an_unreadable_disk_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    for directory, _, acked, error in injections(tmp_path, "read-eio", 3):
        if error is None:
            continue  # a survivor that could not be read was left where it is
        check(directory, acked)


def test_a_full_store_refuses_producers_and_lets_consumers_settle(tmp_path: Path) -> None:
    full_disk(tmp_path / "store", FullIO(20 * 32 << 10))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(mounted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = done.stderr.strip() if done.returncode else ""
    except FileNotFoundError:
        reason = "there is no mount command"
    if reason:
        assert not IN_CI, f"in CI this must run: {reason}"
        pytest.skip(f"a tmpfs cannot be mounted here: {reason}")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def test_a_real_full_file_system_refuses_producers_and_lets_consumers_settle(small_disk: Path) -> None:
    full_disk(small_disk / "store", FileIO())


class FullIO(UnsyncedIO):
    """A disk of so many bytes of segment files."""

    def __init__(self, room_bytes: int) -> None:
        self._room = room_bytes
        self._sizes: dict[Path, int] = {}
        self._names: dict[int, Path] = {}

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self._names[fd] = path
        return fd

    def fallocate(self, fd: int, nbytes: int) -> None:
        path = self._names[fd]
        more = max(nbytes - self._sizes.get(path, 0), 0)
        if more and sum(self._sizes.values()) + more > self._room:
            raise OSError(errno.ENOSPC, "full")
        self._sizes[path] = self._sizes.get(path, 0) + more
        super().fallocate(fd, nbytes)

    def punch(self, fd: int, start: int, end: int) -> bool:
        path = self._names[fd]
        if end >= self._sizes.get(path, 0):
            self._sizes[path] = min(self._sizes.get(path, 0), start)
        return super().punch(fd, start, end)

    def unlink(self, path: Path) -> None:
        self._sizes.pop(path, None)
        super().unlink(path)

    def free_bytes(self, path: Path) -> int:
        return self._room - sum(self._sizes.values())


def full_disk(directory: Path, io: FileIO) -> None:
    """Fill the store until producers are refused; acknowledge, reclaim, and go on."""
    journal = open_journal(directory, io, record_bytes=-1)
    list(journal.recover())
    stored = fill(journal, 0)
    assert stored > 20
    before = journal.stats()
    assert not journal.has_room(10_000)
    for _ in range(3):
        with pytest.raises(StoreFullError) as refused:
            journal.commit([LogEntry(BLOCK, 1, 10_000, b"", (bytes(10_000),))])
    assert refused.value.definite
    assert refused.value.retryable
    assert journal.stats().used_bytes == before.used_bytes, "a refused batch leaves no trace"
    for ordinal in range(stored):
        assert journal.read(1, ordinal) == payload_of(1, ordinal, 10_000)
        journal.commit([LogEntry(NOTE, 1, 0, b"acknowledged %d" % ordinal)])
        journal.free(1, [ordinal])
        if journal.checkpoint_due():
            journal.commit([LogEntry(CHECKPOINT, 0, 0, b"%d are acknowledged" % ordinal)])
            journal.maintain(1 << 20)
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"all is acknowledged")])
    while journal.maintain(1 << 20):
        pass
    assert journal.has_room(10_000)
    again = fill(journal, stored)
    assert again - stored > stored // 2
    journal.close()
    assert verify(directory).sound
    journal = open_journal(directory, io, record_bytes=-1)
    found = [entry.ordinal for entry in journal.recover() if entry.kind == BLOCK]
    assert found[-(again - stored) :] == list(range(stored, again))
    journal.close()


def fill(journal: Journal, first: int) -> int:
    """Store blocks until refused; the number of the first one that was not stored."""
    for ordinal in range(first, first + 1000):
        try:
            journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (payload_of(1, ordinal, 10_000),))])
        except StoreFullError:
            return ordinal
    raise AssertionError("the disk is not small")


def traced(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["strace", "-f", "-e", "trace=fdatasync", *options, "-o", str(directory.parent / "trace"), sys.executable]
    command += ["-m", "tests.store_faults.fixed_workload", str(directory)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_real_failed_sync_acknowledges_nothing_and_is_not_retried(tmp_path: Path) -> None:
    """The same through the kernel's own interface: strace makes the K-th fdatasync return EIO."""
    if shutil.which("strace") is None:
        assert not IN_CI, "in CI strace must be installed"
        pytest.skip("strace is not installed")
    probe = traced(tmp_path / "probe")
    if probe.returncode:
        assert not IN_CI, probe.stderr
        pytest.skip(f"processes cannot be traced here: {probe.stderr.strip()}")
    syncs = len(re.findall("fdatasync", (tmp_path / "trace").read_text()))
    for k in range(1, syncs + 1, max(1, syncs // 6)):
        directory = tmp_path / f"store-{k}"
        done = traced(directory, "-e", f"inject=fdatasync:error=EIO:when={k}")
        assert done.returncode == 7, done.stdout + done.stderr
        acked = [int(line) for line in done.stdout.split()]
        calls = [line for line in (tmp_path / "trace").read_text().splitlines() if "fdatasync" in line]
        assert "INJECTED" in calls[-1], "there was a sync after the failed one"
        assert len(calls) == k
        check(directory, acked[-1] if acked else 0)
