"""State machines: the drawing in a module's docstring is its table, and what is not in the table raises."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from enum import StrEnum

import pytest

from raybroker.model.errors import IllegalStateError, ProtocolError
from raybroker.model.machine import Machine
from tests.tidy.source import package

_USE = re.compile(r"^(?P<name>[A-Z_]+)\b.* = Machine\($", re.MULTILINE)


def machines() -> Iterator[tuple[str, str, Machine]]:  # type: ignore[type-arg]
    """(module, its docstring, machine) of every one in the package."""
    for path, source in package().items():
        for found in _USE.finditer(source):
            module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
            yield path, module.__doc__ or "", getattr(module, found["name"])


MACHINES = list(machines())


@pytest.mark.parametrize(("doc", "machine"), [one[1:] for one in MACHINES], ids=[one[0] for one in MACHINES])
def test_the_drawing_in_the_docstring_is_the_table(doc: str, machine: Machine) -> None:  # type: ignore[type-arg]
    drawn = "\n".join(f"    {line}" for line in machine.drawn())
    assert f"\n\n{drawn}\n\n" in f"{doc}\n", f"the docstring has to have:\n{drawn}"


def test_the_machines_are_found() -> None:
    assert {machine.what for _, _, machine in MACHINES} >= {
        "the transaction",
        "the member",
        "the branch",
        "the login",
        "the producer",
    }


class Light(StrEnum):
    GREEN = "GREEN"
    RED = "RED"


class Turn(StrEnum):
    STOP = "stopped"
    GO = "let go"


LIGHT = Machine("the light", [((Light.GREEN,), Turn.STOP, Light.RED), ((Light.RED,), Turn.GO, Light.GREEN)])


def test_an_event_that_a_state_does_not_have_raises() -> None:
    assert LIGHT.after(Light.GREEN, Turn.STOP) is Light.RED
    assert LIGHT.takes(Light.RED, Turn.GO)
    assert not LIGHT.takes(Light.RED, Turn.STOP)
    with pytest.raises(IllegalStateError, match="the light is RED; it cannot be stopped"):
        LIGHT.after(Light.RED, Turn.STOP)
    with pytest.raises(ProtocolError):
        Machine("x", [((Light.RED,), Turn.GO, Light.GREEN)], ProtocolError).require(Light.GREEN, Turn.GO)


def test_a_table_that_says_two_things_is_refused() -> None:
    rows = [((Light.RED,), Turn.GO, Light.GREEN), ((Light.GREEN, Light.RED), Turn.GO, Light.RED)]
    with pytest.raises(ValueError, match="says twice"):
        Machine("the light", rows)


def test_a_drawing_has_a_line_for_each_row() -> None:
    assert LIGHT.drawn() == ["GREEN   stopped   RED", "RED     let go    GREEN"]
