"""Access of the client to Ray: finds the brokers' actors and asks them.

Ray and the actors are imported when a connection is made, so that the loopback works without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.cluster.cluster_directory import ClusterDirectory
from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.shared_body import SharedObject, SharedObjects
from raybroker.client.ways.host_way import way_to_host
from raybroker.model.errors import BrokerError, BrokerGoneError, NoClusterError
from raybroker.model.naming.names import check_cluster_name
from raybroker.model.packages import how_to_install
from raybroker.system.entropy import token as random_bytes
from raybroker.transport.daemon_calls import in_daemon_thread

if TYPE_CHECKING:
    from types import ModuleType

KEY_BYTES: Final = 16
"""Of the unguessable word in the key of a shared body."""
FIND_TIMEOUT_S: Final = 10.0
"""How long a shared body may take to come from another node, before it is read from its host."""
RESOLVE_TIMEOUT_S: Final = 60.0
"""How long the value of an ObjectRef that is sent may take."""
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


class RayObjects:
    """Bodies in the object store of Ray. Their keys are the broker whose keeper has a copy of a persistent one, and an
    unguessable word."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._ray = _runtime()
        self._keepers: dict[str, Any] = {}
        self._hosts: dict[str, Any] = {}
        """Key of a host → the actor whose process it is in."""
        self._nearest = ""
        """The broker of this node, or the first."""

    def share(self, value: Any) -> SharedObject | None:
        """See SharedObjects."""
        if not self._nearest and (brokers := list(self._ray.brokers_of(self._cluster))):
            self._nearest = _nearest(self._ray, self._cluster, brokers)
        key = f"{self._nearest}/{random_bytes(KEY_BYTES).hex()}"
        try:
            return SharedObject(key, self._ray.put_object(value))
        except BrokerError:  # It is a plain body.
            return None

    async def give(self, shared: SharedObject, host: str, nbytes: int, persistent: bool) -> str:
        """See SharedObjects."""
        return await in_daemon_thread(self._give, shared, host, nbytes, persistent)

    def _give(self, shared: SharedObject, host: str, nbytes: int, persistent: bool) -> str:
        """The keeper makes its own copy for consumers of a persistent message meanwhile: nobody waits for it."""
        token = random_bytes(KEY_BYTES).hex()
        if persistent:
            try:
                keep = self._keeper(shared.key.partition("/")[0]).keep
                self._ray.begin(keep, shared.key, [shared.held], nbytes, failed=self._not_kept)
            except BrokerError:  # The body comes from its host.
                self._not_kept()
        try:
            self._ray.call_blocking(self._host(host).hold_body, token, shared.key, [shared.held])
        except BrokerError:
            self._hosts.pop(host, None)
            raise
        return token

    def _host(self, key: str) -> Any:
        """The actor of a host: that of its process, or its broker."""
        found = self._hosts.get(key)
        if found is None:
            found = self._hosts[key] = self._ray.call_blocking(self._broker(key.partition("/")[0]).host_actor, key)
        return found

    def _not_kept(self) -> None:
        """A keeper has ended, or its broker: the next body is shared by one that is found anew."""
        self._keepers.clear()
        self._nearest = ""

    def _keeper(self, broker: str) -> Any:
        found = self._keepers.get(broker)
        if found is None:
            found = self._keepers[broker] = self._ray.call_blocking(self._broker(broker).object_keeper)
        return found

    def _broker(self, name: str) -> Any:
        actor = self._ray.find_broker(self._cluster, name)
        if actor is None:
            raise BrokerGoneError(f"broker {name} of cluster {self._cluster!r} is not running")
        return actor

    async def find(self, key: str, host: str, persistent: bool) -> Any:
        """See SharedObjects."""
        return await in_daemon_thread(self._find, key, host, persistent)

    def _find(self, key: str, host: str, persistent: bool) -> Any:
        broker = key.partition("/")[0]
        try:
            who = self._keeper(broker).find if persistent else self._host(host).find_body
            refs = self._ray.call_blocking(who, key, timeout_s=FIND_TIMEOUT_S)
            return self._ray.object_of(refs[0], FIND_TIMEOUT_S) if refs else None
        except BrokerError:  # The body comes from its host.
            self._keepers.pop(broker, None)
            self._hosts.pop(host, None)
            return None

    def resolve(self, value: Any) -> Any:
        """See SharedObjects."""
        return self._ray.resolved(value, RESOLVE_TIMEOUT_S)


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

    def led_by(self, found: Sequence[Any]) -> str:
        return ""  # What any broker answers is the way to the host itself.

    async def identify(self, broker: str, client_id: str, instance: str) -> None:
        await self.call(broker, "identify", client_id, instance)

    def close(self) -> None:
        """Nothing to do: actors keep no state for who asks them."""


def shared_objects(cluster: str) -> SharedObjects:
    """The object store of the Ray that a cluster is in; this process has joined it."""
    found = RayObjects(cluster)
    return SharedObjects(found.share, found.give, found.find, found.resolve, _runtime().node_id())


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
