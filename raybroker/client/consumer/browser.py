"""Looks at what waits in a queue and takes nothing.

Messages come in chunks of imqQueueBrowserMaxMessagesPerRetrieve, so a queue of any length can be looked through.  Each
pass is a look of its own: what waits when it starts, without what is delivered or acknowledged meanwhile.
"""

from __future__ import annotations

import asyncio

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.consumer.message import Message, MessageSession, ReceivedDelivery
from raybroker.client.destinations import Destination
from raybroker.model.blocks.large_block import missing
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    RequestTimeoutError,
)
from raybroker.wire.native import frames as wire


def check_browsable(destination: Destination) -> None:
    """Raises InvalidDestinationError for a topic."""
    if destination.kind != "queue":
        raise InvalidDestinationError(f"{destination.text} cannot be browsed; browsers are for queues")


class BrowserCore(Endpoint):
    """One pass over a queue. ``session``: that of the messages; nothing of it is acknowledged."""

    def __init__(
        self,
        connection: ConnectionCore,
        session: MessageSession,
        destination: Destination,
        selector: str | None,
        *,
        unpickles: bool,
    ) -> None:
        super().__init__(destination)
        self.session = session
        self.unpickles = unpickles
        self.message_bytes_max = connection.message_bytes_max
        self.more = True
        self._connection = connection
        self._selector = selector
        self._most: int = connection.attributes["imqQueueBrowserMaxMessagesPerRetrieve"]
        self._timeout_s: float = connection.attributes["imqQueueBrowserRetrieveTimeout"] / 1000
        self._failure: BrokerError | None = None
        self._found: list[Message] = []

    def drain_left_s(self) -> float | None:
        """A browser takes nothing, and is told nothing."""
        return None

    async def open(self) -> None:
        """Raises InvalidSelectorError, InvalidDestinationError and ConnectionLostError."""
        create = self.destination not in self._connection.kept.temporaries
        await self._connection.attachments.attach(self, create=create)

    async def attach(self, channel: Channel) -> None:
        await self._open(channel, "open_browser", {"selector": self._selector}, undo="close_browser")

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
                    await channel.large.complete(self._handle)
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
        if isinstance(frame, wire.DeliverFrame):
            if missing(frame.block):  # It was consumed meanwhile.
                return
            delivery = ReceivedDelivery(frame.block, self, frame.epoch, frame.tag, frame.attempt)
            self._found.extend([Message(delivery, index) for index in range(frame.block.count)])
            self._connection.channels.flow.meter(frame.block.count)
        elif isinstance(frame, wire.EventFrame):
            self._connection.attachments.end_handle(
                self, InvalidDestinationError(f"destination {self.name} was destroyed")
            )

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
