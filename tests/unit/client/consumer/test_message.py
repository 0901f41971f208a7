"""A received message: what its block says of it, its body by its kind, its properties as JMS reads them."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.consumer.message import Message, ReceivedDelivery, message_id
from raybroker.client.producer.bodies.body_encoding import encode_any
from raybroker.content.bodies import deflated, encode_body
from raybroker.content.headers import encode_header, pack_fields
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import MessageFormatError


class Session:
    """Notes what messages ask of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def settle_as(self, message: Message, outcome: str, delay_ms: int | None, reason: str) -> str:
        self.asked.append((message, outcome, delay_ms, reason))
        return outcome

    def extend(self, message: Message) -> str:
        self.asked.append((message, "extend"))
        return "extended"


def messages(
    block: Block, session: Session | None = None, *, unpickles: bool = False, attempt: int = 1
) -> list[Message]:
    consumer: Any = SimpleNamespace(
        session=session or Session(), unpickles=unpickles, name="orders", message_bytes_max=1_000
    )
    delivery = ReceivedDelivery(block, consumer, 1, 100, attempt)
    return [Message(delivery, index) for index in range(block.count)]


def block_of(bodies: list[tuple[int, bytes]], headers: list[bytes] | None = None, **columns: Any) -> Block:
    return Block(
        encode_block(
            [data for _, data in bodies],
            producer=7,
            first_seq=10,
            timestamp_ms=1_000,
            persistent=True,
            kinds=bytes(kind for kind, _ in bodies),
            headers=headers,
            **columns,
        )
    )


def with_properties(properties: dict[str, Any], attempt: int = 1) -> Message:
    return messages(block_of([(0, b"")], [pack_fields({"p": properties})]), attempt=attempt)[0]


# ---- headers ---------------------------------------------------------------------------------------------------------


def test_ids_priorities_and_times_are_those_of_the_message_also_in_a_picked_block() -> None:
    whole = block_of(
        [(0, b"")] * 4,
        priorities=b"\1\2\3\4",
        expires=array("Q", (0, 5, 6, 7)),
        deliver_at=array("Q", (0, 0, 2_000, 3_000)),
    )
    rows = [
        (message_id(7, 10), 1, 0, 1_000),
        (message_id(7, 11), 2, 5, 1_000),
        (message_id(7, 12), 3, 6, 2_000),
        (message_id(7, 13), 4, 7, 3_000),
    ]
    for mask in (0b1111, 0b1101, 0b1010, 0b0110):
        found = messages(Block(b"".join(whole.pick(mask))))
        expected = [row for index, row in enumerate(rows) if mask >> index & 1]
        assert [(m.id, m.priority, m.expiration, m.delivery_time) for m in found] == expected


@pytest.mark.parametrize(
    ("text", "found"), [("queue:answers", "answers"), ("topic:prices", "topic:prices"), ("x", "x"), (None, None)]
)
def test_where_to_answer_is_a_name_that_a_session_takes(text: str | None, found: str | None) -> None:
    header = encode_header(None, None, text, None, "once")
    message = messages(block_of([(0, b"")], [header]))[0]
    assert (message.reply_to, message.dedup_id) == (found, "once")


# ---- bodies ----------------------------------------------------------------------------------------------------------

BODIES: dict[str, list[Any]] = {
    "bytes": [b"x", b""],
    "text": ["x", ""],
    "map": [{"a": 1}, {}],
    "stream": [[1, "a"], []],
    "object": [1, None, True, {1: 2}],
}


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("body_type", BODIES)
def test_bodies_and_their_types(body_type: str, packs: bool) -> None:
    encoded = [encode_body(body) for body in BODIES[body_type]]
    found = messages(block_of([deflated(*row, {})[:2] if packs else row for row in encoded]))
    assert [(m.body, type(m.body)) for m in found] == [(body, type(body)) for body in BODIES[body_type]]
    assert {m.body_type for m in found} == {body_type}


def test_mixed_kinds_in_one_block() -> None:
    bodies = [body for some in BODIES.values() for body in some]
    found = messages(block_of([encode_body(body) for body in bodies]))
    assert [m.body for m in found] == bodies


@pytest.mark.parametrize("packs", [True, False])
def test_a_pickled_body_is_opened_for_those_who_asked_for_it(packs: bool) -> None:
    encoded = encode_any({1, 2})
    block = block_of([deflated(*encoded, {})[:2] if packs else encoded])
    assert messages(block, unpickles=True)[0].body == {1, 2}
    assert messages(block)[0].body_type == "object"
    with pytest.raises(MessageFormatError, match="serializer"):
        assert messages(block)[0].body


