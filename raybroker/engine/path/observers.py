"""Those who look at a destination after each of its commands: a destination that nobody observes costs one look-up."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.core.destination import Destination

Look = Callable[[Destination], None]
"""Hears of every command that a destination has carried out."""


class Observers:
    """The observers of commands; ``by_destination``: number of a destination → who is called, in the order in which
    they came."""

    __slots__ = ("by_destination",)

    def __init__(self) -> None:
        self.by_destination: dict[int, tuple[Look, ...]] = {}

    def add(self, destination: int, look: Look) -> None:
        """Call ``look`` after each command of the destination with this number from now on."""
        self.by_destination[destination] = (*self.by_destination.get(destination, ()), look)

    def remove(self, destination: int, look: Look) -> None:
        """Do not call it any more; one that was not added is no error."""
        left = tuple(one for one in self.by_destination.pop(destination, ()) if one != look)
        if left:
            self.by_destination[destination] = left
