"""Keys of messages: every value has its place, whatever its type and direction."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from raybroker.core.delivery.run import Run
from raybroker.core.delivery.sort_order import Key, SortOrder
from raybroker.model.sort_keys import parse_sort_keys
from tests.unit.core.driven_destination import Rows

ASCENDING = [None, False, True, float("-inf"), -(1 << 63), -1.5, 0, 0.25, 1, 1 << 62, float("inf"), "", "A", "a", "ä"]


def key(text: str, value: Any = None, *, run: Run | None = None, **headers: Any) -> Key:
    rows = Rows([{} if value is None else {"p": value}], headers)
    return SortOrder(parse_sort_keys(text)).key(run or Run(1, 1, 1, 0, 0, 4), rows, 0)


@pytest.mark.parametrize(("text", "values"), [("p", ASCENDING), ("p descending", ASCENDING[::-1])])
def test_values_of_all_types_have_one_order(text: str, values: list[Any]) -> None:
    keys = [key(text, value) for value in values]
    assert all(a < b and not b < a and a != b for a, b in pairwise(keys))


def test_equal_values_have_equal_keys_and_what_is_no_number_is_as_good_as_none() -> None:
    for text in ("p", "p descending"):
        assert key(text, 1) == key(text, 1.0)
        assert key(text, "x") == key(text, "x")
        assert key(text, float("nan")) == key(text)


def test_headers_are_those_of_the_message_and_of_its_delivery() -> None:
    again = Run(1, 1, 1, 2, 0, 9)
    assert key("JMSPriority", run=again) > key("JMSPriority")
    assert key("JMSRedelivered", run=again) > key("JMSRedelivered")
    assert key("JMSCorrelationID", JMSCorrelationID="b") > key("JMSCorrelationID", JMSCorrelationID="a")
    assert key("JMSExpiration", JMSExpiration=0) > key("JMSExpiration", JMSExpiration=1 << 60)


def test_messages_with_one_key_are_one_group() -> None:
    order = SortOrder(parse_sort_keys("p, JMSPriority"))
    rows = Rows([{"p": 1}, {"p": 2}, {"p": 1}, {}])
    assert [mask for _, mask in sorted(order.groups(Run(1, 1, 0b1111, 0, 0, 4), rows))] == [0b1000, 0b0101, 0b0010]
    assert len(order.groups(Run(1, 1, 0b1111, 0, 0, 4), None)) == 1


def test_headers_are_needed_only_for_what_they_alone_say() -> None:
    assert not SortOrder(parse_sort_keys("JMSPriority, JMSRedelivered, JMSMessageID descending")).needs_headers
    assert SortOrder(parse_sort_keys("JMSPriority, JMSType")).needs_headers
