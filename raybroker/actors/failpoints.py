"""Failpoints of the actors' processes: armed when an actor begins, around what a host writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from raybroker.config.layers import variable
from raybroker.engine.ports import Store
from raybroker.model.blocks.record import LogEntry
from raybroker.system.failpoint import arm, armed, failpoint


def arm_failpoints(role: str) -> None:
    """See system.failpoint; the role is b1, b1/h1 or paths."""
    arm(role, variable("RB_FAILPOINT"))


class _Stepping:
    """A store with failpoints before and after each write."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, entries: Sequence[LogEntry]) -> Callable[[], None] | None:
        failpoint("store.commit")
        noted = self._store.commit(entries)
        failpoint("store.committed")
        return noted

    def maintain(self, budget_bytes: int) -> bool:
        failpoint("store.maintain")
        return self._store.maintain(budget_bytes)


def with_steps(store: Store) -> Store:
    """The store, with failpoints around it when they are armed."""
    return cast(Store, _Stepping(store)) if armed() else store
