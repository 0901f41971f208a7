"""Answers of list verbs: rows, and the brokers or hosts that could not be asked for theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = dict[str, Any]
DestinationCount = tuple[str, str, int, int, int]
"""(type, name, messages held, messages in, messages out)."""
DestinationCounts = Mapping[str, Iterable[DestinationCount]]
"""Broker → those of its destinations."""
_ROWS, _MISSING = "listing.rows", "listing.missing"


class Listing(list[Row]):
    """The rows of all hosts and brokers that answered.

    ``missing``: host ("b1/h3") or broker ("b2") whose rows are not in the list → why; empty when the list is whole.
    """

    def __init__(self, rows: Iterable[Row] = (), missing: Mapping[str, str] | None = None) -> None:
        super().__init__(rows)
        self.missing: dict[str, str] = dict(missing or {})


def plain(answer: Any) -> Any:
    """An answer of an administrative verb in types that a message can have: a listing as a mapping of two keys."""
    return {_ROWS: list(answer), _MISSING: answer.missing} if isinstance(answer, Listing) else answer


def listed(answer: Any) -> Any:
    """What :func:`plain` was given."""
    if isinstance(answer, dict) and answer.keys() == {_ROWS, _MISSING}:
        return Listing(answer[_ROWS], answer[_MISSING])
    return answer
