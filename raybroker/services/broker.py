"""A broker: which destinations there are, on which host each lives, and every administrative verb (D-03, D-21).

A broker holds no messages and no durable state of its own but the list of its hosts; what a host serves is asked of
the host, so there are never two truths.  Hosts are reached through the ``HostPort`` protocol: remote actors in a
cluster, an object of the process in the loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    InvalidDestinationError,
    NotSupportedError,
)
from raybroker.model.names import check_destination_name, check_destination_type
from raybroker.model.settings import ConfigView, auto_created, destination_attributes


class HostPort(Protocol):
    """One host, wherever it runs; see services.hosting for what the methods do."""

    @property
    def key(self) -> str: ...

    @property
    def hosting(self) -> str:
        """"dedicated" or "shared"."""
        ...

    async def create(self, name: str, attributes: dict[str, Any], auto_created: bool) -> None: ...
    async def update(self, name: str, changes: dict[str, Any]) -> None: ...
    async def destroy(self, name: str) -> None: ...
    async def purge(self, name: str) -> None: ...
    async def query(self, name: str) -> dict[str, Any]: ...
    async def names(self) -> dict[str, bool]: ...
    async def consumers(self, name: str | None) -> list[dict[str, Any]]: ...
    async def state(self) -> dict[str, Any]: ...


MakeHost = Callable[[str], Awaitable[HostPort]]
DropHost = Callable[[HostPort], Awaitable[None]]


class Broker:
    """``make_host(hosting)`` starts a host of that kind; ``drop_host`` ends one that serves nothing any more."""

    def __init__(self, config: ConfigView, *, make_host: MakeHost, drop_host: DropHost) -> None:
        self.config = config
        self._make_host = make_host
        self._drop_host = drop_host
        self._hosts: list[HostPort] = []
        self._where: dict[str, HostPort] = {}
        self._auto: set[str] = set()
        self._changing: dict[str, asyncio.Lock] = {}
        self._pool = asyncio.Lock()
        self.unasked: dict[str, str] = {}
        """Hosts (name → hosting) that could not be asked yet what they serve: meanwhile nothing is surely missing."""

    async def adopt(self, host: HostPort) -> None:
        """A host that exists already, after a restart of the broker: ask it what it serves (B-20)."""
        names = await host.names()
        if not names and host.hosting == "dedicated":
            await self._drop_host(host)
            return
        self._hosts.append(host)
        for name, automatic in names.items():
            self._where[name] = host
            if automatic:
                self._auto.add(name)

    def forget(self, name: str) -> None:
        """A host has removed an unused auto-created destination (D-22)."""
        self._where.pop(name, None)
        self._auto.discard(name)

    async def locate(self, kind: str, name: str, create: bool) -> HostPort:
        """The host of a destination; creates it if asked and allowed. Raises InvalidDestinationError (D-04, D-21)."""
        self._require_queue(kind)
        check_destination_name(name)
        host = self._where.get(name)
        if host is not None and name not in self._auto:
            return host
        if not create:
            if host is not None:
                return host
            self._require_all_asked(name)
            raise InvalidDestinationError(f"queue {name!r} does not exist; create it first")
        if host is None:
            self._require_all_asked(name)
        if host is None and not self.config["imq.autocreate.queue"]:
            raise InvalidDestinationError(
                f"queue {name!r} does not exist and imq.autocreate.queue is false; create it with:"
                f" raybroker create dst -t q -n {name}"
            )
        attributes = auto_created(self.config).as_dict()
        return await self._create(name, attributes, automatic=True)

    async def _create(self, name: str, attributes: dict[str, Any], *, automatic: bool) -> HostPort:
        async with self._changing.setdefault(name, asyncio.Lock()):
            host = self._where.get(name)
            if host is None:
                host = await self._host_for(str(attributes["hosting"]))
            await host.create(name, attributes, automatic)
            self._where[name] = host
            if automatic:
                self._auto.add(name)
            return host

    async def _host_for(self, hosting: str) -> HostPort:
        """A host of its own, or the least busy one of the shared pool."""
        if hosting == "dedicated":
            host = await self._make_host(hosting)
            self._hosts.append(host)
            return host
        async with self._pool:
            shared = [h for h in self._hosts if h.hosting == "shared"]
            if len(shared) < self.config["raybroker.hosting.shared.hosts"]:
                host = await self._make_host(hosting)
                self._hosts.append(host)
                return host
        served = list(self._where.values())
        return min(shared, key=served.count)

    # ---- administration --------------------------------------------------------------------------------------------

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """One verb by name; raises ConfigError for an unknown one, and whatever the verb raises."""
        handler = _VERBS.get(verb)
        if handler is None:
            raise ConfigError(f"unknown verb {verb!r}; known are {', '.join(_VERBS)}")
        return await handler(self, **args)

    async def create_destination(self, type: str, name: str, attributes: dict[str, Any]) -> None:  # noqa: A002
        """Create with attributes; raises InvalidDestinationError when it exists (D-03)."""
        self._require_queue(type)
        check_destination_name(name)
        if name in self._where:
            raise InvalidDestinationError(f"queue {name!r} exists already; update or destroy it")
        self._require_all_asked(name)
        checked = destination_attributes(attributes, self.config)
        await self._create(name, checked.as_dict(), automatic=False)

    async def destroy_destination(self, type: str, name: str) -> None:  # noqa: A002
        """Remove a destination with its messages; a dedicated host ends with it."""
        host = self._host_of(type, name)
        async with self._changing.setdefault(name, asyncio.Lock()):
            await host.destroy(name)
            self.forget(name)
            if host.hosting == "dedicated":
                self._hosts.remove(host)
                await self._drop_host(host)
        self._changing.pop(name, None)

    async def update_destination(self, type: str, name: str, changes: dict[str, Any]) -> None:  # noqa: A002
        await self._host_of(type, name).update(name, changes)

    async def purge_destination(self, type: str, name: str) -> None:  # noqa: A002
        await self._host_of(type, name).purge(name)

    async def query_destination(self, type: str, name: str) -> dict[str, Any]:  # noqa: A002
        host = self._host_of(type, name)
        found = await host.query(name)
        found["host"] = host.key
        return found

    async def list_destinations(self, type: str | None = None) -> list[dict[str, Any]]:  # noqa: A002
        """One row a destination, by name; one that cannot be asked now has state UNKNOWN."""
        if type is not None and check_destination_type(type) == "topic":
            return []
        rows = []
        for name, host in sorted(self._where.items()):
            try:
                row = await host.query(name)
                row["host"] = host.key
            except BrokerError as error:
                row = {"name": name, "type": "queue", "state": "UNKNOWN", "host": host.key, "error": str(error)}
            rows.append(row)
        return rows

    async def list_consumers(self, name: str | None = None) -> list[dict[str, Any]]:
        """Consumers of one queue, or of all."""
        if name is not None:
            return await self._host_of("queue", name).consumers(name)
        return [row for host in self._hosts for row in await host.consumers(None)]

    async def query_consumer(self, id: int) -> dict[str, Any]:  # noqa: A002
        """One consumer; raises InvalidDestinationError when there is none of that id."""
        for row in await self.list_consumers():
            if row["id"] == id:
                return row
        raise InvalidDestinationError(f"there is no consumer {id}; list_consumers shows those there are")

    async def query_broker(self) -> dict[str, Any]:
        """The broker's hosts and what they hold."""
        hosts = []
        for host in self._hosts:
            try:
                hosts.append({"host": host.key, "hosting": host.hosting, **await host.state()})
            except BrokerError as error:
                hosts.append({"host": host.key, "hosting": host.hosting, "failure": str(error)})
        return {"destinations": len(self._where), "hosts": hosts}

    def _host_of(self, type_: str, name: str) -> HostPort:
        self._require_queue(type_)
        host = self._where.get(name)
        if host is None:
            self._require_all_asked(name)
            raise InvalidDestinationError(f"queue {name!r} does not exist")
        return host

    def _require_all_asked(self, name: str) -> None:
        """A destination that is not known may live on a host that has not answered since the broker started."""
        if self.unasked:
            hosts = ", ".join(sorted(self.unasked))
            raise ConnectionLostError(f"queue {name!r} is not known, and hosts {hosts} cannot be asked now; try again")

    @staticmethod
    def _require_queue(kind: str) -> None:
        if check_destination_type(kind) != "queue":
            raise NotSupportedError("topics are not built yet; this version has queues")


_VERBS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "create_destination": Broker.create_destination,
    "destroy_destination": Broker.destroy_destination,
    "update_destination": Broker.update_destination,
    "purge_destination": Broker.purge_destination,
    "query_destination": Broker.query_destination,
    "list_destinations": Broker.list_destinations,
    "list_consumers": Broker.list_consumers,
    "query_consumer": Broker.query_consumer,
    "query_broker": Broker.query_broker,
}
