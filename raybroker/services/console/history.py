"""The last hour of destinations: what they held, and how fast messages came and went, whether or not anybody looked.

The broker is asked again and again for five values a destination, which its host counts anyway.  There are SLOTS slots
of three numbers for each destination, DESTINATION_BYTES in all, and as much again for the sums.  Of more destinations
than ``most`` those are kept that came first, temporary ones last; what is gone stays until its slots are over,
unless its room is needed.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from raybroker.model.errors import BrokerError
from raybroker.model.listing import DestinationCounts
from raybroker.model.naming.names import is_temporary_name
from raybroker.system.supervision import Supervisor

LOG: Final = logging.getLogger("raybroker.services")
SLOTS: Final = 240
_WIDTH: Final = 3
DESTINATION_BYTES: Final = SLOTS * _WIDTH * 8
ALL: Final = ("", "")
"""What the sums are kept under."""
_NONE: Final = -1
"""In a slot: it was not there, or nothing is known to compare its counts with."""

Key = tuple[str, str]
Counted = tuple[int, int]
Ask = Callable[[], Awaitable[DestinationCounts]]


class History:
    """``most``: destinations that it is kept of."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: deque[int] = deque(maxlen=SLOTS)
        self._slot = 0
        self._kept: dict[Key, array[int]] = {}
        self._there: dict[Key, int] = {}
        """The slot in which a destination was there last."""
        self._last: dict[str, dict[Key, Counted]] = {}
        """Broker → (messages in, messages out) of its destinations, as it told them last."""

    def record(self, at_ms: int, counts: DestinationCounts) -> None:
        """The next slot. A broker that is missing has not answered: its messages are in no sum of this slot, and what
        it counted meanwhile is in no rate."""
        self._times.append(at_ms)
        sums = [0, 0, 0]
        known = False
        found: dict[Key, list[int]] = {}
        for broker, rows in counts.items():
            before, now = self._last.get(broker), {}
            for kind, name, messages, came, went in rows:
                key = (kind, name)
                now[key] = (came, went)
                values = found.setdefault(key, [0, _NONE, _NONE])
                values[0] += messages
                sums[0] += messages
                was = before and before.get(key)
                if not was and before is not None and key not in self._kept and len(self._kept) <= self._most:
                    was = (0, 0)  # It is new.
                if was:
                    known = True
                    grown = (max(0, came - was[0]), max(0, went - was[1]))
                    for place, more in enumerate(grown, 1):
                        values[place] = max(0, values[place]) + more
                        sums[place] += more
            self._last[broker] = now
        for broker in self._last.keys() - counts.keys():
            del self._last[broker]
        self._keep(ALL, (sums if known else [sums[0], _NONE, _NONE]) if counts else [_NONE] * _WIDTH)
        gone = self._gone()
        for key in sorted(found, key=lambda key: is_temporary_name(key[1])):
            if key not in self._kept and len(self._kept) > self._most:
                old = next(gone, None)
                if old is None:
                    continue
                del self._kept[old], self._there[old]
            self._keep(key, found[key])
        for key in [key for key, slot in self._there.items() if slot < self._slot]:
            if self._slot - self._there[key] >= SLOTS:
                del self._kept[key], self._there[key]
            else:
                self._write(self._kept[key], [_NONE] * _WIDTH)
        self._slot += 1

    def slot_rows(self, key: Key = ALL) -> list[list[Any]]:
        """Rows of (milliseconds since 1970, messages held, in and out each second), oldest first, None for what is not
        known; from the first slot on in which it was there."""
        kept = self._kept.get(key)
        if kept is None:
            return []
        found: list[list[Any]] = []
        before_ms = 0
        for slot, at_ms in enumerate(self._times, self._slot - len(self._times)):
            place = slot % SLOTS * _WIDTH
            messages, came, went = kept[place : place + _WIDTH]
            if found or messages != _NONE:
                seconds = (at_ms - before_ms) / 1000 if before_ms else 0
                held = None if messages == _NONE else messages
                found.append([at_ms, held, _rate(came, seconds), _rate(went, seconds)])
            before_ms = at_ms
        return found

    def latest(self, key: Key) -> tuple[float | None, float | None]:
        """Return in and out each second, as the last slot has them."""
        kept = self._kept.get(key)
        if kept is None or len(self._times) < 2:
            return None, None
        place = (self._slot - 1) % SLOTS * _WIDTH
        seconds = (self._times[-1] - self._times[-2]) / 1000
        return _rate(kept[place + 1], seconds), _rate(kept[place + 2], seconds)

    def _keep(self, key: Key, values: list[int]) -> None:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = array("q", [_NONE]) * (SLOTS * _WIDTH)
        self._there[key] = self._slot
        self._write(kept, values)

    def _write(self, kept: array[int], values: list[int]) -> None:
        place = self._slot % SLOTS * _WIDTH
        kept[place : place + _WIDTH] = array("q", values)

    def _gone(self) -> Iterator[Key]:
        """Those that are gone, that which has been so for the longest time first."""
        yield from sorted(
            (key for key, slot in self._there.items() if slot < self._slot - 1), key=self._there.__getitem__
        )


def _rate(count: int, seconds: float) -> float | None:
    return None if count == _NONE or seconds <= 0 else round(count / seconds, 2)


class HistorySampling:
    """Takes a sample every ``every_s``: ``ask()`` asks the broker, ``now_ms()`` tells milliseconds since 1970."""

    def __init__(self, ask: Ask, every_s: float, most: int, now_ms: Callable[[], int]) -> None:
        self.every_s = every_s
        self.history = History(most)
        self._ask = ask
        self._now_ms = now_ms
        self._loops = Supervisor("the history of destinations")
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, on the loop that the history is read on; once for all services that show it."""
        if self._running is None:
            self._running = self._loops.keep("samples", self._run)

    def close(self) -> None:
        self._loops.close()

    async def _run(self) -> None:
        while True:
            try:
                counts = await self._ask()
            except (BrokerError, TimeoutError) as error:
                LOG.debug("there is no sample of the destinations: %s", error)
                counts = {}
            self.history.record(self._now_ms(), counts)
            await asyncio.sleep(self.every_s)
