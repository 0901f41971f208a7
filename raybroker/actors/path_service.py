"""The path service actor: one for the cluster, on the node of the broker that started it.

Survives a crash: every assignment that was answered, from its log.  Producers say again within one lease which units
they use.  A failed call means that units may or may not have been assigned; all calls may be repeated.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from raybroker.actors import runtime
from raybroker.actors.broker_peers import Brokers, RayPeers
from raybroker.actors.failpoints import arm_failpoints
from raybroker.actors.stores.store_tables import shared_brokers
from raybroker.broker.cluster.path_service import PathService
from raybroker.config import Config
from raybroker.store.record import RecordFile
from raybroker.store.sql.shared import SharedFrames
from raybroker.system.clock import SystemClock
from raybroker.system.priority import normal_priority_throughout

ASK_TIMEOUT_S = 5.0
EXIT_FAILED = 3

log = logging.getLogger("raybroker.paths")


def _shared_map(cluster: str, directory: str, config: Config, keeper: str, tenure: int) -> SharedFrames:
    """``directory``: of the map, in that of the keeper."""
    return SharedFrames(shared_brokers(config, Path(directory).parent.parent, cluster), keeper, tenure)


class PathActor:
    """See the module."""

    def __init__(
        self, cluster: str, directory: str, lease_ms: int, shared: tuple[Config, str, int] | None = None
    ) -> None:
        """``shared``: (configuration, keeper, its tenure) where the map is in the database that brokers share."""
        arm_failpoints("paths")
        normal_priority_throughout()
        file = RecordFile(Path(directory) / "map") if shared is None else _shared_map(cluster, directory, *shared)
        self._peers = RayPeers(Brokers(cluster))
        self._service = PathService(
            file.open(), file, SystemClock(), lease_ms=lease_ms, live=self._live, failed=self._failed
        )
        self._service.start()

    async def _live(self, broker: str, kind: str, name: str, units: list[str]) -> list[str]:
        args = {"type": kind, "name": name, "names": units}
        found: list[str] = await self._peers.call_broker(broker, "units", args, timeout_s=ASK_TIMEOUT_S)
        return found

    def _failed(self, reason: str) -> None:
        """Fail stop: the restarted one reads what is on disk."""
        log.critical("%s", reason)
        os._exit(EXIT_FAILED)

    async def routes(self, kind: str, name: str, units: list[str], owner: str, live: list[str]) -> dict[str, str]:
        return await self._service.routes(kind, name, units, owner, live)

    async def renew(self, owner: str) -> bool:
        return await self._service.renew(owner)

    async def release(self, kind: str, name: str, units: list[str], owner: str) -> None:
        await self._service.release(kind, name, units, owner)

    async def drop_member(self, member: str) -> None:
        await self._service.drop_member(member)

    async def path_row(self) -> dict[str, object]:
        return {**await self._service.path_row(), "pid": os.getpid(), "node": runtime.node_id()}

    async def stop(self) -> None:
        await self._service.close()
