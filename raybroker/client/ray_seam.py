"""The few lines of the client that know Ray: finding a broker's actor and asking it.

Ray and the actors are imported when a connection is made, so that the loopback works without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.directory import Place
from raybroker.model.errors import ConnectionLostError, NoClusterError
from raybroker.model.names import check_cluster_name
from raybroker.transport.link import Link

if TYPE_CHECKING:
    from types import ModuleType


def _runtime() -> ModuleType:
    from raybroker.actors import runtime

    return runtime


READ_PATIENCE_S: Final = 10.0
"""How long a verb that changes nothing is tried again while a broker restarts; one that changes something never is."""
RETRY_S: Final = 0.2


class RayDirectory:
    """The control side of a cluster in this Ray."""

    def __init__(self, cluster: str, broker: str) -> None:
        self.cluster = cluster
        self.broker = broker
        self._ray = _runtime()
        self._actor: Any = None

    @classmethod
    def find(cls, cluster: str, broker: str | None) -> RayDirectory:
        """The directory of a running cluster; raises NoClusterError."""
        check_cluster_name(cluster)
        ray = _runtime()
        ray.join_ray()
        prefix = ray.broker_name(cluster, "")
        brokers = [name.removeprefix(prefix) for name in ray.list_actors(prefix)]
        if not brokers:
            raise NoClusterError(
                f"no cluster named {cluster!r} in the Ray at {ray.address()};"
                f" start one with rb.start({cluster!r}) or: raybroker up --name {cluster}"
            )
        if broker is not None and broker not in brokers:
            raise NoClusterError(f"cluster {cluster!r} has no broker {broker!r}; it has {', '.join(brokers)}")
        return cls(cluster, broker or brokers[0])

    async def _call(self, method: str, *args: Any) -> Any:
        if self._actor is None:
            name = self._ray.broker_name(self.cluster, self.broker)
            self._actor = await asyncio.to_thread(self._ray.find_actor, name)
            if self._actor is None:
                raise NoClusterError(f"broker {self.broker} of cluster {self.cluster!r} is not running")
        return await self._ray.call(getattr(self._actor, method), *args)

    async def locate(self, kind: str, name: str, create: bool) -> Place:
        key, ip, port, token = await self._call("locate", kind, name, create)
        return Place(f"{key}@{ip}:{port}", token, partial(_dial, ip, port))

    async def create_temporary(self, kind: str, owner: str) -> str:
        return str(await self._call("create_temporary", kind, owner))

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        await self._call("destroy_temporary", kind, name, owner)

    async def subscribe(
        self,
        topic: str,
        client_id: str | None,
        name: str,
        *,
        durable: bool = True,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
    ) -> None:
        args = {
            "topic": topic, "client_id": client_id, "name": name, "durable": durable, "shared": shared,
            "selector": selector, "no_local": no_local,
        }  # fmt: skip
        await self._call("subscribe", args)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        await self._call("unsubscribe", client_id, name)

    async def matching(self, pattern: str) -> tuple[int, list[str]]:
        version, names = await self._call("matching", pattern)
        return version, names

    async def changed(self, version: int, timeout_s: float) -> int:
        return int(await self._call("changed", version, timeout_s))

    async def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._call("settings")
        return found

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        deadline = asyncio.get_running_loop().time() + READ_PATIENCE_S
        while True:
            try:
                return await self._call("admin", verb, args)
            except ConnectionLostError:
                reads = verb.startswith(("list_", "query_", "browse_", "export_"))
                if not reads or asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Nothing to give back: the broker keeps no state for a directory."""


async def _dial(ip: str, port: int, factory: Callable[[], Link]) -> object:
    return await asyncio.get_running_loop().create_connection(factory, ip, port)
