"""Attachments: endpoints are attached to the hosts that serve their destinations, and again after a channel was lost.

An endpoint that cannot be brought back within the reconnect time fails with ConnectionLostError, which says how long
was tried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from raybroker.client.cluster.cluster_view import GONE_S, ClusterView
from raybroker.client.cluster.directory import Directory
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.channels import Channels
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.connection.events import Events, Outage
from raybroker.client.destinations import Destination
from raybroker.client.io.tasks import Tasks
from raybroker.model.errors import BrokerError, BrokerGoneError, ConnectionLostError, IllegalStateError
from raybroker.model.naming.names import home_of_temporary
from raybroker.transport.loops import sleep_waited_for

RECOVER_APART_S: Final = 0.2
"""Shortest time between two reattachments of a handle, so that a connection that dies at once is not made in a loop."""

log = logging.getLogger("raybroker.client")


class Failing(Protocol):
    """An endpoint, or a handle of several endpoints, that an error may end."""

    name: str
    reports_failure: bool

    def fail(self, error: BrokerError, /) -> None: ...


class EndpointAttachments:
    """The attachments of endpoints, on the IO loop. ``temporaries``: the temporary destinations of the connection;
    ``reconnects``: whether an endpoint whose channel is lost is brought back."""

    def __init__(
        self,
        directory: Directory,
        channels: Channels,
        brokers: ClusterView,
        tasks: Tasks,
        events: Events,
        temporaries: Collection[Destination],
        *,
        reconnects: bool,
    ) -> None:
        self.reconnects = reconnects
        self._directory = directory
        self._channels = channels
        self._brokers = brokers
        self._tasks = tasks
        self._events = events
        self._temporaries = temporaries
        self._outage = Outage(events, "")
        """That of the link that was lost last: its handles come back because of it."""
        self._attaching: set[Endpoint] = set()

    def link_lost(self, address: str) -> None:
        """Note that the link to a host is lost; the endpoints that were attached there ask to be reattached."""
        self._outage = Outage(self._events, address)

    async def attach(
        self, endpoint: Endpoint, *, create: bool, failed: Callable[[BrokerError], None] | None = None
    ) -> Channel:
        """Find the endpoint's destination and open it there, again and again until the reconnect time is over.

        Returns where. Raises what the broker answers, or the last retryable error.
        """

        def still_wanted() -> None:
            if endpoint.has_ended():  # Another one may be there in its place: it must not be attached any more.
                raise IllegalStateError(f"the handle of {endpoint.name} is closed")

        async def once() -> Channel:
            still_wanted()
            self._channels.ended.require_going_on()
            kind, name = endpoint.destination.kind, endpoint.destination.name
            place = await self._directory.locate(kind, name, create, endpoint.broker)
            endpoint.traits = place.traits
            channel = await self._channels.to(place)
            still_wanted()
            await endpoint.attach(channel)
            if not endpoint.attached:
                raise ConnectionLostError("the connection was lost again")
            return channel

        def failed_once(error: BrokerError) -> None:
            if failed is not None:
                failed(error)
            self._require_hope(endpoint)

        self._attaching.add(endpoint)
        try:
            return await self._tasks.with_retry(endpoint.name, once, failed_once)
        finally:
            self._attaching.discard(endpoint)

    def _require_hope(self, endpoint: Endpoint) -> None:
        """Raises BrokerGoneError when the one broker that has an endpoint's place is not waited for any more: somebody
        else's temporary destination goes with its broker, and a unit of order has no other."""
        if self._brokers.alone:
            return
        broker = home_of_temporary(endpoint.name)
        if broker and endpoint.destination not in self._temporaries:
            if self._brokers.gone(broker):
                raise BrokerGoneError(f"{endpoint.name} is temporary, and its broker {broker} is down")
            return
        only = endpoint.broker if endpoint.bound else None
        if only and self._brokers.gone(only, GONE_S):
            raise BrokerGoneError(f"broker {only} is down")

    def recover(self, endpoint: Endpoint) -> None:
        """The endpoint's channel is lost: attach it again, or end it."""
        if self._tasks.closed or endpoint in self._attaching:
            return  # Whoever attaches it notices the loss and tries again; twice attached, it would keep messages.
        self._tasks.spawn(self._recover(endpoint, self._outage))

    async def _recover(self, endpoint: Endpoint, outage: Outage) -> None:
        loop = asyncio.get_running_loop()
        early_s = endpoint.recovered_at + RECOVER_APART_S - loop.time()
        if early_s > 0:
            await sleep_waited_for(early_s)
        if endpoint.has_ended():
            outage.left(endpoint)
            return
        endpoint.recovered_at = loop.time()
        try:
            if not self.reconnects:
                raise ConnectionLostError(f"the connection of {endpoint.name} was lost; imqReconnectEnabled is false")
            channel = await self.attach(endpoint, create=False, failed=lambda error: outage.failed(endpoint, error))
            outage.over(endpoint, channel.place.key)
            if endpoint.has_ended():
                await endpoint.close()
        except BrokerError as error:
            outage.left(endpoint)
            if not endpoint.has_ended():
                self.end_handle(endpoint, error)

    def end_handle(self, handle: Failing, error: BrokerError) -> None:
        """End a handle: whoever waits for it gets the error, and so does the exception handler of the application."""
        reports = handle.reports_failure
        handle.fail(error)
        if reports:
            self._events.failed(error)

    def broke(self, endpoint: Endpoint, error: Exception) -> None:
        """End a handle after an unexpected error, so that no caller waits for it."""
        log.error("the handle of %s ends: %r", endpoint.name, error, exc_info=error)
        self.end_handle(endpoint, BrokerError(f"the handle of {endpoint.name} has failed and is closed: {error!r}"))
