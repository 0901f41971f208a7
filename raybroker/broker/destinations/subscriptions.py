"""Durable subscriptions of all topics: one identity, client id and name, is one subscription.

The hosts keep them; here is only which topic an identity was last used with, so that using it with another topic ends
the old subscription, and so that it can be ended by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakValueDictionary

from raybroker.broker import host_listing
from raybroker.broker.destinations.destination_registry import Registry
from raybroker.core.selector import normalised
from raybroker.core.subscription import shared_otherwise
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model import refusals
from raybroker.model.errors import IllegalStateError, InvalidDestinationError
from raybroker.model.listing import Listing
from raybroker.model.refusals import refuse

Identity = tuple[str, str]
"""Client id, "" for none, and name."""

NAME_CHARS_MAX: Final = 255


class Subscriptions:
    """The subscriptions of one broker's topics."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._topics: dict[Identity, set[str]] = {}
        """Several topics only while clients that use one identity at a time have not opened their subscriptions yet."""
        self._changing: WeakValueDictionary[Identity, asyncio.Lock] = WeakValueDictionary()

    async def adopt(self, host: HostPort) -> None:
        """Remember what a host keeps."""
        for row in await host.subscriptions.subscription_rows(None):
            if row["durable"]:
                self._topics.setdefault(_identity(row), set()).add(row["topic"])

    def is_known(self, client_id: str | None, name: str) -> bool:
        """Whether a durable subscription may be on a host that was asked."""
        return (client_id or "", name) in self._topics

    def forget_topic(self, topic: str) -> None:
        """A topic is gone, and its subscriptions with it."""
        for identity, topics in list(self._topics.items()):
            topics.discard(topic)
            if not topics:
                del self._topics[identity]

    # ---- what clients ask

    async def subscribe(
        self,
        topic: str,
        client_id: str | None,
        name: str,
        durable: bool = True,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
    ) -> None:
        """A client is about to open a subscription: what of that identity is in the way and unused goes.

        A durable subscription with another topic, selector or noLocal is ended if nobody uses it; a shared one
        and an unshared one of the same name exclude each other.
        Subscriptions that are not durable have nothing to keep and no identity beyond their topic.
        Raises IllegalStateError when the identity is in use otherwise, InvalidDestinationError for an unknown topic.
        """
        self._registry.host_of("topic", topic)
        identity = _checked(client_id, name)
        if not durable:
            return
        async with self._changing.setdefault(identity, asyncio.Lock()):
            wanted = {"topic": topic, "shared": shared, "selector": normalised(selector), "no_local": no_local}
            for row in await self._rows(identity):
                differs = [key for key, value in wanted.items() if (row[key] or None) != (value or None)]
                if not differs:
                    continue
                if row["shared"] != shared:
                    raise shared_otherwise(name, shared=row["shared"])
                if row["active"]:
                    raise IllegalStateError(
                        f"subscription {name!r} is in use with another {differs[0].replace('_', '-')}"
                        f" ({row[differs[0]]}); close its consumers first, or choose another name"
                    )
                await self._destroy(row)
            self._topics.setdefault(identity, set()).add(topic)

    async def install(
        self, topic: str, client_id: str, name: str, shared: bool, selector: str | None, no_local: bool
    ) -> None:
        """Make a durable subscription here, in place of another one of that identity."""
        await self.subscribe(topic, client_id, name, True, shared, selector, no_local)
        host = self._registry.host_of("topic", topic)
        await host.subscriptions.subscribe(topic, client_id, name, shared, selector, no_local)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        """End a subscription of the client with its messages.

        Raises IllegalStateError while it has consumers, InvalidDestinationError when there is none.
        """
        await self.destroy_subscription(name, client_id)

    # ---- administration

    async def list_subscriptions(self, topic: str | None = None) -> Listing:
        """One row a subscription, of one topic or of all."""
        if topic is not None:
            return Listing(_sorted(await self._registry.host_of("topic", topic).subscriptions.subscription_rows(topic)))
        found, missing = await host_listing.each_host(
            self._registry, lambda host: host.subscriptions.subscription_rows(None)
        )
        return Listing(_sorted([row for _, row in found]), missing)

    async def destroy_subscription(self, name: str, client_id: str | None = None, topic: str | None = None) -> None:
        """End a durable subscription with its messages; raises as :meth:`unsubscribe`."""
        identity = _checked(client_id, name)
        async with self._changing.setdefault(identity, asyncio.Lock()):
            rows = await self._found(identity, topic)
            for row in rows:
                refuse(refusals.of_ending_subscription(name, row["topic"], active=row["active"]))
            for row in rows:
                await self._destroy(row)
            if topic is None:
                self._topics.pop(identity, None)

    async def purge_subscription(self, name: str, client_id: str | None = None, topic: str | None = None) -> None:
        """Discard the messages that wait for a durable subscription."""
        for row in await self._found(_checked(client_id, name), topic):
            host = self._registry.host_of("topic", row["topic"])
            await host.subscriptions.purge(row["topic"], row["client_id"] or "", row["name"])

    async def _destroy(self, row: Row) -> None:
        host = self._registry.host_of("topic", row["topic"])
        await host.subscriptions.unsubscribe(row["topic"], row["client_id"] or "", row["name"])
        topics = self._topics.get(_identity(row))
        if topics is not None:
            topics.discard(row["topic"])
            if not topics:
                del self._topics[_identity(row)]

    async def _found(self, identity: Identity, topic: str | None) -> list[Row]:
        rows = await self._rows(identity)
        if not rows:
            self._registry.require_all_asked(f"subscription {identity[1]!r}")
            everything = await self.list_subscriptions()
            rows = [row for row in everything if row["durable"] and _identity(row) == identity]
            if not rows:
                host_listing.require_whole(everything, f"subscription {identity[1]!r}")
        rows = [row for row in rows if topic in (None, row["topic"])]
        if not rows:
            raise InvalidDestinationError(refusals.of_not_durable(identity[1], identity[0], topic))
        return rows

    async def _rows(self, identity: Identity) -> list[Row]:
        """The subscriptions of an identity, where it is known to have been used."""
        found = []
        for topic in sorted(self._topics.get(identity, ())):
            host = self._registry.where.get(("topic", topic))
            if host is not None:
                rows = await host.subscriptions.subscription_rows(topic)
                found += [row for row in rows if row["durable"] and _identity(row) == identity]
        return found


def new_identity(known: Iterable[Identity], name: str, client_id: str | None) -> Identity:
    """Return the identity of a durable subscription; raises InvalidDestinationError for a bad name and one that
    exists."""
    identity = _checked(client_id, name)
    if identity in known:
        whose = f" of client {client_id!r}" if client_id else ""
        raise InvalidDestinationError(f"durable subscription {name!r}{whose} exists already; destroy it first")
    return identity


def _identity(row: Row) -> Identity:
    return (row["client_id"] or "", row["name"])


def _checked(client_id: str | None, name: Any) -> Identity:
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise InvalidDestinationError(
            f"subscription name {str(name)[:80]!r} is not allowed: it is 1 to {NAME_CHARS_MAX} printable characters"
        )
    return (client_id or "", name)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["topic"], row["client_id"] or "", row["name"] or ""))
