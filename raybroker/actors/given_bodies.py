"""Bodies that clients have given to this process by reference, in the object store of Ray.

A client puts a value and hands its reference to the actor whose process has the host (``hold``).  The host, told the
token over its own connection, takes it: it writes a persistent body to its store straight from the object store, and
makes this process the owner of a copy of another.  Such a copy lasts as long as its message; consumers of this Ray find
it by its key (``find``), and everybody else gets pieces of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from raybroker.actors import runtime
from raybroker.content.scattered import parts_of, piece_of, pieces_in, size_of_parts
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.system.clock import SystemClock

GIVEN_MAX: Final = 256
"""References that wait for their host; one more, and the oldest is forgotten: its client sends pieces."""
GIVEN_S: Final = 60.0
"""How long a reference waits for its host."""
GET_TIMEOUT_S: Final = 60.0
"""How long the value of a reference may take to come from another node."""


class OwnedBody:
    """A body in the object store, owned by this process; see LargeBody."""

    def __init__(self, ref: Any, parts: Sequence[Buffer], nbytes: int) -> None:
        self.ref = ref
        self.nbytes = nbytes
        self._parts = parts

    def piece(self, number: int) -> bytes:
        return piece_of(self._parts, number)

    def claim(self) -> bool:
        """False: it is no file of a store."""
        return False


class ReferredValue:
    """See GivenBody: the value of a reference, in this node's object store."""

    def __init__(self, key: str, value: Any, owned: WeakValueDictionary[str, OwnedBody]) -> None:
        self._key = key
        self._value = value
        self._owned = owned
        try:
            self._parts = parts_of(value)[1]
        except (TypeError, ValueError, AttributeError) as error:
            raise BrokerError(f"a body by reference cannot be read: {error}") from None
        self.nbytes = size_of_parts(self._parts)

    def pieces(self) -> Iterator[bytes]:
        return pieces_in(self._parts)

    def owned(self) -> OwnedBody:
        ref = runtime.put_object(self._value)
        found = ReferredValue(self._key, runtime.object_in_thread(ref, GET_TIMEOUT_S), self._owned)
        made = self._owned[self._key] = OwnedBody(ref, found._parts, found.nbytes)
        return made


class _WaitingReference(NamedTuple):
    key: str
    ref: Any
    at_s: float


class GivenBodies:
    """See the module; in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: OrderedDict[str, _WaitingReference] = OrderedDict()
        self._owned: WeakValueDictionary[str, OwnedBody] = WeakValueDictionary()

    def hold(self, token: str, key: str, ref: Any) -> None:
        """Keep a reference until its host asks for it."""
        now_s = _now_s()
        with self._lock:
            self._given[token] = _WaitingReference(key, ref, now_s)
            while len(self._given) > GIVEN_MAX or next(iter(self._given.values())).at_s < now_s - GIVEN_S:
                self._given.popitem(last=False)

    def take_body(self, token: str) -> ReferredValue:
        with self._lock:
            found = self._given.pop(token, None)
        if found is None:
            raise IllegalStateError("no body was given to this process under that token, or too long ago")
        return ReferredValue(found.key, runtime.object_in_thread(found.ref, GET_TIMEOUT_S), self._owned)

    def find(self, key: str) -> list[Any]:
        """The reference of the body with that key; empty when this process owns none."""
        found = self._owned.get(key)
        return [] if found is None else [found.ref]


def _now_s() -> float:
    return SystemClock.monotonic_ns() / 1e9


@cache
def bodies_of_this_process() -> GivenBodies:
    """Those of all hosts in this process."""
    return GivenBodies()
