"""What a mutant is: a piece of production code replaced while a seed runs, and put back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raybroker.core import destination
from raybroker.core.durable import records
from raybroker.core.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Mutant:
    """``apply`` is called with a function that replaces an attribute, or an item of a table, for as long as it runs."""

    name: str
    rule: str
    apply: Callable[[Patch], None]
    equivalent: str = ""


class Patch:
    """Replaces things and puts them back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        old = owner.__dict__[name]
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, old))

    def handler(self, kind: type, value: Any) -> None:
        """What a destination does with one kind of command."""
        self.item(destination._HANDLERS, kind, value)

    def item(self, table: Any, key: Any, value: Any) -> None:
        old = table[key]
        table[key] = value
        self._undo.append(lambda: table.__setitem__(key, old))

    def after(self, kind: type, also: Callable[[Any, Any, Outcome], None]) -> None:
        """Do something more after each command of a kind."""
        old = destination._HANDLERS[kind]

        def both(destination: Any, command: Any, out: Outcome) -> None:
            old(destination, command, out)
            also(destination, command, out)

        self.handler(kind, both)

    def undo(self) -> None:
        for undo in reversed(self._undo):
            undo()


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    patch = Patch()
    mutant.apply(patch)
    try:
        yield
    finally:
        patch.undo()


TABLE: list[Mutant] = []


def mutant(rule: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        TABLE.append(Mutant(apply.__name__, rule, apply))
        return apply

    return add


def without(out: Outcome, kind: int) -> None:
    out.records[:] = [e for e in out.records if e.kind != 2 or records.kind_of(e.meta) != kind]


def at_once(out: Outcome, kind: type) -> None:
    """Move effects of a kind to those that do not wait."""
    out.immediate.extend(e for e in out.after_durable if isinstance(e, kind))
    out.after_durable[:] = [e for e in out.after_durable if not isinstance(e, kind)]
