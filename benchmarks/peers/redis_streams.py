"""Redis Streams through redis-py: XADD in pipelines, XREADGROUP and XACK of whole batches, fsync before each reply."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks.pace import Pace, Receiver, Sender, send_all
from benchmarks.peers.base import Address, Peer, Span, stream_of
from benchmarks.servers import Server, find_program, free_port, output_of

PIPELINE = 256
GROUP = "bench"


def _client(address: Address) -> Any:
    import redis

    return redis.Redis(host="127.0.0.1", port=address["port"])


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """XADD, ``PIPELINE`` commands to one round trip."""
    client = _client(address)
    client.ping()
    bodies = list(stream_of(size, PIPELINE))
    job.ready()
    began, left = monotonic_ns(), count
    while left:
        pipe = client.pipeline(transaction=False)
        for body in bodies[:left]:
            pipe.xadd(queue, {"b": body})
        left -= len(pipe.execute())
    return {"began_ns": began, "ended_ns": monotonic_ns()}


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """XREADGROUP of up to 1000 entries, one XACK for what came."""
    client = _client(address)
    client.ping()
    job.ready()
    began, got = monotonic_ns(), 0
    while got < count:
        for _stream, entries in client.xreadgroup(GROUP, "c1", {queue: ">"}, count=1000, block=5000) or ():
            for _entry, fields in entries:
                assert len(fields[b"b"]) == size
            client.xack(queue, GROUP, *[entry for entry, _fields in entries])
            got += len(entries)
    return {"began_ns": began, "ended_ns": monotonic_ns()}


def blocking(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """One XADD at a time."""
    client = _client(address)
    client.ping()
    bodies = list(stream_of(size, count))
    job.ready()
    began = monotonic_ns()
    for body in bodies:
        client.xadd(queue, {"b": body})
    return {"began_ns": began, "ended_ns": monotonic_ns()}


def paced_produce(job: Any, address: Address, queue: str, pace: Pace) -> None:
    """XADD of all that is due in one pipeline, and its answer, again and again."""
    client = _client(address)
    client.ping()

    def publish(bodies: list[bytes]) -> None:
        pipe = client.pipeline(transaction=False)
        for body in bodies:
            pipe.xadd(queue, {"b": body})
        pipe.execute()

    send_all(Sender(pace, job.ready()), publish)


def paced_consume(job: Any, address: Address, queue: str, pace: Pace) -> Any:
    """XREADGROUP of what is there, one XACK for it."""
    client = _client(address)
    client.ping()
    receiver = Receiver(pace, job.ready())
    while not receiver.over:
        for _stream, entries in client.xreadgroup(GROUP, "c1", {queue: ">"}, count=1000, block=500) or ():
            now = monotonic_ns()
            for _entry, fields in entries:
                receiver.take(fields[b"b"], now)
            client.xack(queue, GROUP, *[entry for entry, _fields in entries])
    return receiver.found()


class RedisStreams(Peer):
    """Redis with an append-only file that is synced before each reply."""

    name = "redis-streams"
    produce, consume, blocking = produce, consume, blocking
    paced = (paced_produce, paced_consume)

    def __init__(self) -> None:
        self._server: Server | None = None

    def missing(self) -> str | None:
        if not find_program("redis-server"):
            return "redis-server is not installed (apt-get install redis-server)"
        return None if importlib.util.find_spec("redis") else "the client redis is not installed (pip install redis)"

    def versions(self) -> list[str]:
        parser = "hiredis" if importlib.util.find_spec("hiredis") else "Python parser"
        return [output_of(find_program("redis-server") or "", "--version"), f"redis-py {version('redis')}, {parser}"]

    def settings(self) -> list[str]:
        return [
            "appendonly yes, appendfsync always, no-appendfsync-on-rewrite no, save '' (no RDB)",
            f"XADD in pipelines of {PIPELINE}, XREADGROUP COUNT 1000, one XACK a batch; entries stay in the stream",
        ]

    def start(self, folder: Path) -> Address:
        port = free_port()
        command = f"--port {port} --bind 127.0.0.1 --dir {folder} --appendonly yes --appendfsync always --daemonize no"
        command += " --auto-aof-rewrite-percentage 0 --stream-node-max-entries 100"
        self._server = Server([find_program("redis-server") or "", *command.split(), "--save", ""], folder)
        self._server.wait_ready(lambda: _client({"port": port}).ping())
        return {"port": port}

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    def prepare(self, address: Address, queue: str) -> None:
        _client(address).xgroup_create(queue, GROUP, id="0", mkstream=True)
