"""Pools with a name: an actor that outlives the program which deployed it has the instances (``rb.deploy(…, name=…)``).

Instances end with this actor, and Ray starts it again after a crash: then it makes as many as there were last.  What
they had not acknowledged comes again, flagged.  A failed call means that the change may or may not have been made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from raybroker.actors import runtime
from raybroker.actors.pools.node_demand import NodeDemand, bundle_of
from raybroker.actors.pools.pool import make_pool
from raybroker.client.blocking.handles import Connection
from raybroker.client.listener.autoscaling import Autoscaler
from raybroker.client.listener.instance import READY_S
from raybroker.client.listener.listener import Listener
from raybroker.client.listener.pool import STOP_TIMEOUT_S, Pool
from raybroker.client.listener.promise import Promise
from raybroker.model.errors import BrokerError, ConfigError, ConnectionLostError
from raybroker.system.supervision import Supervisor

CALLS_AT_ONCE: Final = 8
"""Of a pool's actor; others wait."""
SCALE_TIMEOUT_S: Final = READY_S + 2 * runtime.CALL_TIMEOUT_S
ROW_TIMEOUT_S: Final = 5.0
"""How long a pool may take to tell what it is for a list of them."""

log = logging.getLogger("raybroker.listener")


class PoolPlan(NamedTuple):
    """What a pool needs to begin anew."""

    name: str
    cluster: str
    listener: Listener
    instances: int
    scaler: Autoscaler | Promise | None
    actor_options: dict[str, Any]
    backlog_of: Callable[[Listener, Connection], Callable[[], int]]
    request_nodes: bool = False


class PoolActor:
    """See the module. ``begin`` is called once, by the program that deploys it."""

    def __init__(self, plan: PoolPlan) -> None:
        self._plan = plan
        self._actor_name = runtime.pool_name(plan.cluster, plan.name)
        self._pool: Pool | None = None
        self._beginning = threading.Lock()
        self._trouble = ""
        """Why it could not begin anew."""
        self._loops = Supervisor(f"the pool {plan.name}")
        if runtime.was_restarted():
            self._loops.thread("begin anew", self._begin_anew, thread_name="raybroker-pool")

    def make_instances(self) -> None:
        """Make the instances; raises why one could not attach."""
        self._make_pool(self._plan.instances)

    def _begin_anew(self) -> None:
        try:
            self._make_pool(int(runtime.remembered(self._actor_name) or self._plan.instances))
        except BrokerError as error:
            self._trouble = str(error)
            raise
        self._trouble = ""

    def _make_pool(self, instances: int) -> None:
        plan = self._plan
        with self._beginning:
            if self._pool is not None:
                return
            demand = NodeDemand(self._actor_name, plan.actor_options) if plan.request_nodes else None
            pool = make_pool(plan.listener, plan.cluster, plan.actor_options, plan.backlog_of, demand)
            if demand is None:
                pool.begin_scaling(instances, plan.scaler)
            else:
                pool.begin_scaling(instances, plan.scaler, demand.need)
            self._pool = pool

    def _there(self) -> Pool:
        if self._pool is None:
            told = f": {self._trouble}" if self._trouble else ""
            raise ConnectionLostError(f"the pool {self._plan.name} is starting again after a crash{told}")
        return self._pool

    def scale(self, instances: int) -> int:
        before = self._there().scale(instances)
        runtime.remember(self._actor_name, str(instances))
        return before

    def stats(self) -> list[dict[str, Any]]:
        return self._there().stats()

    def totals(self) -> dict[str, int]:
        return self._there().totals()

    def pool_row(self) -> dict[str, Any]:
        """A line of :func:`pools`."""
        plan, pool = self._plan, self._pool
        where = plan.listener.destination
        found = {
            "pool": plan.name,
            "cluster": plan.cluster,
            "function": plan.listener.name,
            "type": where.kind,
            "name": where.name,
            "subscription": plan.listener.subscription or "",
            "scaling": "" if plan.scaler is None else f"{plan.scaler.low} to {plan.scaler.high}",
        }
        if pool is None:
            return {**found, "instances": 0, "running": 0, "messages": 0, "state": "STARTING", "reason": self._trouble}
        totals = pool.totals()
        counts = {key: totals[key] for key in ("instances", "running", "messages")}
        return {**found, **counts, "state": "RUNNING", "reason": pool.reason}

    def stop(self) -> list[dict[str, Any]]:
        self._loops.close()
        runtime.forget(self._actor_name)
        return [] if self._pool is None else self._pool.stop()


