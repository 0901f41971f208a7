"""Placement of destinations on the hosts of a broker: creates, changes and removes destinations and hosts.

What a host serves is asked of the host when the broker starts, so there are never two truths.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from raybroker.broker.destinations.destination_registry import DMQ, TRAITS, Key, Registry
from raybroker.broker.destinations.subscriptions import Subscriptions
from raybroker.hosting.host_port import DropHost, HostPort, MakeHost, Row
from raybroker.model.definitions.pauses import WORK, starting
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.model.naming.names import check_destination_type, is_reserved_name
from raybroker.model.settings.setting_table import IN_BROKER
from raybroker.model.settings.settings import ConfigView, changeable, dead_message_queue

log = logging.getLogger("raybroker.broker")


class OfRecord(NamedTuple):
    """What the configuration change record says of a destination.

    pauses  what of it is paused, and until when
    copied  whether its log has copies at several brokers, so that it is served where that is led
    """

    pauses: Callable[[Key], Mapping[str, int]]
    copied: Callable[[Key], bool] = lambda key: False


class Placement:
    """``make_host(hosting)`` starts a host of that kind; ``drop_host`` ends one that serves nothing any more;
    ``greet(host, new)`` tells a host what is changed of the configuration, and which quotas there are;
    ``quota_known(host, attributes)`` raises when it does not know the quota of these attributes."""

    def __init__(
        self,
        config: ConfigView,
        registry: Registry,
        subscriptions: Subscriptions,
        make_host: MakeHost,
        drop_host: DropHost,
        greet: Callable[[HostPort, bool], Awaitable[None]],
        quota_known: Callable[[HostPort, Row], Awaitable[None]],
        recorded: OfRecord,
    ) -> None:
        self._config = config
        self._registry = registry
        self._subscriptions = subscriptions
        self._make_host = make_host
        self._drop_host = drop_host
        self._greet = greet
        self._quota_known = quota_known
        self._recorded_pauses = recorded.pauses
        self.is_copied = recorded.copied
        self._changing: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        """Of destinations that are being made or removed: a lock is there as long as somebody has or awaits it."""
        self._begun: dict[Key, HostPort] = {}
        """Where a destination may be whose creation was not answered; it is created there or nowhere."""
        self._pool = asyncio.Lock()

    async def adopt(self, host: HostPort) -> None:
        """A host that exists already, after a restart of the broker: ask it what it serves."""
        rows = await host.destinations.destination_rows()
        if not rows and host.hosting == "dedicated":
            await self._drop_host(host)
            return
        if any(row["type"] == "topic" for row in rows):
            await self._subscriptions.adopt(host)
        await self._register_host(host, new=False)
        for row in rows:
            key = (check_destination_type(row["type"]), row["name"])
            owner = "" if row["temporary"] else None
            self._registry.put(key, host, auto=row["auto_created"], owner=owner, attributes=row["traits"])

    async def _register_host(self, host: HostPort, *, new: bool = True) -> None:
        if host not in self._registry.hosts:  # A loopback has one host, whatever kind is asked for.
            self._registry.hosts.append(host)
        await self._greet(host, new)

    async def serve_led(
        self, key: Key, host: HostPort, attributes: Row, pauses: Mapping[str, int], *, opened: bool = True
    ) -> None:
        """The log of a host is led here: its destination is served, with the attributes and pauses that the record
        says, whatever the last leader knew of them.  Until it is ``opened`` it is there, and clients do not find it."""
        rows = await host.destinations.destination_rows()
        row = next((row for row in rows if (row["type"], row["name"]) == key), None)
        await self._register_host(host, new=False)
        await self._quota_known(host, attributes)
        if row is None:
            await host.destinations.create(*key, attributes, False, None)
        elif changes := {
            name: value for name, value in attributes.items() if row["traits"].get(name) != value and changeable(name)
        }:
            await host.destinations.update(*key, changes)
        for which, until_ms in pauses.items():
            await host.destinations.pause(*key, which, until_ms)
        if opened:
            self._registry.put(key, host, attributes=attributes)

    async def member(self, key: Key, log: str) -> HostPort | None:
        """Return the host of a destination that is not the one of its log; None where there is none. Raises
        ConnectionLostError while that is not sure."""
        for host in list(self._registry.hosts):
            if host.key != log:
                rows = await host.destinations.destination_rows()
                if any((row["type"], row["name"]) == key for row in rows):
                    return host
        self._registry.require_all_asked(f"{key[0]} {key[1]!r}")
        return None

    async def end_member(self, key: Key, host: HostPort) -> None:
        """End a destination that has moved elsewhere, and its host; raises IllegalStateError while it has anything."""
        try:
            await host.destinations.destroy(*key, True)
        except InvalidDestinationError as error:
            log.info("%s: it has ended before, and its host could not say so", error)
        if self._registry.where.get(key) is host:
            self._registry.drop(key)
        self._registry.remove_host(host)
        await self._drop_host(host)

    def leave_led(self, key: Key, host: HostPort) -> None:
        """The log of a host is led here no more."""
        if self._registry.where.get(key) is host:
            self._registry.drop(key)
        self._registry.remove_host(host)

    async def ready(self) -> None:
        """Make mq.sys.dmq if it is surely missing."""
        if DMQ not in self._registry.where and not self._registry.unasked:
            await self.create(DMQ, dead_message_queue().as_dict("queue"))

    def forget_destination(self, type: str, name: str) -> None:
        """A host has removed an unused auto-created destination, or a temporary one."""
        key = (check_destination_type(type), name)
        if key in self._registry.where and key not in self._registry.owners:
            log.info("[B1132] %s %s was destroyed: nobody had used it for imq.autocreate.reaptime", *key)
        self._gone(key)

    def _gone(self, key: Key) -> None:
        self._registry.drop(key)
        if key[0] == "topic":
            self._subscriptions.forget_topic(key[1])

    async def create(self, key: Key, attributes: Row, *, automatic: bool = False, owner: str | None = None) -> HostPort:
        """Create a destination on the host where it is, or on one for it; ``owner``: of a temporary one."""
        async with self._changing.setdefault(key, asyncio.Lock()):
            host = self._registry.where.get(key) or self._begun.get(key)
            if host is None:
                host = self._begun[key] = await self._host_for(str(attributes["hosting"]))
            try:
                await self._quota_known(host, attributes)
                await host.destinations.create(*key, attributes, automatic, owner)
            except BrokerError as error:
                if error.definite and self._begun.pop(key, None) is not None and host.hosting == "dedicated":
                    self._registry.remove_host(host)
                    await self._drop_host(host)
                raise
            if key not in self._registry.where:
                for which, until_ms in self._recorded_pauses(key).items():
                    await host.destinations.pause(*key, which, until_ms)
            self._begun.pop(key, None)
            if key not in self._registry.where and owner is None:
                how = "automatically" if automatic or is_reserved_name(key[1]) else "by an administrator"
                log.info("[B1131] %s %s was created %s, on host %s (%s)", *key, how, host.key, host.hosting)
                if automatic and key[0] == "queue" and ("topic", key[1]) in self._registry.where:
                    log.warning(
                        "[B1165] queue %s was created automatically, and there is a topic of that name: a name alone is"
                        " a queue's; whoever means the topic writes topic:%s, or session.topic(%r)",
                        key[1],
                        key[1],
                        key[1],
                    )
            self._registry.put(key, host, auto=automatic, owner=owner, attributes=attributes)
            return host

    async def create_many(self, rows: list[Row]) -> None:
        """Create new destinations in a shared host; raises a BrokerError that names those that failed."""
        host = await self._host_for("shared")
        keys = [(check_destination_type(row["type"]), str(row["name"])) for row in rows]
        for row in rows:
            await self._quota_known(host, row["attributes"])
        self._begun.update(dict.fromkeys(keys, host))
        failed = await host.destinations.create_many(rows)
        named = {line.partition(":")[0] for line in failed}
        for key, row in zip(keys, rows, strict=True):
            del self._begun[key]
            if " ".join(key) not in named:
                self._registry.put(key, host, attributes=row["attributes"])
        log.info("[B1131] %d destinations were created on host %s (shared)", len(keys) - len(failed), host.key)
        if failed:
            raise BrokerError(f"{len(failed)} destinations could not be created: {'; '.join(failed[:5])}")

    async def pause_as_at_start(self, key: Key, attributes: Row) -> None:
        """Stop what a destination stops at each start, because it was made while the broker starts."""
        stopped = starting(lambda name: attributes.get(name, False), self._config.__getitem__)
        for which, work in WORK.items():
            if work in stopped and (host := self._registry.where.get(key)) is not None:
                await host.destinations.pause(*key, which, 0)

    def maybe_there(self, key: Key) -> bool:
        """It exists, or its creation was begun."""
        return key in self._registry.where or key in self._begun

    async def update(self, key: Key, host: HostPort, changes: Row) -> None:
        """Change attributes; raises what the host raises."""
        await self._quota_known(host, changes)
        await host.destinations.update(*key, changes)
        log.info("[B1133] %s %s was changed: %s", *key, ", ".join(f"{name}={value}" for name, value in changes.items()))
        for name in TRAITS:
            if name in changes:
                self._registry.traits.setdefault(key, {})[name] = changes[name]

    async def destroy(self, key: Key, host: HostPort) -> None:
        """Remove a destination; a dedicated host ends with it. Raises what the host raises."""
        async with self._changing.setdefault(key, asyncio.Lock()):
            try:
                await host.destinations.destroy(*key)
            except InvalidDestinationError as error:
                log.info("%s: it was destroyed before, and its host could not say so", error)
            if key not in self._registry.owners:
                log.info("[B1132] %s %s was destroyed, with its messages", *key)
            self._gone(key)
            if host.hosting == "dedicated":
                self._registry.remove_host(host)
                await self._drop_host(host)

    async def _host_for(self, hosting: str) -> HostPort:
        """A host of its own, the one in the broker's process, or the least busy one of the shared pool."""
        if hosting == "dedicated":
            host = await self._make_host(hosting)
            await self._register_host(host)
            return host
        async with self._pool:
            pool = [h for h in self._registry.hosts if h.hosting == hosting]
            if len(pool) < (1 if hosting == IN_BROKER else self._config["raybroker.hosting.shared.hosts"]):
                host = await self._make_host(hosting)
                await self._register_host(host)
                return host
        served = list(self._registry.where.values())
        return min(pool, key=served.count)
