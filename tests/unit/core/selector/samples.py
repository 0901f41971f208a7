"""Messages for selectors, as plain dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raybroker.core.selector import compile_selector


class Messages:
    """The messages of a block; counts how often somebody looks."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], headers: Sequence[Mapping[str, Any]] = ()) -> None:
        self.rows = rows
        self.headers = headers
        self.looks: list[tuple[int, str]] = []

    def properties(self, index: int) -> Mapping[str, Any]:
        self.looks.append((index, "properties"))
        return self.rows[index]

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return [self.properties(row).get(name) for row in rows]

    def header(self, index: int, name: str) -> Any:
        self.looks.append((index, name))
        return self.headers[index].get(name) if self.headers else None

    def may_have(self, trace: bytes) -> bool:
        return True

    def dedup_ids(self) -> None:
        return None


def selects(text: str, attempts: int = 0, header: Mapping[str, Any] | None = None, /, **properties: Any) -> bool:
    """Whether a message with these properties is selected, asked in both ways."""
    messages = Messages([{}, properties], [{}, header or {}])
    selector = compile_selector(text)
    answer = selector.matches(messages, 1, attempts)
    assert selector.pick(messages, 0b10, attempts) == (0b10 if answer else 0)
    return answer


def truth(text: str, /, **properties: Any) -> bool | None:
    """A condition's value: None when neither it nor its opposite selects the message."""
    yes, no = selects(text, **properties), selects(f"NOT ({text})", **properties)
    assert not (yes and no)
    return True if yes else False if no else None
