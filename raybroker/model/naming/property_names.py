"""Names of message properties and of what a selector may name: one rule for both.

A name is an identifier of Java (letters, digits, ``_`` and ``$``, no digit first) and none of the words of the selector
language, in any case of its letters: a property with another name could be sent and never be selected.  Names that
start with JMS are headers; JMSX… and JMS_… are the properties that JMS and its providers define.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.errors import MessageFormatError
from raybroker.model.naming.units import UNIT_PROPERTY

RESERVED_WORDS: Final = frozenset(
    {
        "NULL",
        "TRUE",
        "FALSE",
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "LIKE",
        "IN",
        "IS",
        "ESCAPE",
    }
)
"""Words of the selector language."""

SENDER_NAMES: Final = frozenset({"JMSXUserID", "JMSXAppID"})
"""Properties by which a provider says who has sent a message: no sender may say that of itself."""

_START: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_PART: Final = _START | {"Nd", "Mn", "Mc", "Cf", "Cc"}
"""Categories of Java's identifier characters; a selector takes of the control characters only those that are no
spaces, a property takes none."""
_SHOWN_CHARS_MAX: Final = 80


def stranger(name: str) -> int:
    """Position of the first character that no identifier of Java may have there; -1 when there is none."""
    import unicodedata

    if name.isascii() and name.isidentifier():
        return -1
    for offset, char in enumerate(name):
        if unicodedata.category(char) not in (_PART if offset else _START):
            return offset
    return -1


def is_header_name(name: str) -> bool:
    """True when JMS keeps the name for a header, which is no property."""
    return (name.startswith("JMS") and not name.startswith(("JMSX", "JMS_"))) or name == UNIT_PROPERTY


def check_property_name(name: object) -> str:
    """The name, if a property may have it; raises MessageFormatError saying what is wrong with it."""
    if not isinstance(name, str):
        raise MessageFormatError(f"property name {name!r:.80} is a {type(name).__name__}; it is a text")
    shown = repr(name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "…")
    at = stranger(name)
    if not name or at >= 0 or not name.isprintable():
        what = f" has {name[at]!r}" if name and at >= 0 else ""
        raise MessageFormatError(
            f"property name {shown}{what} is no identifier: it has letters, digits, '_' and '$', and no digit first"
        )
    if name.isascii() and name.upper() in RESERVED_WORDS:
        raise MessageFormatError(f"property name {shown} is a word of the selector language; choose another name")
    if name in SENDER_NAMES:
        raise MessageFormatError(
            f"property name {shown} says who has sent a message, which no sender may say; choose another name"
        )
    if is_header_name(name):
        raise MessageFormatError(
            f"property name {shown} is that of a header; set it with the argument of send() for it, such as"
            " priority=, correlation_id=, type= or unit_of_order="
        )
    return name
