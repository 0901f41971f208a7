"""What a message is made of, and which selectors there are: everything follows from the message's value.

The rules are written a second time here, as plain Python over a few numbers, so that the broker's columns, properties
and selectors are compared with something that does not share their code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from raybroker.content.headers import encode_header

COLOURS = ("red", "green", "blue")


def mix(value: int) -> int:
    """A number without any order in it."""
    value = (value ^ value >> 32) * 2654435761 & 0xFFFFFFFF
    return (value ^ value >> 13) * 40503 & 0xFFFFFFF


def body_of(value: int, most: int) -> bytes:
    """The one body that a message may have; some are empty."""
    size = (value * 2654435761 >> 9) % (most + 1)
    return (b"%x." % value * (size // 4 + 1))[:size] if size > 3 else b""


def colour_of(value: int) -> str:
    return COLOURS[mix(value) % 3]


def num_of(value: int) -> int:
    return mix(value) // 3 % 10


def unit_of(value: int, units: int) -> str | None:
    """The unit of order that its producer stamps on it, one of ``units``; some have none."""
    return None if units <= 0 or mix(value) // 11 % 7 == 0 else f"unit {mix(value) // 77 % units}"


@cache
def _header(colour: str, num: int, unit: str | None) -> bytes:
    return encode_header({"colour": colour, "num": num} if colour else None, None, None, None, unit=unit)


def header_of(value: int, units: int = 0, *, properties: bool = True) -> bytes:
    return _header(colour_of(value) if properties else "", num_of(value), unit_of(value, units))


def priority_of(value: int, spread: int) -> int:
    """One of ``spread`` priorities around the usual one; 1: always that."""
    return 4 if spread <= 1 else (4 + mix(value) // 7 % spread * 3) % 10


class Seen(NamedTuple):
    """What a selector looks at. ``attempts``: how often the message was handed out before."""

    value: int
    priority: int
    attempts: int


SELECTORS: dict[str, Callable[[Seen], bool]] = {
    "colour = 'red'": lambda seen: colour_of(seen.value) == "red",
    "colour <> 'red'": lambda seen: colour_of(seen.value) != "red",
    "num BETWEEN 3 AND 6": lambda seen: 3 <= num_of(seen.value) <= 6,
    "JMSPriority > 4": lambda seen: seen.priority > 4,
    "colour IN ('green', 'blue') AND num < 8": lambda seen: colour_of(seen.value) != "red" and num_of(seen.value) < 8,
    "JMSXDeliveryCount > 1 OR colour = 'blue'": lambda seen: seen.attempts > 0 or colour_of(seen.value) == "blue",
}


def matches(text: str | None, value: int, priority: int, attempts: int) -> bool:
    return text is None or SELECTORS[text](Seen(value, priority, attempts))
