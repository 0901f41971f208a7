"""The channels of one connection: one to each host that serves something it uses, opened when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raybroker.client.cluster.directory import DestinationPlace, Directory
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection_flow import ConnectionFlow
from raybroker.client.connection.ended import Ended
from raybroker.client.connection.ping import keep_pinging
from raybroker.client.destinations import Destination
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import ConnectionEndedError, IllegalStateError, RequestTimeoutError
from raybroker.model.settings.settings import ConfigView
from raybroker.transport.direct import DirectSockets
from raybroker.wire.native import frames as wire


class Channels:
    """The channels of a connection, on the IO loop.

    open_to     opens a channel of the connection to a place
    unanswered  is told of a ping without an answer in time, where that does not end the link
    post        has something called on the IO loop
    sockets     where threads that wait find the links that they may serve
    flow        how much all consumers together may buffer
    ended       why the connection was ended from the broker's side, once it is: no channel is opened then
    """

    def __init__(
        self,
        directory: Directory,
        attributes: ConfigView,
        tasks: Tasks,
        *,
        open_to: Callable[[DestinationPlace], Awaitable[Channel]],
        unanswered: Callable[[Channel, RequestTimeoutError], None],
        post: Callable[[Callable[[bool], None], bool], None],
        sockets: DirectSockets | None = None,
    ) -> None:
        self._directory = directory
        self._attributes = attributes
        self._tasks = tasks
        self._open_to = open_to
        self._unanswered = unanswered
        self.ended = Ended()
        self.flow = ConnectionFlow(attributes, self.write_flow, post)
        self._sockets = sockets
        self._channels: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._pinger: asyncio.Task[None] | None = None

    async def to(self, place: DestinationPlace) -> Channel:
        """The channel to a place, opened if there is none."""
        async with self._opening.setdefault(place.key, asyncio.Lock()):
            channel = self._channels.get(place.key)
            if channel is None or channel.lost:
                if self._tasks.closed:
                    raise IllegalStateError("the connection is closed")
                self.ended.require_going_on()
                try:
                    channel = await self._open_to(place)
                except ConnectionEndedError as error:
                    self.ended.by(error)
                    raise
                if self._sockets is not None:
                    channel.link.serve_directly(self._sockets)
                self._channels[place.key] = channel
                if self._pinger is None:
                    self._pinger = self._tasks.keep(
                        "pings of hosts",
                        lambda: keep_pinging(self.all, self._attributes, self._tasks, self._unanswered),
                    )
            return channel

    async def channel_to(self, destination: Destination, broker: str | None = None) -> Channel:
        """The channel to the host that serves a destination; ``broker``: whose member, None: the home broker's."""
        return await self.to(await self._directory.locate(destination.kind, destination.name, False, broker))

    async def link(self, destination: Destination) -> str:
        """Have a link to the host that serves a destination; returns its key."""
        place = await self._directory.locate(destination.kind, destination.name, False, None)
        await self.to(place)
        return place.key

    def is_linked(self, key: str) -> bool:
        channel = self._channels.get(key)
        return channel is not None and not channel.lost

    def unlink(self, key: str) -> None:
        """End the link to a host, if there is one."""
        if channel := self._channels.get(key):
            channel.close()

    def all(self) -> list[Channel]:
        """Return the channels to hosts that the connection has used, with some that may be lost."""
        return list(self._channels.values())

    def open(self) -> list[Channel]:
        """Return the channels that are not lost."""
        return [channel for channel in self._channels.values() if not channel.lost]

    async def call(self, op: str) -> None:
        """One request without arguments to every host."""
        for channel in self.open():
            if not channel.lost:
                await channel.call(op, {})

    def write_flow(self, go: bool) -> None:
        """Tell every host to stop or to go on."""
        for channel in self.open():
            channel.link.write(wire.flow(go))

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
