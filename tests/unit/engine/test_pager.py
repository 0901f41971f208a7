"""The pager: which bodies stay in memory, which go out when, and that none is ever lost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory import pager
from raybroker.engine.memory.pager import BLOCK_OVERHEAD_BYTES, RETRY_MS, Pager
from raybroker.model.blocks.block import encode_block
from raybroker.model.blocks.record import Buffer
from tests.unit.engine.rig import Clock

BATCH_BYTES = 64 << 10
BODY = BATCH_BYTES // 8


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "BATCH_BYTES", BATCH_BYTES)


class Files:
    """Paging files in memory, which write when told to."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], bytes] = {}
        self.waiting: list[tuple[list[tuple[int, int, Buffer]], Callable[[OSError | None], None]]] = []
        self.reads = 0

    def write(self, rows: list[tuple[int, int, Buffer]], done: Callable[[OSError | None], None]) -> None:
        assert not self.waiting, "one write at a time"
        self.waiting.append((rows, done))

    def sync(self, error: OSError | None = None) -> None:
        while self.waiting:
            rows, done = self.waiting.pop()
            if error is None:
                self.kept.update({(d, o): bytes(data) for d, o, data in rows})
            done(error)

    def has(self, destination: int, ordinal: int) -> bool:
        return (destination, ordinal) in self.kept

    def read(self, destination: int, ordinal: int) -> bytes:
        self.reads += 1
        return self.kept[destination, ordinal]

    def free(self, destination: int, ordinal: int) -> int:
        return len(self.kept.pop((destination, ordinal), b""))

    @property
    def bytes_by_destination(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for (destination, _), data in self.kept.items():
            found[destination] = found.get(destination, 0) + len(data)
        return found

    def close(self) -> None: ...


def block(ordinal: int, size: int = BODY) -> memoryview:
    body = ordinal.to_bytes(4, "little") * (size // 8)
    return memoryview(encode_block([body, body], producer=1, first_seq=1, timestamp_ms=0, persistent=False, kinds=0))


class Rig:
    def __init__(self, blocks: int = 8) -> None:
        self.files, self.clock, self.told = Files(), Clock(), list[str]()
        self.relieved: list[int] = []
        """What the buffer held when it said that it is over."""
        limit, time = blocks * (BODY + 1024), MeasuredTime(self.clock)
        self.pager = Pager(
            self.files, limit, time, self.told.append, relieved=lambda: self.relieved.append(self.pager.held_bytes)
        )

    def put(self, *ordinals: int, topic: bool = False, fixed: bool = False) -> None:
        for ordinal in ordinals:
            self.pager.put((1, ordinal), block(ordinal), topic=topic, fixed=fixed)
            self.files.sync()


def test_the_oldest_of_a_queue_stay_in_memory_and_the_newest_go_out_in_batches() -> None:
    rig = Rig(blocks=8)
    rig.put(*range(1, 16))
    assert not rig.files.kept, "less than a batch waits for company"
    rig.put(*range(16, 33))
    assert sorted(ordinal for _, ordinal in rig.files.kept) == list(range(9, 33))
    assert rig.pager.held_bytes <= rig.pager.limit_bytes
    assert rig.pager.messages_out == 2 * 24
    assert rig.pager.bytes_out == rig.pager.paged_bytes
    for ordinal in range(1, 33):
        assert rig.pager.get((1, ordinal)) == block(ordinal)
    assert rig.files.reads == 24
    assert rig.pager.messages_back == 2 * 24
    assert len(rig.told) == 1
    assert "is full" in rig.told[0]


@pytest.mark.parametrize("topic", [True, False])
def test_a_lone_block_waits_for_company_until_the_next_tick(topic: bool) -> None:
    rig = Rig(blocks=0)
    rig.put(1, topic=topic)
    assert rig.pager.get((1, 1)) == block(1)
    assert not rig.files.kept
    rig.pager.page_out_waiting()
    rig.pager.page_out_waiting()  # One write at a time.
    rig.files.sync()
    assert list(rig.files.kept) == [(1, 1)]
    assert rig.pager.held_bytes == 0
    rig.put(2, topic=topic, fixed=True)
    rig.pager.page_out_waiting()
    assert not rig.files.waiting
    assert rig.pager.get((1, 1)) == block(1)


def test_while_paging_files_cannot_be_written_a_tick_does_not_try() -> None:
    rig = Rig(blocks=0)
    rig.put(1)
    rig.pager.page_out_waiting()
    rig.files.sync(OSError("the disk is full"))
    rig.pager.page_out_waiting()
    assert not rig.files.waiting
    rig.clock.ms += RETRY_MS
    rig.pager.page_out_waiting()
    rig.files.sync()
    assert list(rig.files.kept) == [(1, 1)]


def test_the_oldest_of_a_topic_go_out_so_that_who_keeps_up_never_reads_the_disk() -> None:
    rig = Rig(blocks=16)
    for ordinal in range(1, 101):
        rig.put(ordinal, topic=True)
        for recent in range(max(ordinal - 7, 1), ordinal + 1):
            assert rig.pager.get((1, recent)) == block(recent)
    assert rig.files.reads == 0
    assert min(ordinal for _, ordinal in rig.files.kept) == 1
    assert rig.pager.get((1, 1)) == block(1)


def test_what_leaves_meanwhile_is_dropped_wherever_it_is() -> None:
    rig = Rig(blocks=1)
    for ordinal in range(1, 20):
        rig.pager.put((1, ordinal), block(ordinal), topic=False)
    assert rig.files.waiting, "a write is under way"
    for ordinal in range(1, 20):
        rig.pager.drop((1, ordinal))
    assert rig.pager.held_bytes == 0
    rig.files.sync()
    assert not rig.files.kept
    assert rig.pager.paged_bytes == 0
    assert rig.pager.messages_out == 0


def test_what_the_store_will_have_is_neither_paged_nor_lost() -> None:
    rig = Rig(blocks=1)
    rig.put(*range(1, 40), fixed=True)
    assert not rig.files.kept
    assert rig.pager.take_block((1, 7)) == block(7)
    assert rig.pager.get((1, 7)) is None


def test_it_says_when_bodies_come_faster_than_they_can_be_written_and_when_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pager, "LEAVING_HIGH", 4 * BATCH_BYTES)
    monkeypatch.setattr(pager, "LEAVING_LOW", BATCH_BYTES)
    monkeypatch.setattr(pager, "WRITE_BYTES", 2 * BATCH_BYTES)
    rig = Rig(blocks=1)
    ordinal = 0
    while not rig.pager.overloaded:
        ordinal += 1
        rig.pager.put((1, ordinal), block(ordinal), topic=False)
    assert 4 * BATCH_BYTES < rig.pager.held_bytes < 5 * BATCH_BYTES
    assert rig.relieved == []
    rig.files.sync()
    assert (rig.pager.overloaded, len(rig.relieved)) == (False, 1)
    assert rig.relieved[0] < 2 * BATCH_BYTES, "with what the buffer holds"
    assert all(rig.pager.get((1, n)) == block(n) for n in range(1, ordinal + 1))


def test_nobody_waits_for_a_disk_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pager, "LEAVING_HIGH", 2 * BATCH_BYTES)
    rig = Rig(blocks=1)
    for ordinal in range(1, 40):
        rig.pager.put((1, ordinal), block(ordinal), topic=False)
    assert rig.pager.overloaded
    rig.files.sync(OSError(28, "No space left on device"))
    assert (rig.pager.overloaded, len(rig.relieved)) == (False, 1)
    rig.put(*range(40, 80))
    assert not rig.pager.overloaded, "what stays in memory is told to the log, and bounded by limits"


