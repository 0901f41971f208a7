"""Own files of large blocks: alone, and in a journal."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from zlib import crc32

import pytest

from raybroker.config import Config
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.store.journal import FileIO, Journal, verify
from raybroker.store.journal.own_files import OwnFileOptions, OwnFiles, Reference

LARGE = 5_000


def body(number: int, nbytes: int = LARGE) -> bytes:
    return b"%08d" % number * (nbytes // 8)


def written(files: OwnFiles, number: int, nbytes: int = LARGE) -> Reference:
    data = body(number, nbytes)
    return files.write([data[:100], memoryview(data)[100:]], nbytes, crc32(data))


def names(directory: Path, prefix: str) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith(prefix))


def freed(directory: Path, options: OwnFileOptions, count: int) -> OwnFiles:
    """Files, all of which were used and are free now; each larger than the one before."""
    files = OwnFiles(FileIO(), directory, options)
    files.adopt(1, [], whole=True)
    for number in range(1, count + 1):
        files.put((1, number), written(files, number, LARGE + 800 * number))
    for number in range(1, count + 1):
        files.free((1, number), 10)
    files.collect(10)
    return files


def test_what_is_written_is_read_until_a_checkpoint_knows_that_it_is_dead(tmp_path: Path) -> None:
    files = OwnFiles(FileIO(), tmp_path, OwnFileOptions())
    files.adopt(7, [], whole=True)
    assert not files
    reference = written(files, 1)
    files.put((3, 1), reference)
    assert files.read((3, 1), reference) == body(1)
    assert files.live() == (1, LARGE)
    assert (files.usage(3), files.usage(4)) == (LARGE, 0)
    files.free((3, 1), 50)
    files.free((3, 2), 50)
    files.collect(49)
    assert (files.freed_bytes, files.pool()) == (LARGE, (0, 0))
    files.collect(50)
    assert not files
    assert (files.freed_bytes, files.pool()) == (0, (1, LARGE))
    assert Reference.decode(reference.encode()) == reference
    with pytest.raises(StoreDamagedError, match="destination 3, block 1"):
        files.read((3, 1), reference)


def test_free_files_are_used_again_the_smallest_that_is_large_enough(tmp_path: Path) -> None:  # P-08
    files = freed(tmp_path, OwnFileOptions(), 3)
    inodes = {path.stat().st_size: path.stat().st_ino for path in tmp_path.iterdir()}
    assert sorted(inodes) == [5800, 6600, 7400]
    for nbytes, size in ((6000, 6600), (8000, 7400), (104, 5800)):
        reference = written(files, 9, nbytes)
        path = tmp_path / f"body-{reference.number:016x}"
        assert path.stat().st_ino == inodes[size]
        assert files.read((1, 9), reference) == body(9, nbytes)
    assert files.pool() == (0, 0)


class NotingIO(FileIO):
    """Notes what concerns names, and what is written."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def rename(self, old: Path, new: Path) -> None:
        self.seen.append(f"{old.name[:4]} to {new.name[:4]}")
        super().rename(old, new)

    def fsync_dir(self, path: Path) -> None:
        self.seen.append("names synced")
        super().fsync_dir(path)

    def fdatasync(self, fd: int) -> None:
        self.seen.append("written")
        super().fdatasync(fd)


def test_a_free_file_is_written_over_when_its_old_name_is_gone_for_good(tmp_path: Path) -> None:
    io = NotingIO()
    files = OwnFiles(io, tmp_path, OwnFileOptions())
    files.adopt(1, [], whole=True)
    for number in (1, 2):
        files.put((1, number), written(files, number))
    for number in (1, 2):
        files.free((1, number), 10)
    files.collect(10)
    io.seen.clear()
    written(files, 3)
    written(files, 4)
    again = ["free to body", "written", "names synced"]
    assert io.seen == ["names synced", *again, *again], "once for all that became free"


