"""Headers of many messages that have nothing but a unit of order each (W-76, W-77)."""

from __future__ import annotations

import pytest

from raybroker.client.producer import unit_of_order
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_many import Each, encoded
from raybroker.client.producer.send_options import NAMELESS
from raybroker.client.producer.unit_of_order import HEADERS_KEPT, unit_header, unit_headers
from raybroker.content.bodies import encode_body
from raybroker.content.headers import decode_header
from raybroker.model.errors import MessageFormatError


@pytest.mark.parametrize("named", [True, False])
def test_each_message_has_its_unit_the_first_time_and_later(named: bool) -> None:
    names = [f"unit {i}" for i in range(5)]
    for _ in range(2):
        found = unit_headers(names, None, b"", named=named)
        assert [decode_header(header).unit for header in found] == names
        assert {decode_header(header).no_id for header in found} == {not named}


def test_one_without_a_unit_has_the_default_or_none() -> None:
    assert unit_headers(["a", None], "b", b"", named=True) == [unit_header("a"), unit_header("b")]
    assert unit_headers(["a", None], None, b"", named=True) == [unit_header("a"), b""]
    assert unit_headers([None, "a"], None, NAMELESS, named=False) == [NAMELESS, unit_header("a", named=False)]


@pytest.mark.parametrize("wrong", ["", "x" * 256, 7, ["a"], b"a"])
def test_what_cannot_be_a_unit_is_refused_and_not_remembered(wrong: object) -> None:
    for _ in range(2):
        with pytest.raises(MessageFormatError, match="unit_of_order"):
            unit_headers(["a", wrong], None, b"", named=True)


def test_headers_of_many_units_do_not_fill_the_memory() -> None:
    for start in range(0, 3 * HEADERS_KEPT, 1000):
        names = [f"unit {start + i}" for i in range(1000)]
        assert [decode_header(header).unit for header in unit_headers(names, None, b"", named=True)] == names
        assert len(unit_of_order._headers[True]) <= HEADERS_KEPT


def test_a_unit_that_is_called_like_a_property_compresses_nothing() -> None:
    shared = Shared(True, 4)
    each = Each(None, None, None, ["JMS_SUN_COMPRESS"], shared=shared)
    kinds, data, own = encoded([b"body"], encode_body, each, 1 << 20)
    assert (kinds, data) == (b"\0", [b"body"])
    assert own.headers is not None
    assert decode_header(own.headers[0]).unit == "JMS_SUN_COMPRESS"


def test_some_of_the_values_of_some_messages() -> None:
    each = Each(None, [1, 2, 3, 4], None, ["a", "b", "c", "d"], shared=Shared(True, 4))
    rows = each.cut(4)
    for chosen, names, levels in (
        (range(4), "abcd", [1, 2, 3, 4]),
        (range(1, 3), "bc", [2, 3]),
        ([3, 0], "da", [4, 1]),
    ):
        own = each.select(rows, chosen).next(len(chosen))
        assert [decode_header(header).unit for header in own.headers or ()] == list(names)
        assert list(own.priorities or b"") == levels
