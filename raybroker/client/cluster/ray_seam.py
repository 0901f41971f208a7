"""Access of the client to Ray: finds the brokers' actors and asks them.

Ray and the actors are imported when a connection is made, so that the loopback works without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.cluster.cluster_directory import ClusterDirectory
from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.ways.host_way import way_to_host
from raybroker.model.errors import BrokerError, BrokerGoneError, NoClusterError
from raybroker.model.naming.names import check_cluster_name
from raybroker.model.packages import how_to_install
from raybroker.transport.daemon_calls import in_daemon_thread

if TYPE_CHECKING:
    from types import ModuleType

ASK_TIMEOUT_S: Final = 2.0
"""How long a broker may take to say who the others are, before another one is asked."""


def _runtime() -> ModuleType:
    try:
        from raybroker.actors import runtime
    except ModuleNotFoundError as error:
        if (hint := how_to_install(error)) is None:
            raise
        raise NoClusterError(hint) from None
    return runtime


def actor_life(holder: object) -> Any:
    """The life of an actor, as of ``client.consumer.acknowledging.lives``; None for what is no actor's handle."""
    if not type(holder).__module__.startswith("ray."):
        return None
    _runtime()
    from raybroker.actors.actor_lives import life_of

    return life_of(holder)


class RayCalls:
    """The brokers of one cluster, as actors."""

    outside = False

    def __init__(self, cluster: str, addresses: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self.addresses = addresses
        """The brokers that may be asked, those to try first at the front; empty: all."""
        self._ray = _runtime()
        self._actors: dict[str, Any] = {}

    async def call(self, broker: str, method: str, *args: Any) -> Any:
        actor = self._actors.get(broker)
        if actor is None:
            actor = await in_daemon_thread(self._ray.find_broker, self.cluster, broker)
            if actor is None:
                raise BrokerGoneError(f"broker {broker} of cluster {self.cluster!r} is not running")
            self._actors[broker] = actor
        try:
            return await self._ray.call(getattr(actor, method), *args, gone=BrokerGoneError)
        except BrokerGoneError:
            self._actors.pop(broker, None)
            raise

    async def names(self) -> list[str]:
        found = await in_daemon_thread(self.found)
        return [name for name in self.addresses if name in found] if self.addresses else found

    def found(self) -> list[str]:
        """The brokers there are; blocks."""
        return list(self._ray.brokers_of(self.cluster))

    def place(self, found: Sequence[Any]) -> DestinationPlace:
        key, ip, port, token, broker, traits, certificate = found
        return DestinationPlace(f"{key}@{ip}:{port}", token, way_to_host(ip, port, certificate), broker, traits)

    async def identify(self, broker: str, client_id: str, instance: str) -> None:
        await self.call(broker, "identify", client_id, instance)

    def close(self) -> None:
        """Nothing to do: actors keep no state for who asks them."""


def find(cluster: str, broker: str | None, addresses: Sequence[str] = ()) -> ClusterDirectory:
    """The directory of a running cluster; without a broker the one of this node, or the first.

    ``addresses``: the brokers that may take the place of ``broker`` when it is gone; without, none may.
    Raises NoClusterError.
    """
    check_cluster_name(cluster)
    ray = _runtime()
    ray.join_ray(cluster)
    calls = RayCalls(cluster, addresses)
    brokers = calls.found()
    if not brokers:
        raise NoClusterError(
            f"no cluster named {cluster!r} in the Ray at {ray.address()};"
            f" start one with rb.start({cluster!r}) or: raybroker up --name {cluster}"
        )
    if broker is not None and broker not in brokers:
        raise NoClusterError(
            f"no broker {broker!r} of cluster {cluster!r} runs now; those that do are {', '.join(brokers)}"
            " (raybroker list bkr shows all, and why one does not run)"
        )
    pinned = broker is not None and not addresses
    return ClusterDirectory(calls, broker or _nearest(ray, cluster, brokers), pinned=pinned)


def _nearest(ray: ModuleType, cluster: str, brokers: list[str]) -> str:
    """A broker of this node that is up; else the first that answers."""
    for name in brokers if len(brokers) > 1 else ():
        actor = ray.find_broker(cluster, name)
        try:
            rows = ray.call_blocking(actor.brokers, timeout_s=ASK_TIMEOUT_S)[2] if actor is not None else []
        except BrokerError:
            continue
        return next((row[0] for row in rows if row[1] == "UP" and row[3] == ray.node_id()), name)
    return brokers[0]
