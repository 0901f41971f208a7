"""The connection behind every face: channels to hosts, and the way back after one was lost.

A connection has one channel to each host that serves something it uses.  When a channel is lost, each of its producers
and consumers looks its destination up again and goes on there, until ``addresses.reconnect_time`` is over; then it
fails with ConnectionLostError, which says how long was tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raybroker.client.connection.addresses import Attributes, reconnect_time
from raybroker.client.connection.callbacks import Callbacks
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.cluster_view import GONE_S, Brokers
from raybroker.client.connection.connection_flow import Meter
from raybroker.client.connection.consumer_watch import ConsumerWatch
from raybroker.client.connection.directory import Directory, Place
from raybroker.client.connection.events import CLOSED, CLOSING, Events, Outage
from raybroker.client.connection.identity import check_may_choose
from raybroker.client.connection.io_thread import IoThread, log_failure
from raybroker.client.connection.ping import keep_pinging
from raybroker.client.consumer.consumer import ConsumerCore, ConsumerOptions
from raybroker.client.consumer.duplicate_copies import Copies
from raybroker.client.destinations import Destination
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.session.session import SessionCore
from raybroker.model.balancing import Chooser
from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, BrokerGoneError, ConnectionLostError, IllegalStateError, NotOpenError
from raybroker.model.names import check_client_id, home_of_temporary, require_no_metrics_topic
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token
from raybroker.wire.native import frames as wire

if TYPE_CHECKING:
    from raybroker.client.consumer.prefetch_buffer import Buffer
    from raybroker.client.consumer.prefetch_buffers import Buffers
    from raybroker.client.pickled import Address

T = TypeVar("T")
RETRY_FIRST_S: Final = 0.02
RECOVER_APART_S: Final = 0.2
"""A handle comes back at most so often: a connection that dies as soon as it is made must not be made in a loop."""
IDENTITY_BYTES: Final = 12
NOT_STARTED_S: Final = 1.0
"""Whoever waits for messages of a connection that was never started is warned after that time."""

log = logging.getLogger("raybroker.client")

Endpoint = Any
"""A producer, consumer or browser core."""


class ConnectionCore:
    """``attributes``: factory and client settings by name, see model.settings. Lives on ``io``."""

    def __init__(
        self, directory: Directory, attributes: Attributes, *, client_id: str | None, io: IoThread
    ) -> None:
        self.directory = directory
        self.attributes = attributes
        self.address: Address | None = None
        """Where it leads, for a copy of it in another process; None: nowhere but here."""
        self.client_id = client_id
        self.identity = token(IDENTITY_BYTES).hex()
        """Names this connection to every host, so that they know which channels are one client's."""
        self.io = io
        self.clock = SystemClock()
        self.message_bytes_max = message_bytes_max(attributes["imq.message.max_size"])
        self.started = False
        self._was_started = self._start_awaited = False
        self.closed = False
        self.used = False
        """True once anything was done with it: the client id is fixed from then on."""
        self.sessions: list[SessionCore] = []
        self.producers: list[ProducerCore] = []
        self.at_close: list[Callable[[], Awaitable[object]]] = []
        """What else ends with the connection, in order; errors of it are nobody's any more."""
        self.on_exception: Callable[[BrokerError], object] | None = None
        self.temporaries: set[Destination] = set()
        self.callbacks = Callbacks("events")
        """Where handlers of the application are called."""
        self.copies = Copies()
        self.events = Events(io)
        self.watches: dict[Destination, ConsumerWatch] = {}
        """Destinations whose consumers the application wants to know of."""
        self._outage = Outage(self.events, "")
        """That of the link that was lost last: its handles come back because of it."""
        self.branches: dict[Any, Any] = {}
        """Branches of distributed transactions by XID."""
        self.brokers = Brokers(self)
        self.buffers: weakref.WeakSet[Buffer | Buffers] = weakref.WeakSet()
        """Of all its consumers."""
        self.choosers: dict[tuple[Destination, str], Chooser] = {}
        """Positions among the members of distributed destinations, of "producers" and of "consumers"."""
        self._channels: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._attaching: set[Endpoint] = set()
        self._meter = Meter(attributes, self._send_flow, io.post)
        self.arrived, self.meter, self.handed_out = self._meter.arrived, self._meter.meter, self._meter.handed_out
        self.counts_buffered = self._meter.counts_buffered
        self._pinger: asyncio.Task[None] | None = None
        io.users.add(self)
        io.ends_first()

    def set_client_id(self, client_id: str) -> None:
        """Name the client; raises IllegalStateError once the connection has been used, or where that is the
        administrator's business alone."""
        check_may_choose(self.attributes)
        if self.used or self.started:
            raise IllegalStateError("the client id is set before the connection is started or has a session")
        self.client_id = check_client_id(client_id)

    def require_open(self) -> None:
        """Raises IllegalStateError when it is closed, or belongs to another process."""
        self.io.require_usable()
        if self.closed:
            raise IllegalStateError("the connection is closed")

    def disown(self) -> None:
        """This is a forked child: whoever receives is told so, as everybody is who calls anything else."""
        self.closed = True
        for buffer in list(self.buffers):
            buffer.closed = True

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """One verb of administration."""
        self.require_open()
        return await self.directory.admin(verb, args)

    def warn_unless_started(self) -> None:
        """Somebody waits for messages: one who has never started the connection is told so, once, in any thread."""
        if self._was_started or self._start_awaited:
            return
        self._start_awaited = True

        def look() -> None:
            if not self._was_started and not self.closed:
                log.warning(
                    "somebody has been waiting for messages for %g s on a connection that was never started;"
                    " nothing comes before conn.start(), or `with conn:`", NOT_STARTED_S,
                )

        self.io.post(lambda: self.io.loop.call_later(NOT_STARTED_S, look))

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
                    "flow_count": self._meter.meter_max,
                    "connection": self.identity,
                    "now_ms": self.clock.now_ms(),
                }
                timeout_s = self.attributes["raybroker.connect.timeout_ms"] / 1000
                channel = await Channel.open(place, hello, timeout_s, self)
                self._channels[place.key] = channel
                if self._pinger is None:
                    self._pinger = self.spawn(keep_pinging(self))
            return channel

    def channels(self) -> list[Channel]:
        return list(self._channels.values())

    def channel_closing(self, channel: Channel) -> None:
        self.events.tell(CLOSING, channel.place.key, channel.why())

    def channel_lost(self, channel: Channel) -> None:
        if not self.closed:
            self._outage = Outage(self.events, channel.place.key)
            self.brokers.link_lost(channel.place.broker)
            self.events.tell(CLOSED, channel.place.key, channel.why())

    async def patiently(
        self, what: str, work: Callable[[], Awaitable[T]], failed: Callable[[BrokerError], None] | None = None
    ) -> T:
        """Do ``work`` again and again while it fails with ConnectionLostError, or with NotOpenError since its broker
        is about to start, until the reconnect time is over.

        ``failed`` is told of each. Raises what else it raises, NotOpenError, or ConnectionLostError saying how long
        ``what`` was tried.
        """
        loop = asyncio.get_running_loop()
        limits, attempts = reconnect_time(self.attributes), 0
        longest_s = self.attributes["imqReconnectInterval"] / 1000
        since_s, pause_s = loop.time(), RETRY_FIRST_S
        while True:
            try:
                return await work()
            except (ConnectionLostError, NotOpenError) as error:
                if self.closed:
                    raise
                if failed is not None:
                    failed(error)
                if over := limits.over(loop.time() + pause_s - since_s, attempts):
                    if isinstance(error, NotOpenError):
                        raise
                    raise ConnectionLostError(f"{what} cannot be reached; {over}: {error}") from None
            attempts += 1
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)

    async def pause(self) -> None:
        """As long as between two attempts to connect."""
        await asyncio.sleep(self.attributes["imqReconnectInterval"] / 1000)

    async def channel_of(
        self, destination: Destination, *, create: bool = False, broker: str | None = None
    ) -> Channel:
        """The channel to the host that serves a destination; ``broker``: whose member, None: the home broker's."""
        place = await self.directory.locate(destination.kind, destination.name, create, broker)
        return await self.channel(place)

    async def attach(
        self, endpoint: Endpoint, *, create: bool, failed: Callable[[BrokerError], None] | None = None
    ) -> Channel:
        """Find the endpoint's destination and open it there, again and again until the reconnect time is over.

        Returns where. Raises what the broker answers, or the last retryable error.
        """

        def still_wanted() -> None:
            if endpoint.has_ended():  # Another one may be there in its place: it must not be attached any more.
                raise IllegalStateError(f"the handle of {endpoint.name} is closed")

        async def once() -> Channel:
            still_wanted()
            kind, name = endpoint.destination.kind, endpoint.destination.name
            place = await self.directory.locate(kind, name, create, endpoint.broker)
            endpoint.traits = place.traits
            channel = await self.channel(place)
            still_wanted()
            await endpoint.attach(channel)
            if not endpoint.attached:
                raise ConnectionLostError("the connection was lost again")
            return channel

        def told(error: BrokerError) -> None:
            if failed is not None:
                failed(error)
            self._require_hope(endpoint)

        self._attaching.add(endpoint)
        try:
            return await self.patiently(endpoint.name, once, told)
        finally:
            self._attaching.discard(endpoint)

    def _require_hope(self, endpoint: Endpoint) -> None:
        """Raises BrokerGoneError when the one broker that has an endpoint's place is not waited for any more: somebody
        else's temporary destination goes with its broker, and a unit of order has no other."""
        if self.brokers.alone:
            return
        broker = home_of_temporary(endpoint.name)
        if broker and endpoint.destination not in self.temporaries:
            if self.brokers.gone(broker):
                raise BrokerGoneError(f"{endpoint.name} is temporary, and its broker {broker} is down")
            return
        only = endpoint.broker if isinstance(endpoint, ProducerCore) and endpoint.bound else None
        if only and self.brokers.gone(only, GONE_S):
            raise BrokerGoneError(f"broker {only} is down")

    def recover(self, endpoint: Endpoint) -> None:
        """The endpoint's channel is gone: bring it back, or tell it that it is over."""
        if self.closed or endpoint in self._attaching:
            return  # Whoever attaches it notices the loss and tries again; twice attached, it would keep messages.
        self.spawn(self._recover(endpoint, self._outage))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something until it ends or the connection is closed; on the IO loop."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A task that nobody waits for is over."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.closed:
            log_failure("a task of a connection has failed", error)

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something whole even when whoever waits for it gives up meanwhile."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _recover(self, endpoint: Endpoint, outage: Outage) -> None:
        loop = asyncio.get_running_loop()
        early_s = endpoint.recovered_at + RECOVER_APART_S - loop.time()
        if early_s > 0:
            await asyncio.sleep(early_s)
        if endpoint.has_ended():
            outage.left(endpoint)
            return
        endpoint.recovered_at = loop.time()
        try:
            if not self.attributes["imqReconnectEnabled"]:
                raise ConnectionLostError(f"the connection of {endpoint.name} was lost; imqReconnectEnabled is false")
            channel = await self.attach(endpoint, create=False, failed=lambda error: outage.failed(endpoint, error))
            outage.over(endpoint, channel.place.key)
            if endpoint.has_ended():
                await endpoint.close()
        except BrokerError as error:
            outage.left(endpoint)
            if not endpoint.has_ended():
                self.end(endpoint, error)

    def end(self, endpoint: Endpoint, error: BrokerError) -> None:
        """A handle cannot go on: tell those who wait, and the handler, since a listener waits for nobody."""
        one_of_several = endpoint.left is not None
        endpoint.fail(error)
        if self.on_exception is not None and not one_of_several:
            self.on_exception(error)

    def broke(self, endpoint: Endpoint, error: Exception) -> None:
        """Something that should never fail has failed for a handle: it ends, so that nobody waits for it."""
        log.error("the handle of %s ends: %r", endpoint.name, error, exc_info=error)
        self.end(endpoint, BrokerError(f"the handle of {endpoint.name} has failed and is closed: {error!r}"))

    async def outcome_of(self, coordinator: Destination, broker: str, key: bytes, error: ConnectionLostError) -> str:
        """What became of a transaction whose commit was interrupted by ``error``: its host is asked.

        ``coordinator``: a destination on that host, of that broker.

        Raises ConnectionLostError when the host cannot be asked: then it is not known.
        """

        async def ask() -> str:
            answer = await (await self.channel_of(coordinator, broker=broker or None)).call("txn_outcome", {"key": key})
            return str(answer["state"])

        if not self.attributes["imqReconnectEnabled"]:
            raise error
        try:
            return await self.patiently(coordinator.name, ask)
        except BrokerError as fault:
            raise ConnectionLostError(
                f"the connection was lost during a commit, and what became of it cannot be asked: {fault}"
            ) from None

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Let messages in."""
        self.require_open()
        self.started = self._was_started = True
        await self._tell_channels("start")
        for session in self.sessions:
            for consumer in session.consumers:
                consumer.started()

    async def stop(self) -> None:
        """No more messages until start(); what is buffered stays where it is."""
        self.require_open()
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
        for work in self.at_close:
            with contextlib.suppress(BrokerError):
                await work()
        self.closed = True
        for task in list(self._tasks):
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

    async def open_producer(
        self, destination: Destination, shared: Shared, *, pickles: bool, session: SessionCore | None = None,
        create: bool = True, broker: str | None = None, bound: bool = False,
    ) -> ProducerCore:  # fmt: skip
        """``session``: whose transactions its messages belong to, if it is transacted; ``broker``: see ConsumerCore;
        ``bound``: its messages can go to that broker and to no other."""
        require_no_metrics_topic(destination.kind, destination.name)
        identity = int.from_bytes(token(8), "little")
        work = session.work if session is not None else None
        producer = ProducerCore(self, destination, identity, shared, pickles=pickles, work=work)
        producer.broker, producer.bound = broker, bound
        await self.attach(producer, create=create)
        self.producers.append(producer)
        if session is not None:
            session.producers.append(producer)
        return producer

    def wait_no_longer(self, error: BrokerError) -> None:
        """The connection is being closed: a listener that waits for a full destination would wait for ever."""
        for producer in self.producers:
            producer.wait_no_longer(error)

    def forget_producer(self, producer: object) -> None:
        """It was closed; a session's transaction remembers it until it ends."""
        self.producers = [other for other in self.producers if other is not producer]
        for session in self.sessions:
            if session.work is None:
                session.producers = [other for other in session.producers if other is not producer]

    async def open_consumer(
        self, session: SessionCore, destination: Destination, options: ConsumerOptions, *, create: bool = True
    ) -> ConsumerCore:
        consumer = ConsumerCore(session, destination, options)
        await self.join(consumer, create=create)
        return consumer

    async def join(self, consumer: ConsumerCore, *, create: bool) -> None:
        """Attach a new consumer to its destination and its session."""
        session = consumer.session
        session.consumers.append(consumer)
        try:
            await self.attach(consumer, create=create)
        except BaseException:
            session.forget(consumer)
            raise

    def _send_flow(self, go: bool) -> None:
        """Tell every host to stop or to go on."""
        for channel in self._channels.values():
            if not channel.lost:
                channel.link.write(wire.flow(go))
