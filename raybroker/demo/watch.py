"""Figures for the display, collected in threads of their own, so that a slow answer never stops the picture."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock

LOOK_S: Final = 0.2
RATE_S: Final = 2.0


class Rate:
    """A rate per second, over the last seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int]] = deque()
        self.value = 0.0

    def sample(self, now_ns: int, total: int) -> None:
        self._looks.append((now_ns, total))
        while now_ns - self._looks[0][0] > RATE_S * 1e9:
            self._looks.popleft()
        then_ns, before = self._looks[0]
        self.value = max(0, total - before) / ((now_ns - then_ns) / 1e9) if now_ns > then_ns else 0.0


@dataclass(slots=True)
class Picture:
    """One moment of the demo. ``queue`` as query_destination gives it; ``consumers`` one dict an instance."""

    rows: int
    queue: dict[str, Any] = field(default_factory=dict)
    consumers: list[dict[str, Any]] = field(default_factory=list)
    handled: list[int] = field(default_factory=list)
    """Messages by consumer, over all its lives."""
    distinct: int = 0
    redelivered: int = 0
    stored_rate: Rate = field(default_factory=Rate)
    done_rate: Rate = field(default_factory=Rate)
    subscribers: list[dict[str, Any]] = field(default_factory=list)
    """Of the weather, once it is under way: name, selector, durable, open, got, of."""
    events: list[tuple[float, str]] = field(default_factory=list)
    started_ns: int = field(default_factory=lambda: SystemClock().monotonic_ns())

    @property
    def seconds(self) -> float:
        """Return the seconds since the demo began."""
        return (SystemClock().monotonic_ns() - self.started_ns) / 1e9

    @property
    def stored(self) -> int:
        return int(self.queue.get("messages_in", 0))

    @property
    def buffered(self) -> int:
        return sum(int(consumer.get("buffered", 0)) for consumer in self.consumers)


class Watcher:
    """Looks at the queue and at the consumers until it is closed."""

    def __init__(self, picture: Picture, query: Callable[[], dict[str, Any]], stats: Callable[[], list[Any]]) -> None:
        self.picture = picture
        self._query = query
        self._stats = stats
        self._closing = threading.Event()
        self._lives: list[dict[int, int]] = []
        self._threads = [
            threading.Thread(target=self._repeat, args=(look,), daemon=True)
            for look in (self._look_at_queue, self._look_at_consumers)
        ]
        for thread in self._threads:
            thread.start()

    def _repeat(self, look: Callable[[], None]) -> None:
        while not self._closing.is_set():
            try:
                look()
            except BrokerError:
                pass  # busy or restarting: the picture stays as it is until the next look
            self._closing.wait(LOOK_S)

    def _look_at_queue(self) -> None:
        picture = self.picture
        picture.queue = self._query()
        now_ns = SystemClock().monotonic_ns()
        picture.stored_rate.sample(now_ns, picture.stored)
        picture.done_rate.sample(now_ns, picture.distinct)

    def _look_at_consumers(self) -> None:
        found = self._stats()
        if not self._lives:
            self._lives = [{} for _ in found]
        for lives, consumer in zip(self._lives, found, strict=False):
            if "pid" in consumer:
                lives[consumer["pid"]] = consumer["messages"]
        self.picture.handled = [sum(lives.values()) for lives in self._lives]
        self.picture.consumers = found

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
