"""Mutants of limits that leave out the dying, of waiting for consumers, of what a topic remembers as taken, and of
fencing numbers."""

from __future__ import annotations

from raybroker.core.admission.admission import Admission
from raybroker.core.delivery.consumers import Consumers
from raybroker.core.delivery.dispatch_gate import DispatchGate
from tests.simulation.mutation import Patch, mutant


@mutant("the dying do not count for the limit on bytes")
def dying_bytes_count(patch: Patch) -> None:
    old = Admission.charged
    patch.set(Admission, "charged", lambda self: (old(self)[0], self._index.bytes_held))


@mutant("a queue waits for consumersBeforeDispatch consumers")
def dispatch_before_enough_came(patch: Patch) -> None:
    old = Consumers.rank
    patch.set(Consumers, "rank", lambda self, *, local_first, dispatching: old(self, local_first=local_first))


@mutant("a queue waits no longer than delayBeforeDispatch")
def gathering_without_end(patch: Patch) -> None:
    patch.set(DispatchGate, "until_ms", lambda self, attributes: None)


@mutant("a queue that everybody has left waits anew")
def gathering_once(patch: Patch) -> None:
    old = DispatchGate.is_open_for

    def look(self: DispatchGate, consumers: int, attributes: object, now_ms: int) -> bool:
        return old(self, consumers, attributes, now_ms) if consumers else self.dispatching  # type: ignore[arg-type]

    patch.set(DispatchGate, "is_open_for", look)


@mutant("a message that is handed out again has a larger fencing number")
def fence_stays(patch: Patch) -> None:
    patch.set(Consumers, "fenced", lambda self, consumer, effect: effect._replace(fence=self.fence + effect.ordinal))


@mutant("fencing numbers go on to grow after a restart")
def fence_begins_anew(patch: Patch) -> None:
    patch.set(Consumers, "begin_fences", lambda self, attachment: setattr(self, "fence", max(self.fence, 1)))
