"""The table that says who carries out which effect of an outcome.

The parts of a host register what they carry out; the executor looks the handler of each effect up by the effect's type.
Every type of effect has exactly one handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raybroker.core.destination import Destination
from raybroker.core.outcome import Effect

Handler = Callable[[Destination, Any], None]
"""Takes the destination and an effect of the type that it is registered for."""


class EffectDispatcher:
    """``handlers``: type of effect → who carries it out."""

    def __init__(self) -> None:
        self.handlers: dict[type[Effect], Handler] = {}

    def register(self, handlers: Mapping[type[Effect], Handler]) -> None:
        """Raises ValueError for a type of effect that has a handler already."""
        twice = self.handlers.keys() & handlers.keys()
        if twice:
            raise ValueError(f"two handlers for {', '.join(sorted(effect.__name__ for effect in twice))}")
        self.handlers.update(handlers)
