"""A connection over scripted hosts: real cores and channels on one event loop, and every frame seen by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from raybroker.client.cluster.directory import LED_BY, DestinationPlace
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.destinations import Destination, Queue
from raybroker.client.producer.open_producer import open_producer
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.session.session import SessionCore
from raybroker.config import Config
from raybroker.content.bodies import encode_body
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import BrokerError
from raybroker.transport.link import Link, memory_pair
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import Native

TOKEN = bytes(32)
PERSISTENT = Shared(True, 4)


class LoopIo:
    """What an IoThread is, on the test's own loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.unusable = ""
        self.served = None
        self.residents = 0

    def count_resident(self, residents: int) -> None:
        self.residents += residents

    def serve_directly(self) -> None:
        """The loop serves."""

    def require_usable(self) -> None:
        """It is."""

    def join(self, user: object, *, resident: bool = False) -> None:
        """Nothing ends."""

    async def left(self, user: object) -> None:
        """The loop is the test's."""

    def post(self, call: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon(call, *args)

    def call_lazily(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(delay_s, call, *args)


class ScriptedHost:
    """Answers every request with what ``answers`` has for its name: a value, or an error to fail with."""

    def __init__(self, key: str = "h1") -> None:
        self.key = key
        self.frames: list[wire.Frame] = []
        self.answers: dict[str, Any] = {
            "open_consumer": {"epoch": 1, "limit": 1000, "active": True},
            "open_producer": {"epoch": 2},
            "txn_prepare": {"vote": "commit"},
            "txn_outcome": {"state": "unknown"},
            "browse": {"more": False},
        }
        self.silent: set[str] = set()
        """Requests that get no answer."""
        self.cut_at: set[str] = set()
        """Requests at which the connection ends."""
        self.confirms = True
        self.links: list[Link] = []

    async def dial(self, factory: Callable[[], Link]) -> None:
        link = Link(Native(token=TOKEN), on_frames=self._take, on_lost=lambda error: None)
        self.links.append(link)
        memory_pair(asyncio.get_running_loop(), factory(), link)

    @property
    def link(self) -> Link:
        return self.links[-1]

    def _take(self, frames: list[wire.Frame]) -> None:
        self.frames += frames
        for frame in frames:
            if isinstance(frame, wire.CallFrame):
                self._answer(frame)
            elif isinstance(frame, wire.SendFrame | wire.SendTxFrame) and self.confirms:
                self.link.write(wire.sent([(frame.handle, frame.block.first_seq, frame.block.count)]))
            elif isinstance(frame, wire.AckFrame | wire.SettleFrame) and frame.request:
                self.link.write(wire.acked(frame.request, 0))

    def _answer(self, call: wire.CallFrame) -> None:
        if call.op in self.cut_at:
            self.cut_at.discard(call.op)
            self.link.abort()
        elif call.op in self.silent:
            return
        elif call.op == "release":
            self.link.write(wire.released(call.args["handle"], call.request, 1000))
        else:
            answer = self.answers.get(call.op)
            if isinstance(answer, BrokerError):
                self.link.write(wire.failed(call.request, answer.code, str(answer)))
            else:
                self.link.write(wire.reply(call.request, answer))

    def calls(self, *ops: str) -> list[tuple[str, dict[str, Any]]]:
        """(name, arguments) of the requests that came, of some names or all."""
        found = [f for f in self.frames if isinstance(f, wire.CallFrame)]
        return [(f.op, f.args) for f in found if not ops or f.op in ops]

    def of(self, kind: type[Any]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def deliver(
        self,
        bodies: list[bytes],
        *,
        tag: int = 1,
        attempt: int = 1,
        handle: int = 1,
        epoch: int = 1,
        expires: Any = None,
        headers: list[bytes] | None = None,
    ) -> None:
        data = encode_block(
            bodies,
            producer=7,
            first_seq=1,
            timestamp_ms=1,
            persistent=True,
            kinds=0,
            expires=expires,
            headers=headers,
        )
        self.link.write(*wire.deliver(handle, epoch, tag, attempt, (Block(data).view,)))


class ScriptedDirectory:
    """Destinations whose name starts with a host's key are there; everything else is on the first host.

    ``led_by``: the broker that leads the one log of all; ``located``: which broker's member was asked for, each time.
    """

    collocated = False

    def __init__(self, *hosts: ScriptedHost) -> None:
        self.hosts = hosts
        self.home = ""
        self.asked: list[tuple[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.led_by = ""
        self.located: list[str | None] = []

    async def locate(self, kind: str, name: str, create: bool, broker: str | None = None) -> DestinationPlace:
        self.asked.append(("locate", (kind, name, create)))
        self.located.append(broker)
        host = next((h for h in self.hosts if name.startswith(h.key)), self.hosts[0])
        traits = {LED_BY: self.led_by} if self.led_by else {}
        return DestinationPlace(f"{host.key}@127.0.0.1:1", TOKEN, host.dial, self.led_by, traits)

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        self.asked.append((verb, args))
        return self.rows

    async def branch_states(self, key: bytes) -> list[str]:
        self.asked.append(("branch_states", key))
        return [row["state"] for row in self.rows if row["key"] == key.hex()]

    async def close(self) -> None:
        """Nothing is open."""


class Scripted:
    """A started connection over scripted hosts."""

    def __init__(self, *hosts: ScriptedHost, client_id: str | None = None, **attributes: object) -> None:
        self.hosts = hosts or (ScriptedHost(),)
        self.directory = ScriptedDirectory(*self.hosts)
        config = Config.from_values({"raybroker.reconnect.timeout_ms": 2000, **attributes})
        io: Any = LoopIo()
        directory: Any = self.directory
        self.core = ConnectionCore(directory, config, client_id=client_id, io=io)
        self.core.started = True
        self.sessions: list[SessionCore] = []

    @property
    def host(self) -> ScriptedHost:
        return self.hosts[0]

    def session(self, mode: str = "client", **options: Any) -> SessionCore:
        self.sessions.append(SessionCore(self.core, mode, list, **options))
        return self.sessions[-1]

    async def producer(self, session: SessionCore, name: str = "q") -> ProducerCore:
        return await open_producer(self.core, Queue(name), PERSISTENT, encode=encode_body, transactions=session.current)

    async def consumer(self, session: SessionCore, name: str = "q", **options: Any) -> ConsumerCore:
        destination: Destination = Queue(name)
        return await ConsumerCore(session, destination, ConsumerOptions(**options)).open(create=True)


def send(producer: ProducerCore, *bodies: bytes) -> list[Future[str]]:
    futures: list[Future[str]] = []
    for body in bodies:
        futures.append(Future())
        producer.put(body, b"", PERSISTENT, futures[-1], urgent=True, block=False)
    return futures


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 20)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(bounded())


async def turns(count: int = 12) -> None:
    """Let everything happen that needs no time."""
    for _ in range(count):
        await asyncio.sleep(0)
