"""``rb.deploy``: the instances of a listener, as actors of Ray, or in this process beside a loopback broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, overload

from raybroker.client.blocking.handles import Connection
from raybroker.client.listener.instance import Instance
from raybroker.client.listener.listener import Listener
from raybroker.client.listener.pool import Pool, check_scaling
from raybroker.client.loopback import attach_loopback
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_cluster_name, check_pool_name
from raybroker.model.packages import naming_extra
from raybroker.system.entropy import token

if TYPE_CHECKING:
    from raybroker.actors.pools.named_pool import NamedPool

KEY_BYTES: Final = 8
"""Of the key under which a pool without a name notes its demand of nodes."""


@overload
def deploy(
    listener: Listener,
    instances: int | None = ...,
    actor_options: dict[str, Any] | None = ...,
    *,
    cluster: str = ...,
    loopback: str | None = ...,
    name: None = ...,
    min: int | None = ...,
    max: int | None = ...,
    target_backlog: int | None = ...,
    promise_s: float | None = ...,
    request_nodes: bool = ...,
) -> Pool: ...
@overload
def deploy(
    listener: Listener,
    instances: int | None = ...,
    actor_options: dict[str, Any] | None = ...,
    *,
    cluster: str = ...,
    loopback: None = ...,
    name: str,
    min: int | None = ...,
    max: int | None = ...,
    target_backlog: int | None = ...,
    promise_s: float | None = ...,
    request_nodes: bool = ...,
) -> NamedPool: ...
def deploy(
    listener: Listener,
    instances: int | None = None,
    actor_options: dict[str, Any] | None = None,
    *,
    cluster: str = "default",
    loopback: str | None = None,
    name: str | None = None,
    min: int | None = None,
    max: int | None = None,
    target_backlog: int | None = None,
    promise_s: float | None = None,
    request_nodes: bool = False,
) -> Pool | NamedPool:
    """Run a function marked with ``@rb.listener`` in instances that are attached when this returns.

    instances       how many, 1 to 1000; 1, or ``min``
    actor_options   options of Ray for the actor of each, such as {"num_cpus": 1}; not name and lifetime
    cluster         by name
    loopback        name of a broker of this process (``rb.loopback(broker=name)``): the instances run on threads here,
                    without Ray, as a test of the function wants it
    name            the pool outlives this process: it runs until its ``stop()``, and ``rb.pool(name)`` is its handle in
                    any program of the Ray cluster; letters, digits and ``_.-``. Without, it ends with this process
    min, max        scale by backlog between these numbers of instances; min is 1 when it is not given
    target_backlog  messages that wait or are being handled, for each instance; 1000
    promise_s       in its place: seconds that no message of the queue is to wait. Instances are as many as can do what
                    is here in time, at the pace that was seen; min may be 0, and is when it is not given
    request_nodes   tell Ray's autoscaler of as many instances as there are to be, before they have a place, and until
                    they are too many (``ray.autoscaler.sdk.request_resources``). For pools that scale, whose
                    actor_options take something of a node. Ray has one such request for the whole cluster: pools add
                    theirs up, and a program that calls it itself overrules them

    Instances survive what happens to their destination and attach again; an actor that dies is restarted by Ray.
    Raises ConfigError for what cannot be, NoClusterError without the cluster or loopback broker, and why an instance
    could not attach; then none is left.
    """
    if not isinstance(listener, Listener):
        raise ConfigError("rb.deploy takes a function marked with @rb.listener(queue=…) or @rb.listener(topic=…)")
    first, scaler = check_scaling(listener, instances, min, max, target_backlog, promise_s)
    if request_nodes and (scaler is None or loopback is not None):
        raise ConfigError("request_nodes=True is for pools of actors that scale: give max= and promise_s= or min=")
    if name is not None:
        if loopback is not None:
            raise ConfigError(f"name={name!r} is for a pool that outlives its process; a loopback ends with it")
        check_cluster_name(cluster)
        check_pool_name(name)
        with naming_extra("rb.deploy"):
            from raybroker.actors.pools.named_pool import PoolPlan, deploy_named  # Brings Ray in.

        return deploy_named(
            PoolPlan(name, cluster, listener, first, scaler, actor_options or {}, backlog_of, request_nodes)
        )
    if loopback is not None:
        if actor_options is not None:
            raise ConfigError("actor_options= are for actors of Ray; a loopback has none")
        pool = _in_process(listener, loopback)
    else:
        check_cluster_name(cluster)
        with naming_extra("rb.deploy"):
            from raybroker.actors.pools.node_demand import NodeDemand  # Brings Ray in.
            from raybroker.actors.pools.pool import make_pool

        demand = NodeDemand(token(KEY_BYTES).hex(), actor_options or {}) if request_nodes else None
        pool = make_pool(listener, cluster, actor_options or {}, backlog_of, demand)
        if demand is not None:
            pool.begin_scaling(first, scaler, demand.need)
            return pool
    pool.begin_scaling(first, scaler)
    return pool


class _Local:
    """An instance in this process."""

    def __init__(self, instance: Instance) -> None:
        self.actor = instance
        self.ready, self.stats = instance.ready, instance.stats
        self.leave, self.stop = instance.leave, instance.stop

    def leaves(self) -> bool:
        """No other node is there for it."""
        return False

    def discard(self) -> None:
        """Its threads have ended, or will with the call that runs."""
        self.actor.stopping.set()


def _in_process(listener: Listener, broker: str) -> Pool:
    looking = attach_loopback(broker, None)

    def make() -> _Local:
        return _Local(Instance(listener, lambda client_id: attach_loopback(broker, client_id), _nothing))

    return Pool(
        listener, make, backlog_of(listener, looking), looking.close, attach=lambda: attach_loopback(broker, None)
    )


def _nothing() -> None:
    """The instance's stats say that it has stopped."""


def backlog_of(listener: Listener, connection: Connection) -> Callable[[], int]:
    """What asks how many messages wait for a listener or are being handled."""
    where = listener.destination

    def ask() -> int:
        admin = connection.admin()
        if where.kind == "queue":
            found = admin.query_destination("queue", where.name)
            return int(found["messages"]) - int(found["delayed"])
        rows = admin.list_subscriptions(where.name)
        return sum(int(row["messages"]) for row in rows if row["name"] == listener.subscription)

    return ask
