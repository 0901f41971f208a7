"""The connection behind every face: channels to hosts, and the way back after one was lost.

A connection has one channel to each host that serves something it uses.  When a channel is lost, each of its producers
and consumers looks its destination up again and goes on there, for ``raybroker.reconnect.timeout_ms``; after that it
fails with ConnectionLostError, which says how long was tried (R-13).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from raybroker.client.channel import Channel
from raybroker.client.consumer import ConsumerCore
from raybroker.client.directory import Directory, Place
from raybroker.client.io import IoThread
from raybroker.client.producer import ProducerCore
from raybroker.client.producing import Shared
from raybroker.client.session import SessionCore
from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError
from raybroker.model.settings import ConfigView
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token
from raybroker.wire import frames as wire

RETRY_FIRST_S: Final = 0.02
FLOW_COUNT: Final = 100
"""imqConnectionFlowCount where it is off and imqConnectionFlowLimit holds: the limit is looked at so often (F-16)."""
RECOVER_APART_S: Final = 0.2
"""A handle comes back at most so often: a connection that dies as soon as it is made must not be made in a loop."""


class ConnectionCore:
    """``attributes``: factory and client settings by name, see model.settings. Lives on ``io``."""

    def __init__(
        self, directory: Directory, attributes: ConfigView, *, client_id: str | None, io: IoThread
    ) -> None:
        self.directory = directory
        self.attributes = attributes
        self.client_id = client_id
        self.io = io
        self.clock = SystemClock()
        self.message_bytes_max = message_bytes_max(attributes["imq.message.max_size"])
        self.started = False
        self.closed = False
        self.sessions: list[SessionCore] = []
        self.producers: list[ProducerCore] = []
        self.on_exception: Callable[[BrokerError], object] | None = None
        self._channels: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._attaching: set[ProducerCore | ConsumerCore] = set()
        self._buffered = 0
        self._flow_open = True
        self._buffered_max: int = (
            attributes["imqConnectionFlowLimit"] if attributes["imqConnectionFlowLimitEnabled"] else -1
        )
        self._meter_max: int = attributes["imqConnectionFlowCount"]
        if self._buffered_max >= 0 and not self._meter_max:
            self._meter_max = FLOW_COUNT
        self._metered = 0
        self._buffered_lock = threading.Lock()
        self._pinger: asyncio.Task[None] | None = None

    # ---- channels --------------------------------------------------------------------------------------------------

    async def channel(self, place: Place) -> Channel:
        """The channel to a place, opened if there is none."""
        lock = self._opening.setdefault(place.key, asyncio.Lock())
        async with lock:
            channel = self._channels.get(place.key)
            if channel is None or channel.lost:
                if self.closed:
                    raise IllegalStateError("the connection is closed")
                hello = {
                    "client_id": self.client_id,
                    "started": self.started,
                    "flow_count": self._meter_max,
                }
                channel = await Channel.open(place, hello, self.attributes["raybroker.connect.timeout_ms"] / 1000)
                self._channels[place.key] = channel
                if self._pinger is None:
                    self._pinger = asyncio.create_task(self._ping())
            return channel

    async def _ping(self) -> None:
        interval_s = self.attributes["imqPingInterval"]
        while interval_s > 0:
            await asyncio.sleep(interval_s)
            for channel in list(self._channels.values()):
                if not channel.lost:
                    channel.ping()

    async def attach(self, endpoint: ProducerCore | ConsumerCore, *, create: bool) -> None:
        """Find the endpoint's destination and open it there, again and again until the reconnect time is over.

        Raises what the broker answers, or the last retryable error.
        """
        self._attaching.add(endpoint)
        try:
            await self._attach(endpoint, create)
        finally:
            self._attaching.discard(endpoint)

    async def _attach(self, endpoint: ProducerCore | ConsumerCore, create: bool) -> None:
        loop = asyncio.get_running_loop()
        attempts: int = self.attributes["imqReconnectAttempts"] if self.attributes["imqReconnectEnabled"] else 0
        timeout_s = self.attributes["raybroker.reconnect.timeout_ms"] / 1000
        longest_s = self.attributes["imqReconnectInterval"] / 1000
        deadline, pause_s = loop.time() + timeout_s, RETRY_FIRST_S
        while True:
            try:
                place = await self.directory.locate("queue", endpoint.name, create)
                await endpoint.attach(await self.channel(place))
                if endpoint.attached:
                    return
            except BrokerError as error:
                if not isinstance(error, ConnectionLostError) or self.closed:
                    raise
                if loop.time() + pause_s > deadline or attempts == 0:
                    raise ConnectionLostError(
                        f"{endpoint.name} cannot be reached; gave up after {timeout_s:g} s"
                        f" (raybroker.reconnect.timeout_ms) or imqReconnectAttempts: {error}"
                    ) from None
            attempts -= 1
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)

    def recover(self, endpoint: ProducerCore | ConsumerCore) -> None:
        """The endpoint's channel is gone: bring it back, or tell it that it is over."""
        if self.closed or endpoint in self._attaching:
            return  # Whoever attaches it notices the loss and tries again; twice attached, it would keep messages.
        task = asyncio.ensure_future(self._recover(endpoint))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _recover(self, endpoint: ProducerCore | ConsumerCore) -> None:
        loop = asyncio.get_running_loop()
        early_s = endpoint.recovered_at + RECOVER_APART_S - loop.time()
        if early_s > 0:
            await asyncio.sleep(early_s)
        if endpoint.has_ended():
            return
        endpoint.recovered_at = loop.time()
        try:
            if not self.attributes["imqReconnectEnabled"]:
                raise ConnectionLostError(f"the connection of {endpoint.name} was lost; imqReconnectEnabled is false")
            await self.attach(endpoint, create=False)
            if endpoint.has_ended():
                await endpoint.close()
        except BrokerError as error:
            self.end(endpoint, error)

    def end(self, endpoint: ProducerCore | ConsumerCore, error: BrokerError) -> None:
        """A handle cannot go on: tell those who wait, and the handler, since a listener waits for nobody."""
        endpoint.fail(error)
        if self.on_exception is not None:
            self.on_exception(error)

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Let messages in (C-12)."""
        self.started = True
        await self._tell_channels("start")
        for session in self.sessions:
            for consumer in session.consumers:
                consumer.started()

    async def stop(self) -> None:
        """No more messages until start(); what is buffered stays where it is (C-12)."""
        self.started = False
        await self._tell_channels("stop")

    async def _tell_channels(self, op: str) -> None:
        for channel in list(self._channels.values()):
            if not channel.lost:
                await channel.call(op, {})

    async def close(self) -> None:
        """End everything; what was consumed in "client" sessions and not acknowledged comes again elsewhere."""
        if self.closed:
            return
        self.closed = True
        for task in (*self._tasks, *([self._pinger] if self._pinger else ())):
            task.cancel()
        for session in list(self.sessions):
            for consumer in list(session.consumers):
                consumer.shut()
        for producer in list(self.producers):
            producer.fail(IllegalStateError("the connection is closed"))
        for channel in self._channels.values():
            channel.close()
        await self.directory.close()

    # ---- producers and consumers -----------------------------------------------------------------------------------

    async def open_producer(self, name: str, shared: Shared, *, pickles: bool) -> ProducerCore:
        identity = int.from_bytes(token(8), "little")
        producer = ProducerCore(self, name, identity, shared, pickles=pickles)
        await self.attach(producer, create=True)
        self.producers.append(producer)
        return producer

    async def open_consumer(
        self, session: SessionCore, name: str, *, style: str, limit: int, percent: int, unpickles: bool
    ) -> ConsumerCore:
        consumer = ConsumerCore(session, name, style=style, limit=limit, percent=percent, unpickles=unpickles)
        session.consumers.append(consumer)
        try:
            await self.attach(consumer, create=True)
        except BaseException:
            session.forget(consumer)
            raise
        return consumer

    # ---- the connection's own flow limit (F-15) ---------------------------------------------------------------------

    def arrived(self, count: int) -> None:
        """Messages came into some buffer of this connection; on the IO loop."""
        if self._buffered_max >= 0:
            with self._buffered_lock:
                self._buffered += count
                self._watch_flow()
        self.meter(count)

    def meter(self, count: int) -> None:
        """Messages came, whether they were kept or not: after so many the host waits to be told to go on (F-16)."""
        if self._meter_max > 0:
            self._metered += count
            if self._metered >= self._meter_max and self._flow_open:
                self._send_flow(True)

    def handed_out(self, count: int) -> None:
        """Messages left some buffer of this connection; in any thread."""
        if self._buffered_max >= 0:
            with self._buffered_lock:
                self._buffered -= count
                self._watch_flow()

    def _watch_flow(self) -> None:
        most = self._buffered_max
        go = self._buffered <= most if self._flow_open else self._buffered < max(most, 1)
        if go != self._flow_open:
            self._flow_open = go
            self.io.post(self._send_flow, go)

    def _send_flow(self, go: bool) -> None:
        if go:
            self._metered = 0
        for channel in self._channels.values():
            if not channel.lost:
                channel.link.write(wire.flow(go))
