"""Whether a destination has consumers, told to whoever wants to know before sending.

Asked of the home broker's member: a consumer is attached to the member of every broker.  A destination that does not
exist has no consumers; it is looked for again at intervals, so that watching may begin before it is created.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.events import ConsumerEvent
from raybroker.client.destinations import Destination
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.wire.native import frames as wire

if TYPE_CHECKING:
    from raybroker.client.connection.connection import ConnectionCore


async def watch(
    connection: ConnectionCore, destination: Destination, handler: Callable[[ConsumerEvent], object] | None
) -> None:
    """Tell ``handler`` now, and each time that it changes; None: nobody any more. It replaces the one there was.

    Raises InvalidDestinationError for a pattern.
    """
    connection.require_open()
    if destination.is_pattern:
        raise InvalidDestinationError(f"{destination.name} is a pattern; consumers of one destination can be watched")
    before = connection.watches.pop(destination, None)
    if before is not None:
        await before.close()
    if handler is not None:
        watching = connection.watches[destination] = ConsumerWatch(connection, destination, handler)
        await watching.open()


class ConsumerWatch:
    """A handle that sends and takes nothing; on the IO loop."""

    def __init__(
        self, connection: ConnectionCore, destination: Destination, handler: Callable[[ConsumerEvent], object]
    ) -> None:
        self.destination = destination
        self.name = destination.name
        self.broker: str | None = None
        """Its member is the home broker's."""
        self.recovered_at = 0.0
        self.left: Callable[[Any], None] | None = lambda _: None
        """It ends for no other reason than being closed, so nobody is told of errors."""
        self._connection = connection
        self._handler = handler
        self._closed = False
        self._ready: bool | None = None
        self._channel: Channel | None = None
        self._handle = 0

    async def open(self) -> None:
        try:
            await self._connection.attach(self, create=False)
        except InvalidDestinationError:
            self._look_again()

    @property
    def attached(self) -> bool:
        return self._channel is not None and not self._channel.lost

    async def attach(self, channel: Channel) -> None:
        handle = channel.new_handle(self)
        self._channel, self._handle = channel, handle
        args = {"handle": handle, "type": self.destination.kind, "name": self.name}
        try:
            await channel.call("watch_consumers", args, lambda answer: self._tell(bool(answer["ready"])))
        except BaseException:
            channel.endpoints.pop(handle, None)
            self._channel = None
            raise

    def on_frame(self, frame: wire.Frame) -> None:
        if not isinstance(frame, wire.Event):
            return
        if frame.name == "consumers":
            self._tell(bool(frame.data.get("ready")))
        elif frame.name in ("destroyed", "halted"):
            self._detach()
            self._look_again()

    def _tell(self, ready: bool) -> None:
        if ready != self._ready and not self._closed:
            self._ready = ready
            self._connection.io.post(self._handler, ConsumerEvent(self.destination, ready))

    def _look_again(self) -> None:
        """It cannot be watched now: it has no consumers until it can."""
        self._tell(False)
        if not self._connection.closed:
            self._connection.spawn(self._keep_looking())

    async def _keep_looking(self) -> None:
        while not self._closed:
            await self._connection.pause()
            try:
                if not self._closed:
                    await self._connection.attach(self, create=False)
                return
            except BrokerError:
                continue

    def _detach(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and channel.endpoints.pop(self._handle, None) is not None:
            channel.leave("unwatch_consumers", self._handle)

    def on_writable(self) -> None:
        """It writes little enough not to care."""

    def has_ended(self) -> bool:
        return self._closed

    def on_lost(self) -> None:
        self._channel = None
        if not self._closed:
            self._connection.recover(self)

    def fail(self, error: BrokerError) -> None:
        """It could not be brought back in time, or its destination is gone."""
        if self._connection.attributes["imqReconnectEnabled"] or isinstance(error, InvalidDestinationError):
            self._look_again()
        else:
            self._tell(False)

    async def close(self) -> None:
        self._closed = True
        with contextlib.suppress(BrokerError):
            self._detach()
