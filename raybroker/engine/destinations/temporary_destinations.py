"""Temporary destinations whose connection is lost: they wait a while for it to come back, and then end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.path.wakeups import Durations

ORPHAN_MS: Final = 10_000
"""How long a temporary destination waits for its connection."""


class TemporaryDestinations:
    """Ends the destinations of connections that do not come back.

    prepared  a prepared transaction that did something in a destination, which then waits for its end; or None
    over      ends the destination of that (type, name)
    """

    def __init__(
        self,
        registry: DestinationRegistry,
        durations: Durations,
        *,
        prepared: Callable[[Destination], int | None],
        over: Callable[[str, str], None],
    ) -> None:
        self._registry = registry
        self._durations = durations
        self._prepared = prepared
        self._over = over
        self._orphans: dict[str, int] = {}
        """Connections that were lost and own temporary destinations → when those end, milliseconds of measured time."""

    def lost(self, connection: str) -> None:
        """A connection has ended."""
        if any(d.owner == connection for d in self._registry.definitions.values()):
            self._orphans[connection] = self._durations.now_ms() + ORPHAN_MS
            self._durations.wake(self._orphans[connection])

    def found(self, connection: str) -> None:
        """A connection is there, perhaps again."""
        self._orphans.pop(connection, None)

    def end_expired(self) -> None:
        """End what has waited for long enough."""
        now_ms = self._durations.now_ms()
        for connection in [c for c, at_ms in self._orphans.items() if at_ms <= now_ms]:
            del self._orphans[connection]
            for definition in [d for d in self._registry.definitions.values() if d.owner == connection]:
                if self._prepared(self._registry.destinations[definition.key]) is not None:
                    self._orphans[connection] = now_ms + ORPHAN_MS
                else:
                    self._over(definition.kind, definition.name)
        if self._orphans:
            self._durations.wake(min(self._orphans.values()))