class NamedPool:
    """A handle of a pool with a name, from ``rb.deploy(…, name=…)`` or ``rb.pool(name)``: the instances are there until
    somebody calls ``stop()``, whatever becomes of the program that deployed them."""

    def __init__(self, name: str, cluster: str, actor: Any) -> None:
        self.name = name
        self.cluster = cluster
        self._actor = actor

    def scale(self, instances: int) -> int:
        """See :meth:`Pool.scale`."""
        before: int = runtime.call_blocking(self._actor.scale, instances, timeout_s=SCALE_TIMEOUT_S)
        return before

    def stats(self) -> list[dict[str, Any]]:
        """See :meth:`Pool.stats`."""
        found: list[dict[str, Any]] = runtime.call_blocking(self._actor.stats)
        return found

    def totals(self) -> dict[str, int]:
        """See :meth:`Pool.totals`."""
        found: dict[str, int] = runtime.call_blocking(self._actor.totals)
        return found

    def stop(self) -> list[dict[str, Any]]:
        """Stop every instance after the call that runs; returns their last stats. The name is free again."""
        try:
            found: list[dict[str, Any]] = runtime.call_blocking(self._actor.stop, timeout_s=2 * STOP_TIMEOUT_S)
        finally:
            runtime.kill(self._actor)
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of cluster {self.cluster!r}>"


def deploy_named(plan: PoolPlan) -> NamedPool:
    """Start a pool that outlives this process. Raises ConfigError where the name is taken, and what ``rb.deploy``
    raises."""
    make_pool(plan.listener, plan.cluster, plan.actor_options, plan.backlog_of).stop()  # It says what is wrong here.
    if plan.request_nodes:
        bundle_of(plan.actor_options)
    name = runtime.pool_name(plan.cluster, plan.name)
    actor = runtime.create_new_actor(PoolActor, plan, name=name, concurrency=CALLS_AT_ONCE)
    if actor is None:
        raise ConfigError(
            f"there is a pool {plan.name!r} in cluster {plan.cluster!r}: rb.pool({plan.name!r}) is its handle, and its"
            " stop() ends it"
        )
    made = NamedPool(plan.name, plan.cluster, actor)
    try:
        runtime.call_blocking(actor.make_instances, timeout_s=SCALE_TIMEOUT_S)
    except BaseException:
        runtime.kill(actor)
        raise
    return made


def pool(name: str, *, cluster: str = "default") -> NamedPool:
    """The handle of a pool that was deployed with a name, by whatever program: to scale, ask and stop it.

    Raises NoClusterError without a Ray, ConfigError when there is no such pool.
    """
    runtime.join_ray(cluster)
    actor = runtime.find_actor(runtime.pool_name(cluster, name))
    if actor is None:
        there = ", ".join(_names(cluster)) or "none"
        raise ConfigError(
            f"there is no pool {name!r} in cluster {cluster!r}; there are: {there}. rb.deploy(…, name=…) makes one"
        )
    return NamedPool(name, cluster, actor)


def pools(*, cluster: str = "default") -> list[dict[str, Any]]:
    """The pools with a name: pool, cluster, function, type and name of the destination, subscription, scaling,
    instances, running, messages, state (RUNNING, STARTING, or UNKNOWN for one that does not answer), reason."""
    runtime.join_ray(cluster)
    rows = []
    for name in _names(cluster):
        actor = runtime.find_actor(runtime.pool_name(cluster, name))
        if actor is None:
            continue
        try:
            rows.append(runtime.call_blocking(actor.pool_row, timeout_s=ROW_TIMEOUT_S))
        except BrokerError as error:
            rows.append(
                {
                    "pool": name,
                    "cluster": cluster,
                    "function": "",
                    "type": "",
                    "name": "",
                    "subscription": "",
                    "scaling": "",
                    "instances": None,
                    "running": None,
                    "messages": None,
                    "state": "UNKNOWN",
                    "reason": str(error),
                }
            )
    return rows


def _names(cluster: str) -> list[str]:
    prefix = runtime.pool_name(cluster, "")
    return [name.removeprefix(prefix) for name in runtime.list_actors(prefix)]
