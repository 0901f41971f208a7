"""The connection behind every face: it composes what handles share, and starts, stops and closes all of them.

directory      the control side: where destinations are, and what changes them
channels       the links to hosts, how much comes over them, and why they were ended for good, once they are
attachments    attaches handles to hosts, and brings them back after a link was lost
brokers        the brokers of the cluster, as they come and go
handles        what is open
kept           what is kept for handles until the connection ends
tasks          what runs until the connection is closed
events         what the application is told
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any, Final

from raybroker.client.cluster.cluster_view import ClusterView
from raybroker.client.cluster.directory import Directory
from raybroker.client.connection.attachments import EndpointAttachments
from raybroker.client.connection.belongings import KeptToTheEnd, OpenHandles
from raybroker.client.connection.body_room import BodyRoom
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.channels import Channels
from raybroker.client.connection.consumer_watch import ConsumerWatches, Handler
from raybroker.client.connection.events import CLOSED, CLOSING, UNANSWERED, Events
from raybroker.client.connection.identity import ClientIdentity, check_may_choose
from raybroker.client.connection.presence import Presence
from raybroker.client.destinations import Destination
from raybroker.client.io.io_thread import IoThread
from raybroker.client.io.tasks import Tasks
from raybroker.client.producer.pacing.flow_rate import check_flow_rates
from raybroker.config.config import Config
from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, IllegalStateError, SecurityError
from raybroker.system.clock import SystemClock
from raybroker.system.interpreter import PLATFORM
from raybroker.transport.direct import DirectSockets
from raybroker.transport.spin import processors, spin_ns

NOT_STARTED_S: Final = 1.0
"""Whoever waits for messages of a connection that was never started is warned after that time."""

log = logging.getLogger("raybroker.client")


class StartWarning:
    """Warns, once, when messages are waited for on a connection that was never started."""

    def __init__(self, io: IoThread, is_closed: Callable[[], bool]) -> None:
        self._io = io
        self._is_closed = is_closed
        self.was_started = self._awaited = False

    def wait(self) -> None:
        """Somebody waits for messages; in any thread."""
        if self.was_started or self._awaited:
            return
        self._awaited = True
        self._io.post(lambda: self._io.loop.call_later(NOT_STARTED_S, self._warn_if_stopped))

    def _warn_if_stopped(self) -> None:
        if not self.was_started and not self._is_closed():
            log.warning(
                "somebody has been waiting for messages for %g s on a connection that was never started;"
                " nothing comes before conn.start(), or `with conn:`",
                NOT_STARTED_S,
            )


class ConnectionCore:
    """``attributes``: factory and client settings by name, see model.settings. Lives on ``io``."""

    def __init__(
        self,
        directory: Directory,
        attributes: Config,
        *,
        client_id: str | None,
        io: IoThread,
        reopen: Callable[[], ConnectionCore] | None = None,
        room: BodyRoom | None = None,
    ) -> None:
        """``reopen``: makes another connection to the same place, also in another process, where it travels as a
        pickle; None: there is no way there but this one. ``room``: what the large bodies of its consumers wait for."""
        self.directory = directory
        self.attributes = attributes
        self._client = ClientIdentity(client_id, reopen)
        self.io = io
        self.clock = SystemClock()
        self.message_bytes_max = message_bytes_max(attributes["imq.message.max_size"])
        check_flow_rates(attributes)
        self.started = False
        self.kept = KeptToTheEnd()
        self.events = Events(io)
        self.tasks = tasks = Tasks(attributes)
        self._start_warning = StartWarning(io, lambda: tasks.closed)
        connect_s = attributes["raybroker.connect.timeout_ms"] / 1000
        self.channels = Channels(
            directory,
            attributes,
            self.tasks,
            open_to=lambda place: Channel.open(place, self._hello(), connect_s, self, room),
            unanswered=self._unanswered,
            post=io.post,
            sockets=self._direct_sockets(),
        )
        self.channels.ended.listeners.append(self._leave_hosts)
        self.brokers = ClusterView(directory, self.tasks, self.channels.all)
        self.attachments = EndpointAttachments(
            directory,
            self.channels,
            self.brokers,
            self.tasks,
            self.events,
            self.kept.temporaries,
            reconnects=attributes["imqReconnectEnabled"],
        )
        self.handles = OpenHandles(ConsumerWatches(io.post, tasks, self.attachments))
        io.join(self, resident=not attributes["raybroker.client.direct"])

    def _direct_sockets(self) -> DirectSockets | None:
        """Return where threads that wait find its links; None: the IO thread serves them, and those of all others
        too."""
        sockets = self.io.serve_directly() if self.attributes["raybroker.client.direct"] else None
        if sockets is not None:
            most_ns = spin_ns(self.attributes["raybroker.client.spin"], processors())
            sockets.spin_for(most_ns, self.clock.monotonic_ns)
        return sockets

    @property
    def closed(self) -> bool:
        return self.tasks.closed

    @property
    def collocated(self) -> bool:
        """The broker is in this process."""
        return self.directory.collocated

    @property
    def client_id(self) -> str | None:
        """The client's identity over restarts."""
        return self._client.client_id

    @property
    def reopen(self) -> Callable[[], ConnectionCore] | None:
        """Makes another connection to the same place; see :class:`ClientIdentity`."""
        return self._client.reopen

    @property
    def identity(self) -> str:
        """Names this connection to every host, so that they know which channels are one client's."""
        return self._client.connection

    def set_client_id(self, client_id: str) -> None:
        """Name the client; raises IllegalStateError once the connection has been used, or has one, or where that is the
        administrator's business alone. The id is its own from its start on."""
        check_may_choose(self.attributes)
        if self._client.used or self.started:
            raise IllegalStateError("the client id is set before the connection is started or has a session")
        self._client.choose(client_id)

    def require_open(self) -> None:
        """Raises IllegalStateError when it is closed, or belongs to another process, and why it was ended."""
        if self.io.unusable:
            self.io.require_usable()
        if self.tasks.closed:
            raise IllegalStateError("the connection is closed")
        self.channels.ended.require_going_on()

    def disown(self) -> None:
        """This is a forked child: calls that wait for messages fail, as all other calls do."""
        self.tasks.closed = True
        for buffer in list(self.handles.buffers):
            buffer.closed = True

    def warn_unless_started(self) -> None:
        """Warn, once, in any thread, when messages are waited for on a connection that was never started."""
        self._start_warning.wait()

    def begin_session(self) -> None:
        """There is a session: the client id is fixed from now on."""
        self._client.used = True

    # ---- links -------------------------------------------------------------------------------------------------------

    def _hello(self) -> dict[str, Any]:
        return {
            "client_id": self.client_id,
            "started": self.started,
            "flow_count": self.channels.flow.meter_max,
            "connection": self.identity,
            "now_ms": self.clock.now_ms(),
            "pid": os.getpid(),
            "platform": PLATFORM,
            **({"unrestricted": True} if self.attributes["ClientIdPolicy"] == "Unrestricted" else {}),
        }

    def channel_closing(self, channel: Channel) -> None:
        self.events.emit(CLOSING, channel.place.key, channel.why())
        if isinstance(channel.reason, SecurityError):
            self.channels.ended.by(channel.reason)

    def _leave_hosts(self, error: BrokerError) -> None:
        """It was ended for good: handles end as they lose their links."""
        for channel in self.channels.open():
            channel.give_up(error)

    def channel_lost(self, channel: Channel) -> None:
        if not self.closed:
            self.attachments.link_lost(channel.place.key)
            self.brokers.link_lost(channel.place.broker)
            self.events.emit(CLOSED, channel.place.key, channel.why())

    def _unanswered(self, channel: Channel, error: BrokerError) -> None:
        self.events.emit(UNANSWERED, channel.place.key, error)

    # ---- the IO loop -------------------------------------------------------------------------------------------------

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """One verb of administration."""
        self.require_open()
        return await self.directory.admin(verb, args)

    async def watch_consumers(self, destination: Destination, handler: Handler | None) -> None:
        """See :meth:`ConsumerWatches.watch`."""
        self.require_open()
        await self.handles.watches.watch(destination, handler)

    async def identify(self) -> None:
        """Have the client id, if there is one; raises InvalidClientIDError while another connection has it."""
        if self.client_id is None or self._client.identified or self.attributes["ClientIdPolicy"] == "Unrestricted":
            return
        presence = Presence(self.directory, self.channels, self.client_id, self.identity)
        await presence.claim_client_id()
        self._client.identified = True
        self.tasks.keep("client id", presence.keep)

    async def start(self) -> None:
        """Let messages in."""
        self.require_open()
        await self.identify()
        self.started = True
        self._start_warning.was_started = True
        await self.channels.call("start")
        for consumer in list(self.handles.consumers):
            consumer.started()

    async def stop(self) -> None:
        """No more messages until start(); what is buffered stays where it is."""
        self.require_open()
        self.started = False
        await self.channels.call("stop")

    async def close(self) -> None:
        """End everything; what was consumed in "client" sessions and not acknowledged comes again elsewhere."""
        if self.closed:
            return
        for work in self.kept.at_close:
            with contextlib.suppress(BrokerError):
                await work()
        self.tasks.cancel_all()
        self.handles.shut(IllegalStateError("the connection is closed"))
        self.channels.close()
        try:
            await self.directory.close()
        finally:
            await self.io.left(self)


def identified(core: ConnectionCore) -> ConnectionCore:
    """A new connection that has its client id; raises InvalidClientIDError, and closes it, when another one has that.

    Not on the IO loop.
    """
    try:
        core.io.run(core.identify())
    except BaseException:
        core.io.run(core.close())
        raise
    return core
