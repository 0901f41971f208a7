"""Pools, quotas and policies of a host: what its destinations are held against, as its broker says."""

from __future__ import annotations

import asyncio
from typing import Final

from raybroker.core.admission.pool_share import PoolRoom
from raybroker.engine.destinations.destination_administration import DestinationAdministration
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.destinations.policies import HostPolicies
from raybroker.engine.destinations.pools import Pools
from raybroker.model.listing import Row

POLICIES_STEP: Final = 50
"""Destinations that are held against new policies before messages get a turn."""


class PoolsPort:
    def __init__(
        self,
        pools: Pools,
        policies: HostPolicies,
        registry: DestinationRegistry,
        administration: DestinationAdministration,
    ) -> None:
        self._pools = pools
        self._policies = policies
        self._registry = registry
        self._administration = administration

    async def pool_rows(self) -> list[Row]:
        """See engine.destinations.pools.Pools.pool_rows."""
        return self._pools.pool_rows()

    async def recall(self, pool: str, owed: list[int]) -> Row:
        """Give back what the host does not use of a pool: version and lease of its share, how many blocks
        are ``waiting``, and whether the pool is ``known`` there. ``owed``: messages and bytes to set aside for
        other hosts where senders wait."""
        return self._pools.recall(pool, PoolRoom(*owed))

    async def define_quotas(self, quotas: Row) -> None:
        """Replace the quotas there are by these: name → attributes."""
        self._pools.define(quotas)

    async def define_policies(self, policies: Row) -> None:
        """Replace the policies there are by these: name → fields. They hold for the destinations when it returns."""
        self._policies.define(policies)
        for number, key in enumerate(list(self._registry.destinations), 1):
            self._administration.follow_policies(*key)
            if number % POLICIES_STEP == 0:
                await asyncio.sleep(0)

    async def effective(self, type: str, name: str) -> Row:
        """What policies make of a destination's attributes: see ``HostPolicies.policy_row``."""
        return self._policies.policy_row(self._registry.definition(self._registry.named(type, name)))
