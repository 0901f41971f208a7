"""Administration of destinations: creating, changing, pausing, destroying and querying them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from raybroker.broker import host_listing
from raybroker.broker.definitions.quotas import Quotas
from raybroker.broker.definitions.templates import Templates
from raybroker.broker.destinations.destination_registry import DMQ, Key, Registry
from raybroker.broker.destinations.error_destinations import refuse_circle
from raybroker.broker.destinations.if_exists import create_or
from raybroker.broker.destinations.placement import Placement
from raybroker.broker.observing.memory import Guarded
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model import refusals
from raybroker.model.definitions.pauses import WORK, check_pause
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    RequestTimeoutError,
)
from raybroker.model.listing import Listing
from raybroker.model.naming.names import (
    DestinationType,
    check_destination_name,
    check_destination_type,
    is_reserved_name,
)
from raybroker.model.refusals import refuse
from raybroker.model.settings.settings import (
    ConfigView,
    DestinationAttributes,
    check_attribute_names,
    destination_attributes,
    merged_attributes,
)

if TYPE_CHECKING:
    from raybroker.model.definitions.values import Pause

ORPHANED: Final = "ORPHANED"
"""State of a destination that the configuration change record does not know since an older one was restored."""
_BOUNDING: Final = frozenset({"quota", "messagesHigh", "bytesHigh"})
"""Attributes that have to go together with a quota."""
HOW_TO_ADOPT: Final = (
    "the configuration change record that was restored does not know it; put it into the record with its messages"
    " (raybroker adopt dst), or destroy it"
)


class Destinations:
    """The destinations on the hosts of one broker; ``replication``: what is shown of the copies of a log, in fields of
    the row."""

    def __init__(
        self,
        config: ConfigView,
        registry: Registry,
        placement: Placement,
        templates: Templates,
        quotas: Quotas,
        memory: Guarded,
        replication: Callable[[Key], Row] = lambda key: {},
    ) -> None:
        self._replication = replication
        self._memory = memory
        self._config = config
        self._registry = registry
        self._placement = placement
        self._templates = templates
        self._quotas = quotas
        self._alone = asyncio.Lock()
        """Held from looking where error destinations lead until another one is there."""

    async def create_destination(self, type: str, name: str, attributes: Row, if_exists: str = "error") -> str:
        """Create with attributes; "created", "kept" or "updated".

        ``if_exists``: "error" raises InvalidDestinationError, "keep" leaves it as it is, "update" gives it the
        attributes.
        """
        key = (check_destination_type(type), name)

        async def update() -> None:
            if attributes:
                await self.update_destination(type, name, attributes)

        return await create_or(
            if_exists,
            create=lambda: self._create(type, name, attributes),
            exists=lambda: key in self._registry.where,
            update=update,
        )

    async def _create(self, type: str, name: str, attributes: Row) -> None:
        kind = check_destination_type(type)
        check_destination_name(name)
        if (kind, name) in self._registry.where:
            raise InvalidDestinationError(f"{kind} {name!r} exists already; update or destroy it")
        self._registry.require_all_asked(f"{kind} {name!r}")
        checked = self.checked(kind, name, attributes)
        _refuse_copies((kind, name), checked.replicas)
        async with self._alone:
            await refuse_circle(self._registry.where, (kind, name), checked.errorDestination)
            await self._placement.create((kind, name), checked.as_dict(kind))

    def checked(self, kind: DestinationType, name: str, attributes: Row) -> DestinationAttributes:
        """The attributes of a new destination, with what its template adds. Raises MemoryLowError when there is no
        memory for another one, ConfigError for attributes that cannot be right."""
        self._memory.require(f"{kind} {name!r} cannot be created")
        check_attribute_names(attributes, kind)
        checked = destination_attributes(self._templates.applied(attributes, kind), self._config, kind)
        self._quotas.check(f"{kind} {name!r}", checked.as_dict())
        return checked

    async def destroy_destination(self, type: str, name: str) -> None:
        """Remove a destination with its messages; a dedicated host ends with it.

        Raises IllegalStateError for mq.sys.dmq and for temporary ones, which their connection removes.
        """
        key, host = self._known(type, name)
        refuse(refusals.of_destroying(*key, temporary=key in self._registry.owners))
        await self._placement.destroy(key, host)

    async def adopt_destination(self, type: str, name: str) -> None:
        """Refuse: without a record nothing is orphaned; see ClusterBroker. Raises IllegalStateError."""
        key, _ = self._known(type, name)
        raise IllegalStateError(f"{key[0]} {name!r} is not orphaned")

    async def update_destination(self, type: str, name: str, changes: Row) -> None:
        key, host = self._known(type, name)
        if key in self._registry.orphans:
            raise IllegalStateError(f"{key[0]} {name!r} is orphaned: {HOW_TO_ADOPT}")
        check_attribute_names(changes, key[0])
        _refuse_copies(key, int(str(changes.get("replicas", 1))))
        if key == DMQ:
            destination_attributes(changes, name=name)
        if _BOUNDING & changes.keys():
            before = (await host.destinations.query(*key))["attributes"]
            self._quotas.check(f"{key[0]} {name!r}", merged_attributes(before, changes, key[0], name))
        async with self._alone:
            await refuse_circle(self._registry.where, key, changes.get("errorDestination"))
            await self._placement.update(key, host, changes)

    async def query_destination(self, type: str, name: str) -> Row:
        key, host = self._known(type, name)
        row, effective = await asyncio.gather(host.destinations.query(*key), host.pools.effective(*key))
        return self._shown(key, host, {**row, **effective, **self._replication(key)})

    async def made(self) -> list[tuple[Key, Row]]:
        """Return the destinations that administrators have made, and mq.sys.dmq, with their own attributes; orphans are
        none of them.

        Raises ConnectionLostError when a host cannot be asked.
        """
        registry, found = self._registry, []
        registry.require_all_asked("what there is")
        for host in list(registry.hosts):
            for row in await host.destinations.destination_rows():
                key: Key = (check_destination_type(row["type"]), row["name"])
                passing = row["temporary"] or row["auto_created"] or (is_reserved_name(key[1]) and key != DMQ)
                if registry.where.get(key) is host and not passing and key not in registry.orphans:
                    found.append((key, dict(row["traits"])))
        return found

    async def paused(self) -> list[Pause]:
        """What of destinations is paused until it is resumed. Raises as :meth:`made`."""
        registry, found = self._registry, []
        registry.require_all_asked("what is paused")
        for host in list(registry.hosts):
            for row in await host.destinations.destination_rows():
                key: Key = (check_destination_type(row["type"]), row["name"])
                if registry.where.get(key) is host and not row["temporary"]:
                    found += [(*key, which) for which, work in WORK.items() if row["paused"].get(work) == 0]
        return found

    def _shown(self, key: Key, host: HostPort, row: Row) -> Row:
        return {**row, "host": host.key, **({"state": ORPHANED} if key in self._registry.orphans else {})}

    async def list_destinations(self, type: str | None = None, temporary: bool = False) -> Listing:
        """One row a destination, by name; one that cannot be asked now has state UNKNOWN, and its host is missing.

        ``temporary`` shows the temporary ones as well.
        """
        by_host: dict[HostPort, list[Key]] = {}
        for key in self._registry.keys(None if type is None else check_destination_type(type)):
            if temporary or key not in self._registry.owners:
                by_host.setdefault(self._registry.where[key], []).append(key)
        answers = await asyncio.gather(*(self._rows(host, keys) for host, keys in by_host.items()))
        missing = host_listing.unasked(self._registry)
        for host, (_, failure) in zip(by_host, answers, strict=True):
            if failure:
                missing[host.key] = failure
        rows = [row for found, _ in answers for row in found] + self._away(type)
        return Listing(sorted(rows, key=lambda row: (row["name"], row["type"])), missing)

    def _away(self, type_: str | None) -> list[Row]:
        """The rows of destinations that must be on hosts which do not start."""
        why = host_listing.unasked(self._registry)
        hosts, error = ", ".join(sorted(why)), "; ".join(text for _, text in sorted(why.items()))
        return [
            {"name": name, "type": kind, "state": "UNKNOWN", "host": hosts, "error": error}
            for kind, name in self._registry.away.awaited
            if why and type_ in (None, kind)
        ]

    async def _rows(self, host: HostPort, keys: list[Key]) -> tuple[list[Row], str]:
        """The rows of destinations on one host, and why the host does not answer; it is not asked again then."""
        rows: list[Row] = []
        lost = ""
        for key in keys:
            failure = lost
            try:
                if not lost:
                    rows.append(self._shown(key, host, (await host_listing.asked(_one(host, key)))[0]))
            except BrokerError as error:
                failure = str(error)
                lost = failure if isinstance(error, ConnectionLostError | RequestTimeoutError) else ""
            if failure:
                rows.append({"name": key[1], "type": key[0], "state": "UNKNOWN", "host": host.key, "error": failure})
        return rows, lost

    async def pause_destination(
        self, type: str | None = None, name: str | None = None, which: str = "all", until_ms: int = 0
    ) -> int:
        """Pause one destination, or all (of a type) but mq.sys.dmq; how many.

        ``which``: producers, consumers, all or insertion. ``until_ms``: milliseconds since 1970 at which it resumes by
        itself; 0: until resumed.
        """
        check_pause(which, until_ms, "paused")
        keys = self._chosen(type, name, "paused")
        await self._each(keys, lambda key, host: host.destinations.pause(*key, which, until_ms))
        return len(keys)

    async def resume_destination(self, type: str | None = None, name: str | None = None, which: str = "all") -> int:
        """Resume one destination, or all (of a type); how many."""
        check_pause(which, 0, "resumed")
        keys = self._chosen(type, name, "resumed")
        await self._each(keys, lambda key, host: host.destinations.resume(*key, which))
        return len(keys)

    async def reset_destination(self, type: str | None = None, name: str | None = None) -> int:
        """Set to zero what is counted of one destination, or of all (of a type); how many."""
        if name is not None:
            keys = [self._known(named(type, name), name)[0]]
        else:
            self._registry.require_all_asked("every destination")
            keys = self._registry.keys(None if type is None else check_destination_type(type))
        await self._each(keys, lambda key, host: host.destinations.reset(*key))
        return len(keys)

    async def query_store(self) -> Listing:
        """One row a host: its store."""
        found, missing = await host_listing.each_host(self._registry, lambda host: host.store.store_rows())
        return Listing(({"host": host.key, "hosting": host.hosting, **row} for host, row in found), missing)

    async def compact_destination(self, type: str | None = None, name: str | None = None) -> Listing:
        """One row a host that was compacted; raises what the first host raises that refuses."""
        by_host: dict[str, tuple[HostPort, list[Key]]] = {}
        for key in self._chosen(type, name, "compacted"):
            host = self._registry.host_of(*key)
            by_host.setdefault(host.key, (host, []))[1].append(key)
        return Listing([{"host": host.key, **await host.store.compact(keys)} for host, keys in by_host.values()])

    def _chosen(self, type_: str | None, name: str | None, done: str) -> list[Key]:
        if name is None:
            self._registry.require_all_asked("every destination")
            return [
                key
                for key in self._registry.keys(None if type_ is None else check_destination_type(type_))
                if key != DMQ
            ]
        key, _ = self._known(named(type_, name), name)
        refuse(refusals.of_dead_letters(*key, done))
        return [key]

    async def _each(self, keys: Iterable[Key], change: Callable[[Key, HostPort], Awaitable[None]]) -> None:
        """Do it for all; the first error is raised after the last one."""
        failed: BrokerError | None = None
        for key in keys:
            host = self._registry.where.get(key)
            try:
                if host is not None:
                    await change(key, host)
            except BrokerError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def list_consumers(self, destination: str | None = None, type: str | None = None) -> Listing:
        if destination is not None:
            where = self._registry.where
            only_topic = ("queue", destination) not in where and ("topic", destination) in where
            key, host = self._known(type or ("topic" if only_topic else "queue"), destination)
            return Listing(await host.destinations.consumers(*key))
        kind = None if type is None else check_destination_type(type)
        found, missing = await host_listing.each_host(
            self._registry, lambda host: host.destinations.consumers(kind, None)
        )
        return Listing((row for _, row in found), missing)

    async def query_consumer(self, id: int) -> Row:
        """One consumer; raises InvalidDestinationError when there is none of that id."""
        rows = await self.list_consumers()
        for row in rows:
            if row["id"] == id:
                return row
        host_listing.require_whole(rows, f"consumer {id}")
        raise InvalidDestinationError(f"there is no consumer {id}; list_consumers shows those there are")

    def _known(self, type_: str, name: str) -> tuple[Key, HostPort]:
        kind = check_destination_type(type_)
        return (kind, name), self._registry.host_of(kind, name)


def _refuse_copies(key: Key, replicas: int) -> None:
    """Raises ConfigError where one broker is to have several copies."""
    if replicas > 1:
        raise ConfigError(
            f"{key[0]} {key[1]!r} with replicas = {replicas} is for a cluster of brokers on so many Ray nodes, and is"
            " not one of a single broker (isLocalOnly): leave replicas at 1 here"
        )


def named(type_: str | None, name: str) -> str:
    """The type of a destination that is named; raises ConfigError when it is missing."""
    if type_ is None:
        raise ConfigError(f"destination {name!r}: say of which type it is, queue or topic")
    return type_


async def _one(host: HostPort, key: Key) -> list[Row]:
    return [await host.destinations.query(*key)]
