"""The bare pipe: the least that any durable pipe between three processes has to do, hence the limit of the ratios.

What it does, and nothing else:

* The producer joins ``batch`` bodies and a 12-byte header (length, number) into one frame, sends it, and keeps at most
  ``window`` frames in flight.  A message is a message at this end: one ``bytes`` object in a list.
* The middle reads what has come, appends it with one ``pwritev`` to a file whose blocks were written beforehand (so
  that a sync has no file-system metadata to write) and calls ``fdatasync``.  Only then it acknowledges the highest
  frame number to the producer and forwards the same bytes to the consumer.  That is group commit: whatever arrives
  while one sync runs is the next group.
* The consumer splits each frame into ``bytes`` bodies and acknowledges the highest complete frame.  These
  acknowledgements return to the middle, which notes the number and **does not store it**: a broker must store
  acknowledgements, the limit need not.

The clock runs from the producer's first frame to the consumer's last acknowledgement at the middle.  Not done: message
headers, ids, checksums, queues, flow control, redelivery, recovery.

Two middles are built, because which is faster depends on the frame: ``inline`` (one thread reads, syncs, forwards; the
socket buffer collects the next group) and ``threads`` (reader, writer and forwarder overlap).  The harness reports the
better one.  An event loop (uvloop) was tried for the middle and lost to both.
"""

from __future__ import annotations

import os
import queue
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.readings import PIPE, Amounts, Reading, Skipped
from benchmarks.workers import Team

HEADER = struct.Struct("<IQ")  # payload bytes, frame number counted from 1
NUMBER = struct.Struct("<Q")
FILE_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20
MIDDLES = ("inline", "threads")


@dataclass(frozen=True, slots=True)
class Pipe:
    """One run: ``frames`` frames of ``batch`` bodies of ``size_bytes``, at most ``window`` in flight."""

    batch: int
    window: int
    frames: int
    size_bytes: int = 1024
    middle: str = "inline"
    sync: bool = True

    @property
    def messages(self) -> int:
        return self.frames * self.batch

    @property
    def frame_bytes(self) -> int:
        return HEADER.size + self.batch * self.size_bytes


@dataclass(frozen=True, slots=True)
class PipeResult:
    """What one run gave: messages a second over the whole path, and how many syncs it took."""

    pipe: Pipe
    seconds: float
    syncs: int

    @property
    def rate(self) -> float:
        return self.pipe.messages / self.seconds


def _listen() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        server.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    return server


def dial(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _send_buffers(sock: socket.socket, buffers: list[Any]) -> None:
    while buffers:
        sent = sock.sendmsg(buffers[:64])
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers.pop(0))
        if sent:
            buffers[0] = memoryview(buffers[0])[sent:]


_Run = tuple[bytearray, memoryview, int]


class _Frames:
    """Cuts a byte stream into runs of whole frames; gives (view of the run, number of its last frame)."""

    def __init__(self, sock: socket.socket, frame_bytes: int) -> None:
        self._sock = sock
        self._size = max(CHUNK_BYTES, 2 * frame_bytes)
        self._spare: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        self._rest = memoryview(b"")
        self._rest_of: bytearray | None = None

    def _buffer(self) -> bytearray:
        return bytearray(self._size) if self._spare.empty() else self._spare.get()

    def give_back(self, buffer: bytearray) -> None:
        self._spare.put(buffer)

    def next(self) -> _Run:
        buffer = self._buffer()
        view = memoryview(buffer)
        have = len(self._rest)
        view[:have] = self._rest
        while True:
            got = self._sock.recv_into(view[have:])
            if not got:
                raise ConnectionError("the other end closed")
            have += got
            end, last = 0, 0
            while have - end >= HEADER.size:
                length, number = HEADER.unpack_from(buffer, end)
                if have - end < HEADER.size + length:
                    break
                end += HEADER.size + length
                last = number
            if end:
                self._rest = memoryview(bytes(view[end:have]))
                return buffer, view[:end], last


