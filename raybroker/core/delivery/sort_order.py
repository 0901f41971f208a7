"""The order of a sorted destination: the key of each message, as a value that compares.

A message without the header or property comes first in ascending order.  Values of different types have an order too:
false, true, numbers, texts.  A message that never expires comes behind all that do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import total_ordering
from math import inf
from typing import Any, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.run import Run
from raybroker.core.selector.content import Content
from raybroker.model.naming.property_names import is_header_name
from raybroker.model.sort_keys import ARRIVAL, SortKey

Key = tuple[Any, ...]
_OF_RUN: Final = frozenset({"JMSPriority", "JMSRedelivered", ARRIVAL})
"""Known without the headers of a message."""


@total_ordering
class _Reversed:
    """A text or bytes in descending order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


def _ascending(value: Any) -> tuple[int, Any]:
    if value is None or value != value:  # Not a number.
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, int | float):
        return 2, value
    return (3, value) if isinstance(value, str) else (4, value)


def _descending(value: Any) -> tuple[int, Any]:
    rank, found = _ascending(value)
    return -rank, -found if rank < 3 else _Reversed(found)


class SortOrder:
    """``needs_headers``: whether keys are known without the headers of messages; ``newest_first``: of those with equal
    keys the latest comes first."""

    __slots__ = ("_keys", "needs_headers", "newest_first")

    def __init__(self, keys: tuple[SortKey, ...]) -> None:
        self.newest_first = any(key.descending for key in keys if key.name == ARRIVAL)
        self.needs_headers = any(key.name not in _OF_RUN for key in keys)
        self._keys: list[tuple[str, bool, Callable[[Any], tuple[int, Any]]]] = [
            (key.name, is_header_name(key.name), _descending if key.descending else _ascending)
            for key in keys
            if key.name != ARRIVAL
        ]

    def groups(self, run: Run, content: Content | None) -> list[tuple[Key, int]]:
        """The messages of a run by their keys."""
        if not self.needs_headers or content is None:
            return [(self.key(run, None, 0), run.mask)]
        found: dict[Key, int] = {}
        for index in pk.indexes(run.mask):
            key = self.key(run, content, index)
            found[key] = found.get(key, 0) | 1 << index
        return list(found.items())

    def key(self, run: Run, content: Content | None, index: int) -> Key:
        """The key of one message of a run; ``content`` None: its headers cannot be read, or are not needed."""
        return tuple([way(_value(run, content, index, name, header)) for name, header, way in self._keys])


def _value(run: Run, content: Content | None, index: int, name: str, header: bool) -> Any:
    if name == "JMSPriority":
        return run.priority
    if name == "JMSRedelivered":
        return run.attempts > 0
    if content is None:
        return None
    if header or name.startswith("JMSX"):
        found = content.header(index, name)
        return inf if name == "JMSExpiration" and not found else found
    return content.properties(index).get(name)
