"""One broker behind several faces, so that the same tests run over all of them.

A :class:`LoopbackBroker` lives in the process, over memory or over a directory; its connections are blocking ones, or
asynchronous ones behind :class:`Blocking`, which waits for every coroutine.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from inspect import isawaitable
from pathlib import Path
from typing import Any, Protocol

from raybroker import aio
from raybroker.client.blocking.handles import Connection, XaConnection
from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.message import Message
from raybroker.client.destinations import TemporaryQueue, TemporaryTopic
from raybroker.client.io.io_thread import IoThread
from raybroker.client.io.own_loop import OwnLoop
from raybroker.client.loopback import make_core
from raybroker.client.session.xa import Xa
from raybroker.client.ways.host_way import way_to_host
from raybroker.config import Config
from raybroker.model.settings.setting import PortRange
from raybroker.security.tls import ServerTls

WAIT_S = 60.0
"""How long a test waits for what must come; on a busy machine it may take a while."""
DMQ = "mq.sys.dmq"
_numbers = itertools.count(1)


class Broker(Protocol):
    """What a contract test is given."""

    def connect(self, *, started: bool = True, client_id: str | None = None, **attributes: object) -> Any:
        """A new connection with factory attributes, closed by the fixture."""
        ...

    def name(self) -> str:
        """A destination name that nobody else uses."""
        ...


def until(condition: Callable[[], Any], what: str = "", timeout_s: float = WAIT_S) -> Any:
    """Wait until ``condition`` gives something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, what or "what was waited for did not happen"
        time.sleep(0.003)


class OpenDirectory:
    """A directory that several connections share, and that none of them closes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def settings(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        """The broker's own connection closes it."""


class OverSockets:
    """The directory of a broker that lives on an IO loop of its own and is reached through a socket."""

    collocated = False

    def __init__(self, inner: Any, io: IoThread, tls: ServerTls | None = None) -> None:
        """``tls``: of its port, as with imq.cluster.transport=ssl."""
        self._inner = inner
        self._io = io
        self._tls = tls
        context = None if tls is None else tls.context
        _, self.port = io.run(inner._service.listen("127.0.0.1", PortRange(0, 0), context))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.wrap_future(self._io.submit(found(*args, **options)))

        return call

    async def locate(self, *args: Any, **options: Any) -> DestinationPlace:
        place: DestinationPlace = await self.__getattr__("locate")(*args, **options)
        certificate = b"" if self._tls is None else self._tls.certificate()
        return place._replace(dial=way_to_host("127.0.0.1", self.port, certificate))


def _served(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped; then it is closed, or the collector would find it open in the middle of another test."""
    loop.run_forever()
    loop.close()


async def _own() -> IoThread:
    return OwnLoop.running()


class LoopbackBroker:
    """``store``: a directory, or None; ``face``: "blocking", "sockets", "direct" (waiting threads serve the
    sockets), "aio", or "own" (aio, on the loop of the application); ``tls``: of the sockets;
    ``properties``: of the broker."""

    def __init__(
        self, store: Path | None = None, face: str = "blocking", tls: ServerTls | None = None, **properties: object
    ) -> None:
        self.properties = {name.replace("__", "."): value for name, value in properties.items()}
        self._loop: asyncio.AbstractEventLoop | None = None
        apart = face in ("sockets", "direct", "own")
        io = IoThread("broker") if apart else IoThread.shared()
        self._io = io
        if face == "own":
            self._io = asyncio.run_coroutine_threadsafe(_own(), self._running_loop()).result()
        elif apart:
            self._io = IoThread("clients")
        """Of its connections; with sockets no broker lives there, whatever other tests have left behind."""
        self.core = self._make_core(store, io)
        self._directory: Any = self.core.directory
        if apart:
            self._directory = OverSockets(self.core.directory, self.core.io, tls)
        self.face = face
        self._connections: list[Any] = []

    def _make_core(self, store: Path | None, io: IoThread) -> ConnectionCore:
        return make_core(store, self.properties, None, io)

    def name(self) -> str:
        return f"queue{next(_numbers)}"

    def connect(
        self, *, started: bool = True, client_id: str | None = None, xa: bool = False, **attributes: object
    ) -> Any:
        direct = {"raybroker.client.direct": self.face == "direct"}
        config = Config.from_values({"raybroker.hosting.default": "shared", **direct, **self.properties, **attributes})
        core = ConnectionCore(OpenDirectory(self._directory), config, client_id=client_id, io=self._io)
        connection: Any = (XaConnection if xa else Connection)(core)
        if self.face in ("aio", "own"):
            connection = Blocking((aio.XaConnection if xa else aio.Connection)(core), self._running_loop())
        self._connections.append(connection)
        if started:
            connection.start()
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        Connection(self.core).close()
        if self._io is not self.core.io:
            if self.face != "own":
                self._io._end_at_exit()
            self.core.io._end_at_exit()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            threading.Thread(target=_served, args=(loop,), daemon=True, name="application loop").start()
        return self._loop

    def __enter__(self) -> LoopbackBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_WRAPPED = (
    aio.Connection,
    aio.Session,
    aio.Producer,
    aio.Consumer,
    aio.Browser,
    Message,
    TemporaryQueue,
    TemporaryTopic,
    Xa,
)
_OWN = ("inner", "loop")


class Blocking:
    """An asynchronous handle whose coroutines are waited for, from a thread that is not the loop's."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.inner = inner
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name == "admin":
            return lambda: Blocking(found(), self.loop)
        if not callable(found) or (name == "session" and isinstance(self.inner, aio.Consumer)):
            return self._wrapped(found)
        return lambda *args, **options: self._call(found, args, options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self.inner, name, value)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        args = tuple(a.inner if isinstance(a, Blocking) else a for a in args)
        options = {k: a.inner if isinstance(a, Blocking) else a for k, a in options.items()}

        async def work() -> Any:
            result = function(*args, **options)
            return await result if isawaitable(result) and not isinstance(result, Future) else result

        return self._wrapped(asyncio.run_coroutine_threadsafe(work(), self.loop).result())

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._wrapped(item) for item in result]
        return Blocking(result, self.loop) if isinstance(result, _WRAPPED) else result

    def __iter__(self) -> Iterator[Any]:
        source = self.inner.__aiter__()

        async def following() -> Any:
            return await anext(source, None)

        while (item := asyncio.run_coroutine_threadsafe(following(), self.loop).result()) is not None:
            yield self._wrapped(item)

    def __enter__(self) -> Blocking:
        self._call(self.inner.__aenter__, (), {})
        return self

    def __exit__(self, *why: object) -> None:
        self._call(self.inner.__aexit__, why, {})

    def __len__(self) -> int:
        return len(self.inner)

    def __bool__(self) -> bool:
        return bool(self.inner)

    def __eq__(self, other: object) -> bool:
        return self.inner == (other.inner if isinstance(other, Blocking) else other)

    def __hash__(self) -> int:
        return hash(self.inner)


