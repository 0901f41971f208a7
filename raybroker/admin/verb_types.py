"""Arguments and answers of verbs: their types, with what each may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

from raybroker.model.argument import TRUTH, Argument, each, named, text, truth, whole
from raybroker.model.definitions.pauses import WORDS as PAUSABLE
from raybroker.model.definitions.policy import APPLY_TO
from raybroker.model.errors import InvalidDestinationError, InvalidSelectorError
from raybroker.model.listing import Row
from raybroker.model.settings.setting import INT_MAX, VERSION_MAX

IF_EXISTS: Final = ("error", "keep", "update")
BROWSE_MAX: Final = 1000
"""Most messages in one page."""
BROWSE_BODY_BYTES_MAX: Final = 1 << 20
"""Most bytes of one body in a page; longer ones are cut."""
EXPORT_BYTES_MAX: Final = 8 << 20
"""About how many bytes one page of an export has at most; a single longer message still comes whole."""
_TEXT_MAX: Final = 65_536
_text: Final = text(0, 1 << 30)
"""Further rules for it are those of what it names."""
_id: Final = whole(0, (1 << 64) - 1)


if TYPE_CHECKING:  # What a program of a user is checked by; at run time the rows below say what is right.
    _Type = Literal["queue", "topic", "q", "t"]
    _IfExists = Literal["error", "keep", "update"]
else:
    _Type = _IfExists = str


def _number(low: int, high: int, allowed: str) -> Argument:
    return Argument(whole(low, high), allowed, schema=(("minimum", low), ("maximum", high)))


Type = Annotated[
    _Type,
    Argument(
        _text, "'queue' or 'topic' (short: q, t)", InvalidDestinationError, (("enum", ("queue", "topic", "q", "t")),)
    ),
]
Name = Annotated[str, Argument(_text, "a text, the name of one", InvalidDestinationError)]
Id = Annotated[int | str, Argument(lambda value: _id(value) or _text(value), "an id, as the list shows it")]
Text = Annotated[str, Argument(_text, "a text")]
Selector = Annotated[str | None, Argument(text(0, _TEXT_MAX), "a text", InvalidSelectorError).or_none()]
Attributes = Annotated[Any, Argument(named, "a mapping of attributes to values")]
Properties = Annotated[Mapping[str, object], Argument(named, "a mapping of properties to values")]
Names = Annotated[Iterable[str], Argument(each(_text), "a list of names")]
Ids = Annotated[Iterable[str] | None, Argument(each(_text), "a list of message ids").or_none()]
Blocks = Annotated[
    Iterable[bytes],
    Argument(
        each(lambda item: isinstance(item, bytes | bytearray | memoryview)), "the blocks that export_messages gave"
    ),
]
Pattern = Annotated[str, Argument(text(1, _TEXT_MAX), "a text such as 'orders*'")]
NamePattern = Annotated[str, Argument(text(1, _TEXT_MAX), "a pattern of names such as 'orders>'")]
Definitions = Annotated[Mapping[str, Any], Argument(named, "a mapping, as export_definitions answers it")]
ApplyTo = Annotated[str, Argument(lambda value: value in APPLY_TO, " or ".join(map(repr, APPLY_TO)))]
Priority = Annotated[int, Argument(whole(0, INT_MAX), f"a whole number from 0 to {INT_MAX}")]
Truth = Annotated[bool, Argument(truth, TRUTH)]
IfExists = Annotated[
    _IfExists,
    Argument(lambda value: value in IF_EXISTS, " or ".join(map(repr, IF_EXISTS)), schema=(("enum", IF_EXISTS),)),
]
Which = Annotated[str, Argument(_text, " or ".join(map(repr, PAUSABLE)))]
UntilMs = Annotated[int, _number(0, 1 << 53, "milliseconds since 1970, or 0 for none")]
Version = Annotated[int, _number(0, VERSION_MAX, f"a whole number from 0 to {VERSION_MAX}")]
PageMax = Annotated[int, _number(1, BROWSE_MAX, f"a whole number from 1 to {BROWSE_MAX}")]
BodyMax = Annotated[
    int, _number(0, BROWSE_BODY_BYTES_MAX, f"a whole number of bytes from 0 to {BROWSE_BODY_BYTES_MAX}")
]
ExportMax = Annotated[int, _number(1, EXPORT_BYTES_MAX, f"a whole number of bytes from 1 to {EXPORT_BYTES_MAX}")]
EXPLAINED: Final = ("message", "consumer", "producer", "destination", "subscription", "transaction")
"""What a broker explains."""
What = Annotated[
    str,
    Argument(lambda value: value in EXPLAINED, " or ".join(map(repr, EXPLAINED)), schema=(("enum", EXPLAINED),)),
]
TIME_S_MAX: Final = 86_400
"""Longest time until a broker is shut down."""
Seconds = Annotated[int, _number(0, TIME_S_MAX, f"a whole number of seconds from 0 to {TIME_S_MAX}")]
REASON_CHARS_MAX: Final = 200
_reason: Final = text(1, REASON_CHARS_MAX)
Reason = Annotated[
    str | None,
    Argument(
        lambda value: _reason(value) and value.isprintable(),
        f"one line of at most {REASON_CHARS_MAX} characters",
        schema=(("maxLength", REASON_CHARS_MAX),),
    ).or_none(),
]
Thresholds = Annotated[
    Mapping[str, object] | None, Argument(named, "a mapping of figures to numbers, as messages=1000").or_none()
]
Start = Annotated[Any, "the next of the page before, whatever that is"]


class MessagePage(TypedDict):
    """One page of messages; ``next``: the ``start`` of the next page, or None."""

    messages: list[Row]
    next: Any


class BlockPage(TypedDict):
    """One page of encoded messages; ``next`` as of MessagePage."""

    blocks: list[bytes]
    next: Any


class MasterChange(TypedDict):
    """``result``: "OK", or a word for why not; ``text``: the same as a sentence."""

    result: str
    text: str


class UserChange(TypedDict):
    """``brokers``: those that have done it; ``down``: those that were not up and keep what they had."""

    brokers: list[str]
    down: list[str]


class PropertyChange(TypedDict):
    """``brokers``: name → {"changed": what differs from the configuration now, "unreached": hosts that do not answer
    and are told later}; ``down``: brokers that were not up and keep what they had."""

    brokers: dict[str, Row]
    down: list[str]
