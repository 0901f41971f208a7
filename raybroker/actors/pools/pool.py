"""Instances of a deployed listener as actors (``rb.deploy``).

Survives a crash: nothing of an instance, and nothing needs to; what it had not acknowledged goes to the others and
comes back to it, flagged, when Ray has restarted it.  A message is acknowledged, and confirmed, after the function
returned.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final

from ray.util.metrics import Counter, Gauge

from raybroker.actors import cluster as clusters
from raybroker.actors import runtime
from raybroker.actors.pools.node_demand import NodeDemand
from raybroker.client.blocking.handles import Connection
from raybroker.client.connection.factory import connect
from raybroker.client.listener.instance import COUNTS, READY_S, Instance
from raybroker.client.listener.listener import Listener
from raybroker.client.listener.pool import STOP_TIMEOUT_S, Pool
from raybroker.model.errors import BrokerError, ConfigError, NoClusterError
from raybroker.system.supervision import Supervisor

_ITS_OWN: Final = frozenset({"get_if_exists", "lifetime", "name", "namespace"})
"""Options of Ray that would make an actor outlive its pool, or be another one's."""
REPORT_S: Final = 5.0
"""How often an instance tells Ray's metrics what it has counted."""

log = logging.getLogger("raybroker.listener")


class ConsumerActor:
    """One instance. ``stats`` may be called at any time; ``stop`` ends it after the calls that run."""

    def __init__(self, cluster: str, listener: Listener) -> None:
        def attach(client_id: str | None) -> Connection:
            return connect(cluster=cluster, client_id=client_id)

        self._instance = Instance(listener, attach, lambda: os._exit(1))  # Ray starts it anew.
        self._loops = Supervisor(f"an instance of {listener.name}")
        self._loops.thread("metrics for Ray", self._report, thread_name="raybroker-metrics")

    def ready(self) -> None:
        """Returns when it is attached; raises why it cannot be."""
        self._instance.ready()

    def stats(self) -> dict[str, Any]:
        """See :meth:`Pool.stats`."""
        return self._instance.stats()

    def wait_to_leave(self) -> bool:
        """Returns True when the node of this actor is drained, False when it stops."""
        return self._instance.wait_to_leave()

    def leave(self) -> dict[str, Any]:
        """Begin no more calls; what is in hand goes on. May be called again."""
        return self._instance.leave()

    def stop(self) -> dict[str, Any]:
        """End after what is in hand; what is buffered goes back to the destination."""
        return self._instance.stop()

    def _report(self) -> None:
        """raybroker_listener_messages_total and so on, among the metrics of this node's Ray."""
        listener = self._instance.listener
        where = listener.destination
        labels = {"listener": listener.name, "type": where.kind, "destination": where.name}
        keys = tuple(labels)
        counters = {name: Counter(f"raybroker_listener_{name}_total", f"{name} of rb.deploy", keys) for name in COUNTS}
        attached = Gauge("raybroker_listener_attached", "Whether the instances of rb.deploy are attached", keys)
        told = dict.fromkeys(COUNTS, 0)
        while not self._instance.stopping.wait(REPORT_S):
            found = self._instance.stats()
            attached.set(float(found["state"] == "running"), labels)
            for name, counter in counters.items():
                if found[name] > told[name]:
                    counter.inc(found[name] - told[name], labels)
                told[name] = found[name]


class _Actor:
    """The handle of an instance."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._told: Any = None
        """What will say that it leaves."""

    def ready(self) -> None:
        runtime.call_blocking(self.actor.ready, timeout_s=READY_S + runtime.CALL_TIMEOUT_S)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = runtime.call_blocking(self.actor.stats)
        return found

    def leaves(self) -> bool:
        try:
            self._told = self._told or self.actor.wait_to_leave.remote()
            said = runtime.answered(self._told)
        except BrokerError:  # It is being started again, or has ended.
            said = False
        if said is not None:
            self._told = None
        return bool(said)

    def leave(self) -> dict[str, Any]:
        found: dict[str, Any] = runtime.call_blocking(self.actor.leave, timeout_s=STOP_TIMEOUT_S)
        return found

    def stop(self) -> dict[str, Any]:
        found: dict[str, Any] = runtime.call_blocking(self.actor.stop, timeout_s=STOP_TIMEOUT_S)
        return found

    def discard(self) -> None:
        runtime.kill(self.actor)


def make_pool(
    listener: Listener,
    cluster: str,
    actor_options: dict[str, Any],
    backlog_of: Callable[[Listener, Connection], Callable[[], int]],
    demand: NodeDemand | None = None,
) -> Pool:
    """A pool without instances yet; with its end its ``demand`` is over.

    Raises NoClusterError, and ConfigError for options that are not for instances.
    """
    refused = sorted(_ITS_OWN.intersection(actor_options))
    if refused:
        raise ConfigError(
            f"actor_options={{{refused[0]!r}: …}} is not for instances of rb.deploy, which end with their pool; a pool"
            " that outlives this process has a name itself: rb.deploy(…, name='orders'), and rb.pool('orders') is its"
            " handle in any program"
        )
    runtime.join_ray(cluster)
    if clusters.find(cluster) is None:
        raise NoClusterError(
            f"no cluster named {cluster!r} in the Ray at {runtime.address()};"
            f" start one with rb.start({cluster!r}) or: raybroker up --name {cluster}"
        )
    options = {"max_concurrency": 4, **actor_options}
    options["max_concurrency"] += 1  # One call waits until the node of the instance is drained.
    looking: list[Connection] = []
    drained: list[str] = []

    def asked(ask: Callable[[Connection], Any]) -> Any:
        if not looking:
            looking.append(connect(cluster=cluster))
        try:
            return ask(looking[0])
        except BrokerError:
            looking.pop().close()
            raise

    def make() -> _Actor:
        try:
            drained[:] = [row["node"] for row in asked(lambda connection: connection.admin().list_drained_nodes())]
        except BrokerError as error:  # What was known before holds.
            log.warning("it is not known which nodes are drained: %s", error)
        return _Actor(
            runtime.create_actor(ConsumerActor, cluster, listener, name=None, **runtime.elsewhere(options, drained))
        )

    def backlog() -> int:
        return int(asked(lambda connection: backlog_of(listener, connection)()))

    def close() -> None:
        for connection in looking:
            connection.close()
        if demand is not None:
            demand.need(0)

    return Pool(listener, make, backlog, close, attach=lambda: connect(cluster=cluster))
