"""The room of a log: what is decided about it, and what its files then take on the disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, Buffer, LogEntry
from raybroker.store.journal import FileIO, Journal, verify
from raybroker.store.journal.reserve import RESERVE_FILES, Use
from raybroker.store.journal.segment import SegmentFiles
from raybroker.store.journal.sizing import WINDOW_NS, Sizing

MIB = 1 << 20
SEGMENT_BYTES = 8 * MIB
BODY = bytes(64 << 10)


class Clock:
    """Nanoseconds, which pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class TearingIO(FileIO):
    """Fails the first sync after ``tear`` was set, and leaves of the last write to that file only its first sector."""

    def __init__(self) -> None:
        self.tear = ""
        self.torn: tuple[int, int, bytes] | None = None
        self._names: dict[int, str] = {}

    def open(self, path: Path, *, write: bool = True) -> int:
        fd = super().open(path, write=write)
        self._names[fd] = path.name
        return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.tear and self._names.get(fd, "").startswith(self.tear):
            before = os.pread(fd, sum(memoryview(part).nbytes for part in buffers), offset)
            self.torn = fd, offset, before
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        if self.torn is not None and self.torn[0] == fd:
            _, offset, before = self.torn
            os.pwrite(fd, before[512:], offset + 512)
            raise OSError(5, "the power fails")
        super().fdatasync(fd)


class PlainIO(FileIO):
    """A file system that gives no part of a file back."""

    def punch(self, fd: int, start: int, end: int) -> bool:
        return False


def opened(directory: Path, clock: Clock | None = None, io: FileIO | None = None) -> Journal:
    journal = Journal(directory, monotonic_ns=clock or Clock(), entropy=bytes, segment_bytes=SEGMENT_BYTES, io=io)
    list(journal.recover())
    return journal


def tidied(journal: Journal) -> None:
    while journal.maintain(MIB):
        pass


def calmed(journal: Journal, clock: Clock) -> None:
    """Nothing happens for so long that the log is not busy."""
    for _ in range(3):
        clock.now += WINDOW_NS
        journal.tidy_helps()


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.glob("segment-*"))


def filled(journal: Journal, blocks: int, first: int = 0) -> None:
    for ordinal in range(first, first + blocks):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (BODY,))])
        if journal.checkpoint_due():
            journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
        tidied(journal)


# ---- what is decided -------------------------------------------------------------------------------------------------


def test_a_log_is_busy_at_first_and_while_it_writes_a_quarter_of_a_segment_in_two_windows() -> None:
    sizing = Sizing(64 * MIB)
    for window in range(3):
        sizing.follow_time(window * WINDOW_NS)
        assert sizing.busy == (window < 2)
    sizing.written += 16 * MIB
    assert sizing.busy
    sizing.follow_time(3 * WINDOW_NS)
    assert sizing.busy, "it was in the window before"
    sizing.follow_time(4 * WINDOW_NS)
    assert not sizing.busy


def test_a_look_within_a_window_changes_nothing() -> None:
    sizing = Sizing(64 * MIB)
    sizing.follow_time(5)
    sizing.written = 7
    sizing.follow_time(5 + WINDOW_NS - 1)
    assert (sizing.written, sizing.lately) == (7, 7)
    sizing.follow_time(5 + WINDOW_NS)
    assert (sizing.written, sizing.lately) == (0, 7)


def test_a_step_is_an_eighth_of_what_is_stored_or_was_written_within_bounds() -> None:
    sizing = Sizing(64 * MIB)
    assert sizing.step_bytes(0) == sizing.least_bytes == MIB
    assert sizing.step_bytes(80 * MIB) == 10 * MIB
    assert sizing.step_bytes(1 << 40) == 64 * MIB
    sizing.written = 160 * MIB
    assert sizing.step_bytes(80 * MIB) == 20 * MIB
    assert sizing.step_bytes(160 * MIB + 8) % 512 == 0


def test_a_log_that_is_not_busy_keeps_the_least_step_however_much_is_stored() -> None:
    sizing = Sizing(64 * MIB)
    sizing.calm()
    assert not sizing.busy
    assert sizing.step_bytes(1 << 40) == MIB
    assert not sizing.excess(10 * MIB, 9 * MIB + 1)
    assert sizing.excess(10 * MIB, 9 * MIB)


@pytest.mark.parametrize("segment_bytes", [4096, 8192, 32 << 10, (1 << 32) - 1024])
def test_segments_of_every_size_have_a_step_of_whole_sectors(segment_bytes: int) -> None:
    sizing = Sizing(segment_bytes)
    assert 512 <= sizing.least_bytes <= segment_bytes
    for live in (0, 1, segment_bytes, segment_bytes * 9):
        assert sizing.step_bytes(live) % 512 == 0
        assert sizing.least_bytes <= sizing.step_bytes(live) <= segment_bytes


# ---- what files take -------------------------------------------------------------------------------------------------


