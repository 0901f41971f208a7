"""The object keeper of a broker: an actor that owns copies of large bodies in Ray's object store.

A copy outlives whoever sent the message, since the keeper reads what it was given and puts it itself.  It is a copy:
the host has the body.  So the keeper may forget any: the one that was not asked for for the longest time, when those
here are more than KEPT_PART of the object store of its node, and each after KEPT_S.  It ends with its broker.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any, Final, NamedTuple

from raybroker.actors import runtime
from raybroker.system.clock import SystemClock

KEPT_PART: Final = 0.3
KEPT_S: Final = 600.0


class SharedCopy(NamedTuple):
    """One copy. ``at_s``: when it was made."""

    ref: Any
    nbytes: int
    at_s: float


class ObjectKeeper:
    """See the module. Its calls come one after another."""

    def __init__(self) -> None:
        self._copies: OrderedDict[str, SharedCopy] = OrderedDict()
        self._nbytes = 0
        self._most = int(KEPT_PART * runtime.object_store_bytes())

    def keep(self, key: str, refs: list[Any], nbytes: int) -> bool:
        """Own a copy of an object; False for one that is too large to be kept."""
        self._forget_old()
        if nbytes > self._most:
            return False
        while self._nbytes + nbytes > self._most:
            self._forget(next(iter(self._copies)))
        self._copies[key] = SharedCopy(runtime.copied(refs[0]), nbytes, _now_s())
        self._nbytes += nbytes
        return True

    def count(self) -> int:
        """How many copies are here."""
        return len(self._copies)

    def find(self, key: str) -> list[Any]:
        """The copy of that key; empty when it is not here."""
        self._forget_old()
        found = self._copies.get(key)
        if found is None:
            return []
        self._copies.move_to_end(key)
        return [found.ref]

    def _forget_old(self) -> None:
        least = _now_s() - KEPT_S
        for key in [key for key, copy in self._copies.items() if copy.at_s < least]:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._nbytes -= self._copies.pop(key).nbytes


def _now_s() -> float:
    return SystemClock.monotonic_ns() / 1e9


@cache
def keeper_of_this_broker() -> Any:
    """The keeper of the broker of this process, which makes it when it is first asked for."""
    return runtime.create_actor(ObjectKeeper, name=None, node=runtime.node_id())
