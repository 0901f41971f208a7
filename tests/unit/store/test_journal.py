"""The journal beyond the contract: its directory, its lock, its files, its space."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import write_all
from raybroker.store.journal import FileIO, Journal, verify
from raybroker.store.journal.format import SECTOR_BYTES
from raybroker.store.journal.reclaim import LastCheckpoint, dead_segments, sparsest_segment
from raybroker.store.journal.segment import Segment
from raybroker.store.memory import MemoryStore

SEGMENT_BYTES = 16 << 10


def opened(directory: Path, *, segment_bytes: int = SEGMENT_BYTES, io: FileIO | None = None) -> Journal:
    ticks = iter(range(1, 1_000_000))
    return Journal(
        directory,
        monotonic_ns=lambda: next(ticks),
        entropy=lambda nbytes: bytes(range(nbytes)),
        segment_bytes=segment_bytes,
        io=io,
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "store"
    old = os.umask(0)
    try:
        opened(directory).close()
    finally:
        os.umask(old)
    assert mode(directory) == 0o700
    assert {mode(path) for path in directory.iterdir()} == {0o600}


@pytest.mark.parametrize("name", [".", "commit.mark", "segment-000001"])
def test_wider_permissions_are_refused(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "store"
    opened(directory).close()
    path = directory / name
    path.chmod(mode(path) | 0o040)
    with pytest.raises(StoreError, match="for its owner alone"):
        opened(directory)


def test_a_second_opener_is_told_who_has_it(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    first = opened(directory)
    with pytest.raises(StoreError, match=f"open in process {os.getpid()}"):
        opened(directory)
    with pytest.raises(StoreError, match="open in process"):
        verify(directory)
    first.close()
    opened(directory).close()


def test_every_opening_is_a_new_incarnation_of_the_same_store(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    found = []
    for _ in range(3):
        journal = opened(directory)
        found.append((journal._log.manifest.store, journal._log.manifest.incarnation))
        journal.close()
    assert found == [(bytes(range(16)), incarnation) for incarnation in (1, 2, 3)]


def test_a_creation_cut_short_is_begun_again(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir(mode=0o700)
    for name in ("manifest.0", "commit.mark"):
        (directory / name).write_bytes(b"")
        (directory / name).chmod(0o600)
    journal = opened(directory)
    assert list(journal.recover()) == []
    journal.close()


@pytest.mark.parametrize("pattern", ["manifest.*", "commit.mark", "segment-*", "[ms]*"])
def test_missing_files_are_damage_and_not_a_new_store(tmp_path: Path, pattern: str) -> None:
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([LogEntry(NOTE, 0, 0, b"precious")])
    journal.close()
    for path in directory.glob(pattern):
        path.unlink()
    with pytest.raises(StoreDamagedError):
        opened(directory)


def test_an_error_while_opening_lets_go_of_the_lock(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    opened(directory).close()
    saved = (directory / "commit.mark").read_bytes()
    (directory / "commit.mark").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StoreDamagedError):
            opened(directory)
    (directory / "commit.mark").write_bytes(saved)
    opened(directory).close()


def test_the_segment_size_may_change_between_openings(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    stored = 0
    for segment_bytes in (16 << 10, 64 << 10, 8 << 10):
        journal = opened(directory, segment_bytes=segment_bytes)
        assert sum(entry.kind == BLOCK for entry in journal.recover()) == stored
        for _ in range(50):
            journal.commit([LogEntry(BLOCK, 1, stored, b"", (bytes(1000),))])
            stored += 1
        journal.close()
    assert verify(directory).blocks == stored


def test_stats_tell_of_space_and_syncs(tmp_path: Path) -> None:
    journal = opened(tmp_path / "store")
    list(journal.recover())
    for ordinal in range(30):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"m", (bytes(1000),))])
    stats = journal.stats()
    assert stats.live_bytes == 30_000
    assert stats.live_bytes < stats.used_bytes < stats.reserved_bytes
    assert stats.segments == len(journal._log.segments) > 1
    assert (stats.commits, stats.syncs, stats.sync_ns, stats.sync_ns_max) == (30, 30, 30, 1)
    journal.close()


def test_readers_are_not_disturbed_by_reclaiming(tmp_path: Path) -> None:
    journal = opened(tmp_path / "store")
    list(journal.recover())
    keep = list(range(3, 600, 25))
    faults: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                for ordinal in keep:
                    if ordinal < stored[0]:
                        assert journal.read(1, ordinal) == b"%04d" % ordinal * 300
        except BaseException as error:  # noqa: BLE001  # told to the test
            faults.append(error)

    stored = [0]
    thread = threading.Thread(target=read)
    thread.start()
    for ordinal in range(600):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (b"%04d" % ordinal * 300,))])
        stored[0] = ordinal + 1
        if ordinal not in keep:
            journal.free(1, [ordinal])
        if journal.checkpoint_due():
            journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
        journal.maintain(4096)
    stop.set()
    thread.join()
    assert faults == []
    assert min(journal._log.segments) > 1, "survivors were moved"
    assert journal.stats().reserved_bytes <= 2 * 1200 * len(keep) + 9 * SEGMENT_BYTES
    journal.close()


def test_a_block_of_the_last_checkpoint_is_given_back_even_if_a_later_note_killed_it(tmp_path: Path) -> None:
    """Its note may speak of a part of the block only, so that the block is needed to understand it."""
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    journal.commit([LogEntry(BLOCK, 1, 1, b"first", (bytes(1000),))])
    for ordinal in range(2, 40):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (bytes(1000),))])
    journal.free(1, range(2, 40))
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"1 is live")])
    journal.commit([LogEntry(NOTE, 1, 0, b"1 is acknowledged")])
    journal.free(1, [1])
    while journal.maintain(1 << 20):
        pass
    journal.close()
    journal = opened(directory)
    found = list(journal.recover())
    journal.close()
    assert found[0].meta == b"1 is live"
    assert LogEntry(BLOCK, 1, 1, b"first") in found
    assert found[-1].meta == b"1 is acknowledged"


def test_compaction_leaves_no_sparse_segment_and_a_crash_within_it_loses_nothing(tmp_path: Path) -> None:
    """A-38: also where the journal by itself would leave the garbage that there is."""
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    for ordinal in range(60):
        journal.commit([LogEntry(BLOCK, 1 + ordinal % 2, ordinal, b"", (b"%04d" % ordinal * 200,))])
    journal.free(1, range(0, 60, 2))
    keep = {ordinal: journal.read(2, ordinal) for ordinal in range(1, 60, 2)}
    assert journal.usage() == {2: (30, 30 * 800)}
    while journal.maintain(1 << 20):
        pass
    before = journal.stats()
    journal.compact()
    assert journal.compacting
    assert not journal.maintain(1 << 20), "a checkpoint begins it"
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    assert journal.maintain(1000)
    crashed = tmp_path / "crashed"
    shutil.copytree(directory, crashed)
    while journal.maintain(1000):
        pass
    after = journal.stats()
    assert not journal.compacting
    assert after.used_bytes < 0.7 * before.used_bytes
    assert after.reserved_bytes < before.reserved_bytes
    assert after.live_bytes == before.live_bytes
    assert journal.usage() == {2: (30, 30 * 800)}
    journal.close()
    for path in (directory, crashed):
        journal = opened(path)
        list(journal.recover())
        assert {ordinal: journal.read(2, ordinal) for ordinal in keep} == keep
        journal.close()
        assert verify(path).sound


def test_usage_counts_what_is_packed_into_pages_too(tmp_path: Path) -> None:
    journal = opened(tmp_path / "store", segment_bytes=1 << 20)
    list(journal.recover())
    for first in range(0, 600, 100):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (bytes(10),)) for ordinal in range(first, first + 100)])
    journal.free(1, range(100, 150))
    assert journal.usage() == {1: (550, 5500)}
    journal.close()


def segment(number: int, *, live: int = 0, sealed: bool = True, freed_seq: int = 0) -> Segment:
    made = Segment.started(number, number, 1000, 0, 0)
    made.sealed = sealed
    made.live_blocks = 1 if live else 0
    made.live_bytes = live
    made.freed_seq = freed_seq
    return made


def test_a_segment_is_dead_when_the_last_checkpoint_covers_all_of_it() -> None:
    segments = [
        segment(1),
        segment(2, live=1),
        segment(3, freed_seq=50),
        segment(4, freed_seq=51),
        segment(5),
        segment(6, sealed=False),
    ]
    assert [s.number for s in dead_segments(segments, LastCheckpoint(5, 50))] == [1, 3]


def test_survivors_move_only_when_much_is_garbage_and_the_sparsest_first() -> None:
    dense = [segment(n, live=900) for n in range(1, 20)]
    assert sparsest_segment(dense, LastCheckpoint(30), 1000) is None
    sparse = [segment(n, live=400 - n) for n in range(20, 29)]
    chosen = sparsest_segment(sparse, LastCheckpoint(30), 1000)
    assert chosen is None, "nine sparse segments are within the slack"
    sparse = [segment(n, live=100 - n) for n in range(20, 29)]
    chosen = sparsest_segment(sparse, LastCheckpoint(30), 1000)
    assert chosen is not None
    assert chosen.number == 28
    assert sparsest_segment(sparse, LastCheckpoint(20), 1000) is None


def test_few_descriptors_are_enough_for_many_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybroker.store.journal.segment.OPEN_FILES_MAX", 4)
    journal = opened(tmp_path / "store", segment_bytes=8 << 10)
    list(journal.recover())
    for ordinal in range(60):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (b"%04d" % ordinal * 500,))])
    for ordinal in range(0, 60, 7):
        assert journal.read(1, ordinal) == b"%04d" % ordinal * 500
    assert len(journal._log.segments) > 15
    assert len(journal._files._open) <= 4
    journal.close()


class ShortIO(FileIO):
    def pwritev(self, fd: int, buffers: object, offset: int) -> int:
        return super().pwritev(fd, [b"".join(buffers)[:7]], offset)  # type: ignore[call-overload]


def test_short_writes_go_on_until_all_is_written(tmp_path: Path) -> None:
    io = ShortIO()
    fd = io.create(tmp_path / "file")
    write_all(io, fd, [b"one", bytearray(b"two and more"), b"", memoryview(b"three")] * 500, 3)
    io.close(fd)
    assert (tmp_path / "file").read_bytes() == bytes(3) + b"onetwo and morethree" * 500


def test_a_memory_store_that_failed_is_dead_and_keeps_what_was_committed() -> None:
    store = MemoryStore()
    list(store.recover())
    store.commit([LogEntry(NOTE, 0, 0, b"kept")])
    store.fail_next_commit = "the disk broke"
    for _ in range(2):
        with pytest.raises(StoreError, match="the disk broke"):
            store.commit([LogEntry(NOTE, 0, 0, b"lost")])
    assert [entry.meta for entry in store.crash().recover()] == [b"kept"]


@pytest.mark.parametrize("marked", [False, True])
def test_a_batch_that_is_gone_is_named_if_the_mark_knew_of_it(tmp_path: Path, marked: bool) -> None:
    directory = tmp_path / "store"
    journal = opened(directory)
    list(journal.recover())
    for number in range(3):
        mark = journal.commit([LogEntry(NOTE, 0, 0, b"%d" % number)])
    assert mark is not None
    if marked:
        mark()
    end = journal.log_end
    journal._log.dead = "the process died"
    journal.close()
    (segment,) = directory.glob("segment-*1")
    with segment.open("r+b") as file:
        file.seek(end.offset - SECTOR_BYTES)
        file.write(bytes(SECTOR_BYTES))
    if marked:
        with pytest.raises(StoreDamagedError):
            list(opened(directory).recover())
    else:
        journal = opened(directory)
        assert [entry.meta for entry in journal.recover()] == [b"0", b"1"], "as if its sync had been under way"
        journal.close()
