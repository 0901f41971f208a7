"""What is fetched ahead of those who read in order, and of nobody else."""

from __future__ import annotations

from pathlib import Path

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, LogEntry
from raybroker.store.journal import FileIO, Journal
from raybroker.store.journal.read_ahead import AHEAD_BYTES, GAP_BYTES, READERS_MAX, ReadAhead

MIB = 1 << 20
END = 64 * MIB


def test_who_reads_in_order_has_the_next_bytes_fetched_each_once_and_not_too_many() -> None:
    ahead, fetched, at = ReadAhead(), 0, 0
    while at < END:
        start, some = ahead.next(1, 1, at, MIB, END)
        at += MIB
        if some:
            assert start == max(fetched, at), "nothing twice, and no hole"
            fetched = start + some
        assert fetched - at <= AHEAD_BYTES
        assert fetched >= min(at + AHEAD_BYTES // 2, END) or at == MIB, "always half of it at least"
    assert fetched == END


def test_the_first_bytes_and_those_somewhere_else_are_fetched_for_nobody() -> None:
    ahead = ReadAhead()
    assert ahead.next(1, 1, 0, 100, END)[1] == 0
    assert ahead.next(1, 1, 101 + GAP_BYTES, 100, END)[1] == 0, "far behind"
    assert ahead.next(1, 1, 50, 100, END)[1] == 0, "before"
    assert ahead.next(1, 1, 150 + GAP_BYTES, 100, END)[1] > 0, "others are in between"


def test_the_next_segment_is_gone_on_with_from_its_beginning_and_an_older_one_is_not() -> None:
    ahead = ReadAhead()
    ahead.next(1, 5, END - 100, 100, END)
    assert ahead.next(1, 6, 512, 100, END) == (612, AHEAD_BYTES)
    assert ahead.next(1, 5, 512, 100, END)[1] == 0


def test_each_destination_reads_for_itself_and_the_oldest_readers_are_forgotten() -> None:
    ahead = ReadAhead()
    for destination in range(READERS_MAX + 1):
        ahead.next(destination, 1, destination * 1000, 1000, END)
    assert ahead.next(0, 1, 1000, 1000, END)[1] == 0, "it was the oldest"
    assert ahead.next(READERS_MAX, 1, (READERS_MAX + 1) * 1000, 1000, END)[1] > 0
    assert len(ahead._places) == READERS_MAX


class NotingIO(FileIO):
    def __init__(self) -> None:
        self.fetched = 0

    def fetch(self, fd: int, offset: int, nbytes: int) -> None:
        self.fetched += nbytes
        super().fetch(fd, offset, nbytes)


def test_a_journal_that_is_read_in_order_fetches_what_it_has_once(tmp_path: Path) -> None:
    io = NotingIO()
    journal = Journal(
        tmp_path / "store", monotonic_ns=iter(range(1 << 30)).__next__, entropy=bytes, segment_bytes=MIB, io=io
    )
    list(journal.recover())
    for ordinal in range(50):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"", (b"%02d" % ordinal * 50_000,))])
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    for ordinal in range(50):
        assert journal.read(1, ordinal) == b"%02d" % ordinal * 50_000
    assert 0.8 * 50 * 100_000 < io.fetched < 50 * 100_000
    before = io.fetched
    for ordinal in range(49, 0, -10):
        journal.read(1, ordinal)
    assert io.fetched == before
    journal.close()
