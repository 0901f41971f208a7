"""Conversions of properties: the table of JMS, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from raybroker.client.consumer.property_conversion import to_boolean, to_double, to_float, to_string, to_whole
from raybroker.model.errors import MessageFormatError


def refused(function: Any, value: object, *more: Any) -> str:
    with pytest.raises(MessageFormatError) as error:
        function("p", value, *more)
    return str(error.value)


def test_booleans_are_read_of_booleans_texts_and_nothing() -> None:
    assert [to_boolean("p", value) for value in (True, "TRUE", "true", "yes", "", None, False)] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert refused(to_boolean, 1) == "property p is the int 1 and cannot be read as boolean"


@pytest.mark.parametrize(("wanted", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
def test_whole_numbers_are_read_as_far_as_they_fit(wanted: str, bits: int) -> None:
    most = (1 << bits - 1) - 1
    assert [to_whole("p", value, wanted) for value in (most, -most - 1, str(most), "+7")] == [most, -most - 1, most, 7]
    for value in (most + 1, -most - 2, str(most + 1), 1.0, True, "1.0", "", " 1", b"1", None):
        assert wanted in refused(to_whole, value, wanted)


def test_floats_are_read_in_their_precision() -> None:
    assert to_double("p", 0.1) == 0.1
    assert to_float("p", 0.1) == 0.10000000149011612
    assert [to_double("p", text) for text in (" 1.5 ", "1e3", ".5", "-Infinity")] == [1.5, 1000.0, 0.5, -math.inf]
    assert math.isnan(to_double("p", "NaN"))
    for value in (1, True, "1_0", "", "inf", None):
        assert "double" in refused(to_double, value)
    assert "float" in refused(to_float, 1e300)


def test_everything_but_bytes_is_read_as_text() -> None:
    values = ("a", True, False, 7, 1.5, None)
    assert [to_string("p", value) for value in values] == ["a", "true", "false", "7", "1.5", None]
    assert "string" in refused(to_string, b"a")


def test_a_property_that_is_not_set_says_so() -> None:
    assert refused(to_whole, None, "int") == "property p is not set and cannot be read as int"
