"""Reasons for which a selector does not pick a message: conditions that are not true, with the values in them."""

from __future__ import annotations

from typing import Any, Final

from raybroker.core.selector.content import Content
from raybroker.core.selector.names import OF_DELIVERY, may_be_property

SHOWN_CHARS_MAX: Final = 100
"""Of one value; the rest is cut."""


def mismatch(text: str, content: Content, index: int, attempts: int) -> tuple[str, dict[str, Any]]:
    """The reason in words, and the values of the names in the conditions that are not true."""
    from raybroker.core.selector.check import names
    from raybroker.core.selector.compile import sieve
    from raybroker.core.selector.grammar import parse
    from raybroker.core.selector.tree import AllOf

    tree = parse(text)
    parts = tree.parts if isinstance(tree, AllOf) else (tree,)
    wrong = [part for part in parts if not sieve(part)(content, attempts, [index])] or list(parts)
    values = {name: _value(content, index, attempts, name) for part in wrong for name in sorted(names(part))}
    said = ", ".join(f"{name} is {'not set' if value is None else repr(value)}" for name, value in values.items())
    return said or "it is never true", values


def _value(content: Content, index: int, attempts: int, name: str) -> Any:
    if name in OF_DELIVERY:
        return attempts
    value = content.properties(index).get(name) if may_be_property(name) else content.header(index, name)
    return f"{value[:SHOWN_CHARS_MAX]}…" if isinstance(value, str) and len(value) > SHOWN_CHARS_MAX else value
