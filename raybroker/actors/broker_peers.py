"""Calls between the broker actors of one cluster, and those to the path service.

What brokers tell each other all the time (``Carrier``) may be lost and never waits; what one asks another on a client's
behalf (``RayPeers``) is waited for, for a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.broker.cluster.heartbeats import Beats
from raybroker.cluster.member_messages import Beat, Envelope
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerError, BrokerGoneError, OrderError, StartingError
from raybroker.system.supervision import Supervisor
from raybroker.transport.daemon_calls import in_daemon_thread

OPEN_MAX: Final = 64
"""Envelopes on their way to one broker; more are lost, which the receiver makes good by asking."""
CARRY_TIMEOUT_S: Final = 5.0
STARTING_S: Final = 5.0
"""How long a client waits for what is starting, before he is told so: sooner than he gives up."""
START_S: Final = 120.0
"""How long the path service may take to start; a busy machine makes a process in a minute or more."""


class Brokers:
    """Handles of the broker actors of one cluster; one that is gone is looked up again."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._actors: dict[str, Any] = {}

    async def find(self, broker: str) -> Any:
        """Raises BrokerGoneError when there is none."""
        actor = self._actors.get(broker)
        if actor is None:
            actor = await in_daemon_thread(runtime.find_broker, self.cluster, broker)
            if actor is None:
                raise BrokerGoneError(f"broker {broker} of cluster {self.cluster!r} is not running")
            self._actors[broker] = actor
        return actor

    def forget_broker(self, broker: str) -> None:
        self._actors.pop(broker, None)


class Carrier:
    """Sends envelopes to the other brokers: heartbeats as datagrams while those get through, all else as actor
    calls."""

    def __init__(self, brokers: Brokers, beats: Beats) -> None:
        self._brokers = brokers
        self._beats = beats
        self._open: dict[str, set[asyncio.Task[None]]] = {}
        self._loops = Supervisor("the membership")

    def __call__(self, to: str, envelope: Envelope) -> None:
        if isinstance(envelope.message, Beat) and self._beats.send(to, envelope):
            return
        tasks = self._open.setdefault(to, set())
        if len(tasks) < OPEN_MAX:
            task = self._loops.once(f"an envelope for broker {to}", self._carry(to, envelope))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _carry(self, to: str, envelope: Envelope) -> None:
        try:
            actor = await self._brokers.find(to)
            await runtime.call(actor.receive, envelope, timeout_s=CARRY_TIMEOUT_S)
        except BrokerError:
            self._brokers.forget_broker(to)


class RayPeers:
    """The Peers of broker.remote_broker, by actor calls."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def call_broker(self, broker: str, method: str, args: Row, *, timeout_s: float) -> Any:
        actor = await self._brokers.find(broker)
        try:
            return await runtime.call(actor.peer, method, args, timeout_s=timeout_s, gone=BrokerGoneError)
        except BrokerGoneError:
            self._brokers.forget_broker(broker)
            raise


class RayPaths:
    """The path service as a broker asks it; ``ensure`` has it started where it belongs."""

    def __init__(self, cluster: str, ensure: Callable[[], Awaitable[None]]) -> None:
        self._cluster = cluster
        self._ensure = ensure
        self._actor: Any = None
        self._starting: asyncio.Task[None] | None = None
        self._since_s = 0.0
        self._failure: BrokerError | None = None
        """Why it could not be reached, the last time that it was looked for."""
        self._loops = Supervisor("those who ask the path service")
        self.requests = 0
        """Questions for units, since the broker started."""

    async def _call_paths(self, method: str, *args: Any, patience_s: float = STARTING_S) -> Any:
        """``patience_s``: how long to wait while it starts; StartingError after that, for whoever asks to ask again."""
        try:
            actor = self._actor or await self._started(patience_s)
            return await runtime.call(getattr(actor, method), *args, gone=BrokerGoneError)
        except BrokerGoneError as error:
            self._actor = None
            raise OrderError(f"the path service cannot be asked which broker has a unit of order: {error}") from None

    async def _started(self, patience_s: float) -> Any:
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting.done():
            self._since_s = loop.time()
            self._starting = self._loops.once("the start of the path service", self._start())
        starting = self._starting
        await asyncio.wait({starting}, timeout=patience_s)
        if not starting.done():
            raise StartingError(  # Each time another text, so that clients go on to wait: START_S ends it.
                "the path service, which knows the broker of each unit of order, is starting: for"
                f" {loop.time() - self._since_s:.3f} of at most {START_S:g} s"
            )
        if self._failure is not None:
            raise self._failure
        return self._actor

    async def _start(self) -> None:
        """Have it started, and wait until it answers: its process may take long on a busy machine."""
        self._failure = None
        try:
            await self._ensure()
            actor = await in_daemon_thread(runtime.find_paths, self._cluster)
            if actor is None:
                raise OrderError("the path service is not running; its broker starts it again when it is up")
            await runtime.call(actor.path_row, timeout_s=START_S, gone=BrokerGoneError)
            self._actor = actor
        except BrokerError as error:
            self._failure = error

    async def routes(self, type: str, name: str, units: list[str], owner: str, live: Sequence[str]) -> dict[str, str]:
        self.requests += 1
        found: dict[str, str] = await self._call_paths("routes", type, name, units, owner, list(live))
        return found

    async def renew(self, owner: str) -> bool:
        return bool(await self._call_paths("renew", owner))

    async def drop_member(self, member: str) -> None:
        await self._call_paths("drop_member", member, patience_s=START_S)

    async def release(self, type: str, name: str, units: list[str], owner: str) -> None:
        await self._call_paths("release", type, name, units, owner)

    async def row_if_running(self) -> Row:
        """What the path service says of itself; empty when it does not run, which this does not change."""
        actor = await in_daemon_thread(runtime.find_paths, self._cluster)
        try:
            return dict(await runtime.call(actor.path_row)) if actor is not None else {}
        except BrokerError:
            return {}
