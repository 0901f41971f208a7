"""Registry of the destinations of a host: the table that its parts look them up in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raybroker.core.destination import Destination
from raybroker.engine.checkpoint import Definition
from raybroker.engine.ports import Named
from raybroker.model.definitions import pauses
from raybroker.model.errors import InvalidDestinationError, StoreDamagedError

DMQ: Final = "mq.sys.dmq"
"""Name of the dead message queue."""


class DestinationRegistry:
    """``destinations``: (type, name) → state; ``definitions``: number → what it is."""

    def __init__(self) -> None:
        self.destinations: dict[tuple[str, str], Destination] = {}
        self.definitions: dict[int, Definition] = {}
        self.dormant: dict[tuple[str, str], tuple[Definition, Destination]] = {}
        """Auto-created destinations that a restart found empty: not there, but not forgotten before their reap
        time. A producer that has not heard what became of its sends opens them again, and must not be stored twice."""
        self.halted: dict[int, StoreDamagedError] = {}
        """Destinations with a message that the store cannot give back whole: nobody is served until that is skipped, or
        the destination purged."""
        self.next_number = 1

    def named(self, kind: str, name: str) -> Destination:
        """Raises InvalidDestinationError."""
        found = self.destinations.get((kind, name))
        if found is None:
            raise InvalidDestinationError(f"{kind} {name!r} does not exist; create it, or allow imq.autocreate.{kind}")
        return found

    def find(self, kind: str, name: str) -> Destination:
        """A destination that can be used. Raises InvalidDestinationError, or StoreDamagedError when it is halted."""
        found = self.named(kind, name)
        if found.number in self.halted:
            raise self.halted[found.number]
        return found

    def has(self, destination: Named) -> bool:
        """Whether it is there still: another one may have its name by now."""
        return self.destinations.get((destination.kind, destination.name)) is destination

    def by_number(self, number: int) -> Destination | None:
        definition = self.definitions.get(number)
        return self.destinations.get(definition.key) if definition is not None else None

    def definition(self, destination: Named) -> Definition:
        return self.definitions[destination.number]

    def matching(self, kind: str | None, name: str | None) -> list[Destination]:
        """Return the destinations of a type, of a name, or all. With both given, raises InvalidDestinationError when it
        is not there."""
        if kind is not None and name is not None:
            return [self.named(kind, name)]
        return [
            destination for (k, n), destination in self.destinations.items() if kind in (None, k) and name in (None, n)
        ]

    def state_of(self, destination: Destination) -> str:
        """RUNNING, PRODUCERS_PAUSED, CONSUMERS_PAUSED, PAUSED, or HALTED for a damaged message."""
        if destination.number in self.halted:
            return "HALTED"
        producing = any(work in destination.paused for work in pauses.PRODUCING)
        consuming = pauses.CONSUMPTION in destination.paused
        if producing and consuming:
            return "PAUSED"
        return "PRODUCERS_PAUSED" if producing else "CONSUMERS_PAUSED" if consuming else "RUNNING"

    def defined(self) -> Iterator[tuple[Definition, Destination]]:
        """Everything that a checkpoint has to hold."""
        for destination in self.destinations.values():
            definition = self.definitions[destination.number]
            if definition.owner is None:
                yield definition, destination
        yield from self.dormant.values()
