"""The record that expiration policy Log writes for an expired message.

The logging policy of a destination is a list of names with commas between them: headers (``JMSPriority``), properties,
``%header%`` for all headers and ``%properties%`` for all properties.  The message id is always there:

    <ExpiredJMSMessage JMSMessageID='ID:1-7' >
     <HeaderFields JMSPriority='7' />
     <UserProperties Make='Honda' Model=null />
    </ExpiredJMSMessage>

A line without anything in it is left out, and without both the element closes itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from raybroker.content.headers import HEADER_NAMES, content_of
from raybroker.model.blocks.block import Block

VALUE_CHARS_MAX: Final = 32
"""A longer text is cut, and ends in ``CUT`` then; the two together have so many characters."""
CUT: Final = " ..."

_ID: Final = "JMSMessageID"
_HEADERS: Final = (*(name for name in HEADER_NAMES if name != _ID), "JMSDestination", "JMSRedelivered")
_UNSAFE: Final = re.compile(r"['\x00-\x1f\x7f\x85\u2028\u2029]")


class LogPolicy(NamedTuple):
    """The parts of a policy, in that order: names of headers and of properties, and whether of all properties."""

    headers: tuple[str, ...]
    properties: tuple[str, ...]
    all_properties: bool


@lru_cache(maxsize=256)
def parse_policy(text: str | None) -> LogPolicy:
    """Names are case-sensitive, %…% are not; nothing, or an empty text, asks for the message id alone."""
    headers: dict[str, None] = {}
    properties: dict[str, None] = {}
    all_properties = False
    for item in (text or "").split(","):
        name = item.strip()
        word = name.lower()
        if word == "%header%":
            headers |= dict.fromkeys(_HEADERS)
        elif word == "%properties%":
            all_properties = True
        elif name in _HEADERS:
            headers[name] = None
        elif name and name != _ID:
            properties[name] = None
    return LogPolicy(tuple(headers), tuple(properties), all_properties)


def expiry_record(
    block: Block, index: int, policy: str | None, *, destination: str | None = None, redelivered: bool | None = None
) -> str:
    """The record of one message, lines with newlines between them.

    ``destination`` and ``redelivered`` are what the block does not know; without them these headers are absent.
    """
    asked, content = parse_policy(policy), content_of(block)
    outside = {"JMSDestination": destination, "JMSRedelivered": redelivered}
    headers = [(name, outside[name] if name in outside else content.header(index, name)) for name in asked.headers]
    found = {name: value for name, value in content.properties(index).items() if isinstance(name, str)}
    properties = [(name, found[name]) for name in asked.properties if name in found]
    if asked.all_properties:
        properties += [(name, value) for name, value in found.items() if name not in asked.properties]
    head = f"<ExpiredJMSMessage {_ID}='{_safe(content.header(index, _ID))}' "
    lines = [
        f" <{tag} {' '.join(f'{_safe(name)}={_value(value)}' for name, value in pairs)} />"
        for tag, pairs in (
            ("HeaderFields", [(name, value) for name, value in headers if value is not None]),
            ("UserProperties", properties),
        )
        if pairs
    ]
    return _element(head, lines)


def _element(head: str, lines: Iterable[str]) -> str:
    inside = list(lines)
    return "\n".join((f"{head}>", *inside, "</ExpiredJMSMessage>")) if inside else f"{head}/>"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    text = value.hex() if isinstance(value, bytes) else str(value)
    if len(text) > VALUE_CHARS_MAX:
        text = text[: VALUE_CHARS_MAX - len(CUT)] + CUT
    return f"'{_safe(text)}'"


def _safe(text: str) -> str:
    """Nothing in a value ends it early or begins a new line of the log."""
    return _UNSAFE.sub(lambda match: f"&#{ord(match[0])};", text)
