"""The JSON form of values that JSON does not have: one table for all protocols that have no types of Python."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.errors import MessageFormatError
from raybroker.services.gateways.json_form import json_bytes
from raybroker.services.stomp.headers import body_bytes, text_of
from raybroker.services.web.json_text import written


@dataclass
class Point:
    x: float
    at: dt.time


TABLE: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (7, 7),
    (1.5, 1.5),
    ("ä", "ä"),
    ([1, "a"], [1, "a"]),
    ((1, (2,)), [1, [2]]),
    (math.nan, None),
    (math.inf, None),
    ([-math.inf], [None]),
    (np.float64("nan"), None),
    ({"a": b"\x00\xff"}, {"a": "AP8="}),
    ([bytearray(b"a"), memoryview(b"b")], ["YQ==", "Yg=="]),
    (dt.datetime.fromisoformat("2026-03-01T12:00:00.000005"), "2026-03-01T12:00:00.000005"),
    (dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC), "2026-03-01T12:00:00+00:00"),
    (dt.datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), "2026-07-01T12:00:00+02:00"),
    (dt.date(2026, 3, 1), "2026-03-01"),
    (dt.time(12, 30), "12:30:00"),
    (dt.time(12, 30, tzinfo=dt.UTC), "12:30:00+00:00"),
    (dt.timedelta(days=1), "1 day, 0:00:00"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Decimal("1.50"), "1.50"),
    (Decimal("NaN"), "NaN"),
    (np.array([[1, 2], [3, 4]], np.int16), [[1, 2], [3, 4]]),
    (np.array([1.0, math.nan]), [1.0, None]),
    (np.array(["a", "b"]), ["a", "b"]),
    (np.int64(3), 3),
    (np.array([], np.float64), []),
    (Point(1.0, dt.time(1)), {"x": 1.0, "at": "01:00:00"}),
    (Point(1.0, dt.time(1, tzinfo=dt.UTC)), {"x": 1.0, "at": "01:00:00+00:00"}),
    ({1.5: "b", None: "c", True: "d"}, {"1.5": "b", "null": "c", "true": "d"}),
    ({(1, 2): "a", b"b": "c", dt.date(2026, 3, 1): "d"}, {"[1,2]": "a", "Yg==": "c", "2026-03-01": "d"}),
]
NAMES = [f"{type(value).__name__} {row}" for row, (value, _) in enumerate(TABLE)]
ROWS = pytest.mark.parametrize(("value", "form"), TABLE, ids=NAMES)


def strictly(data: bytes) -> Any:
    """JSON as the standard has it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(data, parse_constant=refuse)


@ROWS
def test_each_type_has_one_form(value: Any, form: Any) -> None:
    assert strictly(json_bytes(value)) == form


@ROWS
def test_http_and_stomp_write_it_alike(value: Any, form: Any) -> None:
    assert strictly(written({"body": value})) == {"body": form}
    if not isinstance(value, str | bytes):
        assert body_bytes(value, None) == (json_bytes(value), "application/json")


@pytest.mark.parametrize("value", [1 << 70, {"a": [-(1 << 70)]}])
def test_what_would_lose_digits_is_refused(value: Any) -> None:
    with pytest.raises(MessageFormatError, match="cannot be written as JSON"):
        json_bytes(value)


def test_what_is_nested_too_deeply_is_refused() -> None:
    value: Any = {(): 1}
    for _ in range(2000):
        value = [value]
    with pytest.raises(MessageFormatError):
        json_bytes(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a b"),
        (True, "true"),
        (None, "null"),
        (7, "7"),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (b"\xff", "/w=="),
        (dt.date(2026, 3, 1), "2026-03-01"),
        ('"a"', '"a"'),
    ],
)
def test_a_header_of_stomp_is_the_text_of_that(value: Any, text: str) -> None:
    assert text_of(value) == text


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary()
    | (st.datetimes() | st.dates() | st.times() | st.decimals() | st.uuids())
)
_KEYS = st.text() | st.integers(-9, 9) | st.binary() | st.tuples(st.integers(-9, 9), st.text())


@given(st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3)))
def test_whatever_a_message_has_is_json(value: Any) -> None:
    strictly(json_bytes(value))
