"""Paging files: blocks come back as they were, space is given back, and failures are told."""

from __future__ import annotations

import errno
import os
import random
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

import pytest

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO
from raybroker.store.paging import OPEN_MAX, PagingFiles

FILE_BYTES = 4096


class Pages:
    """Paging files whose caller is this thread."""

    def __init__(self, directory: Path, io: FileIO | None = None) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.files = PagingFiles(directory, FILE_BYTES, self.posted.put, io)

    def write(self, *rows: tuple[int, int, Buffer]) -> OSError | None:
        told: list[OSError | None] = []
        self.files.write(rows, told.append)
        self.posted.get(timeout=30)()
        (error,) = told
        return error


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    found = Pages(tmp_path / "a" / "paging")
    yield found
    found.files.remove_all()


def names(pages: Pages) -> list[str]:
    return sorted(os.listdir(pages.files.directory))


def test_what_is_written_is_read_and_freed_as_a_dictionary_would(pages: Pages) -> None:
    rng, twin = random.Random(5), dict[tuple[int, int], bytes]()
    for step in range(60):
        rows = [
            (rng.randrange(1, 4), step * 10 + i, rng.randbytes(rng.randrange(1, 900)))
            for i in range(rng.randrange(1, 9))
        ]
        assert pages.write(*rows) is None
        twin.update({(destination, ordinal): data for destination, ordinal, data in rows})
        for key in rng.sample(sorted(twin), min(len(twin), rng.randrange(8))):
            assert pages.files.free(*key) == len(twin.pop(key))
            assert pages.files.free(*key) == 0
            assert not pages.files.has(*key)
    assert {key: pages.files.read(*key) for key in twin} == twin
    by_destination = {n: sum(len(data) for (d, _), data in twin.items() if d == n) for n in (1, 2, 3)}
    assert pages.files.bytes_by_destination == {n: total for n, total in by_destination.items() if total}
    assert all(path.stat().st_size < FILE_BYTES + 9 * 900 for path in pages.files.directory.iterdir())
    for key in list(twin):
        pages.files.free(*key)
    assert names(pages) == []
    assert not pages.files.bytes_by_destination


def test_what_is_packed_takes_its_own_size_and_what_is_saved_is_counted(pages: Pages) -> None:  # W-52
    data = b"text " * 100
    pages.files.pack = lambda one: zlib.compress(bytes(one))
    small = zlib.compress(data)
    assert pages.write((1, 1, data), (1, 2, data)) is None
    pages.files.pack = None
    assert pages.write((1, 3, data)) is None
    assert [pages.files.read(1, ordinal) for ordinal in (1, 2, 3)] == [small, small, data]
    assert pages.files.saved_bytes == 2 * (len(data) - len(small))
    assert pages.files.bytes_by_destination == {1: 2 * len(small) + len(data)}
    assert pages.files.free(1, 1) == len(small)


def test_nothing_is_made_before_it_is_needed_and_all_is_for_its_owner_alone(pages: Pages) -> None:
    assert not pages.files.directory.exists()
    pages.write((1, 1, b"secret"))
    assert stat.S_IMODE(pages.files.directory.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in pages.files.directory.iterdir()] == [0o600]


def test_a_file_is_bounded_and_only_one_larger_block_exceeds_it(pages: Pages) -> None:
    pages.write((1, 1, b"a" * 3000))
    pages.write((1, 2, b"b" * 3000))
    pages.write((1, 3, b"c" * 9000))
    assert len(names(pages)) == 3
    assert pages.files.read(1, 3) == b"c" * 9000


def test_many_files_share_few_descriptors(pages: Pages) -> None:
    many = OPEN_MAX + 10
    for ordinal in range(many):
        pages.write((1, ordinal, bytes([ordinal]) * FILE_BYTES))
    before = len(os.listdir("/proc/self/fd"))
    for ordinal in range(many):
        assert pages.files.read(1, ordinal)[0] == ordinal
    assert len(os.listdir("/proc/self/fd")) - before <= OPEN_MAX


def test_a_start_removes_what_was_left_and_close_removes_everything(tmp_path: Path) -> None:
    before = Pages(tmp_path / "paging")
    before.write((1, 1, b"old"))
    after = Pages(tmp_path / "paging")
    assert names(after) == []
    assert not after.files.has(1, 1)
    after.write((1, 1, b"new"))
    after.files.remove_all()
    assert not (tmp_path / "paging").exists()


def test_a_directory_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "paging").mkdir(mode=0o755)
    with pytest.raises(StoreError, match="has mode 755"):
        Pages(tmp_path / "paging")


@pytest.mark.parametrize("harm", [lambda data: data[:-1] + b"?", lambda data: data[:20], lambda data: b""])
def test_what_is_not_as_it_was_written_is_damaged(pages: Pages, harm: Callable[[bytes], bytes]) -> None:
    pages.write((1, 7, b"x" * 100))
    (path,) = pages.files.directory.iterdir()
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(StoreDamagedError, match="block 7"):
        pages.files.read(1, 7)


def test_a_file_that_is_gone_is_damage_too(pages: Pages) -> None:
    pages.write((1, 7, b"x"))
    (path,) = pages.files.directory.iterdir()
    path.unlink()
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        pages.files.read(1, 7)


class FullDisk(FileIO):
    full = False

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwritev(fd, buffers, offset)


def test_a_full_disk_keeps_nothing_of_a_write_and_later_ones_succeed(tmp_path: Path) -> None:
    io = FullDisk()
    pages = Pages(tmp_path / "paging", io)
    assert pages.write((1, 1, b"before")) is None
    io.full = True
    for _ in range(3):
        error = pages.write((1, 2, b"lost"), (1, 3, b"lost"))
        assert error is not None
        assert error.errno == errno.ENOSPC
    assert not pages.files.has(1, 2)
    assert len(names(pages)) == 1
    io.full = False
    assert pages.write((1, 2, b"after")) is None
    assert (pages.files.read(1, 1), pages.files.read(1, 2)) == (b"before", b"after")
    pages.files.remove_all()
