"""A deployed listener: its instances, how many there are, and what they have done in all."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.io.closing import noted_on
from raybroker.client.listener.autoscaling import LOOK_S, Autoscaler
from raybroker.client.listener.demand_feed import DemandFeed
from raybroker.client.listener.instance import COUNTS, STOP_S
from raybroker.client.listener.instance_handle import InstanceHandle
from raybroker.client.listener.listener import Listener
from raybroker.client.listener.promise import Promise, check_promise_s
from raybroker.client.listener.replacing import Replacing
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError
from raybroker.system.supervision import Supervisor

if TYPE_CHECKING:
    from raybroker.client.blocking.handles import Connection

INSTANCES_MAX: Final = 1000
PROMISE_LOOK_S: Final = 1.0
"""How often a pool with a promise looks at the demand, which brokers tell as often."""
FEED_END_S: Final = 5.0
"""How long stopping waits for the connection that is told the demand."""
AT_A_TIME: Final = 16
"""Instances that are asked at the same time."""

log = logging.getLogger("raybroker.listener")


class Pool:
    """Made by :func:`raybroker.deploy`. The instances end with the process that deployed them, or with ``stop()``."""

    def __init__(
        self,
        listener: Listener,
        make: Callable[[], InstanceHandle],
        backlog: Callable[[], int],
        close: Callable[[], None] = lambda: None,
        attach: Callable[[], Connection] | None = None,
    ) -> None:
        """``attach``: makes a connection that is told the demand, of a pool that may scale by a promise."""
        self.listener = listener
        self._make = make
        self._backlog = backlog
        self._close = close
        self._attach = attach
        self._feed: DemandFeed | None = None
        self._least = 1
        self.reason = ""
        """Why there are so many instances, where that is decided by a promise."""
        self._handles: list[InstanceHandle] = []
        self._gone = dict.fromkeys(COUNTS, 0)
        self._scaling = threading.Lock()
        self._over = threading.Event()
        self._autoscaling: threading.Thread | None = None
        self._loops = Supervisor(f"the pool {listener.name}")
        self._pid = os.getpid()

    @property
    def actors(self) -> list[Any]:
        """The Ray actors, in the order of ``stats()``; in a loopback the instances themselves."""
        return [handle.actor for handle in self._handles]

    def scale(self, instances: int) -> int:
        """Have so many instances from now on, 1 to 1000 (of a pool with a promise from 0); returns their number before.

        New ones are attached when this returns, and those that are too many have ended after the call that ran there.
        Where scaling is automatic, that goes on from here. Raises why a new instance could not attach; then the number
        is what it was. Raises IllegalStateError once the pool has stopped.
        """
        self._require_here()
        if instances != 0 or self._least:
            _check("instances", instances)
        if instances > 1 and not self.listener.sharing and self.listener.subscription is not None:
            raise ConfigError(
                f"instances={instances}: the subscription {self.listener.subscription!r} is not shared, and has one"
                " consumer alone; add shared=True"
            )
        with self._scaling:
            if self._over.is_set():
                raise IllegalStateError("the pool has stopped")
            before = len(self._handles)
            if instances > before:
                self._grow(instances - before)
            elif instances < before:
                self._end_instances(instances)
            return before

    def _grow(self, count: int) -> None:
        new = [self._make() for _ in range(count)]
        try:
            for handle in new:
                handle.ready()
        except BaseException:
            for handle in new:
                handle.discard()
            raise
        self._handles += new

    def _end_instances(self, left: int) -> list[dict[str, Any]]:
        """End all but the first ``left``; returns their last stats."""
        ending, self._handles = self._handles[left:], self._handles[:left]
        found = _asked(ending, lambda handle: handle.stop())
        for handle, row in zip(ending, found, strict=True):
            self._gone_from(handle, row)
        return found

    def _gone_from(self, handle: InstanceHandle, row: dict[str, Any]) -> None:
        """An instance has ended; ``row``: its last stats."""
        for name in COUNTS:
            self._gone[name] += row.get(name, 0)
        handle.discard()

    def _replace(self, old: InstanceHandle, made: InstanceHandle) -> bool:
        """Have another instance in place of one; False: it is not there any more."""
        with self._scaling:
            if self._over.is_set() or old not in self._handles:
                return False
            self._handles[self._handles.index(old)] = made
            return True

    def stats(self) -> list[dict[str, Any]]:
        """One dict an instance: messages, batches, redelivered, failures, rejected (dead at once), reattached, state,
        buffered, pid, last_error. One that cannot answer now, because Ray restarts it, has only "error".

        state  "running"; "attaching": its destination is gone, and it waits until it is there again; "unreachable":
               no broker can be reached
        """
        self._require_here()
        return _asked(list(self._handles), lambda handle: handle.stats())

    def totals(self) -> dict[str, int]:
        """Sums over all instances, also those that were stopped by ``scale``: the counts of ``stats()``, and now
        instances, running, buffered. An instance that Ray restarted counts from 0 again."""
        rows = self.stats()
        found = {name: self._gone[name] + sum(row.get(name, 0) for row in rows) for name in COUNTS}
        running = sum(row.get("state") == "running" for row in rows)
        return {
            **found,
            "instances": len(rows),
            "running": running,
            "buffered": sum(row.get("buffered", 0) for row in rows),
        }

    def stop(self) -> list[dict[str, Any]]:
        """Stop every instance after the call that runs; returns their last stats."""
        self._require_here()
        self._over.set()
        self._loops.close()
        if self._autoscaling is not None and self._autoscaling is not threading.current_thread():
            self._autoscaling.join()
        if self._feed is not None:
            self._feed.end_listening(FEED_END_S)
        with self._scaling:
            found = self._end_instances(0)
        self._close()
        return found

    def _require_here(self) -> None:
        """Raises IllegalStateError in a forked child, where no instance runs."""
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"this pool belongs to process {self._pid}, and this is its child {os.getpid()}: a pool does not"
                " survive a fork; deploy again in the child"
            )

    def __repr__(self) -> str:
        state = "stopped" if self._over.is_set() else f"{len(self._handles)} instances"
        return f"<{type(self).__name__} of {self.listener.name}, {state}>"

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            self.stop()

    def begin_scaling(
        self, first: int, scaler: Autoscaler | Promise | None, need: Callable[[int], None] = lambda instances: None
    ) -> None:
        """Make the first instances, and scale from then on; raises why one could not attach: then it has stopped.
        ``need`` is told at each look how many instances there are to be."""
        try:
            if first:
                self.scale(first)
        except BaseException:
            self.stop()
            raise
        replacing = Replacing(
            self.listener.name, self._over, lambda: list(self._handles), self._make, self._replace, self._gone_from
        )
        self._loops.thread("replacing on drained nodes", replacing.run, thread_name="raybroker-replacing")
        if isinstance(scaler, Promise):
            self.keep_promise(scaler, need=need)
        elif scaler is not None:
            self.follow(scaler, need=need)

    # ---- scaling by a promise --------------------------------------------------------------------------------------

    def keep_promise(
        self, promise: Promise, look_s: float = PROMISE_LOOK_S, need: Callable[[int], None] = lambda instances: None
    ) -> None:
        """Scale so that no message waits longer than was promised, until the pool is stopped."""
        assert self._attach is not None
        self._least = 0
        feed = self._feed = DemandFeed(self.listener.destination.name, self._attach)
        self._autoscaling = self._loops.thread(
            "scaling by a promise", lambda: self._keep(promise, feed, look_s, need), thread_name="raybroker-autoscaling"
        )

    def _keep(self, promise: Promise, feed: DemandFeed, look_s: float, need: Callable[[int], None]) -> None:
        told = ""
        while not self._over.wait(look_s):
            demand = feed.now()
            if demand is None:
                continue
            now = len(self._handles)
            wanted = promise.wanted(demand, now)
            self.reason = wanted.reason
            try:
                need(wanted.workers)
                if wanted.workers != now:
                    self.scale(wanted.workers)
                    log.info("%s: %d instances, %d before: %s", self.listener.name, wanted.workers, now, wanted.reason)
                told = ""
            except BrokerError as error:
                if str(error) != told and not self._over.is_set():
                    log.warning("%s cannot be scaled now: %s", self.listener.name, error)
                told = str(error)

    # ---- scaling by backlog ----------------------------------------------------------------------------------------

    def follow(
        self, scaler: Autoscaler, look_s: float = LOOK_S, need: Callable[[int], None] = lambda instances: None
    ) -> None:
        """Scale by backlog until the pool is stopped."""
        self._autoscaling = self._loops.thread(
            "scaling by backlog", lambda: self._follow(scaler, look_s, need), thread_name="raybroker-autoscaling"
        )

    def _follow(self, scaler: Autoscaler, look_s: float, need: Callable[[int], None]) -> None:
        told = ""
        while not self._over.wait(look_s):
            try:
                backlog, now = self._backlog(), len(self._handles)
                wanted = scaler.wanted(backlog, now)
                need(wanted)
                if wanted != now:
                    self.scale(wanted)
                    log.info("%s: %d instances for a backlog of %d", self.listener.name, wanted, backlog)
                told = ""
            except BrokerError as error:
                if str(error) != told and not self._over.is_set():
                    log.warning("%s cannot be scaled now: %s", self.listener.name, error)
                told = str(error)


def _asked(handles: Iterable[InstanceHandle], ask: Callable[[InstanceHandle], dict[str, Any]]) -> list[dict[str, Any]]:
    def answer(handle: InstanceHandle) -> dict[str, Any]:
        try:
            return ask(handle)
        except BrokerError as error:
            return {"error": str(error)}

    with ThreadPoolExecutor(AT_A_TIME) as some:
        return list(some.map(answer, handles))


def _check(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= INSTANCES_MAX:
        raise ConfigError(f"{name}={value!r}; it is a whole number from 1 to {INSTANCES_MAX}")


def check_scaling(
    listener: Listener,
    instances: int | None,
    low: int | None,
    high: int | None,
    target: int | None,
    promise_s: float | None = None,
) -> tuple[int, Autoscaler | Promise | None]:
    """(instances to begin with, how they are scaled); raises ConfigError for what does not go together."""
    if promise_s is not None:
        return _check_promise(listener, instances, low, high, target, promise_s)
    for name, value in (("instances", instances), ("min", low), ("max", high)):
        if value is not None:
            _check(name, value)
    if low is None and high is None and target is None:
        return instances or 1, None
    if high is None:
        raise ConfigError("max= is needed to scale by backlog: the most instances there may be")
    if target is None:
        target = 1000
    if not isinstance(target, int) or isinstance(target, bool) or target < 1:
        raise ConfigError(f"target_backlog={target!r}; it is a whole number of messages for each instance, from 1")
    low = 1 if low is None else low
    first = low if instances is None else instances
    if not low <= first <= high:
        raise ConfigError(f"min={low}, instances={first}, max={high}: they are to ascend")
    if listener.destination.kind == "topic" and not (listener.shared and listener.durable):
        raise ConfigError("min=, max= and target_backlog= are for a queue, or for a shared durable subscription")
    return first, Autoscaler(low, high, target)


def _check_promise(
    listener: Listener,
    instances: int | None,
    low: int | None,
    high: int | None,
    target: int | None,
    promise_s: float,
) -> tuple[int, Promise]:
    if target is not None:
        raise ConfigError("promise_s= and target_backlog= are two ways to scale: leave one of them out")
    if high is None:
        raise ConfigError("max= is needed to scale by a promise: the most instances there may be")
    if listener.destination.kind == "topic" or listener.destination.is_pattern:
        raise ConfigError("promise_s= is for a queue; scale a subscription by target_backlog=")
    for name, value in (("instances", instances), ("min", low)):
        if value:
            _check(name, value)
    _check("max", high)
    low = low or 0
    first = low if instances is None else instances
    if not low <= first <= high:
        raise ConfigError(f"min={low}, instances={first}, max={high}: they are to ascend")
    return first, Promise(low, high, check_promise_s(promise_s))


STOP_TIMEOUT_S: Final = STOP_S + 5.0
"""How long an instance may take to say that it has stopped."""
