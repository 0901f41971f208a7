"""One connection from a client to one host, with the producers and consumers that live on it.

Runs on the IO loop.  A channel lives once: when its link is lost, everything that waits on it fails with
ConnectionLostError, its endpoints are told, and a new channel takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from raybroker.client.directory import Place
from raybroker.client.io import fulfil, refuse
from raybroker.model.errors import BrokerError, ConnectionLostError, InvalidDestinationError, ProtocolError, from_code
from raybroker.transport.link import Link
from raybroker.wire import frames as wire
from raybroker.wire.native import Native, preface


def ended_by(event: wire.Event, name: str) -> BrokerError:
    """Why the host has ended a handle of destination ``name``."""
    if event.name == "halted":
        return from_code(str(event.data.get("code")), str(event.data.get("text")))
    return InvalidDestinationError(f"destination {name} was destroyed")


ACK_RANGES_MAX: Final = 32_768
"""Ranges of one frame, well below what a control frame holds; the confirmation of the last one covers all."""


class Endpoint(Protocol):
    """A producer or consumer handle, as its channel sees it."""

    name: str

    def on_frame(self, frame: wire.Frame) -> None: ...

    def on_writable(self) -> None: ...

    def on_lost(self) -> None:
        """The channel is gone; what was on its way is unknown."""
        ...


class Channel:
    """``await Channel.open(place, …)``; then :meth:`call` for requests and :meth:`write` for everything else."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.endpoints: dict[int, Endpoint] = {}
        self.lost = False
        self.reason: BrokerError | None = None
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._then: dict[int, Callable[[Any], None]] = {}
        self._acks: dict[int, Future[int]] = {}
        self._next_request = 1
        self._next_handle = 1
        self.heard = True
        self.link = Link(
            Native(token=None), on_frames=self._frames, on_lost=self._lost, on_writable=self._writable
        )

    @classmethod
    async def open(cls, place: Place, hello: dict[str, Any], timeout_s: float) -> Channel:
        """Connect, show the token, introduce ourselves. Raises ConnectionLostError or what the host answers."""
        channel = cls(place)
        try:
            async with asyncio.timeout(timeout_s):
                await place.dial(lambda: channel.link)
                channel.link.write(preface(place.token))
                await channel.call("hello", hello)
        except (OSError, TimeoutError) as error:
            channel.link.abort()
            why = str(error) or "no answer"
            raise ConnectionLostError(f"host {place.key} cannot be reached: {why}") from None
        except BaseException:
            channel.link.abort()
            raise
        return channel

    async def call(self, op: str, args: dict[str, Any], then: Callable[[Any], None] | None = None) -> Any:
        """One request and its answer. ``then`` gets the answer before any frame that follows it is looked at."""
        if self.lost:
            raise self._lost_error()
        request = self._number()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[request] = future
        if then is not None:
            self._then[request] = then
        try:
            self.link.write(wire.call(request, op, args))
            return await future
        finally:
            self._requests.pop(request, None)
            self._then.pop(request, None)

    def acknowledge(
        self, handle: int, epoch: int, ranges: list[tuple[int, int]], confirmed: Future[int] | None
    ) -> None:
        """Acknowledge deliveries; ``confirmed`` gets the number of those the host did not know any more."""
        if self.lost:
            if confirmed is not None:
                refuse(confirmed, self._lost_error())
            return
        request = 0
        if confirmed is not None:
            request = self._number()
            self._acks[request] = confirmed
        while len(ranges) > ACK_RANGES_MAX:
            self.link.write(wire.ack(handle, epoch, 0, ranges[:ACK_RANGES_MAX]))
            ranges = ranges[ACK_RANGES_MAX:]
        self.link.write(wire.ack(handle, epoch, request, ranges))

    def new_handle(self, endpoint: Endpoint) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self.endpoints[handle] = endpoint
        return handle

    def ping(self) -> None:
        """Called at intervals: silence since the last call means that the host is gone (R-14)."""
        if not self.heard:
            self.link.abort()
            return
        self.heard = False
        self.link.write(wire.ping(0))

    def close(self) -> None:
        self.endpoints.clear()
        self.link.close()

    # ---- from the link ---------------------------------------------------------------------------------------------

    def _frames(self, frames: list[wire.Frame]) -> None:
        self.heard = True
        for frame in frames:
            if isinstance(frame, wire.Deliver | wire.Sent | wire.Refused | wire.Promoted):
                endpoint = self.endpoints.get(frame.handle)
                if endpoint is not None:
                    endpoint.on_frame(frame)
            elif isinstance(frame, wire.Acked):
                confirmed = self._acks.pop(frame.request, None)
                if confirmed is not None:
                    fulfil(confirmed, frame.unknown)
            elif isinstance(frame, wire.Reply):
                self._resolve(frame.request, frame.result)
            elif isinstance(frame, wire.Released):
                self._resolve(frame.request, frame.next_tag)
            elif isinstance(frame, wire.Failed):
                future = self._requests.get(frame.request)
                if future is not None and not future.done():
                    future.set_exception(from_code(frame.code, frame.text))
            elif isinstance(frame, wire.Ping):
                self.link.write(wire.pong(frame.nonce))
            elif isinstance(frame, wire.Event):
                self._event(frame)

    def _resolve(self, request: int, result: Any) -> None:
        future = self._requests.get(request)
        if future is None or future.done():
            return
        then = self._then.get(request)
        if then is not None:
            then(result)
        future.set_result(result)

    def _event(self, event: wire.Event) -> None:
        if event.name == "closing":
            self.reason = from_code(str(event.data.get("code")), str(event.data.get("text")))
        elif event.name in ("destroyed", "halted"):
            endpoint = self.endpoints.get(event.data.get("handle", 0))
            if endpoint is not None:
                endpoint.on_frame(event)

    def _writable(self) -> None:
        for endpoint in list(self.endpoints.values()):
            endpoint.on_writable()

    def _lost(self, error: BrokerError | None) -> None:
        self.lost = True
        self.reason = self.reason or error
        failure = self._lost_error()
        for future in self._requests.values():
            if not future.done():
                future.set_exception(failure)
        for confirmed in self._acks.values():
            refuse(confirmed, failure)
        self._acks.clear()
        endpoints, self.endpoints = self.endpoints, {}
        for endpoint in endpoints.values():
            endpoint.on_lost()

    def _lost_error(self) -> ConnectionLostError:
        why = f": {self.reason}" if self.reason else ""
        return ConnectionLostError(f"the connection to host {self.place.key} was lost{why}")

    def _number(self) -> int:
        number = self._next_request
        self._next_request = number % 0xFFFF_FFFF + 1
        if number in self._requests or number in self._acks:
            raise ProtocolError("more requests are open than there are numbers for them")
        return number
