"""A compiled selector: headers, deliveries, blocks, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.selector import SELECTOR_CACHE_MAX, Selector, compile_selector, normalised
from raybroker.model.errors import InvalidSelectorError
from tests.unit.core.selector.samples import Messages, selects

HEADER = {
    "JMSMessageID": "ID:7",
    "JMSTimestamp": 1_700_000_000_000,
    "JMSPriority": 6,
    "JMSDeliveryMode": "PERSISTENT",
    "JMSCorrelationID": "c-1",
    "JMSType": "order",
}


@pytest.mark.parametrize(("name", "value"), HEADER.items())
def test_headers_are_seen_by_their_names(name: str, value: Any) -> None:
    spelt = f"'{value}'" if isinstance(value, str) else str(value)
    assert selects(f"{name} = {spelt}", 0, HEADER)
    assert not selects(f"{name} <> {spelt}", 0, HEADER)
    assert selects(f"{name} IS NULL", 0, {})
    assert not selects(f"{name} = {spelt}", 0, {}, **{name: value}), "a property does not stand in for a header"


def test_a_header_does_not_stand_in_for_a_property() -> None:
    assert not selects("region = 'EU'", 0, {"region": "EU"})


def test_a_property_of_jms_is_a_header_or_a_property() -> None:
    assert selects("JMSXGroupID = 'g'", 0, {"JMSXGroupID": "g"})
    assert selects("JMSXGroupID = 'g'", 0, {}, JMSXGroupID="g")
    assert selects("JMSXGroupID = 'g'", 0, {"JMSXGroupID": "g"}, JMSXGroupID="h")
    assert selects("JMSXGroupSeq IS NULL")


def test_deliveries_are_counted_with_the_coming_one() -> None:
    for attempts in (0, 1, 5):
        assert selects(f"JMSXDeliveryCount = {attempts + 1}", attempts)
        assert selects("JMSRedelivered", attempts) is (attempts > 0)
        assert selects("NOT JMSRedelivered", attempts) is (attempts == 0)


@pytest.mark.parametrize(
    ("text", "volatile", "identifiers"),
    [
        ("a = 1 AND JMSType = 'x' OR b LIKE 'x'", False, {"a", "b", "JMSType"}),
        ("JMSPriority > 4", False, {"JMSPriority"}),
        ("JMSXDeliveryCount < 3", True, {"JMSXDeliveryCount"}),
        ("JMSRedelivered OR -a + 1 BETWEEN b AND c", True, {"JMSRedelivered", "a", "b", "c"}),
        ("TRUE", 0, {}),
        ("FALSE AND NOT x IN ('a')", False, {"x"}),
        ("JMSXGroupID IS NULL", False, {"JMSXGroupID"}),
    ],
)
def test_a_selector_tells_what_it_looks_at(text: str, volatile: bool, identifiers: set[str]) -> None:
    selector = compile_selector(text)
    assert selector.text == text
    assert selector.volatile == volatile
    assert selector.identifiers == frozenset(identifiers)


def test_a_selector_over_headers_never_reads_properties() -> None:
    messages = Messages([{}] * 50, [{"JMSPriority": n % 10} for n in range(50)])
    compile_selector("JMSPriority > 4 AND JMSType IS NULL").pick(messages, (1 << 50) - 1, 0)
    assert "properties" not in {name for _, name in messages.looks}


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (0, "none"),
        (1, "one"),
        (1 << 299, "the last"),
        ((1 << 300) - 1, "all"),
        (int("10" * 150, 2), "every second"),
        (((1 << 40) - 1) << 100, "a run"),
    ],
)
@pytest.mark.parametrize("modulus", [1, 2, 7, 50, 1000])
def test_a_pick_is_the_messages_that_match(mask: int, what: str, modulus: int) -> None:
    messages = Messages([{"n": n + 1, "rest": (n + 1) % modulus} for n in range(300)])
    selector = compile_selector("rest = 0")
    expected = sum(1 << n for n in range(300) if mask >> n & 1 and (n + 1) % modulus == 0)
    assert selector.pick(messages, mask, 0) == expected, what


def test_a_pick_looks_only_at_the_messages_picked() -> None:
    messages = Messages([{"a": 1}] * 20)
    assert compile_selector("a = 1 AND a <> 2").pick(messages, 0b1000_0000_0010, 0) == 0b1000_0000_0010
    assert {index for index, _ in messages.looks} == {1, 11}


def test_conditions_that_are_constant_look_at_nothing() -> None:
    messages = Messages([{}, {}])
    assert compile_selector("1 + 1 = 2 OR a = 1").pick(messages, 0b11, 0) == 0b11
    assert compile_selector("1 > 2 AND a = 1").pick(messages, 0b11, 0) == 0
    assert compile_selector("NOT ('a' <> 'b' AND TRUE)").pick(messages, 0b11, 0) == 0
    assert compile_selector("1 / 0 = 1 AND a = 1").pick(messages, 0b11, 0) == 0
    assert messages.looks == []


def test_equal_texts_share_one_selector_and_the_cache_is_bounded() -> None:
    first = compile_selector("shared = 1")
    assert compile_selector("shared = 1") is first
    for number in range(SELECTOR_CACHE_MAX):
        compile_selector(f"other = {number}")
    again = compile_selector("shared = 1")
    assert again is not first
    assert again.text == first.text


@pytest.mark.parametrize("text", [None, "", " ", "\t\r\n\f "])
def test_no_selector_and_a_blank_one_are_the_same(text: str | None) -> None:
    assert normalised(text) is None


def test_blanks_around_a_selector_do_not_make_it_another() -> None:
    assert normalised("  a = ' b '\n") == "a = ' b '"


def test_a_blank_selector_does_not_compile() -> None:
    with pytest.raises(InvalidSelectorError, match="found the end"):
        compile_selector(" ")


def test_a_selector_shows_its_text() -> None:
    assert repr(compile_selector("a = 'x'")) == "Selector(\"a = 'x'\")"
    assert isinstance(compile_selector("a = 'x'"), Selector)
