"""Unreferenced consumers: the application cannot receive from them, and their messages go to other consumers.

``session.consumer("orders").receive()`` in a loop makes such a one each time.  A session keeps a consumer that has a
listener; of any other it has only a weak reference.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.io.io_thread import ending

C = TypeVar("C")


class ConsumerHandles(Generic[C]):
    """The open consumers of a session, in the order in which they were made."""

    def __init__(self) -> None:
        self._all: weakref.WeakValueDictionary[int, C] = weakref.WeakValueDictionary()
        self.kept: dict[C, AnyConsumer] = {}
        """Those with a listener, and what is behind them."""
        self._numbers = count()

    def add(self, handle: C) -> None:
        self._all[next(self._numbers)] = handle

    def keep(self, handle: C, core: AnyConsumer) -> None:
        """It works although the application may have no reference to it: it has a listener."""
        self.kept[handle] = core

    def discard(self, handle: C) -> None:
        """It is closed."""
        self.kept.pop(handle, None)
        for number, other in list(self._all.items()):
            if other is handle:
                del self._all[number]

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._all.values()))


def let_go(core: AnyConsumer) -> None:
    """The last reference to a consumer is gone: warn, and have it closed. In any thread, holding any lock."""
    if core.has_ended() or core._connection.tasks.closed or core._connection.io.unusable or ending():
        return
    with contextlib.suppress(Exception):
        core._connection.io.post(core.let_go)
        warnings.warn(
            f"a consumer of {core.name} was never closed: what waits in it goes back; keep it, close it, or use"
            " session.receive()",
            ResourceWarning,
            stacklevel=3,
        )
