"""The table of composite types: encodings, defaults, mandatory fields, round trips, and forms made from it."""

from __future__ import annotations

import struct
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import MessageFormatError
from raybroker.wire.amqp import performatives as table
from raybroker.wire.amqp.conditions import DECODE_ERROR, AmqpViolation
from raybroker.wire.amqp.frames import FRAME_HEAD
from raybroker.wire.amqp.packed_forms import TAG_SLOT, UINT_SLOT, PackedForm
from raybroker.wire.amqp.performatives import (
    ACCEPTED,
    COMPOSITES,
    RELEASED,
    AmqpAttach,
    AmqpBegin,
    AmqpDisposition,
    AmqpError,
    AmqpFlow,
    AmqpModified,
    AmqpOpen,
    AmqpProperties,
    AmqpRejected,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
    composite_of,
    decode_composite,
    encode_composite,
)
from raybroker.wire.amqp.types import Described, Symbol, encode
from tests.unit.wire.amqp.test_types import plain, symbols, texts, values

KINDS = [one.kind for descriptor, one in COMPOSITES.items() if isinstance(descriptor, int)]

SHOWN: list[tuple[Any, str]] = [
    (AmqpOpen("c"), "00 53 10 c0 04 01 a1 01 63"),
    (AmqpOpen("c", channel_max=7), "00 53 10 c0 09 04 a1 01 63 40 40 60 0007"),
    (AmqpBegin(None, 1, 2, 3), "00 53 11 c0 08 04 40 52 01 52 02 52 03"),
    (AmqpTransfer(0, 1, b"\1", 0, True), "00 53 14 c0 09 05 43 52 01 a0 01 01 43 41"),
    (AmqpDisposition(True, 1, None, True, ACCEPTED), "00 53 15 c0 0a 05 41 52 01 40 41 00 53 24 45"),
    (AmqpFlow(None, 1, 0, 1), "00 53 13 c0 07 04 40 52 01 43 52 01"),
    (ACCEPTED, "00 53 24 45"),
    (RELEASED, "00 53 26 45"),
    (AmqpModified(True), "00 53 27 c0 02 01 41"),
    (AmqpRejected(AmqpError("a:b", "c")), "00 53 25 c0 0f 01 00 53 1d c0 09 02 a3 03 613a62 a1 01 63"),
    (Declare(), "00 53 31 45"),
    (Discharge(b"t", False), "00 53 32 c0 05 02 a0 01 74 42"),
    (TransactionalState(b"t", ACCEPTED), "00 53 34 c0 08 02 a0 01 74 00 53 24 45"),
    (Coordinator(("x",)), "00 53 30 c0 07 01 e0 04 01 a3 01 78"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[type(value).__name__ for value, _ in SHOWN])
def test_what_is_written_is_the_shortest_form(value: Any, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_composite(value) == data
    assert decode_composite(data) == (value, len(data))


@pytest.mark.parametrize("value", [value for value, _ in SHOWN], ids=[type(value).__name__ for value, _ in SHOWN])
def test_other_forms_of_the_same_are_read(value: Any) -> None:
    """By descriptors in every form, with lists of four bytes of size, and with nulls at the end."""
    known = composite_of(type(value))
    fields = encode_composite(value)[3:]
    count = 0 if fields == b"\x45" else fields[2]
    items = fields[3:] + b"\x40" * (len(known.fields) - count)
    large = b"\xd0" + struct.pack(">II", len(items) + 4, len(known.fields)) + items
    number = b"\0\x80" + struct.pack(">Q", known.descriptor)
    for front in (number, b"\0\xa3" + bytes((len(known.symbol),)) + known.symbol.encode()):
        for rest in (fields, large):
            assert decode_composite(front + rest) == (value, len(front) + len(rest))


def test_nulls_are_defaults() -> None:
    data = bytes.fromhex("00 53 12 c0 0a 07 a1 01 6c 43 42 40 40 40 40")
    found, _ = decode_composite(data)
    assert found == AmqpAttach("l", 0, False)
    assert found.snd_settle_mode == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("00 53 10 45", "no container_id"),
        ("00 53 10 c0 02 01 40", "no container_id"),
        ("00 53 11 c0 04 03 40 43 43", "no outgoing_window"),
        ("00 53 10 c0 02 01 41", "constructor 0x41"),
        ("00 53 10 c0 05 01 a1 01 63 40", "do not end"),
        ("00 53 10 c0 04 02 a1 01 63", "behind"),
        ("00 53 24 c0 02 01 40", "at most 0"),
        ("00 53 10 a1 01 63", "something else than a list"),
        ("00 53 34 c0 06 02 a0 01 74 45", "constructor 0x45"),
        ("00 53 25 c0 05 01 00 53 24 45", "none of AmqpError"),
        ("00 53 30 c0 05 01 e0 02 01 41", "something else"),
        ("a1 01 63", "described"),
        ("00 53 10", "behind"),
        ("00 53 10 c0", "behind"),
        ("00 53 10 c0 04 01 a1 ff 63", "do not end"),
    ],
)
def test_what_is_no_performative_is_malformed(text: str, why: str) -> None:
    with pytest.raises(AmqpViolation, match=why) as raised:
        decode_composite(bytes.fromhex(text))
    assert raised.value.condition == DECODE_ERROR


