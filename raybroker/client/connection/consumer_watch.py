"""The consumer watch tells an application whether a destination has consumers.

It asks the member of the home broker: a consumer is attached to the member of every broker.  A destination that does
not exist has no consumers; it is looked for again at intervals, so that watching may begin before it is created.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from raybroker.client.connection.attachments import EndpointAttachments
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.connection.events import ConsumerEvent
from raybroker.client.destinations import Destination
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.wire.native import frames as wire

Handler = Callable[[ConsumerEvent], object]


class ConsumerWatches:
    """The destinations whose consumers the application wants to know of."""

    def __init__(self, post: Callable[..., object], tasks: Tasks, attachments: EndpointAttachments) -> None:
        self._post = post
        self._tasks = tasks
        self._attachments = attachments
        self._watches: dict[Destination, ConsumerWatch] = {}

    async def watch(self, destination: Destination, handler: Handler | None) -> None:
        """Call ``handler`` now, and each time that it changes; None: nobody any more. It replaces the one there was.

        Raises InvalidDestinationError for a pattern.
        """
        if destination.is_pattern:
            raise InvalidDestinationError(
                f"{destination.name} is a pattern; consumers of one destination can be watched"
            )
        before = self._watches.pop(destination, None)
        if before is not None:
            await before.close()
        if handler is not None:
            watching = self._watches[destination] = ConsumerWatch(
                destination, handler, self._post, self._tasks, self._attachments
            )
            await watching.open()


class ConsumerWatch(Endpoint):
    """A handle that sends and takes nothing; on the IO loop. ``post`` has a function called there."""

    reports_failure = False
    """It ends only when it is closed."""

    def __init__(
        self,
        destination: Destination,
        handler: Handler,
        post: Callable[..., object],
        tasks: Tasks,
        attachments: EndpointAttachments,
        broker: str | None = None,
    ) -> None:
        super().__init__(destination, broker)
        self._post = post
        self._tasks = tasks
        self._attachments = attachments
        self._handler = handler
        self._ready: bool | None = None

    async def open(self) -> None:
        try:
            await self._attachments.attach(self, create=False)
        except InvalidDestinationError:
            self._look_again()

    async def attach(self, channel: Channel) -> None:
        await self._open(channel, "watch_consumers", {}, self._answered, undo="unwatch_consumers")

    def _answered(self, answer: Mapping[str, object]) -> None:
        self._report(bool(answer["ready"]))

    def on_frame(self, frame: wire.Frame) -> None:
        if not isinstance(frame, wire.EventFrame):
            return
        if frame.name == "consumers":
            self._report(bool(frame.data.get("ready")))
        elif frame.name in ("destroyed", "halted"):
            self._detach()
            self._look_again()

    def _report(self, ready: bool) -> None:
        if ready != self._ready and not self.closed:
            self._ready = ready
            self._post(self._handler, ConsumerEvent(self.destination, ready))

    def _look_again(self) -> None:
        """It cannot be watched now: it has no consumers until it can."""
        self._report(False)
        if not self._tasks.closed:
            self._tasks.keep("consumers of a destination", self._keep_looking)

    async def _keep_looking(self) -> None:
        while not self.closed:
            await self._tasks.rest()
            try:
                if not self.closed:
                    await self._attachments.attach(self, create=False)
                return
            except BrokerError:
                continue

    def _detach(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and channel.endpoints.pop(self._handle, None) is not None:
            channel.leave("unwatch_consumers", self._handle)

    def on_lost(self) -> None:
        super().on_lost()
        if not self.closed:
            self._attachments.recover(self)

    def fail(self, error: BrokerError) -> None:
        """It could not be brought back in time, or its destination is gone."""
        if self._attachments.reconnects or isinstance(error, InvalidDestinationError):
            self._look_again()
        else:
            self._report(False)

    async def close(self) -> None:
        self.closed = True
        with contextlib.suppress(BrokerError):
            self._detach()
