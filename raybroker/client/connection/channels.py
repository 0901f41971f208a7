"""The channels of one connection: one to each host that serves something it uses, opened when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from raybroker.client.cluster.directory import DestinationPlace, Directory
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection_flow import ConnectionFlow
from raybroker.client.connection.shared_body import SharedObjects
from raybroker.client.destinations import Destination
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import BrokerError, ConnectionEndedError, IllegalStateError, RequestTimeoutError
from raybroker.model.settings.settings import ConfigView
from raybroker.transport.direct import DirectSockets
from raybroker.wire.native import frames as wire

LATE_S: Final = 0.5
"""A loop that is later than this was busy, and has not read yet what came meanwhile."""
READ_S: Final = 0.05
"""Time for it to read."""
Unanswered = Callable[[Channel, RequestTimeoutError], None]


async def keep_pinging(
    channels: Callable[[], Iterable[Channel]], attributes: ConfigView, tasks: Tasks, unanswered: Unanswered
) -> None:
    """Ping every link each imqPingInterval, until cancelled; returns at once when that is off.

    A host that does not answer within imqPingAckTimeout loses its link with imqAbortOnPingAckTimeout; else
    ``unanswered`` is called.
    """
    interval_s, answer_s = attributes["imqPingInterval"], attributes["imqPingAckTimeout"] / 1000
    if attributes["imqAbortOnPingAckTimeout"]:
        unanswered = Channel.give_up
    loop = asyncio.get_running_loop()
    while interval_s > 0:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        if loop.time() - due_s > LATE_S:
            await asyncio.sleep(READ_S)
        for channel in channels():
            if channel.lost:
                continue
            channel.ping()
            if answer_s > 0 and not channel.lost:
                tasks.spawn(_answered(channel, answer_s, unanswered))


async def _answered(channel: Channel, answer_s: float, unanswered: Unanswered) -> None:
    if not await channel.answers(answer_s, READ_S) and not channel.lost:
        text = f"host {channel.place.key} has not answered within imqPingAckTimeout={answer_s:g} s"
        unanswered(channel, RequestTimeoutError(text))


class Ended:
    """The end of a connection for good, from the broker's side. ``error``: why, None while it goes on; ``listeners``
    are called with it once, on the IO loop."""

    def __init__(self) -> None:
        self.error: BrokerError | None = None
        self.listeners: list[Callable[[BrokerError], None]] = []

    def by(self, error: BrokerError) -> bool:
        """It has ended; False when it had already."""
        if self.error is not None:
            return False
        self.error = error
        for listener in list(self.listeners):
            listener(error)
        return True

    def require_going_on(self) -> None:
        """Raises why it has ended."""
        if self.error is not None:
            raise type(self.error)(*self.error.args)


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
        self.objects: SharedObjects | None = None
        """The object store that large bodies are shared in; None outside of Ray."""

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
                channel.large.objects, channel.large.host = self.objects, place.key.partition("@")[0]
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
