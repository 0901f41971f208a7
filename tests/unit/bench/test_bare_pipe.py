"""The bare pipe's framing and accounting, without processes."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from benchmarks.bare_pipe import HEADER, Pipe, _Frames, _Journal, frames_for


def frame(number: int, size: int) -> bytes:
    return HEADER.pack(size, number) + bytes([number & 255]) * size


@pytest.mark.parametrize("step", [1, 7, 1000, 100_000])
def test_frames_come_out_whole_however_the_bytes_arrive(step: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = b"".join(frame(number, 100) for number in range(1, 21))

        def feed() -> None:
            for at in range(0, len(stream), step):
                theirs.sendall(stream[at : at + step])

        thread = threading.Thread(target=feed)
        thread.start()
        frames, got, last = _Frames(ours, 112), b"", 0
        while last < 20:
            buffer, run, last = frames.next()
            assert len(run) % 112 == 0
            got += bytes(run)
            frames.give_back(buffer)
        thread.join()
    assert got == stream


def test_a_closed_end_is_an_error_not_an_endless_loop() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(ConnectionError):
            _Frames(ours, 112).next()


def test_the_journal_writes_round_and_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.bare_pipe.FILE_BYTES", 4 << 20)
    journal = _Journal(tmp_path / "log", sync=True)
    for number in range(5):
        journal.append([memoryview(bytes([number]) * (1 << 20))])
    journal.close()
    data = (tmp_path / "log").read_bytes()
    assert [data[at] for at in range(0, len(data), 1 << 20)] == [4, 1, 2, 3]
    assert journal.syncs == 5


def test_a_pipe_counts_messages_and_bytes_of_its_frames() -> None:
    pipe = Pipe(batch=10, window=4, frames=7, size_bytes=100)
    assert (pipe.messages, pipe.frame_bytes) == (70, 1012)


def test_every_run_fills_its_window_several_times() -> None:
    for batch in (1, 10, 100, 1000):
        for window in (1, 16, 256):
            assert frames_for(batch, 1000, window) >= 4 * window
