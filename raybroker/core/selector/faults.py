"""Refusal of a selector: the position, what was found there and what was expected."""

from __future__ import annotations

from typing import Final

from raybroker.model.errors import InvalidSelectorError

_SHOWN_CHARS: Final = 100
"""Of a long selector, so many characters are shown before the fault and after it."""


class SelectorFault(Exception):  # noqa: N818 - not an error of the table: it becomes one in ``refusal``, inside this package
    """A fault of a selector; ``at`` is an offset into it, 0 the first character."""

    def __init__(self, at: int, found: str, expected: str) -> None:
        super().__init__(at, found, expected)
        self.at = at
        self.found = found
        self.expected = expected


def refusal(text: str, fault: SelectorFault) -> InvalidSelectorError:
    """The error for the user; columns count from 1."""
    start, end = max(fault.at - _SHOWN_CHARS, 0), fault.at + _SHOWN_CHARS
    shown = ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
    return InvalidSelectorError(
        f"the selector {shown!r} is wrong at column {fault.at + 1}: found {fault.found}, expected {fault.expected}"
    )
