"""Destinations that hold more than their thresholds: since when, for how long in all, and a line when that begins and
ends.

Those of the whole broker are over or not as the broker says, which adds up what its hosts hold.

One is *over* from the first time that it holds more than its High, until it holds less than its Low.  The log hears of
it at once, but of one destination at most once a second; what it heard last is the truth a second later.  So do the
producers: a destination is *armed* while what they heard last is that it is over either threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DMQ
from raybroker.engine.path.observers import Observers
from raybroker.engine.path.producer_signals import ProducerSignals
from raybroker.engine.ports import Notice
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.settings.setting_thresholds import OF

TOLD_EVERY_MS: Final = 1000


def is_over(held: int, high: int, low: int, *, was: bool) -> bool:
    """Whether what holds so much is over now; ``was``: whether it was at the last look. ``high`` -1: it never is."""
    return high >= 0 and (held >= low if was else held > high)


class _Threshold:
    """``total_ms``: of the times that are over; ``told``: what the log has heard, and when."""

    __slots__ = ("over", "since_ms", "told", "told_ms", "total_ms")

    def __init__(self) -> None:
        self.over = self.told = False
        self.since_ms = self.total_ms = 0
        self.told_ms = -TOLD_EVERY_MS


class Thresholds:
    """The thresholds of all destinations of a host. ``report`` takes a line for the log; ``signals`` are for
    producers."""

    def __init__(
        self, now_ms: Callable[[], int], observers: Observers, report: Callable[[str], None], signals: ProducerSignals
    ) -> None:
        self._signals = signals
        self._now_ms = now_ms
        self._observers = observers
        self._report = report
        self._broker_over = False
        self._known: dict[int, dict[str, _Threshold]] = {}
        """Destinations that have thresholds, or had some."""

    def apply_attributes(self, destination: Destination) -> None:
        """Its attributes are new, or have changed."""
        if destination.number not in self._known:
            if max(_highs(destination)) < 0:
                return
            self._known[destination.number] = {of: _Threshold() for of in OF}
            self._observers.add(destination.number, self.after_command)
        self.after_command(destination)

    def after_command(self, destination: Destination) -> None:
        """It may hold more or less than before."""
        known = self._known.get(destination.number)
        if known is None:
            return
        attributes, block_index = destination.attributes, destination.block_index
        for threshold, held, high, low in (
            (known["messages"], block_index.messages, attributes.messagesHigh, attributes.messagesLow),
            (known["bytes"], block_index.bytes_held, attributes.bytesHigh, attributes.bytesLow),
        ):
            over = is_over(held, high, low, was=threshold.over)
            if over != threshold.over:
                now_ms = self._now_ms()
                if threshold.over:
                    threshold.total_ms += now_ms - threshold.since_ms
                threshold.over, threshold.since_ms = over, now_ms
                self._tell(destination, known)

    def tell_due(self, destinations: Iterable[Destination]) -> None:
        """Tell about once a second what the log has not heard yet."""
        for destination in list(destinations) if self._known else ():
            known = self._known.get(destination.number)
            if known is not None:
                self._tell(destination, known)

    def _tell(self, destination: Destination, known: dict[str, _Threshold]) -> None:
        now_ms, armed = self._now_ms(), self.armed(destination)
        for of, threshold in known.items():
            if threshold.told == threshold.over or now_ms - threshold.told_ms < TOLD_EVERY_MS:
                continue
            threshold.told, threshold.told_ms = threshold.over, now_ms
            held = destination.block_index.messages if of == "messages" else destination.block_index.bytes_held
            high, low = (getattr(destination.attributes, of + end) for end in ("High", "Low"))
            if threshold.over:
                self._report(
                    f"[B2151] {destination.kind} {destination.name} holds {held} {of}, more than {of}High={high}"
                )
            else:
                now = f"holds {held} {of}; it was over until {of}Low={low}"
                self._report(Notice(f"[B1152] {destination.kind} {destination.name} {now}"))
        if self.armed(destination) != armed:
            self._signals.tell(destination, armed=not armed)

    def armed(self, destination: Destination) -> bool:
        """Whether producers have heard, or hear when they come, that they are to slow down."""
        known = self._known.get(destination.number)
        return self._broker_over or (known is not None and any(threshold.told for threshold in known.values()))

    def broker_is(self, *, over: bool, destinations: Iterable[Destination]) -> None:
        """All destinations of the broker together are over its thresholds, or not: producers of all of them hear it."""
        if over == self._broker_over:
            return
        before = [(destination, self.armed(destination)) for destination in destinations]
        self._broker_over = over
        for destination, armed in before:
            if self.armed(destination) != armed:
                self._signals.tell(destination, armed=not armed)

    def slowed(self, destination: Destination) -> int:
        """Producers that were told to slow down."""
        return self._signals.count(destination) if self.armed(destination) else 0

    def over(self, destination: Destination) -> dict[str, int]:
        """messages and bytes → 1 when it is over, 0 when not."""
        known = self._known.get(destination.number)
        return {of: int(known is not None and known[of].over) for of in OF}

    def total_ms(self, destination: Destination) -> dict[str, int]:
        """messages and bytes → for how long it was over since the host started."""
        known, now_ms = self._known.get(destination.number), self._now_ms()
        if known is None:
            return dict.fromkeys(OF, 0)
        return {of: t.total_ms + (now_ms - t.since_ms if t.over else 0) for of, t in known.items()}

    def forget_destination(self, destination: Destination) -> None:
        """It is destroyed."""
        self._known.pop(destination.number, None)
        self._observers.remove(destination.number, self.after_command)


def held_of(destinations: Iterable[Destination]) -> dict[str, int]:
    """messages and bytes → what of them counts for the thresholds of the broker."""
    counted = [
        destination.block_index
        for destination in destinations
        if destination.name != DMQ and not is_metrics_topic(destination.name)
    ]
    return {"messages": sum(one.messages for one in counted), "bytes": sum(one.bytes_held for one in counted)}


def _highs(destination: Destination) -> tuple[int, int]:
    return destination.attributes.messagesHigh, destination.attributes.bytesHigh
