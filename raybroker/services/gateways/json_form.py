"""The JSON form of a body or a property: what clients get that know no types of Python (HTTP, STOMP).

    text, number, true, false, null     themselves
    list, tuple                         an array
    map, dataclass                      an object; a key that is no text is written as its value would be, as a text
    NaN, Infinity, -Infinity            null: JSON has no such numbers
    bytes                               base64
    datetime, date, time                ISO 8601, with the offset from UTC where there is one
    UUID, Decimal, timedelta, others    the text that Python has for it
    array, scalar of numpy              nested arrays, a number
    table, record batch of Arrow        an array of objects, one a row

It is a form to be read: what is written so and sent again is a message of other types.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any, Final

import orjson

from raybroker.model.errors import MessageFormatError

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_TIMES: Final = (datetime.datetime, datetime.date, datetime.time)
DEPTH_MAX: Final = 100
"""Of values in each other; with more of them the message has no JSON form."""


def json_bytes(value: Any) -> bytes:
    """The value as JSON; raises MessageFormatError for what has no such form: whole numbers of more than 64 bits, and
    what is nested too deeply."""
    try:
        return orjson.dumps(value, default=_otherwise, option=_OPTIONS)
    except orjson.JSONEncodeError:
        pass  # Of a key, or of a type that the library takes for its own and does not write.
    try:
        return orjson.dumps(_plain(value, 0), default=_otherwise, option=_OPTIONS)
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise MessageFormatError(f"a value of type {type(value).__name__} cannot be written as JSON: {error}") from None


def _otherwise(value: Any) -> Any:
    """What the library does not know."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if callable(getattr(value, "tolist", None)):  # An array that the library does not write, such as one of texts.
        return value.tolist()
    if callable(getattr(value, "to_pylist", None)):
        return value.to_pylist()
    return str(value)


def _plain(value: Any, depth: int) -> Any:
    """A value of nothing but what JSON has."""
    if depth > DEPTH_MAX:
        raise MessageFormatError(f"a value that is nested more than {DEPTH_MAX} times cannot be written as JSON")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_key(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value.isoformat() if isinstance(value, _TIMES) else value


def _key(key: Any) -> str:
    """A key as a text: as its value would be written."""
    if isinstance(key, str):
        return key
    text = json_bytes(key).decode()
    return str(orjson.loads(text)) if text.startswith('"') else text
