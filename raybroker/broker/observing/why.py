"""Explanations of what waits on the hosts of one broker: the host that knows is asked, and who fills a full quota."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from raybroker.broker import host_listing
from raybroker.broker.destinations.destination_registry import Registry
from raybroker.engine.destinations.pools import quota_pool
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, ConfigError, InvalidDestinationError
from raybroker.model.listing import Listing

QUOTA_POOL: Final = quota_pool("")


class WhyAdministration:
    """``query_quota``: the row of a quota, as administrators see it."""

    def __init__(self, registry: Registry, broker: str, query_quota: Callable[[str], Awaitable[Row]]) -> None:
        self._registry = registry
        self._broker = broker
        self._query_quota = query_quota

    async def why(
        self,
        what: str,
        id: int | str,
        destination: str | None = None,
        type: str = "queue",
        client_id: str | None = None,
    ) -> Listing:
        """See the verb's declaration."""
        text = str(id).strip()
        if what == "message":
            if destination is None:
                raise ConfigError(f"message {text[:80]}: say of which destination it is")
            found = await self._at(type, destination, lambda host: host.why.message(type, destination, text))
        elif what == "destination":
            found = await self._at(type, text, lambda host: host.why.destination(type, text))
        elif what == "subscription":
            found = await self._anywhere(what, text, lambda host: host.why.subscription(destination, client_id, text))
        elif what == "consumer":
            found = await self._anywhere(what, text, lambda host: host.why.consumer(text))
        elif what == "transaction":
            found = await self._transaction(text)
        else:
            found = await self._anywhere(what, text, lambda host: host.why.producer(text, type, destination))
        for row in found:
            row["broker"] = self._broker
            await self._add_quotas(row)
        return found

    async def _at(self, type_: str, name: str, ask: Callable[[HostPort], Awaitable[list[Row]]]) -> Listing:
        host = self._registry.host_of(type_, name)
        return Listing(({**row, "host": host.key} for row in await host_listing.asked(ask(host))), {})

    async def _transaction(self, id: str) -> Listing:
        """``id``: the number, or host:number where several hosts have that number."""
        name, _, number = id.rpartition(":")
        found = await self._anywhere("transaction", id, lambda host: host.why.transaction(number))
        return Listing((row for row in found if name in ("", row["host"])), found.missing)

    async def _anywhere(self, what: str, id: str, ask: Callable[[HostPort], Awaitable[list[Row]]]) -> Listing:
        """What the hosts say that know it; raises what the first one says when none does."""
        errors: list[BrokerError] = []

        async def asked(host: HostPort) -> list[Row]:
            try:
                return await ask(host)
            except InvalidDestinationError as error:
                errors.append(error)
                return []

        found, missing = await host_listing.each_host(self._registry, asked)
        if not found:
            host_listing.require_whole(Listing((), missing), f"{what} {id[:80]}")
            self._registry.require_all_asked(f"{what} {id[:80]}")
            raise errors[0] if errors else InvalidDestinationError(f"there is no {what} {id[:80]}")
        return Listing(({**row, "host": host.key} for host, row in found), missing)

    async def _add_quotas(self, row: Row) -> None:
        """Who fills the quotas that its reasons name."""
        for reason in [*row["reasons"], *row.get("producers", ())]:
            pool = str(reason.get("quota", ""))
            if not pool.startswith(QUOTA_POOL):
                continue
            try:
                reason["quota"] = pool.removeprefix(QUOTA_POOL)
                reason["filled_by"] = await self._query_quota(reason["quota"])
            except BrokerError as error:
                reason["filled_by"] = {"error": str(error)}
