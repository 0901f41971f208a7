"""A policy for Ray Serve's autoscaling: replicas by what waits in a queue, or so that no task waits too long."""

from __future__ import annotations

from functools import partial
from typing import Any

from raybroker.client.blocking.handles import Connection
from raybroker.client.connection.factory import connect
from raybroker.client.listener.demand_feed import DemandFeed
from raybroker.client.listener.promise import Promise, check_promise_s
from raybroker.model.naming.names import check_cluster_name, check_destination_name


class RaybrokerAutoscalingPolicy:
    """The ``policy_function`` of an ``AutoscalingPolicy``, for deployments with ``@task_consumer``.

    queue_name  the queue of their tasks
    promise_s   seconds that no task is to wait: replicas are as many as can do what is here in what is left of them.
                None: one for each ``target_ongoing_requests`` tasks
    cluster     the cluster of brokers
    loopback    name of a broker in this process, for tests

    Brokers tell it what waits, each second. While none has told anything, the number stays as it is.
    """

    def __init__(
        self, queue_name: str, promise_s: float | None = None, *, cluster: str = "default", loopback: str | None = None
    ) -> None:
        check_destination_name(queue_name)
        check_cluster_name(cluster)
        if promise_s is not None:
            check_promise_s(promise_s)
        self._promise_s = promise_s
        self._promise: Promise | None = None
        self._feed = DemandFeed(queue_name, partial(_attached, cluster, loopback))

    def __del__(self) -> None:
        feed = self.__dict__.get("_feed")
        if feed is not None:
            feed.end_listening()

    def __call__(self, ctx: Any) -> tuple[int | float, dict[str, Any]]:
        """How many replicas there should be, and what that was made of; see ``ray.serve.config.AutoscalingContext``."""
        demand = self._feed.now()
        if demand is None:
            return ctx.target_num_replicas, {"reason": f"the demand is not known: {self._feed.trouble}"}
        told = {"backlog": demand.backlog, "oldest_s": demand.oldest_s}
        if self._promise_s is None:
            each = max(float(ctx.config.get_target_ongoing_requests()), 1e-9)
            return demand.backlog / each, {**told, "reason": f"one for each {each:g} tasks"}
        low, high = ctx.capacity_adjusted_min_replicas, ctx.capacity_adjusted_max_replicas
        if self._promise is None:
            self._promise = Promise(low, high, self._promise_s)
        self._promise.low, self._promise.high = low, high
        found = self._promise.wanted(demand, ctx.current_num_replicas)
        return found.workers, {**told, "reason": found.reason}


def _attached(cluster: str, loopback: str | None) -> Connection:
    if loopback is None:
        return connect(cluster=cluster)
    from raybroker.client.loopback import attach_loopback  # Brings a whole broker in.

    return attach_loopback(loopback, None)
