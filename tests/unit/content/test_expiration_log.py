"""The record of an expired message, rule by rule."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content.expiration_log import VALUE_CHARS_MAX, LogPolicy, expiry_record, parse_policy
from raybroker.content.headers import pack_fields
from raybroker.model.blocks.block import Block, encode_block

ID = "ID:0000000000000007-3"
ALONE = f"<ExpiredJMSMessage JMSMessageID='{ID}' />"


def record(
    policy: str | None,
    properties: dict[str, Any] | None = None,
    *,
    correlation_id: str | None = None,
    type_: str | None = None,
    **outside: Any,
) -> str:
    texts = (("c", correlation_id), ("t", type_))
    header = pack_fields({"p": properties or {}, **{key: text for key, text in texts if text is not None}})
    block = encode_block(
        [b"x"],
        producer=7,
        first_seq=3,
        timestamp_ms=1_000,
        persistent=True,
        kinds=0,
        priority=7,
        headers=[header],
        expires=array("Q", (2_000,)),
    )
    return expiry_record(Block(block), 0, policy, **outside)


# ---- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "", " ", ",", " , ,, ", "JMSMessageID", "JMSMessageID, JMSMessageID"])
def test_without_a_policy_the_message_id_stands_alone(policy: str | None) -> None:
    assert record(policy, {"Make": "Honda"}) == ALONE


def test_names_of_headers_and_properties_can_be_mixed() -> None:
    assert record("JMSPriority, Name,Address", {"Name": "x", "Address": "y", "City": "z"}) == (
        f"<ExpiredJMSMessage JMSMessageID='{ID}' >\n"
        " <HeaderFields JMSPriority='7' />\n"
        " <UserProperties Name='x' Address='y' />\n"
        "</ExpiredJMSMessage>"
    )


def test_all_headers_and_some_properties() -> None:
    assert record("%header%,Name", {"Name": "x", "City": "z"}, correlation_id="c", type_="t") == (
        f"<ExpiredJMSMessage JMSMessageID='{ID}' >\n"
        " <HeaderFields JMSTimestamp='1000' JMSPriority='7' JMSDeliveryMode='PERSISTENT' JMSExpiration='2000'"
        " JMSDeliveryTime='1000' JMSCorrelationID='c' JMSType='t' />\n"
        " <UserProperties Name='x' />\n"
        "</ExpiredJMSMessage>"
    )


def test_all_properties_and_one_header() -> None:
    found = record("JMSCorrelationID,%properties%", {"b": 1, "a": 2}, correlation_id="c")
    assert found == (
        f"<ExpiredJMSMessage JMSMessageID='{ID}' >\n"
        " <HeaderFields JMSCorrelationID='c' />\n"
        " <UserProperties b='1' a='2' />\n"
        "</ExpiredJMSMessage>"
    )


def test_words_in_percent_signs_are_not_case_sensitive_and_names_are() -> None:
    assert parse_policy("%HEADER%,%Properties%") == parse_policy("%header%,%properties%")
    assert record("%PROPERTIES%", {"a": 1}) == record("%properties%", {"a": 1}) != ALONE
    assert record("name,jmspriority", {"Name": "x", "Jmspriority": 1}) == ALONE


def test_a_name_that_is_asked_for_twice_stands_once_where_it_was_first() -> None:
    found = record("b,%properties%,b,JMSPriority,%header%,JMSPriority", {"a": 1, "b": 2})
    assert "<UserProperties b='2' a='1' />" in found
    assert found.count("JMSPriority=") == 1
    assert "<HeaderFields JMSPriority='7' " in found


@given(st.text(alphabet="%,aJ header", max_size=30))
def test_every_text_is_a_policy(text: str) -> None:
    assert isinstance(parse_policy(text), LogPolicy)
    assert record(text).startswith(f"<ExpiredJMSMessage JMSMessageID='{ID}' ")


# ---- the shape -------------------------------------------------------------------------------------------------------


def test_a_line_with_nothing_in_it_is_left_out() -> None:
    head, tail = f"<ExpiredJMSMessage JMSMessageID='{ID}' >\n", "\n</ExpiredJMSMessage>"
    assert record("JMSPriority,Name") == f"{head} <HeaderFields JMSPriority='7' />{tail}"
    assert record("JMSType,Name", {"Name": "x"}) == f"{head} <UserProperties Name='x' />{tail}"
    assert record("JMSType,Name") == ALONE
    assert record("%properties%") == ALONE


# ---- the values ------------------------------------------------------------------------------------------------------


def test_null_an_empty_text_and_a_long_text() -> None:
    properties = {"First": "Any string longer than 32 characters", "Second": None, "Third": ""}
    found = record("%properties%", properties)
    assert " <UserProperties First='Any string longer than 32 ch ...' Second=null Third='' />" in found


@pytest.mark.parametrize(("length", "shown"), [(31, "x" * 31), (32, "x" * 32), (33, "x" * 28 + " ...")])
def test_a_text_has_at_most_32_characters(length: int, shown: str) -> None:
    assert len(shown) <= VALUE_CHARS_MAX
    assert f" a='{shown}' />" in record("a", {"a": "x" * length})
    assert f" JMSType='{shown}' />" in record("JMSType", type_="x" * length)


def test_what_is_asked_for_and_absent_is_left_out() -> None:
    assert "<UserProperties b='1' />" in record("a,b,c", {"b": 1})


@pytest.mark.parametrize(
    ("value", "shown"), [(True, "'true'"), (False, "'false'"), (7, "'7'"), (0.5, "'0.5'"), (b"\x01\xff", "'01ff'")]
)
def test_values_of_other_types_stand_in_quotes_too(value: Any, shown: str) -> None:
    assert f"<UserProperties a={shown} />" in record("a", {"a": value})


def test_a_value_cannot_end_its_quotes_or_begin_a_line() -> None:
    found = record("a", {"a": "x' b='y'\n<Expired\u2028"})
    assert "a='x&#39; b=&#39;y&#39;&#10;<Expired&#8232;' />" in found
    assert len(found.splitlines()) == 3


def test_what_a_block_does_not_know_comes_from_outside() -> None:
    found = record("JMSDestination,JMSRedelivered", destination="orders", redelivered=False)
    assert "<HeaderFields JMSDestination='orders' JMSRedelivered='false' />" in found
    assert record("JMSDestination,JMSRedelivered") == ALONE
