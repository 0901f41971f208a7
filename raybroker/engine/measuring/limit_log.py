"""Lines for the log when destinations reach their limits: one with a count, however many messages it concerns.

Once a second the counters of each destination are compared with what the log has heard: messages that were refused, by
the reason; messages that REMOVE_OLDEST or REMOVE_LOW_PRIORITY discarded; and times that FLOW_CONTROL made producers
wait.  Of a queue with bounded staleness the log hears when it begins to starve, and when it does not any more.  The
first line comes within that second, further ones at most every ``TOLD_EVERY_MS``, each with what came since
the line before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from raybroker.core.counters import Counters
from raybroker.core.destination import Destination
from raybroker.core.staleness.starvation import Starvation
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.engine.ports import Notice

TOLD_EVERY_MS: Final = 60_000
"""Least time between two lines about one destination."""


class _Limited:
    """What the log has heard of a destination, and when, milliseconds."""

    __slots__ = ("at_ms", "refusals", "removed", "slow_ms", "slowed", "starving", "total")

    def __init__(self) -> None:
        self.at_ms = -TOLD_EVERY_MS
        self.total = self.removed = self.slowed = self.slow_ms = 0
        self.starving = False
        self.refusals: dict[str, int] = {}


class LimitLog:
    """``report`` takes a line for the log."""

    def __init__(self, now_ms: Callable[[], int], report: Callable[[str], None]) -> None:
        self._now_ms = now_ms
        self._report = report
        self._known: dict[int, _Limited] = {}
        """Destinations that have reached a limit."""

    def tell_due(self, destinations: Iterable[Destination]) -> None:
        """Tell which limits have held something up; called about once a second."""
        for destination in destinations:
            total, starves = _total(destination.counters), _starvation(destination)
            if total or (starves is not None and starves.episodes):
                known = self._known.get(destination.number)
                if known is None:
                    known = self._known[destination.number] = _Limited()
                if starves is not None and starves.starving != known.starving:
                    known.starving = starves.starving
                    self._tell_starving(destination, starves)
                if total != known.total and self._now_ms() - known.at_ms >= TOLD_EVERY_MS:
                    known.total, known.at_ms = total, self._now_ms()
                    self._tell(destination, known)

    def forget_destination(self, destination: Destination) -> None:
        """It is destroyed."""
        self._known.pop(destination.number, None)

    def _tell_starving(self, destination: Destination, starvation: Starvation) -> None:
        name, limit = f"{destination.kind} {destination.name}", destination.attributes.starvationTime
        if starvation.starving:
            waited_s = starvation.waited_ms(self._now_ms()) / 1000
            self._report(
                f"[B2178] {name} starves: a consumer that has nothing has waited for {waited_s:.1f} s, beyond"
                f" starvationTime={limit}"
            )
        else:
            self._report(Notice(f"[B1179] {name} starves no more"))

    def _tell(self, destination: Destination, known: _Limited) -> None:
        name, counters, attributes = (
            f"{destination.kind} {destination.name}",
            destination.counters,
            destination.attributes,
        )
        for code, (count, text) in counters.refusals.items():
            more = count - known.refusals.get(code, 0)
            if more:
                known.refusals[code] = count
                self._report(f"[B2147] {name} refused {_messages(more)} ({code}): {text}")
        limits = f"maxNumMsgs={attributes.maxNumMsgs}, maxTotalMsgBytes={attributes.maxTotalMsgBytes}"
        if counters.removed != known.removed:
            more, known.removed = counters.removed - known.removed, counters.removed
            self._report(f"[B2149] {name} is full ({limits}): {attributes.limitBehavior} removed {_messages(more)}")
        if counters.slow.episodes != known.slowed:
            more, known.slowed = counters.slow.episodes - known.slowed, counters.slow.episodes
            slow_ms = counters.slow.ms + (self._now_ms() - counters.slow.since_ms if destination.admission.slow else 0)
            waited_s, known.slow_ms = (slow_ms - known.slow_ms) / 1000, slow_ms
            times = "once" if more == 1 else f"{more} times"
            self._report(
                f"[B2150] {name} is full ({limits}): FLOW_CONTROL made its producers wait {times}, {waited_s:.1f} s in"
                f" all{', and they wait now' if destination.admission.slow else ''}"
            )


def _starvation(destination: Destination) -> Starvation | None:
    for queue in destination.queues.values():
        return queue.plain.starvation if isinstance(queue.plain, VersionPending) else None
    return None


def _total(counters: Counters) -> int:
    return counters.since_start("refused") + counters.removed + counters.slow.episodes


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
