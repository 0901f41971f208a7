"""The durable log of frames: what is written is there, what is torn is cut, what is damaged is named."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raybroker.cluster.change_record import Change, ChangeRecord
from raybroker.cluster.saved_record import Saved, entry_frame, load_frames
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import IllegalStateError, StoreDamagedError, StoreError
from raybroker.store.record import BATCH_BYTES_MAX, PORTION_BYTES, RecordFile, RecordIO, encode, scan
from tests.simulation_control.disk import SimDisk, SimIO


def opened(path: Path, io: RecordIO | None = None) -> tuple[RecordFile, list[bytes]]:
    file = RecordFile(path, io)
    return file, file.open()


def frames_of(path: Path) -> list[bytes]:
    file, frames = opened(path)
    file.close()
    return frames


def written(path: Path, *batches: Sequence[bytes]) -> bytes:
    file, _ = opened(path)
    for batch in batches:
        file.append(batch)
    file.close()
    return path.read_bytes()


def test_frames_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record"
    file, frames = opened(path)
    assert frames == []
    file.append([b"a", b"", b"c" * 5000])
    file.append([])
    file.append([b"d"])
    file.close()
    file.close()
    assert frames_of(path) == [b"a", b"", b"c" * 5000, b"d"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_replace_leaves_only_the_new_frames_and_appending_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "record"
    file, _ = opened(path)
    file.append([b"old"])
    file.replace([b"new", b"newer"])
    file.append([b"more"])
    file.close()
    assert frames_of(path) == [b"new", b"newer", b"more"]
    assert sorted(os.listdir(tmp_path)) == ["record", "record.lock"]


def test_a_torn_end_is_cut_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "record"
    data = written(path, [b"first"], [b"second", b"third"])
    one = data.index(b"\xb5RB\n", data.index(b"\xb5RB\n") + 1)
    for nbytes in range(one, len(data)):
        path.write_bytes(data[:nbytes])
        file, frames = opened(path)
        assert frames == [b"first"]
        assert file.cut_bytes == nbytes - one
        file.append([b"again"])
        file.close()
        assert frames_of(path) == [b"first", b"again"]


def test_a_torn_end_of_zeros_or_rubbish_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "record"
    data = written(path, [b"first"])
    for rubbish in (bytes(700), b"\xff" * 9, b"\xb5RB\n" + bytes(8)):
        path.write_bytes(data + rubbish)
        assert frames_of(path) == [b"first"]


def test_damage_before_the_end_is_refused_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "record"
    data = written(path, [b"first" * 10], [b"second"], [b"third"])
    start = data.index(b"\xb5RB\n")
    last = data.rindex(b"\xb5RB\n")
    for at in range(last):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StoreDamagedError, match=r"damaged at offset \d+") as caught:
            frames_of(path)
        offset = int(str(caught.value).split("offset ")[1].split(":")[0])
        assert offset in ((0,) if at < start else (start, data.index(b"\xb5RB\n", start + 1))), at
        assert path.read_bytes() == bytes(damaged), "what is refused is not touched"


def test_closing_waits_for_what_is_being_written(tmp_path: Path) -> None:
    """Whoever waited for a write may be gone, and then the file is closed while a thread is at it."""
    reached, go_on = threading.Event(), threading.Event()

    class Slow(RecordIO):
        slow = False

        def rename(self, old: Path, new: Path) -> None:
            if self.slow:
                reached.set()
                assert go_on.wait(10)
            super().rename(old, new)

    io = Slow()
    file, _ = opened(tmp_path / "record", io)
    io.slow = True
    with ThreadPoolExecutor(2) as pool:
        replaced = pool.submit(file.replace, [b"new"])
        assert reached.wait(10)
        closed = pool.submit(file.close)
        with pytest.raises(IllegalStateError, match="in use"):
            opened(tmp_path / "record")
        assert not closed.done()
        go_on.set()
        replaced.result(10)
        closed.result(10)
    assert frames_of(tmp_path / "record") == [b"new"]
    with pytest.raises(StoreError, match="it is closed"):
        file.append([b"late"])


def test_two_processes_never_have_it(tmp_path: Path) -> None:
    file, _ = opened(tmp_path / "record")
    with pytest.raises(IllegalStateError, match="in use by another process"):
        opened(tmp_path / "record")
    file.replace([b"x"])
    with pytest.raises(IllegalStateError):
        opened(tmp_path / "record")
    file.close()
    assert frames_of(tmp_path / "record") == [b"x"]


class Failing(RecordIO):
    """Fails at the ``fail_in``-th call that writes."""

    def __init__(self) -> None:
        self.fail_in = -1
        self.calls = 0

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.fail_in:
            raise OSError(28, "no space left")

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._count()
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        self._count()
        super().fdatasync(fd)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def fsync_dir(self, path: Path) -> None:
        self._count()
        super().fsync_dir(path)


@pytest.mark.parametrize("replace", [False, True])
def test_after_an_error_nothing_more_is_written_and_what_was_acknowledged_is_there(
    tmp_path: Path, replace: bool
) -> None:
    for fail_in in range(1, 6 if replace else 3):
        path = tmp_path / f"record{fail_in}"
        io = Failing()
        file, _ = opened(path, io)
        file.append([b"kept"])
        io.calls, io.fail_in = 0, fail_in
        with pytest.raises(StoreError, match="no space left"):
            (file.replace if replace else file.append)([b"lost"])
        with pytest.raises(StoreError, match="cannot be written: "):
            file.append([b"more"])
        file.close()
        assert frames_of(path) in ([b"kept"], [b"lost"] if replace else [b"kept", b"lost"])


def test_a_file_that_is_not_open_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not open"):
        RecordFile(tmp_path / "record").append([b"x"])


def test_what_is_too_large_for_one_batch_is_refused_and_large_files_have_several(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="at most"):
        encode([bytes(BATCH_BYTES_MAX)])
    frames = [bytes([n % 256]) * (PORTION_BYTES // 3) for n in range(10)]
    file, _ = opened(tmp_path / "record")
    file.replace(frames)
    file.close()
    assert (tmp_path / "record").read_bytes().count(b"\xb5RB\n") == 3
    assert frames_of(tmp_path / "record") == frames


def test_power_can_fail_at_any_time() -> None:
    """Every acknowledged frame is there after any cut, and nothing but a prefix of what was written (P-05)."""
    path = Path("d/record")
    for seed in range(300):
        rng = random.Random(seed)
        disk = SimDisk()
        acknowledged: list[bytes] = []
        attempted: list[bytes] = []
        for _ in range(4):
            io = SimIO(disk)
            file = RecordFile(path, io)
            found = file.open()
            assert found in (acknowledged, attempted), f"seed {seed}"
            acknowledged = found
            io.fail_in = rng.randrange(30)
            try:
                while True:
                    frames = [bytes([rng.randrange(256)]) * rng.randrange(900) for _ in range(rng.randrange(1, 4))]
                    whole = rng.random() < 0.3
                    attempted = frames if whole else acknowledged + frames
                    (file.replace if whole else file.append)(frames)
                    acknowledged = attempted
            except StoreError:
                io.dead = True
            if rng.random() < 0.7:
                disk.crash(rng)
            else:
                for one in disk.names.values():
                    one.locked_by = None


def test_ten_thousand_entries_load_in_a_fifth_of_a_second(tmp_path: Path) -> None:
    record = ChangeRecord("r", "c", 1)
    frames = list(Saved(1, "c", None, "", record=record).frames())
    attributes = {"maxNumMsgs": 100000, "limitBehavior": "REJECT_NEWEST", "useDMQ": True, "consumerFlowLimit": 1000}
    frames += [
        entry_frame(record.propose(Change("create_destination", ("queue", f"queue-{n}"), attributes)))
        for n in range(10_000)
    ]
    file, _ = opened(tmp_path / "record")
    file.replace(frames)
    file.close()
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        found = load_frames(frames_of(tmp_path / "record"))
        best = min(best, time.process_time() - began)
    assert found.record is not None
    assert found.record.number == 10_000
    assert len(found.record.state.destinations) == 10_000
    print(f"10,000 entries in {best * 1000:.0f} ms of processor time")
    assert best < 0.2 * 3, "three times the goal: machines that run tests are slow"


def test_the_scanner_refuses_what_is_no_record() -> None:
    for data in (b"", b"short", b"something else entirely"):
        with pytest.raises(StoreDamagedError, match="offset 0"):
            scan(data, "x")
