"""One connection from a client to one host, with the producers and consumers that live on it.

Runs on the IO loop.  A channel lives once: when its link is lost, everything that waits on it fails with
ConnectionLostError, its endpoints are told, and a new channel takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.body_room import BodyRoom
from raybroker.client.connection.large_deliveries import LargeDeliveries
from raybroker.client.io.io_thread import fulfil, refuse
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    InvalidDestinationError,
    ProtocolError,
    RequestTimeoutError,
    from_code,
)
from raybroker.transport.link import Link
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import Native, preface


def ended_by(event: wire.EventFrame, name: str) -> BrokerError:
    """Why the host has ended a handle of destination ``name``."""
    if event.name == "halted":
        return from_code(str(event.data.get("code")), str(event.data.get("text")))
    return InvalidDestinationError(f"destination {name} was destroyed")


ACK_RANGES_MAX: Final = 32_768
"""Ranges of one frame, well below what a control frame holds; the confirmation of the last one covers all."""


_OF_HANDLES: Final = (
    wire.DeliverFrame,
    wire.SentFrame,
    wire.RefusedFrame,
    wire.TracedFrame,
    wire.PromotedFrame,
    wire.ReadyFrame,
    wire.DrainedFrame,
    wire.WithdrawnFrame,
    wire.RecallFrame,
    wire.MarkFrame,
    wire.CheckpointFrame,
    wire.DeliverLargeFrame,
)
UPLOADS_MAX: Final = 4
"""Large bodies that go to a host at a time; others wait."""
"""Frames for one producer or consumer."""


class ChannelEndpoint(Protocol):
    """A producer or consumer handle, as its channel sees it."""

    name: str

    def on_frame(self, frame: wire.Frame) -> None: ...

    def on_writable(self) -> None: ...

    def on_lost(self) -> None:
        """The channel is gone; what was on its way is unknown."""
        ...


class Observer(Protocol):
    """Who opened a channel, and wants to know how it ends."""

    def channel_closing(self, channel: Channel) -> None:
        """The host has said that it will end the link; ``channel.reason`` is why."""
        ...

    def channel_lost(self, channel: Channel) -> None:
        """The link is gone; the endpoints have not been told yet."""
        ...


class NextNumbers:
    """The next numbers that the client gives on a channel."""

    __slots__ = ("body", "handle", "request", "transaction")

    def __init__(self) -> None:
        self.request = self.handle = self.transaction = self.body = 1


class Channel:
    """``await Channel.open(place, …)``; then :meth:`call` for requests and :meth:`write` for everything else."""

    def __init__(self, place: DestinationPlace, room: BodyRoom | None = None) -> None:
        self.place = place
        self.observer: Observer | None = None
        self.endpoints: dict[int, ChannelEndpoint] = {}
        self.lost = False
        self.reason: BrokerError | None = None
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._then: dict[int, Callable[[Any], None]] = {}
        self._acks: dict[int, tuple[int, Future[int]]] = {}
        """Request → (handle, who waits for its confirmation)."""
        self._next = NextNumbers()
        self.pieces = False
        """The host takes large bodies in pieces."""
        self.uploads = asyncio.Semaphore(UPLOADS_MAX)
        self.large = LargeDeliveries(self.request, self._to_endpoint, self._broke, room)
        self.heard = True
        self._listening: list[asyncio.Future[None]] = []
        """Waiters for any frame of the host."""
        self.link = Link(Native(token=None), on_frames=self._frames, on_lost=self._lost, on_writable=self._writable)

    @classmethod
    async def open(
        cls,
        place: DestinationPlace,
        hello: dict[str, Any],
        timeout_s: float,
        observer: Observer | None = None,
        room: BodyRoom | None = None,
    ) -> Channel:
        """Connect, show the token, introduce ourselves. Raises ConnectionLostError or what the host answers.

        ``observer`` is told how the link ends; ``room``: what large bodies wait for, None: nothing.
        """
        channel = cls(place, room)
        try:
            async with asyncio.timeout(timeout_s):
                await place.dial(lambda: channel.link)
                channel.link.write(preface(place.token))
                answer = await channel.call("hello", hello)
                channel.pieces = bool(answer and answer.get("pieces"))
        except (OSError, TimeoutError) as error:
            channel.link.abort()
            why = str(error) or "no answer"
            raise ConnectionLostError(f"host {place.key} cannot be reached: {why}") from None
        except BaseException:
            channel.link.abort()
            raise
        # Only now: a host that could not be reached was not lost.
        channel.observer = observer
        return channel

    def request(self, op: str, args: dict[str, Any], then: Callable[[Any], None] | None = None) -> asyncio.Future[Any]:
        """Write one request now; the future is its answer. ``then`` gets it before any frame that follows it."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.lost:
            future.set_exception(self._lost_error())
            return future
        request = self._number()
        self._requests[request] = future
        if then is not None:
            self._then[request] = then
        future.add_done_callback(lambda _: self._done(request))
        try:
            self.link.write(wire.call(request, op, args))
        except BaseException:
            self._done(request)
            raise
        return future

    def _done(self, request: int) -> None:
        self._requests.pop(request, None)
        self._then.pop(request, None)

    async def call(self, op: str, args: dict[str, Any], then: Callable[[Any], None] | None = None) -> Any:
        """One request and its answer; raises what the host answers, or ConnectionLostError."""
        return await self.request(op, args, then)

    def acknowledge(
        self, handle: int, epoch: int, ranges: list[tuple[int, int]], confirmed: Future[int] | None
    ) -> None:
        """Acknowledge deliveries; ``confirmed`` gets the number of those the host did not know any more."""
        if self.lost:
            if confirmed is not None:
                refuse(confirmed, self._lost_error())
            return
        if len(ranges) > ACK_RANGES_MAX:
            starts = range(0, len(ranges), ACK_RANGES_MAX)
            for start, part in zip(starts, _parts(confirmed, len(starts)), strict=True):
                self.acknowledge(handle, epoch, ranges[start : start + ACK_RANGES_MAX], part)
            return
        request = 0
        if confirmed is not None:
            request = self._number()
            self._acks[request] = handle, confirmed
        self.link.write(wire.ack(handle, epoch, request, ranges))

    def settle_deliveries(
        self,
        handle: int,
        epoch: int,
        outcome: str,
        delay_ms: int,
        reason: str,
        ranges: list[tuple[int, int]],
        confirmed: Future[int] | None,
    ) -> None:
        """Settle deliveries with another outcome; ``delay_ms`` -1 is the destination's own."""
        if self.lost:
            if confirmed is not None:
                refuse(confirmed, self._lost_error())
            return
        request = 0
        if confirmed is not None:
            request = self._number()
            self._acks[request] = handle, confirmed
        try:
            self.link.write(wire.settle(handle, epoch, request, outcome, delay_ms, reason, ranges))
        except BaseException:
            self._acks.pop(request, None)
            raise

    async def confirmed(self, handle: int) -> None:
        """Wait until every acknowledgement of a handle is answered, or the channel is lost: the host answers none of a
        handle that it has closed."""
        waiting = [asyncio.wrap_future(confirmed) for of, confirmed in self._acks.values() if of == handle]
        for future in waiting:
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if waiting:
            await asyncio.wait(waiting)

    def _refuse_confirmations(self, handle: int, event: wire.EventFrame) -> None:
        endpoint = self.endpoints.get(handle)
        name = endpoint.name if endpoint is not None else "the handle"
        for request, (of, confirmed) in list(self._acks.items()):
            if of == handle:
                del self._acks[request]
                refuse(confirmed, ended_by(event, name))

    def new_transaction(self) -> int:
        """A number for a transaction on this connection."""
        number = self._next.transaction
        self._next.transaction += 1
        return number

    def new_handle(self, endpoint: ChannelEndpoint) -> int:
        handle = self._next.handle
        self._next.handle += 1
        self.endpoints[handle] = endpoint
        return handle

    def new_body(self) -> int:
        """A number for a large body on this connection."""
        number = self._next.body
        self._next.body += 1
        return number

    def leave(self, op: str, handle: int) -> None:
        """Ask the host to end a handle, without waiting for its answer."""
        self.tell(op, {"handle": handle})

    def tell(self, op: str, args: dict[str, Any]) -> None:
        """A request whose answer nobody waits for."""
        if not self.lost:
            self.request(op, args).add_done_callback(lambda done: done.cancelled() or done.exception())

    async def answers(self, timeout_s: float, late_s: float = 0.0) -> bool:
        """Ping now: whether anything comes from the host within ``timeout_s`` seconds, or is read within ``late_s``
        by a loop that was busy."""
        if self.lost:
            return False
        word: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = self.link.bytes_in
        self._listening.append(word)
        self.link.write(wire.ping(0))
        try:
            async with asyncio.timeout(timeout_s):
                await word
        except TimeoutError:
            if late_s and self.link.bytes_in == before:
                await asyncio.sleep(late_s)
            return self.link.bytes_in != before and not self.lost  # Part of something long.
        finally:
            if word in self._listening:
                self._listening.remove(word)
        return not self.lost

    def give_up(self, error: BrokerError) -> None:
        """End the link now, because of ``error``."""
        self.reason = self.reason or error
        self.link.abort()

    def ping(self) -> None:
        """Called at intervals: silence since the last call means that the host is gone."""
        if not self.heard:
            self.give_up(RequestTimeoutError("no answer to a ping within imqPingInterval"))
            return
        self.heard = False
        self.link.write(wire.ping(0))

    def close(self) -> None:
        self.endpoints.clear()
        self.link.close()

    # ---- from the link ---------------------------------------------------------------------------------------------

    def _frames(self, frames: list[wire.Frame]) -> None:
        self.heard = True
        if self._listening:
            self._word_came()
        behind = self.large.behind
        for frame in frames:
            if isinstance(frame, _OF_HANDLES):
                if (type(frame) is wire.DeliverLargeFrame or behind) and self.large.takes(frame):
                    continue
                endpoint = self.endpoints.get(frame.handle)
                if endpoint is not None:
                    endpoint.on_frame(frame)
            elif isinstance(frame, wire.AckedFrame):
                waiting = self._acks.pop(frame.request, None)
                if waiting is not None:
                    fulfil(waiting[1], frame.unknown)
            elif isinstance(frame, wire.ReplyFrame):
                self._resolve(frame.request, frame.result)
            elif isinstance(frame, wire.ReleasedFrame):
                self._resolve(frame.request, frame.next_tag)
            elif isinstance(frame, wire.FailedFrame):
                future = self._requests.get(frame.request)
                if future is not None and not future.done():
                    future.set_exception(from_code(frame.code, frame.text))
            elif isinstance(frame, wire.PingFrame):
                self.link.write(wire.pong(frame.nonce))
            elif isinstance(frame, wire.EventFrame):
                self._event(frame)

    def _broke(self, error: BaseException) -> None:
        """A frame could not be handled."""
        self.give_up(ProtocolError(f"a frame could not be handled: {error!r}"))

    def _to_endpoint(self, frame: Any) -> None:
        endpoint = self.endpoints.get(frame.handle)
        if endpoint is not None:
            endpoint.on_frame(frame)

    def _word_came(self) -> None:
        for word in self._listening:
            if not word.done():
                word.set_result(None)
        self._listening.clear()

    def _resolve(self, request: int, result: Any) -> None:
        future = self._requests.get(request)
        if future is None or future.done():
            return
        then = self._then.get(request)
        if then is not None:
            then(result)
        future.set_result(result)

    def _event(self, event: wire.EventFrame) -> None:
        if event.name == "closing":
            self.reason = from_code(str(event.data.get("code")), str(event.data.get("text")))
            if self.observer is not None:
                self.observer.channel_closing(self)
        elif event.name in ("destroyed", "halted", "gate", "credit", "armed", "consumers", "draining"):
            handle = event.data.get("handle", 0)
            endpoint = self.endpoints.get(handle)
            if event.name in ("destroyed", "halted"):  # The host answers nothing more of this handle.
                self._refuse_confirmations(handle, event)
            if endpoint is not None:
                endpoint.on_frame(event)

    def _writable(self) -> None:
        for endpoint in list(self.endpoints.values()):
            endpoint.on_writable()

    def _lost(self, error: BrokerError | None) -> None:
        self.lost = True
        self.reason = self.reason or error
        failure = self._lost_error()
        for future in list(self._requests.values()):
            if not future.done():
                future.set_exception(failure)
        for _, confirmed in self._acks.values():
            refuse(confirmed, failure)
        self._acks.clear()
        self.large.lost()
        self._word_came()
        if self.observer is not None:
            self.observer.channel_lost(self)
        endpoints, self.endpoints = self.endpoints, {}
        for endpoint in endpoints.values():
            endpoint.on_lost()

    def why(self) -> BrokerError:
        """What the host has said before it ended the link, or what ended it otherwise."""
        return self.reason or self._lost_error()

    def _lost_error(self) -> ConnectionLostError:
        why = f": {self.reason}" if self.reason else ""
        return ConnectionLostError(f"the connection to host {self.place.key} was lost{why}")

    def _number(self) -> int:
        number = self._next.request
        self._next.request = number % 0xFFFF_FFFF + 1
        if number in self._requests or number in self._acks:
            raise ProtocolError("more requests are open than there are numbers for them")
        return number


def _parts(confirmed: Future[int] | None, count: int) -> list[Future[int] | None]:
    """Make a future for each of several acknowledgements: ``confirmed`` gets the sum of what they get, or an error."""
    if confirmed is None:
        return [None] * count
    parts: list[Future[int]] = [Future() for _ in range(count)]

    def done(_: Future[int]) -> None:
        if not all(part.done() for part in parts):
            return
        failures = [failure for part in parts if (failure := part.exception()) is not None]
        if failures:
            refuse(confirmed, failures[0])
        else:
            fulfil(confirmed, sum(part.result() for part in parts))

    for part in parts:
        part.add_done_callback(done)
    return list(parts)
