"""Sections of messages: where they are, what is in them, and what is no message."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.wire.amqp.conditions import DECODE_ERROR, AmqpViolation
from raybroker.wire.amqp.performatives import AmqpHeader, AmqpProperties, Declare, Discharge, encode_composite
from raybroker.wire.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTIONS_MAX,
    SEQUENCE,
    VALUE,
    MessageSections,
    annotations_section,
    application_properties_section,
    data_front,
    header_section,
    properties_section,
    sequence_section,
    value_section,
)
from raybroker.wire.amqp.types import Byte, Symbol, encode

FRONT = header_section(AmqpHeader(True, 7, delivery_count=2)) + annotations_section(DELIVERY_ANNOTATIONS, {"d": 1})
KEPT = (
    annotations_section(MESSAGE_ANNOTATIONS, {"x-opt-jms-msg-type": Byte(5)})
    + properties_section(AmqpProperties("id", to="q", group_id="g"))
    + application_properties_section({"colour": "red", "n": 3})
    + value_section("héllo")
    + annotations_section(FOOTER, {"f": 2})
)


def test_all_sections() -> None:
    for data in (FRONT + KEPT, memoryview(FRONT + KEPT)):
        message = MessageSections(data)
        assert [section.code for section in message.sections] == [
            HEADER,
            DELIVERY_ANNOTATIONS,
            MESSAGE_ANNOTATIONS,
            PROPERTIES,
            APPLICATION_PROPERTIES,
            VALUE,
            FOOTER,
        ]
        assert message.header == AmqpHeader(True, 7, delivery_count=2)
        assert message.delivery_annotations == {"d": 1}
        assert message.message_annotations == {"x-opt-jms-msg-type": 5}
        assert message.properties == AmqpProperties("id", to="q", group_id="g")
        assert message.application_properties == {"colour": "red", "n": 3}
        assert (message.body_kind, message.body) == (VALUE, "héllo")
        assert message.footer == {"f": 2}
        assert message.kept_from == len(FRONT)
        assert bytes(data[message.kept_from :]) == KEPT


def test_what_is_not_there() -> None:
    message = MessageSections(b"")
    assert message.header is message.properties is message.body_kind is message.body is None
    assert message.message_annotations == message.application_properties == message.footer == {}
    assert message.kept_from == 0
    assert MessageSections(FRONT).kept_from == len(FRONT)
    assert annotations_section(FOOTER, {}) == application_properties_section({}) == b""


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_data_of_several_sections_is_one_body(size: int) -> None:
    one = data_front(size) + b"x" * size
    assert MessageSections(one).body == b"x" * size
    message = MessageSections(one * 3)
    assert (message.body_kind, message.body) == (DATA, b"x" * size * 3)


def test_sequences_are_one_body() -> None:
    message = MessageSections(sequence_section([1, "a"]) + sequence_section([None]))
    assert (message.body_kind, message.body) == (SEQUENCE, [1, "a", None])


def test_what_a_transaction_says() -> None:
    assert MessageSections(value_section(None)[:3] + encode_composite(Declare())).composite_body == Declare()
    discharge = value_section(None)[:3] + encode_composite(Discharge(b"t", True))
    assert MessageSections(discharge).composite_body == Discharge(b"t", True)
    for wrong in (value_section("x"), data_front(0), b""):
        with pytest.raises(AmqpViolation):
            MessageSections(wrong).composite_body  # noqa: B018


def test_descriptors_in_their_other_forms() -> None:
    symbol = b"\0" + encode(Symbol("amqp:amqp-value:*")) + encode("a")
    number = b"\0\x80\0\0\0\0\0\0\0\x77" + encode("a")
    for data in (symbol, number):
        assert MessageSections(data).body == "a"
    named = b"\0" + encode(Symbol("amqp:header:list")) + b"\x45"
    assert MessageSections(named).header == AmqpHeader()


CONSTRUCTORS = {HEADER: 0x45, DELIVERY_ANNOTATIONS: 0xC1, MESSAGE_ANNOTATIONS: 0xD1, PROPERTIES: 0xC0}
VALUES = {0x45: b"", 0xC0: b"\1\0", 0xC1: b"\1\0", 0xD1: b"\0\0\0\4\0\0\0\0"}


@given(st.lists(st.sampled_from(sorted(CONSTRUCTORS)), unique=True).map(sorted), st.lists(st.booleans(), min_size=4))
def test_sections_are_found_by_either_form_of_their_descriptors_and_at_the_very_end(
    codes: list[int], short: list[bool]
) -> None:
    data, starts = b"", [0]
    for code, is_short in zip(codes, short, strict=False):
        constructor = CONSTRUCTORS[code]
        front = bytes((0, 0x53, code)) if is_short else b"\0\x80" + code.to_bytes(8, "big")
        data += front + bytes((constructor,)) + VALUES[constructor]
        starts.append(len(data))
    found = MessageSections(data)
    assert [section.code for section in found.sections] == codes
    assert [(section.start, section.end) for section in found.sections] == [*pairwise(starts)]
    assert found.properties == (AmqpProperties() if PROPERTIES in codes else None)
    assert found.message_annotations == {}
    for cut in range(1, len(data) - starts[-2] if codes else 0):
        with pytest.raises(AmqpViolation):
            MessageSections(data[:-cut])


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"\0",
        b"\0\x53",
        b"\0\x53\x70",
        b"\0\x53\x70\x40",
        b"\0\x53\x6f\x45",
        b"\0\x53\x79\x45",
        b"\0\xa3\1x\x45",
        b"\0\x40\x45",
        b"\0\x53\x75\x45",  # data that is no binary
        KEPT + FRONT,
        header_section(AmqpHeader()) * 2,
        value_section(1) * 2,
        value_section(1) + data_front(0),
        data_front(0) + value_section(1),
        data_front(0) + sequence_section([1]),
        sequence_section([1]) + value_section(1),
        data_front(3) + b"xx",
        data_front(0) * (SECTIONS_MAX + 1),
    ],
)
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(AmqpViolation) as raised:
        MessageSections(data)
    assert raised.value.condition == DECODE_ERROR


def test_names_of_application_properties_are_strings() -> None:
    data = b"\0\x53\x74" + encode({Symbol("a"): 1})
    with pytest.raises(AmqpViolation, match="no string"):
        MessageSections(data).application_properties  # noqa: B018


@given(st.binary(max_size=40).map(lambda data: b"\0\x53\x77" + data) | st.binary(max_size=40), st.binary(max_size=3))
def test_the_sections_are_all_bytes_or_it_is_malformed(start: bytes, end: bytes) -> None:
    data = start + end
    try:
        message = MessageSections(data)
    except AmqpViolation:
        return
    bounds = [0, *(section.end for section in message.sections)]
    assert bounds[-1] == len(data)
    assert [section.start for section in message.sections] == bounds[:-1]
