"""An endpoint: what a producer, consumer, browser or consumer watch is to the connection that attaches it to a host.

An endpoint is attached to one channel at a time, under a handle of that channel.  When the channel is lost, the
connection looks the endpoint's destination up again and attaches it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from raybroker.client.connection.channel import Channel
from raybroker.client.destinations import Destination
from raybroker.model.errors import BrokerError
from raybroker.wire.native import frames as wire


class Endpoint(ABC):
    """``broker``: whose member of the destination; None: that of the home broker."""

    bound = False
    """It needs that very broker, and does not wait for it when it has been down for long."""
    reports_failure = True
    """The application is told when it fails; not so of one of several attachments of a handle."""

    def __init__(self, destination: Destination, broker: str | None = None) -> None:
        self.destination = destination
        self.name = destination.name
        self.broker = broker
        self.traits: Mapping[str, Any] = {}
        """Attributes of the destination that a client acts on."""
        self.recovered_at = 0.0
        """When it was last brought back, by the loop's clock."""
        self.closed = False
        self._channel: Channel | None = None
        self._handle = 0

    @property
    def attached(self) -> bool:
        return self._channel is not None and not self._channel.lost

    @property
    def place(self) -> tuple[Channel, int] | None:
        """The channel and the handle on it, while there is one."""
        channel = self._channel
        return (channel, self._handle) if channel is not None and not channel.lost else None

    @abstractmethod
    async def attach(self, channel: Channel) -> None:
        """Open on a channel; raises what the host answers."""

    async def _open(
        self, channel: Channel, op: str, args: dict[str, Any], then: Callable[[Any], None] | None = None, *, undo: str
    ) -> Any:
        """Ask the host for a handle, and be attached when it answers; ``then`` gets the answer first.

        ``undo``: what ends the handle at the host, where whoever waits for the answer gives up."""
        handle = channel.new_handle(self)
        self._channel, self._handle = channel, handle
        try:
            args = {"handle": handle, "name": self.name, "type": self.destination.kind, **args}
            return await channel.call(op, args, then)
        except BaseException as error:
            channel.endpoints.pop(handle, None)
            self._channel = None
            if not isinstance(error, BrokerError):  # The host opens it all the same, and would send to nobody.
                channel.tell(undo, {"handle": handle, "seen": 0})
            raise

    def has_ended(self) -> bool:
        """True once the application has closed it."""
        return self.closed

    @abstractmethod
    def fail(self, error: BrokerError) -> None:
        """It cannot go on: tell those who wait."""

    @abstractmethod
    async def close(self) -> None:
        """Detach."""

    # ---- from the connection -----------------------------------------------------------------------------------------

    def started(self) -> None:  # noqa: B027 - a default
        """Called when the connection is started; consumers hand out what they have then."""

    def shut(self) -> None:  # noqa: B027 - a default
        """Called when the connection has ended; consumers have no more messages for the application then."""

    def wait_no_longer(self, error: BrokerError) -> None:  # noqa: B027 - a default
        """Called when the connection is about to be closed; whoever waits for room in a producer gets ``error``."""

    # ---- from the channel --------------------------------------------------------------------------------------------

    @abstractmethod
    def on_frame(self, frame: wire.Frame) -> None: ...

    def on_writable(self) -> None:  # noqa: B027 - a default
        """Called when the link can take more; most endpoints write too little to need it."""

    def on_lost(self) -> None:
        """The channel is gone; what was on its way is unknown."""
        self._channel = None
