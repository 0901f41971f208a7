"""State machines as tables: (state, event) → state, and what is not in the table raises.

States and events are enumerations of texts, and events read as what happened: "prepared", "rolled back". The table is
drawn in the docstring of its module, and a test holds the drawing against it (``tests/tidy/test_machines.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from raybroker.model.errors import BrokerError, IllegalStateError

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class Machine(Generic[S, E]):
    """``what``: the thing that has the states, in the texts of errors. ``rows``: states, what happens to a thing in one
    of them, and the state that it has then. ``error``: what is raised for what may not happen."""

    def __init__(
        self, what: str, rows: Sequence[tuple[Sequence[S], E, S]], error: type[BrokerError] = IllegalStateError
    ) -> None:
        self.what = what
        self._rows = rows
        self._error = error
        self.table: Mapping[tuple[S, E], S] = {(state, event): after for one, event, after in rows for state in one}
        if len(self.table) != sum(len(one) for one, _, _ in rows):
            raise ValueError(f"{what}: the table says twice what follows a state and an event")

    def takes(self, state: S, event: E) -> bool:
        """Whether that may happen in this state."""
        return (state, event) in self.table

    def require(self, state: S, event: E) -> None:
        """Raises ``error`` when that cannot happen in this state."""
        self.after(state, event)

    def after(self, state: S, event: E) -> S:
        """The state that follows; raises ``error`` when that cannot happen in this one."""
        after = self.table.get((state, event))
        if after is None:
            raise self._error(f"{self.what} is {state}; it cannot be {event}")
        return after

    def drawn(self) -> list[str]:
        """The table as lines of text."""
        cells = [(_named(states, after), f"{event}", f"{after}") for states, event, after in self._rows]
        first, second = (max(len(row[column]) for row in cells) for column in (0, 1))
        return [f"{states:<{first}}   {event:<{second}}   {after}" for states, event, after in cells]


def _named(states: Sequence[StrEnum], after: StrEnum) -> str:
    return "any other" if {*states, after} == set(type(after)) and len(states) > 2 else ", ".join(states)