class _Journal:
    """A file written once in full, then appended to round and round, one sync per append."""

    def __init__(self, path: Path, sync: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        zeros = bytes(4 << 20)
        for at in range(0, FILE_BYTES, len(zeros)):
            os.pwrite(self._fd, zeros, at)
        os.fsync(self._fd)
        self._at = 0
        self._sync = sync
        self.syncs = 0

    def append(self, views: list[memoryview]) -> None:
        total = sum(len(view) for view in views)
        if self._at + total > FILE_BYTES:
            self._at = 0
        written = os.pwritev(self._fd, views, self._at)
        if written != total:
            raise OSError(f"short write: {written} of {total} bytes")
        self._at += total
        if self._sync:
            os.fdatasync(self._fd)
        self.syncs += 1

    def close(self) -> None:
        os.close(self._fd)


def run_middle(job: Any, pipe: Pipe, folder: str) -> dict[str, float]:
    """The process between the two: stores, acknowledges, forwards."""
    with _listen() as server:
        job.ready(server.getsockname()[1])
        ends: dict[bytes, socket.socket] = {}
        while len(ends) < 2:
            sock, _ = server.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ends[sock.recv(1)] = sock
    producer, consumer = ends[b"P"], ends[b"C"]
    journal = _Journal(Path(folder) / f"pipe-{os.getpid()}.log", pipe.sync)
    done = threading.Event()
    ended: list[int] = []

    def read_acks() -> None:
        tail = b""
        while not ended:
            data = tail + consumer.recv(65536)
            whole = len(data) - len(data) % 8
            tail = data[whole:]
            if whole and NUMBER.unpack_from(data, whole - 8)[0] >= pipe.frames:
                ended.append(time.monotonic_ns())
        done.set()

    threading.Thread(target=read_acks, daemon=True).start()
    frames = _Frames(producer, pipe.frame_bytes)
    producer.sendall(b"G")
    (_inline if pipe.middle == "inline" else _threads)(frames, journal, producer, consumer, pipe.frames)
    done.wait()
    journal.close()
    return {"ended_ns": ended[0], "syncs": journal.syncs}


def _inline(frames: _Frames, journal: _Journal, producer: socket.socket, consumer: socket.socket, total: int) -> None:
    last = 0
    while last < total:
        buffer, run, last = frames.next()
        journal.append([run])
        producer.sendall(NUMBER.pack(last))
        consumer.sendall(run)
        frames.give_back(buffer)


def _threads(frames: _Frames, journal: _Journal, producer: socket.socket, consumer: socket.socket, total: int) -> None:
    pending: queue.SimpleQueue[_Run] = queue.SimpleQueue()
    stored: queue.SimpleQueue[list[_Run]] = queue.SimpleQueue()

    def read() -> None:
        last = 0
        while last < total:
            run = frames.next()
            last = run[2]
            pending.put(run)

    def forward() -> None:
        last = 0
        while last < total:
            group = stored.get()
            last = group[-1][2]
            _send_buffers(consumer, [run[1] for run in group])
            for run in group:
                frames.give_back(run[0])

    threading.Thread(target=read, daemon=True).start()
    forwarder = threading.Thread(target=forward, daemon=True)
    forwarder.start()
    last = 0
    while last < total:
        group = [pending.get()]
        while len(group) < 64 and not pending.empty():
            group.append(pending.get())
        journal.append([run[1] for run in group])
        last = group[-1][2]
        producer.sendall(NUMBER.pack(last))
        stored.put(group)
    forwarder.join()


def _producer(job: Any, pipe: Pipe, port: int) -> dict[str, float]:
    sock = dial(port)
    sock.sendall(b"P")
    assert sock.recv(1) == b"G"
    bodies = [bytes([i & 255]) * pipe.size_bytes for i in range(pipe.batch + 64)]
    job.ready()
    began = time.monotonic_ns()
    acked, tail = 0, b""
    for number in range(1, pipe.frames + 1):
        first = number & 63
        head = HEADER.pack(pipe.batch * pipe.size_bytes, number)
        sock.sendall(b"".join([head, *bodies[first : first + pipe.batch]]))
        while number - acked >= pipe.window or (number == pipe.frames and acked < number):
            data = tail + sock.recv(65536)
            whole = len(data) - len(data) % 8
            tail = data[whole:]
            if whole:
                acked = NUMBER.unpack_from(data, whole - 8)[0]
    return {"began_ns": began, "ended_ns": time.monotonic_ns()}


def run_consumer(job: Any, pipe: Pipe, port: int) -> dict[str, float]:
    sock = dial(port)
    sock.sendall(b"C")
    frames = _Frames(sock, pipe.frame_bytes)
    job.ready()
    size, step, last, messages = pipe.size_bytes, pipe.frame_bytes, 0, 0
    recent: deque[bytes] = deque(maxlen=1)
    while last < pipe.frames:
        buffer, run, last = frames.next()
        for at in range(0, len(run), step):
            bodies = [bytes(run[i : i + size]) for i in range(at + HEADER.size, at + step, size)]
            messages += len(bodies)
            recent.append(bodies[-1])
        sock.sendall(NUMBER.pack(last))
        frames.give_back(buffer)
    assert messages == pipe.messages
    return {"ended_ns": time.monotonic_ns()}


def run_pipe(pipe: Pipe, folder: Path) -> PipeResult:
    """One run in three fresh processes; the file lies in ``folder`` and is removed."""
    with Team() as team:
        middle = team.start(run_middle, pipe, str(folder))
        port = middle.wait_ready()
        consumer = team.start(run_consumer, pipe, port)
        producer = team.start(_producer, pipe, port)
        middle.go()
        consumer.wait_ready()
        producer.wait_ready()
        consumer.go()
        producer.go()
        began = producer.result()["began_ns"]
        consumer.result()
        end = middle.result()
    for path in folder.glob("pipe-*.log"):
        path.unlink()
    return PipeResult(pipe, (end["ended_ns"] - began) / 1e9, int(end["syncs"]))


def frames_for(batch: int, messages: int, window: int) -> int:
    """Frames of a run: the large shapes move several times ``messages``, or they would be over at once."""
    times = {1: 0.5, 10: 2.0}.get(batch, 8.0)
    return max(int(messages * times) // batch, 4 * window)


def best_of(pipe: Pipe, folder: Path) -> PipeResult:
    """The faster middle for this shape."""
    return max((run_pipe(replace(pipe, middle=name), folder) for name in MIDDLES), key=lambda result: result.rate)


class BarePipe:
    """The bare pipe as one of the compared systems."""

    name = PIPE
    mark = ""

    def __init__(self, batches: tuple[int, ...], windows: tuple[int, ...]) -> None:
        self._batches, self._windows = batches, windows

    def missing(self) -> str | None:
        """Never: it needs nothing but the standard library."""
        return None

    def versions(self) -> list[str]:
        """What runs it."""
        return ["three processes of this Python, blocking sockets and threads"]

    def settings(self) -> list[str]:
        """What it does and does not."""
        return [
            "pwritev + fdatasync into blocks written before, then acknowledge and forward; group commit",
            "the consumer's acknowledgements reach the middle and are not stored; no ids, checksums, queues, recovery",
        ]

    def measure(self, amounts: Amounts, folder: Path, round_no: int) -> Iterator[Reading | Skipped]:
        """One send at a time, then the sweep; each shape with the better of the two middles."""
        folder.mkdir(parents=True, exist_ok=True)
        size = amounts.size_bytes
        one = best_of(Pipe(1, 1, amounts.singles, size), folder)
        yield Reading(self.name, "blocking", one.rate, round_no, "batch 1, window 1")
        for batch in self._batches:
            for window in self._windows:
                pipe = Pipe(batch, window, frames_for(batch, amounts.messages, window), size)
                rate = best_of(pipe, folder).rate
                yield Reading(self.name, "sweep", rate, round_no, f"batch {batch}, window {window}")