def test_keys_of_fields_are_symbols() -> None:
    text = encode_composite(AmqpOpen("c", properties={"product": "x"}))
    assert b"\xa3\x07product" in text
    assert decode_composite(text)[0].properties == {"product": "x"}
    with pytest.raises(AmqpViolation, match="no symbol"):
        decode_composite(text.replace(b"\xa3\x07product", b"\xa1\x07product"))


def test_what_is_described_by_something_else_comes_as_it_is() -> None:
    described = Described(0x468C00000004, "a = 1")
    source = AmqpSource("q", filter={"jms-selector": described}, default_outcome=Described(0x99, [1]))
    assert decode_composite(encode_composite(source))[0] == source
    assert encode_composite(described) == encode(described)
    assert decode_composite(encode(described))[0] == described


def test_states_nest_to_a_bound() -> None:
    state: Any = ACCEPTED
    for _ in range(5):
        state = TransactionalState(b"t", state)
    assert decode_composite(encode_composite(state))[0] == state
    for _ in range(100):
        state = TransactionalState(b"t", state)
    with pytest.raises(AmqpViolation, match="nested"):
        decode_composite(encode_composite(state))


def test_a_value_that_does_not_fit_its_field_is_told() -> None:
    with pytest.raises(MessageFormatError, match="amqp:transfer:list"):
        encode_composite(AmqpTransfer(1 << 33))
    with pytest.raises(MessageFormatError):
        encode_composite(object())


def test_a_message_id_keeps_its_type() -> None:
    for message_id in ("a", 7, b"b"):
        assert decode_composite(encode_composite(AmqpProperties(message_id)))[0].message_id == message_id
    assert encode_composite(AmqpProperties(7)).endswith(b"\x53\x07")


def test_the_table_has_the_classes_of_the_module() -> None:
    named = [
        one
        for one in vars(table).values()
        if isinstance(one, type) and one.__module__ == table.__name__ and hasattr(one, "_fields")
    ]
    assert {*named} == {*KINDS}
    assert len({one.descriptor for one in COMPOSITES.values()}) == len(KINDS) == len(COMPOSITES) // 2


BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "ubyte": st.integers(0, 255),
    "ushort": st.integers(0, 65535),
    "uint": st.integers(0, (1 << 32) - 1),
    "ulong": st.integers(0, (1 << 64) - 1),
    "timestamp": st.integers(-(1 << 63), (1 << 63) - 1),
    "binary": st.binary(max_size=300),
    "string": texts,
    "symbol": symbols,
    "symbols": st.lists(symbols, max_size=4).map(tuple),
    "fields": st.dictionaries(symbols, values, max_size=3),
    "map": st.dictionaries(texts, plain, max_size=3),
    "any": values,
    "state": st.sampled_from([ACCEPTED, RELEASED, AmqpModified(True, None, {"a": 1}), Declared(b"t"), AmqpRejected()]),
    "message-id": texts | st.binary(max_size=20) | st.uuids() | st.integers(0, (1 << 64) - 1),
    "AmqpSource": st.just(AmqpSource("q", 2, "never", filter={"f": Described(Symbol("x"), "y")})),
    "AmqpTarget": st.sampled_from([AmqpTarget("q", dynamic=True), Coordinator()]),
    "AmqpError": st.just(AmqpError("amqp:not-found", "é", {"a": 1})),
}


@st.composite
def of_table(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(KINDS))
    known, hints = composite_of(kind), get_type_hints(kind)
    fields = [
        draw(BY_TYPE[one.name] | st.none() if type(None) in get_args(hints[name]) else BY_TYPE[one.name])
        for name, one in zip(known.fields, known.types, strict=True)
    ]
    return kind(*fields)


@given(of_table())
def test_what_is_written_is_read_again(value: Any) -> None:
    data = encode_composite(value)
    assert decode_composite(data) == (value, len(data))
    assert decode_composite(memoryview(b"x" + data), 1) == (value, len(data) + 1)


@given(of_table(), st.data())
def test_a_damaged_one_is_another_or_malformed(value: Any, data: st.DataObject) -> None:
    damaged = bytearray(encode_composite(value))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))]) if data.draw(st.booleans()) else bytes(damaged)
    try:
        _, end = decode_composite(cut)
    except AmqpViolation:
        pass
    else:
        assert end <= len(cut)


@pytest.mark.parametrize("number", [0, 7, 255, 256, (1 << 32) - 1])
def test_a_packed_form_is_a_frame_of_its_class(number: int) -> None:
    form = PackedForm(
        9, AmqpTransfer, handle=300, delivery_id=UINT_SLOT, delivery_tag=TAG_SLOT, message_format=0, settled=True
    )
    data = form.pack(form.size + 3, number, number) + b"xyz"
    assert FRAME_HEAD.unpack_from(data) == (len(data), 2, 0, 9)
    wanted = AmqpTransfer(300, number, number.to_bytes(4, "big"), 0, True)
    assert decode_composite(data, 8) == (wanted, len(data) - 3)
