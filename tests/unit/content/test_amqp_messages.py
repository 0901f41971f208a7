"""Messages of AMQP as other clients and selectors see them."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from raybroker.content.amqp_messages import amqp_body, amqp_body_type, amqp_fields, id_text, id_value
from raybroker.content.bodies import AMQP, TEXT, AmqpBytes, decode_body, encode_body
from raybroker.content.headers import BlockContent, header_of, pack_fields
from raybroker.core.selector import compile_selector
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import MessageFormatError
from raybroker.wire.amqp.performatives import AmqpProperties
from raybroker.wire.amqp.sections import (
    FOOTER,
    MESSAGE_ANNOTATIONS,
    annotations_section,
    application_properties_section,
    data_front,
    properties_section,
    sequence_section,
    value_section,
)
from raybroker.wire.amqp.types import (
    AmqpArray,
    AmqpDecimal,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    Ubyte,
    Ulong,
)

MS = 1_709_168_523_004


def data_section(data: bytes) -> bytes:
    return data_front(len(data)) + data


def message(
    body: bytes, annotations: dict[str, Any] | None = None, named: dict[str, Any] | None = None, **said: Any
) -> bytes:
    """What is kept of a message."""
    return b"".join(
        (
            annotations_section(
                MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in (annotations or {}).items()}
            ),
            properties_section(AmqpProperties(**said)) if said else b"",
            application_properties_section(named or {}),
            body,
        )
    )


def block_of(*messages: bytes, headers: list[bytes] | None = None, kinds: int | bytes = AMQP) -> Block:
    return Block(
        encode_block(
            list(messages),
            producer=5,
            first_seq=1,
            timestamp_ms=1000,
            persistent=True,
            kinds=kinds,
            headers=headers,
            expires=array("Q", [0] * len(messages)),
        )
    )


@pytest.mark.parametrize(
    ("body", "found", "kind"),
    [
        (value_section("größer"), "größer", "text"),
        (value_section(b"\0\xff"), b"\0\xff", "bytes"),
        (data_section(b"one") + data_section(b"two"), b"onetwo", "bytes"),
        (value_section({"a": Int(1), "b": [Float(1.5), None, True]}), {"a": 1, "b": [1.5, None, True]}, "map"),
        (value_section({Int(1): "one"}), {1: "one"}, "object"),
        (value_section([Byte(1), "2"]), [1, "2"], "stream"),
        (sequence_section([1, "2"]) + sequence_section([b"3"]), [1, "2", b"3"], "stream"),
        (value_section(Ulong((1 << 64) - 1)), (1 << 64) - 1, "object"),
        (value_section(1.25), 1.25, "object"),
        (value_section(True), True, "object"),
        (value_section(None), None, "object"),
        (value_section(Char("x")), "x", "text"),
        (value_section(Symbol("s")), "s", "text"),
        (value_section(UUID(int=7)), UUID(int=7), "object"),
        (value_section(Timestamp(MS)), datetime(2024, 2, 29, 1, 2, 3, 4000, UTC), "object"),
        (value_section(Timestamp(1 << 62)), 1 << 62, "object"),
        (value_section(AmqpArray(0xA1, ("a", "b"))), ["a", "b"], "stream"),
        (value_section(AmqpDecimal(b"1234")), b"1234", "bytes"),
        (value_section(Described(Ulong(77), "inside")), "inside", "text"),
        (b"", None, "object"),
        (annotations_section(FOOTER, {"x": 1}), None, "object"),
    ],
)
def test_a_body_is_a_value_of_python(body: bytes, found: object, kind: str) -> None:
    assert amqp_body(body) == found
    assert type(amqp_body(body)) is type(found)
    assert amqp_body_type(body) == kind
    assert decode_body(AMQP, body) == found


def test_what_its_sender_calls_it_goes_before_what_it_looks_like() -> None:
    assert amqp_body_type(message(value_section(None), {"x-opt-jms-msg-type": Byte(5)})) == "text"
    assert amqp_body_type(message(sequence_section([]), {"x-opt-jms-msg-type": Byte(4)})) == "stream"
    assert amqp_body_type(message(value_section("x"), {"x-opt-jms-msg-type": Byte(77)})) == "text"


@pytest.mark.parametrize(
    ("content_type", "found"),
    [
        ("text/plain", "größer"),
        ("application/json; charset=utf-8", "größer"),
        ("application/octet-stream", "größer".encode()),
        ("text/plain;charset=klingon", "größer".encode()),
    ],
)
def test_data_with_a_content_type_that_is_text_is_text(content_type: str, found: object) -> None:
    assert amqp_body(message(data_section("größer".encode()), content_type=content_type)) == found


def test_data_that_is_no_text_in_its_character_set_stays_bytes() -> None:
    assert amqp_body(message(data_section(b"\xff"), content_type="text/plain")) == b"\xff"


def test_headers_and_properties_are_those_of_its_sections() -> None:
    sent = message(
        value_section("x"),
        {"x-opt-jms-reply-to": Byte(1)},
        {"n": Int(7), "f": Float(0.5), "b": b"\1\2", "s": Symbol("y"), "at": Timestamp(MS), "JMSXUserID": "root"},
        message_id="ID:a",
        correlation_id=Ulong(5),
        subject="kind",
        reply_to="answers",
        group_id="g",
        group_sequence=3,
        creation_time=MS,
        content_type="text/plain",
    )
    header = header_of(block_of(sent), 0)
    assert header.properties == {
        "n": 7,
        "f": 0.5,
        "b": "0102",
        "s": "y",
        "at": MS,
        "content_HYPHEN_type": "text/plain",
        "JMSXGroupSeq": 3,
    }, "and not who has sent it, which no sender may say"
    assert (header.correlation_id, header.reply_to, header.type) == ("ID:AMQP_ULONG:5", "topic:answers", "kind")
    assert (header.id, header.unit, header.timestamp_ms) == ("ID:a", "g", MS)


@pytest.mark.parametrize("value", ["plain", "ID:x", UUID(int=9), 0, (1 << 64) - 1, b"\1\xff", b""])
def test_an_id_of_any_type_has_a_text_and_comes_back(value: object) -> None:
    text = id_text(value)
    assert isinstance(text, str)
    assert id_value(text) == value


@pytest.mark.parametrize(
    "text", ["ID:AMQP_UUID:no", "ID:AMQP_ULONG:-1", f"ID:AMQP_ULONG:{1 << 64}", "ID:AMQP_BINARY:x"]
)
def test_a_text_that_only_looks_like_an_id_of_another_type_stays_a_text(text: str) -> None:
    assert id_value(text) == text


def test_the_prefix_of_a_client_for_texts_without_one_is_taken_off() -> None:
    assert id_value("ID:AMQP_NO_PREFIX:mine") == "mine"


def test_what_was_written_beside_a_message_goes_before_its_own_headers() -> None:
    beside = pack_fields({"p": {"n": 1, "dead": True}, "a": 3})
    header = header_of(block_of(message(value_section("x"), None, {"n": 7, "m": 2}, subject="t"), headers=[beside]), 0)
    assert (header.properties, header.doubtful, header.type) == ({"n": 1, "m": 2, "dead": True}, 3, "t")


def test_selectors_see_the_headers_of_messages_of_amqp_among_others() -> None:
    rows = [
        message(value_section("x"), None, {"n": 7}, message_id="ID:mine", creation_time=MS, group_id="g"),
        b"text",
        message(value_section("y"), None, {"n": 8}),
    ]
    block = block_of(*rows, headers=[b"", pack_fields({"p": {"n": 7}}), b""], kinds=bytes([AMQP, TEXT, AMQP]))

    def chosen(text: str) -> int:
        return compile_selector(text).pick(BlockContent(block), 0b111, 1)

    assert chosen("n = 7") == 0b011
    assert BlockContent(block).may_have(b"n = 7 as msgpack has it"), "they are looked at, however they are encoded"
    assert chosen("JMSMessageID = 'ID:mine'") == 0b001
    assert chosen("JMSMessageID = 'ID:0000000000000005-3'") == 0b100, "without an id of its own it has the broker's"
    assert chosen(f"JMSTimestamp = {MS}") == 0b001
    assert chosen("JMSTimestamp = 1000") == 0b110
    assert chosen("JMSXGroupID = 'g'") == 0b001


def test_a_message_that_does_not_decode_has_no_headers_and_says_why_when_it_is_read() -> None:
    block = block_of(b"\0\x53\x73\xff")
    assert header_of(block, 0).properties == {}
    assert BlockContent(block).properties(0) == {}
    for read in (amqp_body, amqp_body_type, amqp_fields):
        with pytest.raises(MessageFormatError, match="does not decode"):
            read(b"\0\x53\x73\xff")


def test_a_body_of_amqp_is_sent_as_it_is() -> None:
    assert encode_body(AmqpBytes(b"\0\x53\x77\x41")) == (AMQP, b"\0\x53\x77\x41")


def test_a_ubyte_is_a_number() -> None:
    assert amqp_body(value_section([Ubyte(3)])) == [3]