def test_room_is_given_back_as_zeros_and_the_length_stays(tmp_path: Path) -> None:
    files = SegmentFiles(FileIO(), tmp_path, SEGMENT_BYTES)
    slot = files.take_file(4096, Use.BLOCKS, 4 * MIB)
    assert (files.size(slot), files.room(slot)) == (SEGMENT_BYTES, 4 * MIB)
    path = files.path(slot)
    assert path.stat().st_size == SEGMENT_BYTES
    with path.open("r+b") as file:
        file.write(b"x" * 4 * MIB)
    assert files.cut(slot, MIB)
    assert files.room(slot) == files.reserved_bytes() == MIB
    data = path.read_bytes()
    assert data[:MIB] == b"x" * MIB
    assert not any(data[MIB:])
    assert len(data) == SEGMENT_BYTES
    assert files.extend(slot, 2 * MIB)
    assert files.room(slot) == 2 * MIB
    files.close()


def test_a_free_file_has_the_room_that_is_asked_for_when_it_is_taken(tmp_path: Path) -> None:
    files = SegmentFiles(FileIO(), tmp_path, SEGMENT_BYTES)
    assert files.prepare(3 * MIB, MIB)
    assert files.prepare(3 * MIB, MIB)
    assert not files.prepare(3 * MIB, MIB)
    assert files.free_room() == (3 * MIB, 3 * MIB)
    slot = files.take_file(5 * MIB, Use.BLOCKS, MIB)
    assert files.room(slot) == 5 * MIB
    assert not files.free
    files.close()


def test_a_spare_file_of_which_only_a_part_has_a_place_is_not_kept_by_the_next_process(tmp_path: Path) -> None:
    files = SegmentFiles(FileIO(), tmp_path, SEGMENT_BYTES)
    files.prepare(MIB, MIB)
    whole = files.take_file(SEGMENT_BYTES, Use.BLOCKS, SEGMENT_BYTES)
    files.close()
    again = SegmentFiles(FileIO(), tmp_path, SEGMENT_BYTES, MIB)
    again.discover()
    again.sort_out(set())
    assert again.reserve == [whole]
    assert again.free == []
    again.close()


# ---- what a store takes ----------------------------------------------------------------------------------------------


def test_a_store_takes_little_more_than_what_is_in_it_and_hardly_anything_when_it_is_empty(tmp_path: Path) -> None:
    clock, directory = Clock(), tmp_path / "store"
    journal = opened(directory, clock)
    reserve = RESERVE_FILES * journal._files.reserve_bytes
    assert disk_bytes(directory) <= reserve + MIB
    filled(journal, 400)
    live = 400 * len(BODY)
    assert disk_bytes(directory) <= 1.2 * live + reserve, "also while it is busy"
    calmed(journal, clock)
    assert journal.tidy_helps()
    tidied(journal)
    assert not journal.tidy_helps()
    assert disk_bytes(directory) <= 1.05 * live + reserve
    assert abs(journal.stats().reserved_bytes - disk_bytes(directory)) < MIB // 2
    journal.free(1, range(400))
    journal.compact()
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    tidied(journal)
    assert not journal.compacting
    assert disk_bytes(directory) <= reserve + MIB // 2
    filled(journal, 10, 400)
    journal.close()
    assert verify(directory).sound


def test_a_busy_store_uses_its_files_again_as_they_are(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    journal = opened(directory)
    for first in range(0, 1600, 100):
        filled(journal, 100, first)
        journal.free(1, range(first, first + 100))
    assert journal._files.free
    assert all(journal._files.room(slot) == SEGMENT_BYTES for slot in journal._files.free)
    slots = {segment.slot for segment in journal._log.segments.values()} | set(journal._files.free)
    for first in range(1600, 3200, 100):
        filled(journal, 100, first)
        journal.free(1, range(first, first + 100))
    assert slots & {segment.slot for segment in journal._log.segments.values()}
    journal.close()


def test_after_a_restart_a_store_knows_how_far_its_files_are_allocated(tmp_path: Path) -> None:
    clock, directory = Clock(), tmp_path / "store"
    journal = opened(directory, clock)
    filled(journal, 200)
    calmed(journal, clock)
    tidied(journal)
    before = journal.stats().reserved_bytes
    journal.close()
    journal = opened(directory, clock)
    assert abs(journal.stats().reserved_bytes - before) < MIB // 2
    active = journal._log.active
    assert active.used_end <= active.room_end <= active.size_bytes
    filled(journal, 200, 200)
    for ordinal in range(0, 400, 7):
        assert journal.read(1, ordinal) == BODY
    journal.close()
    assert verify(directory).sound


def test_where_no_part_of_a_file_can_be_given_back_the_store_does_not_try_again(tmp_path: Path) -> None:
    clock, directory = Clock(), tmp_path / "store"
    journal = opened(directory, clock, PlainIO())
    filled(journal, 300)
    calmed(journal, clock)
    tidied(journal)
    assert not journal._files.can_punch
    assert not journal.tidy_helps()
    filled(journal, 300, 300)
    journal.close()
    assert verify(directory).sound


def test_a_manifest_that_was_torn_after_a_clean_end_is_no_damage(tmp_path: Path) -> None:
    """The mark of that end is withdrawn first: as long as it counts, a manifest that is not valid is damage."""
    directory = tmp_path / "store"
    journal = opened(directory)
    filled(journal, 1200)
    assert len(journal._log.segments) > 8, "its manifest takes more than a sector"
    journal.close()
    assert verify(directory).sound
    io = TearingIO()
    io.tear = "manifest"
    with pytest.raises(Exception, match="the power fails"):
        opened(directory, io=io)
    report = verify(directory)
    assert report.sound, report.damages
    journal = opened(directory)
    assert journal.read(1, 1199) == BODY
    journal.close()
