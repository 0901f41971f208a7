"""NATS JetStream through nats-py: file storage, one replica, a durable pull consumer.

``sync_interval: always`` makes the server sync before it answers; servers older than 2.10 do not know it and sync every
two minutes, which is said in the settings, for such figures are not those of a durable store.  Debian's package may be
such a one, so a current server has a name of its own.
"""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version
from pathlib import Path
from time import monotonic_ns
from typing import Any, ClassVar

from benchmarks import tools
from benchmarks.pace import Pace, Receiver, Sender
from benchmarks.peers.base import Address, Peer, Span, stream_of
from benchmarks.servers import Server, find_program, free_port, output_of

WINDOW = 1000
FETCH = 500


async def _connect(address: Address) -> tuple[Any, Any]:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{address['port']}", allow_reconnect=False, connect_timeout=2)
    return client, client.jetstream(publish_async_max_pending=WINDOW)


def _run(work: Any) -> Span:
    import asyncio

    span: Span = asyncio.run(work)
    return span


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """publish_async with WINDOW unanswered messages in flight."""

    async def work() -> Span:
        client, stream = await _connect(address)
        bodies = list(stream_of(size, 64))
        job.ready()
        began = monotonic_ns()
        futures = [await stream.publish_async(queue, bodies[number & 63]) for number in range(count)]
        for future in futures:
            await future
        ended = monotonic_ns()
        await client.close()
        return {"began_ns": began, "ended_ns": ended}

    return _run(work())


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """Fetches of up to FETCH messages, each message acknowledged, the last one with an answer."""

    async def work() -> Span:
        from nats.errors import TimeoutError as NothingCame

        client, stream = await _connect(address)
        pull = await stream.pull_subscribe(queue, durable="bench", stream=queue)
        job.ready()
        began, got = monotonic_ns(), 0
        while got < count:
            try:
                messages = await pull.fetch(min(FETCH, count - got), timeout=5)
            except NothingCame:
                continue
            got += len(messages)
            for message in messages[:-1]:
                assert len(message.data) == size
                await message.ack()
            await (messages[-1].ack_sync() if got >= count else messages[-1].ack())
        ended = monotonic_ns()
        await client.close()
        return {"began_ns": began, "ended_ns": ended}

    return _run(work())


def blocking(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """One publish at a time."""

    async def work() -> Span:
        client, stream = await _connect(address)
        bodies = list(stream_of(size, count))
        job.ready()
        began = monotonic_ns()
        for body in bodies:
            await stream.publish(queue, body)
        ended = monotonic_ns()
        await client.close()
        return {"began_ns": began, "ended_ns": ended}

    return _run(work())


def paced_produce(job: Any, address: Address, queue: str, pace: Pace) -> None:
    """publish_async of what is due."""

    async def work() -> Span:
        import asyncio

        client, stream = await _connect(address)
        sender, last = Sender(pace, job.ready()), None
        while not sender.over:
            for body in sender.due():
                last = await stream.publish_async(queue, body)
            await asyncio.sleep(sender.wait_seconds())
        if last is not None:
            await last
        await client.close()
        return {}

    _run(work())


def paced_consume(job: Any, address: Address, queue: str, pace: Pace) -> Any:
    """Fetches of what is there, at most FETCH, each message acknowledged."""
    found: list[Any] = []

    async def work() -> Span:
        from nats.errors import TimeoutError as NothingCame

        client, stream = await _connect(address)
        pull = await stream.pull_subscribe(queue, durable="bench", stream=queue)
        receiver = Receiver(pace, job.ready())
        while not receiver.over:
            try:
                messages = await pull.fetch(FETCH, timeout=0.5)
            except NothingCame:
                continue
            now = monotonic_ns()
            for message in messages:
                receiver.take(message.data, now)
                await message.ack()
        await client.close()
        found.append(receiver.found())
        return {}

    _run(work())
    return found[0]


class NatsJetStream(Peer):
    """One NATS server with JetStream on file storage."""

    name = "nats-jetstream"
    produce, consume, blocking = produce, consume, blocking
    paced = (paced_produce, paced_consume)

    def __init__(self) -> None:
        self._server: Server | None = None

    remedy: ClassVar[str] = "apt-get install nats-server"

    def program(self) -> str | None:
        """The server to run, or None when it is not installed."""
        return find_program("nats-server")

    def missing(self) -> str | None:
        if not self.program():
            return f"nats-server is not installed ({self.remedy})"
        return None if importlib.util.find_spec("nats") else "the client nats-py is not installed (pip install nats-py)"

    def versions(self) -> list[str]:
        return [output_of(self.program() or "", "--version"), f"nats-py {version('nats-py')}"]

    def _can_sync(self) -> bool:
        found = re.search(r"v(\d+)\.(\d+)", self.versions()[0])
        return bool(found) and (int(found[1]), int(found[2])) >= (2, 10)  # type: ignore[index]

    @property
    def mark(self) -> str:
        return "" if self._can_sync() else "no fsync"

    def settings(self) -> list[str]:
        sync = (
            "sync_interval: always"
            if self._can_sync()
            else "sync_interval: NOT KNOWN to this server (needs 2.10): it answers before the disk has the message and "
            "syncs every 2 minutes, so its figures are without fsync"
        )
        return [
            f"file storage, 1 replica; {sync}",
            f"{WINDOW} unanswered publishes in flight; fetch {FETCH}, ack each",
        ]

    def start(self, folder: Path) -> Address:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        sync = "sync_interval: always\n" if self._can_sync() else ""
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "{folder}/js"\n  max_file_store: 20GB\n{sync}}}\n'
        )
        self._server = Server([self.program() or "", "-c", str(config)], folder)
        self._server.wait_ready(lambda: self.prepare({"port": port}, "bench-probe"))
        return {"port": port}

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    def prepare(self, address: Address, queue: str) -> None:
        async def work() -> Span:
            from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

            client, stream = await _connect(address)
            await stream.add_stream(StreamConfig(name=queue, subjects=[queue], storage=StorageType.FILE))
            pull = ConsumerConfig(
                durable_name="bench", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10 * FETCH, ack_wait=60
            )
            await stream.add_consumer(queue, pull)
            await client.close()
            return {}

        _run(work())


class NatsCurrent(NatsJetStream):
    """A current server, built from its module, beside the one that the system's packages have."""

    name = "nats-current"
    share = 0.25
    remedy = "python -m benchmarks.tools nats"

    def program(self) -> str | None:
        return tools.nats_server()
