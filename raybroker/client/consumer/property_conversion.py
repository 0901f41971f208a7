"""Reading a property as a type of JMS: which conversions there are, and what they refuse.

    set as      read as
    bool        boolean, string
    int         byte, short, int, long as far as it fits, string
    float       float (single precision), double, string
    str         all, when it is written like one
    None        boolean (False) and string (None)

A property that a message does not have is read like None.  Whatever is not in the table, or does not fit, raises
MessageFormatError.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NoReturn

from raybroker.model.errors import MessageFormatError

BITS: Final = {"byte": 8, "short": 16, "int": 32, "long": 64}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|NaN|Infinity)")


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    what = "not set" if value is None else f"the {type(value).__name__} {value!r}"
    raise MessageFormatError(f"property {name} is {what} and cannot be read as {wanted}")


def to_boolean(name: str, value: object) -> bool:
    if value is None or isinstance(value, str):
        return value is not None and value.lower() == "true"
    return value if isinstance(value, bool) else _refuse(name, value, "boolean")


def to_whole(name: str, value: object, wanted: str) -> int:
    """``wanted``: byte, short, int or long."""
    number = value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool):
        _refuse(name, value, wanted)
    most = 1 << (BITS[wanted] - 1)
    return number if -most <= number < most else _refuse(name, value, wanted)


def to_double(name: str, value: object, wanted: str = "double") -> float:
    if isinstance(value, str) and _REAL.fullmatch(value.strip()):
        return float(value)
    return value if isinstance(value, float) else _refuse(name, value, wanted)


def to_float(name: str, value: object) -> float:
    """The nearest number of single precision."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", to_double(name, value, "float")))[0]
    except OverflowError:
        _refuse(name, value, "float")
    return single


def to_string(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else _refuse(name, value, "string")
