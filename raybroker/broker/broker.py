"""A broker: which destinations there are, on which host each lives, and every administrative verb.

A broker holds no messages and no durable state of its own but the list of its hosts and its templates; what a host
serves is asked of the host, so there are never two truths.  Hosts are reached through the ``HostPort`` protocol: remote
actors in a cluster, an object of the process in the loopback.  The verbs are beside this file: destinations,
subscriptions, transactions, messages, templates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.admin.verbs import VERBS, implementations
from raybroker.broker.broker_metrics import Measuring
from raybroker.broker.broker_properties import Keep, Properties, keep_nothing
from raybroker.broker.destination_registry import TRAITS, Key, Registry
from raybroker.broker.destinations import DMQ, Destinations
from raybroker.broker.message_administration import Messages
from raybroker.broker.metrics_topics import Publishing
from raybroker.broker.schedules import Schedules
from raybroker.broker.subscriptions import Subscriptions
from raybroker.broker.templates import Save, Saved, Templates
from raybroker.broker.templates import keep_nothing as keep_no_templates
from raybroker.broker.transactions import Transactions
from raybroker.config.live import live
from raybroker.hosting.host_port import DropHost, HostPort, MakeHost, Row
from raybroker.metrics.messages import check_topic
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError, InvalidDestinationError
from raybroker.model.names import (
    check_destination_name,
    check_destination_type,
    is_metrics_topic,
    is_reserved_name,
    temporary_name,
)
from raybroker.model.settings import ConfigView, auto_created, dead_message_queue
from raybroker.model.sizes import UNLIMITED
from raybroker.system import entropy
from raybroker.system.clock import SystemClock

__all__ = ["Broker", "HostPort", "MakeHost", "DropHost"]

_UNIQUE_BYTES: Final = 12

log = logging.getLogger("raybroker.broker")


class Broker:
    """``make_host(hosting)`` starts a host of that kind; ``drop_host`` ends one that serves nothing any more;
    ``save_templates`` makes templates durable, ``templates`` are those that were; ``name`` of the broker;
    ``save_properties`` makes changed properties durable, which a LiveConfig as ``config`` brings with it."""

    def __init__(
        self,
        config: ConfigView,
        *,
        make_host: MakeHost,
        drop_host: DropHost,
        name: str = "loopback",
        templates: Saved | None = None,
        save_templates: Save = keep_no_templates,
        save_properties: Keep = keep_nothing,
    ) -> None:
        changing = live(config)
        self.config: ConfigView = changing
        self.name = name
        self._make_host = make_host
        self._drop_host = drop_host
        self.registry = Registry(name)
        self.subscriptions = Subscriptions(self.registry)
        self.schedules = Schedules(self.registry)
        self.transactions = Transactions(self.registry)
        self.messages = Messages(self.registry)
        self.templates = Templates(self.registry, templates, save_templates)
        self.properties = Properties(changing, self.registry, save_properties, broker=name)
        self.destinations = Destinations(self)
        self.measuring = Measuring(changing, self.registry, SystemClock(), broker=name)
        self.publishing = Publishing(changing, self.registry, self.measuring, SystemClock())
        self.recorded_pauses: Callable[[Key], Mapping[str, int]] = lambda key: {}
        """What of a destination is paused, until when, as the configuration change record has it."""
        self._changing: dict[Key, asyncio.Lock] = {}
        self._begun: dict[Key, HostPort] = {}
        """Where a destination may be whose creation was not answered; it is created there or nowhere."""
        self._pool = asyncio.Lock()
        self._verbs = implementations(
            self, self.destinations, self.subscriptions, self.schedules, self.transactions, self.messages,
            self.templates, self.properties, self.measuring,
        )  # fmt: skip

    @property
    def unasked(self) -> dict[str, str]:
        """Hosts (name → hosting) that could not be asked yet what they serve."""
        return self.registry.unasked

    @unasked.setter
    def unasked(self, hosts: dict[str, str]) -> None:
        self.registry.unasked = hosts

    # ---- hosts

    async def adopt(self, host: HostPort) -> None:
        """A host that exists already, after a restart of the broker: ask it what it serves."""
        rows = await host.destinations()
        if not rows and host.hosting == "dedicated":
            await self._drop_host(host)
            return
        if any(row["type"] == "topic" for row in rows):
            await self.subscriptions.adopt(host)
        await self._take(host, new=False)
        for row in rows:
            key = (check_destination_type(row["type"]), row["name"])
            owner = "" if row["temporary"] else None
            self.registry.put(key, host, auto=row["auto_created"], owner=owner, attributes=row["traits"])

    async def _take(self, host: HostPort, *, new: bool = True) -> None:
        self.registry.hosts.append(host)
        await self.properties.greet(host, new=new)

    async def ready(self) -> None:
        """Make mq.sys.dmq if it is surely missing."""
        if DMQ not in self.registry.where and not self.unasked:
            await self.create(DMQ, dead_message_queue().as_dict("queue"))

    def forget(self, type: str, name: str) -> None:
        """A host has removed an unused auto-created destination, or a temporary one."""
        key = (check_destination_type(type), name)
        if key in self.registry.where and key not in self.registry.owners:
            log.info("[B1132] %s %s was destroyed: nobody had used it for imq.autocreate.reaptime", *key)
        self._gone(key)

    def _gone(self, key: Key) -> None:
        self.registry.drop(key)
        if key[0] == "topic":
            self.subscriptions.forget_topic(key[1])

    async def create(self, key: Key, attributes: Row, *, automatic: bool = False, owner: str | None = None) -> HostPort:
        """Create a destination on the host where it is, or on one for it; ``owner``: of a temporary one."""
        async with self._changing.setdefault(key, asyncio.Lock()):
            host = self.registry.where.get(key) or self._begun.get(key)
            if host is None:
                host = self._begun[key] = await self._host_for(str(attributes["hosting"]))
            try:
                await host.create(*key, attributes, automatic, owner)
            except BrokerError as error:
                if error.definite and self._begun.pop(key, None) is not None and host.hosting == "dedicated":
                    self.registry.remove_host(host)
                    await self._drop_host(host)
                raise
            if key not in self.registry.where:
                for which, until_ms in self.recorded_pauses(key).items():
                    await host.pause(*key, which, until_ms)
            self._begun.pop(key, None)
            if key not in self.registry.where and owner is None:
                how = "automatically" if automatic or is_reserved_name(key[1]) else "by an administrator"
                log.info("[B1131] %s %s was created %s, on host %s (%s)", *key, how, host.key, host.hosting)
            self.registry.put(key, host, auto=automatic, owner=owner, attributes=attributes)
            return host

    async def create_many(self, rows: list[Row]) -> None:
        """Create new destinations in a shared host; raises a BrokerError that names those that failed."""
        host = await self._host_for("shared")
        keys = [(check_destination_type(row["type"]), str(row["name"])) for row in rows]
        self._begun.update(dict.fromkeys(keys, host))
        failed = await host.create_many(rows)
        named = {line.partition(":")[0] for line in failed}
        for key, row in zip(keys, rows, strict=True):
            del self._begun[key]
            if " ".join(key) not in named:
                self.registry.put(key, host, attributes=row["attributes"])
        log.info("[B1131] %d destinations were created on host %s (shared)", len(keys) - len(failed), host.key)
        if failed:
            raise BrokerError(f"{len(failed)} destinations could not be created: {'; '.join(failed[:5])}")

    def maybe_there(self, key: Key) -> bool:
        """It exists, or its creation was begun."""
        return key in self.registry.where or key in self._begun

    async def update(self, key: Key, host: HostPort, changes: Row) -> None:
        """Change attributes; raises what the host raises."""
        await host.update(*key, changes)
        log.info("[B1133] %s %s was changed: %s", *key, ", ".join(f"{name}={value}" for name, value in changes.items()))
        for name in TRAITS:
            if name in changes:
                self.registry.traits.setdefault(key, {})[name] = changes[name]

    async def destroy(self, key: Key, host: HostPort) -> None:
        """Remove a destination; a dedicated host ends with it. Raises what the host raises."""
        async with self._changing.setdefault(key, asyncio.Lock()):
            try:
                await host.destroy(*key)
            except InvalidDestinationError as error:
                log.info("%s: it was destroyed before, and its host could not say so", error)
            if key not in self.registry.owners:
                log.info("[B1132] %s %s was destroyed, with its messages", *key)
            self._gone(key)
            if host.hosting == "dedicated":
                self.registry.remove_host(host)
                await self._drop_host(host)
        self._changing.pop(key, None)

    async def _host_for(self, hosting: str) -> HostPort:
        """A host of its own, or the least busy one of the shared pool."""
        if hosting == "dedicated":
            host = await self._make_host(hosting)
            await self._take(host)
            return host
        async with self._pool:
            shared = [h for h in self.registry.hosts if h.hosting == "shared"]
            if len(shared) < self.config["raybroker.hosting.shared.hosts"]:
                host = await self._make_host(hosting)
                await self._take(host)
                return host
        served = list(self.registry.where.values())
        return min(shared, key=served.count)

    # ---- what clients ask

    async def locate(self, type: str, name: str, create: bool) -> HostPort:
        """The host of a destination; creates it if asked and allowed. Raises InvalidDestinationError."""
        kind = check_destination_type(type)
        check_destination_name(name, allow_reserved=True)
        key = (kind, name)
        host = self.registry.where.get(key)
        if host is not None and (key not in self.registry.auto or not create):
            return host
        if host is None:
            self.registry.require_all_asked(f"{kind} {name!r}")
            if kind == "topic" and is_metrics_topic(name) and create:
                check_topic(name, enabled=self.config["imq.metrics.topic.enabled"])
                attributes = {**auto_created(self.config, kind).as_dict(kind), "maxBytesPerMsg": -1}
                return await self.create(key, attributes, automatic=True)
            if is_reserved_name(name):
                raise InvalidDestinationError(f"{kind} {name!r} does not exist (any more); nobody can create it")
            if not create:
                raise InvalidDestinationError(f"{kind} {name!r} does not exist; create it first")
            if not self.config[f"imq.autocreate.{kind}"]:
                raise InvalidDestinationError(
                    f"{kind} {name!r} does not exist and imq.autocreate.{kind} is false; create it with:"
                    f" raybroker create dst -t {kind[0]} -n {name}"
                )
        return await self.create(key, auto_created(self.config, kind).as_dict(kind), automatic=True)

    async def create_temporary(self, type: str, owner: str) -> str:
        """A new destination that lives as long as the client connection ``owner``; its name.

        It has the attributes of an auto-created one, without a limit on producers, since whoever is asked answers
        there, and lives on a shared host.
        """
        kind = check_destination_type(type)
        if not owner:
            raise ConfigError("owner: a temporary destination needs the id of the connection that it belongs to")
        name = temporary_name(kind, self.name, entropy.token(_UNIQUE_BYTES).hex())
        attributes = {**auto_created(self.config, kind).as_dict(kind), "hosting": "shared"}
        attributes["maxNumProducers"] = UNLIMITED
        await self.create((kind, name), attributes, owner=owner)
        return name

    async def destroy_temporary(self, type: str, name: str, owner: str) -> None:
        """What its connection does; raises IllegalStateError for others, and while it has consumers."""
        kind = check_destination_type(type)
        key, host = (kind, name), self.registry.host_of(kind, name)
        known = self.registry.owners.get(key)
        if known is None or known not in ("", owner):
            raise IllegalStateError(f"{key[0]} {name!r} is not a temporary destination of this connection")
        row = await host.query(*key)
        if row.get("active_consumers") or row.get("backup_consumers"):
            raise IllegalStateError(f"{key[0]} {name!r} has consumers; close them first")
        await self.destroy(key, host)

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
        """Before a client opens a subscription: creates the topic as :meth:`locate`, then see Subscriptions."""
        await self.locate("topic", topic, True)
        await self.subscriptions.subscribe(topic, client_id, name, durable, shared, selector, no_local)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        """See Subscriptions."""
        await self.subscriptions.unsubscribe(client_id, name)

    async def matching(self, pattern: str) -> tuple[int, list[str]]:
        """The version of the list of topics and the names in it that match."""
        return self.registry.matching(pattern)

    async def changed(self, version: int, timeout_s: float) -> int:
        """The version, as soon as it is not ``version`` or the time is over; a bounded wait."""
        return await self.registry.changed(version, timeout_s)

    async def resolve(self) -> int:
        """One sweep over what dead clients left open; see Transactions."""
        return await self.transactions.resolve()

    async def forward(self, type: str, name: str, block: bytes) -> None:
        """Put what a host has for a destination of another host there, such as dead messages.

        Raises what the other host raises, InvalidDestinationError when there is no such destination. The same block may
        be offered again: a host recognises what it has.
        """
        await self.registry.host_of(type, name).import_messages(type, name, [block])

    # ---- administration

    async def admin(self, verb: str, args: Row) -> Any:
        """One verb by name; raises ConfigError for an unknown one, and whatever the verb raises."""
        declared, handler = VERBS.get(verb), self._verbs.get(verb)
        if declared is None or (handler is None and not declared.host):
            raise ConfigError(f"unknown verb {verb!r}; known are {', '.join(self._verbs)}")
        declared.check(args)
        if handler is not None:
            return await handler(**args)
        kind, name, *more = declared.filled(args).values()
        return await getattr(self.registry.host_of(kind, name), verb)(check_destination_type(kind), name, *more)

    async def query_broker(self) -> Row:
        """The broker's hosts and what they hold."""
        hosts = []
        for host in list(self.registry.hosts):
            try:
                hosts.append({"host": host.key, "hosting": host.hosting, **await host.state()})
            except BrokerError as error:
                hosts.append({"host": host.key, "hosting": host.hosting, "failure": str(error)})
        return {"destinations": len(self.registry.where), "changed": self.properties.row(), "hosts": hosts}