@pytest.mark.parametrize(
    ("limit", "percent", "sizes"),
    [
        (100, 0, [5800, 6600, 7400, 8200]),
        (2, 0, [5800, 6600]),
        (0, 0, []),
        (100, 50, [0, 0, 7400, 8200]),
        (100, 100, [0, 0, 0, 0]),
        (3, 34, [0, 6600, 7400]),
    ],
)
def test_the_pool_has_a_limit_and_part_of_it_is_truncated(
    tmp_path: Path, limit: int, percent: int, sizes: list[int]
) -> None:  # P-08, P-09
    files = freed(tmp_path, OwnFileOptions(pool_limit=limit, clean_percent=percent), 4)
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == sizes
    assert files.pool() == (len(sizes), sum(sizes))
    again = OwnFiles(FileIO(), tmp_path, OwnFileOptions())
    again.adopt(2, [], whole=True)
    assert again.pool() == files.pool(), "it outlives the process"


@pytest.mark.parametrize("cleanup", [False, True])
def test_at_a_clean_end_the_pool_stays_or_goes(tmp_path: Path, cleanup: bool) -> None:  # P-09
    files = freed(tmp_path, OwnFileOptions(cleanup=cleanup), 2)
    files.close()
    assert len(list(tmp_path.iterdir())) == (0 if cleanup else 2)


class FullIO(FileIO):
    """A disk that allocates no file of more than ``most`` bytes."""

    most = 0

    def fallocate(self, fd: int, nbytes: int) -> None:
        if nbytes > self.most:
            raise OSError(errno.ENOSPC, "full")
        super().fallocate(fd, nbytes)


def test_without_room_nothing_is_left_and_the_pool_is_given_up_first(tmp_path: Path) -> None:
    freed(tmp_path, OwnFileOptions(), 3)
    io = FullIO()
    files = OwnFiles(io, tmp_path, OwnFileOptions())
    files.adopt(2, [], whole=True)
    assert files.pool()[0] == 3
    with pytest.raises(StoreFullError, match="no room for a message of 9000 bytes"):
        written(files, 1, 9_000)
    assert list(tmp_path.iterdir()) == []


def test_the_properties_say_what_is_done() -> None:
    assert OwnFileOptions.from_config(Config.from_values({})) == OwnFileOptions()
    assert OwnFileOptions.from_config(
        Config.from_values(
            {
                "imq.persist.file.message.max_record_size": -1,
                "imq.persist.file.destination.message.filepool.limit": 5,
                "imq.persist.file.message.filepool.cleanratio": 20,
                "imq.persist.file.message.cleanup": True,
            }
        )
    ) == (-1, 5, 20, True)


# ---- in a journal ----------------------------------------------------------------------------------------------------


def opened(directory: Path, record_bytes: int = 1_000, io: FileIO | None = None) -> Journal:
    ticks = iter(range(1, 1_000_000))
    return Journal(
        directory,
        monotonic_ns=lambda: next(ticks),
        entropy=bytes,
        segment_bytes=16 << 10,
        io=io,
        own_files=OwnFileOptions(record_bytes),
    )


def block(ordinal: int, nbytes: int = LARGE) -> LogEntry:
    data = body(ordinal, nbytes)
    return LogEntry(BLOCK, 1, ordinal, b"m%d" % ordinal, (data[:64], data[64:]))


def test_large_blocks_are_in_own_files_and_survive_restarts_copies_and_a_crash(tmp_path: Path) -> None:  # P-07
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([block(1), LogEntry(NOTE, 1, 0, b"note"), block(2, 800), block(3)])
    assert len(names(directory, "body-")) == 2
    assert journal.stats().own_files == 2
    for ordinal in range(10, 90):  # Several segments, most of which die.
        journal.commit([block(ordinal, 800)])
    journal.free(1, range(10, 90))
    journal.compact()
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    while journal.maintain(1 << 20):
        pass
    assert min(journal._log.segments) > 1, "the references were copied"
    assert [journal.read(1, ordinal) for ordinal in (1, 2, 3)] == [body(1), body(2, 800), body(3)]
    assert journal.usage()[1][1] >= 2 * LARGE + 800
    crashed = tmp_path / "crashed"
    shutil.copytree(directory, crashed)
    (crashed / f"body-{99:016x}").write_bytes(b"of a batch that never became durable")
    (crashed / f"body-{99:016x}").chmod(0o600)
    journal.close()
    for path in (directory, crashed):
        assert verify(path).sound
        journal = opened(path, record_bytes=-1)
        found = {entry.ordinal: entry.meta for entry in journal.recover() if entry.kind == BLOCK}
        assert {ordinal: found[ordinal] for ordinal in (1, 2, 3)} == {1: b"m1", 2: b"m2", 3: b"m3"}
        journal.free(1, set(found) - {1, 2, 3})
        assert [journal.read(1, ordinal) for ordinal in (1, 2, 3)] == [body(1), body(2, 800), body(3)]
        assert names(path, "free-") == ([f"free-{99:016x}"] if path == crashed else [])
        journal.free(1, [1])
        with pytest.raises(KeyError):
            journal.read(1, 1)
        assert len(names(path, "body-")) == 2
        journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
        assert len(names(path, "body-")) == 1
        journal.close()