def test_a_compressed_body_may_not_inflate_past_the_largest_message() -> None:
    found = messages(block_of([deflated(0, bytes(size), {})[:2] for size in (1_000, 1_001)]))
    assert found[0].body == bytes(1_000)
    with pytest.raises(MessageFormatError, match=r"imq\.message\.max_size"):
        assert found[1].body


# ---- properties ------------------------------------------------------------------------------------------------------

NO = MessageFormatError
TABLE: list[tuple[Any, dict[str, Any]]] = [
    (True, {"boolean": True, "string": "true"}),
    (False, {"boolean": False, "string": "false"}),
    (7, {"byte": 7, "short": 7, "int": 7, "long": 7, "string": "7"}),
    (-128, {"byte": -128, "short": -128, "int": -128, "long": -128, "string": "-128"}),
    (128, {"short": 128, "int": 128, "long": 128, "string": "128"}),
    (32_768, {"int": 32_768, "long": 32_768, "string": "32768"}),
    (1 << 31, {"long": 1 << 31, "string": "2147483648"}),
    (1 << 63, {"string": "9223372036854775808"}),
    (0.5, {"float": 0.5, "double": 0.5, "string": "0.5"}),
    (0.1, {"float": 0.10000000149011612, "double": 0.1, "string": "0.1"}),
    (1e300, {"double": 1e300, "string": "1e+300"}),
    ("7", {"boolean": False, "byte": 7, "short": 7, "int": 7, "long": 7, "float": 7.0, "double": 7.0, "string": "7"}),
    (
        "+128",
        {"boolean": False, "short": 128, "int": 128, "long": 128, "float": 128.0, "double": 128.0, "string": "+128"},
    ),
    ("TRUE", {"boolean": True, "string": "TRUE"}),
    ("1.5e2", {"boolean": False, "float": 150.0, "double": 150.0, "string": "1.5e2"}),
    ("1e300", {"boolean": False, "double": 1e300, "string": "1e300"}),
    ("1_0", {"boolean": False, "string": "1_0"}),
    ("\u0661", {"boolean": False, "string": "\u0661"}),
    ("9" * 5_000, {"boolean": False, "double": float("inf"), "string": "9" * 5_000, "float": float("inf")}),
    ("nan", {"boolean": False, "string": "nan"}),
    ("", {"boolean": False, "string": ""}),
    (None, {"boolean": False, "string": None}),
    (b"7", {}),
]
TYPES = ("boolean", "byte", "short", "int", "long", "float", "double", "string")


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize(("value", "allowed"), TABLE)
def test_a_property_is_read_as_the_table_of_jms_allows(value: Any, allowed: dict[str, Any], wanted: str) -> None:
    read = getattr(with_properties({"p": value}), f"get_{wanted}")
    if wanted in allowed:
        assert (read("p"), type(read("p"))) == (allowed[wanted], type(allowed[wanted]))
    else:
        with pytest.raises(MessageFormatError, match=f"property p .* {wanted}"):
            read("p")


@given(st.floats(allow_nan=False, width=32))
def test_numbers_of_single_precision_come_back_exactly(value: float) -> None:
    assert with_properties({"p": value}).get_float("p") == value


def test_a_property_that_is_not_there_is_read_like_null() -> None:
    message = with_properties({"q": 1})
    assert (message.get_boolean("p"), message.get_string("p")) == (False, None)
    with pytest.raises(MessageFormatError, match="not set"):
        message.get_int("p")


def test_the_delivery_count_is_a_property_that_no_sender_can_set() -> None:
    message = with_properties({"a": 1, "JMSXDeliveryCount": 99, "JMSXGroupID": "g"}, attempt=3)
    assert message.get_int("JMSXDeliveryCount") == message.delivery_count == 3
    assert message.get_string("JMSXGroupID") == "g"
    assert message.property_names == ["a", "JMSXGroupID", "JMSXDeliveryCount"]


# ---- outcomes --------------------------------------------------------------------------------------------------------


def test_outcomes_are_the_business_of_the_session() -> None:
    session = Session()
    message = messages(block_of([(0, b"")]), session)[0]
    answers = [message.reject(), message.reject("poison"), message.release(), message.fail(), message.fail(50)]
    assert answers == ["reject", "reject", "release", "fail", "fail"]
    assert message.extend() == "extended"
    assert session.asked == [
        (message, "reject", None, ""),
        (message, "reject", None, "poison"),
        (message, "release", None, ""),
        (message, "fail", None, ""),
        (message, "fail", 50, ""),
        (message, "extend"),
    ]
