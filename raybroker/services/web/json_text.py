"""JSON in and out: a model (pydantic) checks what comes in, and names what is wrong with it."""

from __future__ import annotations

import re
from typing import Any, Final, NotRequired

import orjson
from pydantic import BeforeValidator, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from raybroker.model.errors import MessageFormatError
from raybroker.services.gateways.json_form import json_bytes


class Problem(TypedDict):
    """An error (RFC 9457). ``retryable``: the same request may succeed later; ``definite``: nothing was done."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    definite: bool
    results: NotRequired[list[dict[str, Any]]]


class Health(TypedDict):
    """``state``: RUNNING, PAUSED or QUIESCED."""

    broker: str
    state: str


@with_config(extra="forbid")
class NoQuery(TypedDict):
    """Nothing."""


def _digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdecimal() and len(value) < 20):
        raise ValueError("it is a whole number in digits")
    return value


DIGITS: Final = BeforeValidator(_digits)
"""For whole numbers in a query, which come as text."""


_MANY_DIGITS: Final = re.compile(rb"\d{19}")
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?\d[0-9.eE+-]*)', re.DOTALL)
_WHOLE: Final = re.compile(rb"-?\d{1,20}")


def loaded(data: bytes) -> Any:
    """The value of a request's body; raises MessageFormatError, also for a whole number that would lose digits."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MessageFormatError(f"the body of the request is no JSON: {error}") from None
    if _MANY_DIGITS.search(data) is not None:
        _require_whole_numbers(data)
    return value


def _require_whole_numbers(data: bytes) -> None:
    """Raises MessageFormatError for a whole number that is read as a float."""
    for token in _TOKENS.finditer(data):
        number = token[1]
        if number is None or not number.removeprefix(b"-").isdigit():
            continue
        if _WHOLE.fullmatch(number) is None or not -(1 << 63) <= int(number) < 1 << 64:
            raise MessageFormatError(
                f"the whole number {number.decode():.40} of the request has more than 64 bits and would lose digits;"
                " send it as a text"
            )


def checked(adapter: TypeAdapter[Any], value: Any, what: str) -> Any:
    """The value, as the model has it; raises MessageFormatError."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        first = found[0]
        place = ".".join(map(str, first["loc"])) or what
        more = f" (and {len(found) - 1} more faults)" if len(found) > 1 else ""
        raise MessageFormatError(f"{what}: {place:.200}: {first['msg']}{more}; see /openapi.json") from None


def written(value: Any) -> bytes:
    """An answer as JSON, see :mod:`raybroker.services.gateways.json_form`; raises MessageFormatError for what JSON
    cannot have."""
    try:
        return json_bytes(value)
    except MessageFormatError as error:
        raise MessageFormatError(f"the answer cannot be written as JSON: {error}") from None