def test_dead_own_files_worth_a_segment_ask_for_a_checkpoint(tmp_path: Path) -> None:
    journal = opened(tmp_path / "store")
    list(journal.recover())
    for ordinal in range(1, 5):
        journal.commit([block(ordinal)])
        journal.free(1, [ordinal])
        assert journal.checkpoint_due() is (ordinal == 4)
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    assert not journal.checkpoint_due()
    assert journal.stats().free_files == 4
    journal.compact()
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    assert journal.stats().free_files == 0, "compaction gives them back"
    journal.close()


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_own_file_is_named_when_it_is_read_and_the_rest_lives_on(tmp_path: Path, damage: str) -> None:
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([block(1), block(2)])
    path = directory / names(directory, "body-")[0]
    if damage == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + (b"" if damage == "cut" else b"X"))
    with pytest.raises(StoreDamagedError, match=path.name):
        journal.read(1, 1)
    if damage == "gone":
        with pytest.raises(StoreError):
            journal.salvage(1, 1)
    else:
        assert journal.salvage(1, 1)[: LARGE - 1] == body(1)[:-1]
    assert journal.read(1, 2) == body(2)
    journal.free(1, [1])
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    journal.close()


def test_verify_finds_damage_in_an_own_file(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([block(1)])
    journal.close()
    path = directory / names(directory, "body-")[0]
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"X")
    (found,) = verify(directory).damages
    assert (found.file, found.offset, found.nbytes) == (path.name, 0, LARGE)


def test_a_damaged_reference_keeps_files_that_seem_to_be_free(tmp_path: Path) -> None:
    """Whoever repairs it finds the payload in one of them."""
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([block(1), block(2)])
    segment, offset = journal._index[1][1] >> 96, journal._index[1][1] >> 64 & 0xFFFFFFFF
    path = journal._files.path(journal._log.segments[segment].slot)
    journal.close()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff")
    journal = opened(directory)
    list(journal.recover())
    assert len(names(directory, "body-")) == 2
    assert "files that nothing refers to are kept" in journal.notices()[0]
    with pytest.raises(StoreDamagedError):
        journal.read(1, 1)
    assert journal.read(1, 2) == body(2)
    journal.close()


def test_a_refused_batch_leaves_no_own_file(tmp_path: Path) -> None:
    io = FullIO()
    io.most = 1 << 20
    journal = opened(tmp_path / "store", io=io)
    list(journal.recover())
    journal.commit([block(1)])
    io.most = 5_500
    with pytest.raises(StoreFullError):
        journal.commit([block(2), block(3, 8_000)])
    assert len(names(tmp_path / "store", "body-")) == 1
    journal.commit([block(2)])
    assert [journal.read(1, ordinal) for ordinal in (1, 2)] == [body(1), body(2)]
    journal.close()


def test_a_store_of_a_newer_release_is_refused_with_the_reason_and_not_changed(tmp_path: Path) -> None:  # P-06
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([block(ordinal, 800) for ordinal in range(10, 14)])
    journal.close()
    for name in ("manifest.0", "manifest.1"):
        assert (directory / name).read_bytes()[:8] == b"RBmanif1", "the format of before, as long as that is enough"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([block(2)])
    journal.close()
    assert b"RBmanif2" in {(directory / name).read_bytes()[:8] for name in ("manifest.0", "manifest.1")}
    for name in ("manifest.0", "manifest.1"):
        with (directory / name).open("r+b") as file:
            file.write(b"RBmanif4")
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}
    with pytest.raises(StoreDamagedError, match="format '4', of a newer release; this one reads 1 to 3"):
        opened(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"} == before
    assert os.listdir(directory)