def test_while_the_disk_is_full_bodies_stay_and_the_log_hears_it_once() -> None:
    rig = Rig(blocks=1)
    full = OSError(28, "No space left on device")
    for ordinal in range(1, 40):
        rig.pager.put((1, ordinal), block(ordinal), topic=False)
        rig.files.sync(full)
    assert rig.pager.paging_row()["paging_failure"] == str(full)
    assert len([line for line in rig.told if "cannot be written" in line]) == 1
    assert all(rig.pager.get((1, ordinal)) == block(ordinal) for ordinal in range(1, 40))
    rig.put(40)
    assert not rig.files.kept, "it is not tried again at once"
    rig.clock.ms += RETRY_MS
    rig.put(41)
    assert rig.files.kept
    assert not rig.pager.failure
    assert "again" in rig.told[-1]
    assert all(rig.pager.get((1, ordinal)) == block(ordinal) for ordinal in range(1, 42))


def test_blocks_come_back_as_from_a_dictionary_whatever_happens() -> None:
    for seed in range(25):
        rng, rig = random.Random(seed), Rig(blocks=3)
        twin: dict[tuple[int, int], memoryview] = {}
        for step in range(120):
            choice = rng.random()
            if choice < 0.55:
                key = rng.randrange(1, 3), step
                twin[key] = block(step, rng.choice((64, BODY, 3 * BODY)))
                rig.pager.put(key, twin[key], topic=key[0] == 2, fixed=rng.random() < 0.1)
            elif choice < 0.7:
                rig.files.sync(OSError(5, "broken") if rng.random() < 0.3 else None)
                rig.clock.ms += rng.choice((0, RETRY_MS))
            elif twin:
                key = rng.choice(sorted(twin))
                assert rig.pager.get(key) == twin[key]
                assert rig.pager.check(key)
                if rng.random() < 0.7:
                    rig.pager.drop(key)
                    del twin[key]
                    assert rig.pager.get(key) is None
                    assert not rig.pager.check(key)
        rig.files.sync()
        in_memory = [view.nbytes + BLOCK_OVERHEAD_BYTES for key, view in twin.items() if key not in rig.files.kept]
        assert rig.pager.held_bytes == sum(in_memory)
        assert set(rig.files.kept) <= set(twin)
        for key, view in twin.items():
            assert rig.pager.get(key) == view
            rig.pager.drop(key)
        assert rig.pager.held_bytes == 0
        assert not rig.files.kept