def core_of(connection: Any) -> ConnectionCore:
    core: ConnectionCore = connection._core
    return core


def cut(connection: Any) -> None:
    """End every link of a connection, as a network does that fails; its handles come back by themselves."""
    core = core_of(connection)

    async def abort() -> int:
        channels = core.channels.all()
        for channel in channels:
            channel.link.abort()
        return len(channels)

    assert core.io.run(abort()) > 0


def bodies(messages: list[Any]) -> list[Any]:
    return [message.body for message in messages]


def take(consumer: Any, count: int) -> list[Any]:
    """Exactly so many messages, one by one."""
    found = []
    for _ in range(count):
        message = consumer.receive(timeout=WAIT_S)
        assert message is not None, f"{len(found)} of {count} messages came"
        found.append(message)
    return found


def state_of(connection: Any, name: str, type: str = "queue") -> dict[str, Any]:
    found: dict[str, Any] = connection.admin().query_destination(type, name)
    return found


def rests(connection: Any, name: str, since_s: float, delay_ms: int) -> bool:
    """One message of the queue is delayed, unless its time is over by now: a busy machine may take as long to look.

    ``since_s``: a time of the monotonic clock before the delay began.
    """
    delayed = state_of(connection, name)["delayed"]
    return bool(delayed == 1 or time.monotonic() - since_s >= delay_ms / 1000)


def create(connection: Any, name: str, type: str = "queue", **attributes: object) -> str:
    """A destination with these attributes; returns its name."""
    connection.admin().create_destination(type, name, **attributes)
    return name


def nothing(consumer: Any, seconds: float = 0.05) -> bool:
    """Nothing comes for so long."""
    return consumer.receive(timeout=seconds) is None


def outlive(connection: Any, name: str, type: str = "queue") -> None:
    """Wait until the clock is past the expiration of everything that is there."""
    rows = connection.admin().browse_messages(type, name)["messages"]
    last_ms = max(row["expiration"] for row in rows)
    until(lambda: time.time() * 1000 > last_ms + 1)


def dead(connection: Any, selector: str | None = None) -> list[dict[str, Any]]:
    """What is on the dead message queue, as administrators see it."""
    found: list[dict[str, Any]] = connection.admin().browse_messages("queue", DMQ, selector)["messages"]
    return found


def consumers_of(connection: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = connection.admin().list_consumers(name)
    return found


def buffered(consumer: Any) -> int:
    found: int = consumer.info()["buffered"]
    return found


def is_awaited(consumer: Any) -> bool:
    """Somebody waits in a receive of it."""
    found: bool = consumer._core._notifier.has_waiters
    return found


def names_of(connection: Any, type: str | None = None) -> list[str]:
    """The destinations there are beside the dead message queue."""
    return [row["name"] for row in connection.admin().list_destinations(type) if row["name"] != DMQ]
