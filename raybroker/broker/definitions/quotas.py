"""Quotas of a broker: named limits, which its hosts hold the destinations against that refer to them.

The amounts are the broker's own: two brokers of a cluster each have all of a quota.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from raybroker.broker.definitions.named import TELL_TIMEOUT_S, NamedAtHosts, Save, Saved
from raybroker.core.admission.pool_share import PoolLimits
from raybroker.engine.destinations.pools import quota_limits, quota_pool
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.definitions.quota import Quota, quota_of, refuse_contradiction
from raybroker.model.errors import (
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    UnknownDefinitionError,
)
from raybroker.model.naming.names import check_quota_name

NAMED_MAX: Final = 5
"""Destinations that are named when a quota is in use."""
COUNTS: Final = ("messages", "bytes", "waiting", "refused")
"""What is counted of the pools of a quota."""


class Quotas(NamedAtHosts):
    """The quotas of one broker. ``unasked``: hosts of which it is not known what they serve; ``templates``: rows of
    name and attributes; ``named_by``: the policies that name a quota."""

    word = "quota"
    words = "quotas"
    most = 1000

    def __init__(
        self,
        saved: Saved | None,
        save: Save,
        hosts: Callable[[], Iterable[HostPort]],
        unasked: Callable[[], Iterable[str]],
        templates: Callable[[], Awaitable[list[Row]]],
        named_by: Callable[[str], list[str]] = lambda name: [],
        *,
        broker: str,
    ) -> None:
        super().__init__(saved, save, hosts, _define)
        self._unasked = unasked
        self._templates = templates
        self._broker = broker
        self._named_by = named_by

    # ---- definitions -----------------------------------------------------------------------------------------------

    async def create_quota(self, name: str, attributes: Row) -> None:
        """Raises ConfigError for a bad name, one that exists, an unknown attribute or a value out of bounds."""
        await self.put(name, self.checked(name, attributes))

    def checked(self, name: str, attributes: Row) -> Quota:
        """The attributes of a new quota; raises as :meth:`create_quota`."""
        check_quota_name(name)
        self.refuse_new(name)
        return quota_of(attributes)

    async def update_quota(self, name: str, changes: Row) -> None:
        """Senders that wait for room go on waiting, by the new limits. Raises ConfigError."""
        await self.put(name, await self.changed(name, changes))

    async def changed(self, name: str, changes: Row) -> Quota:
        """The attributes of a quota after changes; raises ConfigError."""
        after = quota_of(changes, self.fields(name))
        for host in list(self._hosts()):
            if any(row["quota"] == name for row in await host.pools.pool_rows()):
                for row in await host.destinations.destination_rows():
                    if row["traits"].get("quota") == name:
                        refuse_contradiction(f"{row['type']} {row['name']}", row["traits"], name, after)
        return after

    async def destroy_quota(self, name: str) -> None:
        """Raises IllegalStateError naming what refers to it, ConfigError when it is unknown."""
        self.fields(name)
        refuse_used(name, await self.users(name))
        await self.drop(name)

    def check(self, label: str, attributes: Mapping[str, object]) -> None:
        """Raise ConfigError when among all attributes of a destination is a quota that does not exist, or that
        contradicts them."""
        name = str(attributes.get("quota", ""))
        if name:
            refuse_contradiction(label, attributes, name, self._referred(name))

    def require(self, attributes: Mapping[str, object]) -> None:
        """Raises ConfigError when some attributes of a destination or template name a quota that does not exist."""
        if attributes.get("quota"):
            self._referred(str(attributes["quota"]))

    def _referred(self, name: str) -> Quota:
        try:
            return self.fields(name)
        except UnknownDefinitionError as error:
            raise ConfigError(str(error)) from None

    def limits(self, pool: str) -> PoolLimits | None:
        """Return the limits of the pool of a quota; None when there is no such quota."""
        name = pool.removeprefix(quota_pool(""))
        quota = self._saved.get(name)
        return quota_limits(name, quota) if quota is not None and pool == quota_pool(name) else None

    # ---- hosts -----------------------------------------------------------------------------------------------------

    async def known_at(self, host: HostPort, attributes: Row) -> None:
        """Tell a host the quota of a destination before it gets its attributes. Raises ConnectionLostError."""
        if attributes.get("quota") and host.key in self._behind:
            await self._tell(host)
            if host.key in self._behind:
                raise ConnectionLostError(
                    f"host {host.key} cannot be told of quota {attributes['quota']!r} now; try again"
                )

    # ---- queries ---------------------------------------------------------------------------------------------------

    async def list_quotas(self) -> list[Row]:
        """One row a quota, by name: name and attributes."""
        return self.definition_rows()

    async def query_quota(self, name: str) -> Row:
        """Raises ConfigError when there is none, ConnectionLostError when a host cannot be asked."""
        rows = await self._rows(name)
        of_pools = [{"broker": self._broker, **{key: row[key] for key in (*COUNTS, "destinations")}} for row in rows]
        counts = {key: sum(row[key] for row in rows) for key in COUNTS}
        return {
            "name": name,
            "attributes": dict(self.fields(name)),
            "users": await self.users(name),
            **counts,
            "pools": of_pools,
        }

    async def users(self, name: str) -> list[str]:
        """The destinations, templates and policies that refer to a quota, as text; raises ConnectionLostError when a
        host cannot be asked."""
        found = [user for row in await self._rows(name) for user in row["destinations"]]
        templates = [row["name"] for row in await self._templates() if row["attributes"].get("quota") == name]
        policies = [f"policy {policy}" for policy in self._named_by(name)]
        return sorted([*found, *(f"template {template}" for template in templates), *policies])

    async def _rows(self, name: str) -> list[Row]:
        """What hosts say of the pools of a quota."""
        self.fields(name)
        if unasked := list(self._unasked()):
            raise ConnectionLostError(f"hosts {', '.join(unasked)} cannot be asked who uses quota {name!r}; try again")
        return [row for host in list(self._hosts()) for row in await host.pools.pool_rows() if row["quota"] == name]


async def _define(host: HostPort, quotas: Saved) -> None:
    await asyncio.wait_for(host.pools.define_quotas(quotas), TELL_TIMEOUT_S)


def merged(rows: Iterable[Row]) -> Row:
    """The rows of a quota of several brokers as one."""
    found, *others = rows
    found = dict(found)
    for row in others:
        found["users"] = sorted({*found["users"], *row["users"]})
        found["pools"] = [*found["pools"], *row["pools"]]
        for key in COUNTS:
            found[key] += row[key]
    return found


def refuse_used(name: str, users: Iterable[str]) -> None:
    """Raises IllegalStateError when there are any."""
    found = sorted(set(users))
    if found:
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        shown = ", ".join(found[:NAMED_MAX]) + more
        raise IllegalStateError(
            f"quota {name!r} is in use by {shown}; give those another quota, or none (quota=), first"
        )
