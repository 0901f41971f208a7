"""Replacement of instances whose node is drained: others begin elsewhere first, and then those end.

What an instance there has not begun is with others already; a call that runs goes on, for as long as the node does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from typing import Any, Final

from raybroker.client.listener.instance_handle import InstanceHandle
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock
from raybroker.system.supervision import Supervisor

LOOK_S: Final = 1.0
AGAIN_S: Final = 10.0
"""Until a replacement that found no place is tried again."""
LONGEST_CALL_S: Final = 86_400.0
"""How long a call on a drained node may go on: after that its message comes again elsewhere."""

log = logging.getLogger("raybroker.listener")


class Replacing:
    """``over``: the pool has stopped; ``handles``: its instances; ``make`` makes one; ``replace`` has the second be in
    place of the first, and says whether it could; ``ended`` takes one that has ended, and its last stats."""

    def __init__(
        self,
        name: str,
        over: Event,
        handles: Callable[[], list[InstanceHandle]],
        make: Callable[[], InstanceHandle],
        replace: Callable[[InstanceHandle, InstanceHandle], bool],
        ended: Callable[[InstanceHandle, dict[str, Any]], None],
    ) -> None:
        self._name = name
        self._over = over
        self._handles = handles
        self._make = make
        self._replace = replace
        self._ended = ended
        self._loops = Supervisor(f"replacements of {name}")

    def run(self) -> None:
        """Look, until the pool stops."""
        pause_s = LOOK_S
        while not self._over.wait(pause_s):
            pause_s = LOOK_S if self.look_at_nodes() else AGAIN_S

    def look_at_nodes(self) -> bool:
        """Replace what is on drained nodes; False where something could not be."""
        leaving = [handle for handle in self._handles() if handle.leaves()]
        begun = [(handle, self._made()) for handle in leaving]  # All of them, before one is waited for.
        missing = [old for old, made in begun if not self._put_in_place(old, made)]
        return not missing

    def _made(self) -> InstanceHandle | None:
        try:
            return self._make()
        except BrokerError as error:
            self._not_made(error)
            return None

    def _put_in_place(self, old: InstanceHandle, made: InstanceHandle | None) -> bool:
        """Have another instance in place of one, once it is attached; False where it has no place yet."""
        if made is None:
            return False
        try:
            made.ready()
        except BrokerError as error:
            made.discard()
            self._not_made(error)
            return False
        if self._over.is_set() or not self._replace(old, made):
            made.discard()
            return True  # The pool has become smaller meanwhile.
        log.info("%s: an instance on a drained node is replaced by one elsewhere", self._name)
        self._loops.thread("the end of an instance", lambda: self._end_replaced(old), thread_name="raybroker-replaced")
        return True

    def _not_made(self, error: BrokerError) -> None:
        log.warning("%s: an instance on a drained node is not replaced yet: %s", self._name, error)

    def _end_replaced(self, old: InstanceHandle) -> None:
        """End an instance after the calls that run."""
        until_ns = SystemClock.monotonic_ns() + int(LONGEST_CALL_S * 1e9)
        row: dict[str, Any] = {}
        try:
            row = old.leave()
            while row["state"] != "stopped" and SystemClock.monotonic_ns() < until_ns and not self._over.wait(LOOK_S):
                row = old.leave()
            row = old.stop()
        except BrokerError as error:  # The node is gone; what it had in hand comes again.
            log.info("%s: an instance on a drained node has ended: %s", self._name, error)
        self._ended(old, row)
