"""Looks at what waits in a queue and takes nothing.

Messages come in chunks of imqQueueBrowserMaxMessagesPerRetrieve, so a queue of any length can be looked through.  Each
pass is a look of its own: what waits when it starts, without what is delivered or acknowledged meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raybroker.client.connection.channel import Channel
from raybroker.client.consumer.message import Delivery, Message
from raybroker.client.destinations import Destination
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    RequestTimeoutError,
)
from raybroker.wire.native import frames as wire

if TYPE_CHECKING:
    from raybroker.client.session.session import SessionCore


def check_browsable(destination: Destination) -> None:
    """Raises InvalidDestinationError for a topic."""
    if destination.kind != "queue":
        raise InvalidDestinationError(f"{destination.text} cannot be browsed; browsers are for queues")


class BrowserCore:
    """One pass over a queue. ``session``: for what a face is; nothing of it is acknowledged."""

    def __init__(
        self, session: SessionCore, destination: Destination, selector: str | None, *, unpickles: bool
    ) -> None:
        self.session = session
        self.destination = destination
        self.name = destination.name
        self.unpickles = unpickles
        self.closed = False
        self.more = True
        self.broker: str | None = None
        """Whose member of the destination; None: that of the home broker."""
        self.traits: Mapping[str, Any] = {}
        self.recovered_at = 0.0
        self.left = None
        self._connection = session.connection
        self._selector = selector
        self._most: int = self._connection.attributes["imqQueueBrowserMaxMessagesPerRetrieve"]
        self._timeout_s: float = self._connection.attributes["imqQueueBrowserRetrieveTimeout"] / 1000
        self._channel: Channel | None = None
        self._handle = 0
        self._failure: BrokerError | None = None
        self._found: list[Message] = []

    @property
    def attached(self) -> bool:
        return self._channel is not None and not self._channel.lost

    async def open(self) -> None:
        """Raises InvalidSelectorError, InvalidDestinationError and ConnectionLostError."""
        await self._connection.attach(self, create=self.destination not in self._connection.temporaries)

    async def attach(self, channel: Channel) -> None:
        self._handle = channel.new_handle(self)
        args = {
            "handle": self._handle, "name": self.name, "type": self.destination.kind, "selector": self._selector
        }  # fmt: skip
        try:
            await channel.call("open_browser", args)
        except BaseException:
            channel.endpoints.pop(self._handle, None)
            raise
        self._channel = channel

    async def fetch(self) -> list[Message]:
        """The next chunk; empty at the end. Raises RequestTimeoutError after imqQueueBrowserRetrieveTimeout."""
        while self.more and not self.closed:
            channel = self._channel
            if self._failure is not None:
                raise self._failure
            if channel is None:
                raise ConnectionLostError(f"the connection to {self.name} was lost while it was browsed")
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await channel.call("browse", {"handle": self._handle, "max": self._most})
            except TimeoutError:
                raise RequestTimeoutError(
                    f"no messages of {self.name} within imqQueueBrowserRetrieveTimeout={self._timeout_s:g} s"
                ) from None
            self.more = bool(answer["more"])
            found, self._found = self._found, []
            if found:
                return found
        return []

    def on_frame(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.Deliver):
            delivery: Any = Delivery(frame.block, self, frame.epoch, frame.tag, frame.attempt)  # type: ignore[arg-type]
            self._found.extend([Message(delivery, index) for index in range(frame.block.count)])
            self._connection.meter(frame.block.count)
        elif isinstance(frame, wire.Event):
            self._connection.end(self, InvalidDestinationError(f"destination {self.name} was destroyed"))

    def on_writable(self) -> None:
        """A browser writes next to nothing."""

    def on_lost(self) -> None:
        self._channel = None

    def has_ended(self) -> bool:
        return self.closed

    def fail(self, error: BrokerError) -> None:
        self._failure = error

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        self.closed = True
        if channel is not None and not channel.lost:
            channel.endpoints.pop(self._handle, None)
            await channel.call("close_browser", {"handle": self._handle})


def require_open(closed: bool) -> None:
    if closed:
        raise IllegalStateError("the browser is closed")
