"""Pools of a broker: divides the limits that destinations share among its hosts.

A host asks when it needs more of a pool.  What is free it gets; when that is not enough, the other hosts are asked to
give back what they do not use, and whether senders still wait there; only then the answer is that the pool is short.
What a host that cannot be asked may use stays its own until it is back, or dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from raybroker.broker.destinations.pool_ledger import PoolLedger
from raybroker.core.admission.pool_share import FIFO, PoolLimits, PoolRoom
from raybroker.engine.destinations.pools import SYSTEM, system_limits
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError
from raybroker.model.settings.settings import ConfigView

RECALL_TIMEOUT_S: Final = 1.0
"""How long a host may take to give back what it does not use."""


class BrokerPools:
    """``hosts``: those that serve, ``unasked``: keys of those of which that is not known yet; ``now_ms``: a clock;
    ``quota``: the limits of a quota's pool."""

    def __init__(
        self,
        config: ConfigView,
        hosts: Callable[[], Iterable[HostPort]],
        unasked: Callable[[], Iterable[str]],
        now_ms: Callable[[], int],
        quota: Callable[[str], PoolLimits | None] = lambda pool: None,
    ) -> None:
        self._config = config
        self._hosts = hosts
        self._unasked = unasked
        self._now_ms = now_ms
        self._quota = quota
        self._ledgers: dict[str, PoolLedger] = {}
        self._recalls: dict[str, asyncio.Task[None]] = {}
        """Pools whose hosts are being asked now."""

    def limits(self, pool: str) -> PoolLimits | None:
        """None when there is no such pool, or it has no limits."""
        return system_limits(self._config) if pool == SYSTEM else self._quota(pool)

    async def lease(self, host: str, row: Row) -> Row:
        """A host asks for more: ``row`` is pool, version, lease, need and waiting of its share.

        The answer: version; lease, -1 where there is no limit; ahead; short: the pool has no more now. A statement of
        another version than the latest gets nothing but ``newest``, that version.
        """
        pool, version = str(row["pool"]), int(row["version"])
        limits = self.limits(pool)
        if limits is None:
            self._ledgers.pop(pool, None)
            gone = pool != SYSTEM  # A quota that is no more: nothing has room in it.
            return {"version": version, "lease": (0, 0) if gone else (-1, -1), "ahead": (0, 0), "short": gone}
        ledger = self._ledgers.setdefault(pool, PoolLedger(limits))
        ledger.limits = limits
        lease = PoolRoom(*row["lease"])
        if not ledger.hear(host, version, lease):
            return {"newest": ledger.version(host)}
        need, waits = PoolRoom(*row["need"]), bool(row["waiting"])
        keys = self._keys(host)
        ledger.retain(keys)
        grant = ledger.grant(host, need, len(keys), self._now_ms(), waits=waits, sure=not ledger.unknown(keys))
        if grant.lacking != (0, 0) or ledger.unknown(keys):
            first = ledger.is_first(host, self._now_ms())
            await self._recall(pool, ledger, host, grant.lacking if first else PoolRoom(0, 0))
            if not ledger.hear(host, version, lease):
                return {"newest": ledger.version(host)}
            sure = not ledger.unknown(keys)
            grant = ledger.grant(host, grant.lacking, len(keys), self._now_ms(), waits=waits, sure=sure)
        short = grant.lacking != (0, 0) and not ledger.unknown(keys)
        return {"version": version, "lease": tuple(grant.lease), "ahead": tuple(grant.ahead), "short": short}

    def leased(self, pool: str) -> PoolRoom | None:
        """What the hosts may use of it together, as far as is known."""
        ledger = self._ledgers.get(pool)
        return ledger.leased() if ledger is not None else None

    def _keys(self, host: str) -> set[str]:
        return {host, *(one.key for one in self._hosts()), *self._unasked()}

    async def _recall(self, pool: str, ledger: PoolLedger, host: str, owed: PoolRoom) -> None:
        """Ask all hosts but one to give back what they do not use, once at a time."""
        task = self._recalls.get(pool)
        if task is None:
            set_aside = owed if ledger.limits.policy == FIFO else PoolRoom(0, 0)
            work = [self._recall_from(ledger, one, pool, set_aside) for one in self._hosts() if one.key != host]

            async def all_of_them() -> None:
                try:
                    await asyncio.gather(*work)
                finally:
                    self._recalls.pop(pool, None)

            task = self._recalls[pool] = asyncio.get_running_loop().create_task(all_of_them())
        await asyncio.shield(task)

    async def _recall_from(self, ledger: PoolLedger, host: HostPort, pool: str, owed: PoolRoom) -> None:
        try:
            said: dict[str, Any] = await asyncio.wait_for(host.pools.recall(pool, list(owed)), RECALL_TIMEOUT_S)
        except (BrokerError, TimeoutError):
            return  # It keeps what it has.
        if not said["waiting"]:
            ledger.waits_no_more(host.key)
        if said["known"]:
            ledger.hear(host.key, int(said["version"]), PoolRoom(*said["lease"]))
