"""Types of AMQP: the encodings that the specification shows, round trips, and what is no encoding."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import MessageFormatError
from raybroker.wire.amqp.conditions import DECODE_ERROR, AmqpViolation
from raybroker.wire.amqp.types import (
    CONSTRUCTORS,
    EMPTY_ITEMS_MAX,
    NESTING_MAX,
    AmqpArray,
    AmqpDecimal,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    decode,
    encode,
    encode_symbols,
    skip,
)

UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
ENCODINGS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("56 01", True),
    ("56 00", False),
    ("50 ff", 255),
    ("60 ffff", 65535),
    ("70 80000000", 1 << 31),
    ("52 ff", 255),
    ("43", 0),
    ("80 ffffffffffffffff", (1 << 64) - 1),
    ("53 80", 128),
    ("44", 0),
    ("51 80", -128),
    ("61 8000", -32768),
    ("71 80000000", -(1 << 31)),
    ("54 ff", -1),
    ("81 8000000000000000", -(1 << 63)),
    ("55 ff", -1),
    ("72 3fc00000", 1.5),
    ("82 3ff8000000000000", 1.5),
    ("74 22500001", AmqpDecimal(bytes.fromhex("22500001"))),
    ("84 2250000000000001", AmqpDecimal(bytes.fromhex("2250000000000001"))),
    ("94 22500000000000000000000000000001", AmqpDecimal(bytes.fromhex("22500000000000000000000000000001"))),
    ("73 0001f600", "\U0001f600"),
    ("83 000000e8d4a51000", 1_000_000_000_000),
    ("98 12345678123456781234567812345678", UUID),
    ("a0 02 00ff", b"\x00\xff"),
    ("b0 00000002 00ff", b"\x00\xff"),
    ("a1 1e" + b"Hello Glorious Messaging World".hex(), "Hello Glorious Messaging World"),
    ("b1 00000002 c3a9", "é"),
    ("a3 03 616263", "abc"),
    ("b3 00000003 616263", "abc"),
    ("45", []),
    ("c0 03 02 41 43", [True, 0]),
    ("d0 00000006 00000002 41 43", [True, 0]),
    ("c1 06 02 a3 01 61 52 07", {"a": 7}),
    ("d1 00000009 00000002 a3 01 61 52 07", {"a": 7}),
    ("e0 04 02 50 01 02", AmqpArray(0x50, (1, 2))),
    ("f0 00000007 00000002 50 01 02", AmqpArray(0x50, (1, 2))),
    ("e0 03 03 41", None),  # filled in below: three values without bytes
    ("00 53 24 45", Described(0x24, [])),
    ("00 80 0000468c00000004 a1 01 61", Described(0x468C00000004, "a")),
    ("00 a3 01 78 40", Described("x", None)),
    ("e0 08 02 00 53 99 50 01 02", AmqpArray(0x50, (1, 2), 0x99)),
    (
        "f0 00000010 00000002 e0 03 01 50 07 04 02 50 08 09",
        AmqpArray(0xE0, (AmqpArray(0x50, (7,)), AmqpArray(0x50, (8, 9)))),
    ),
]
ENCODINGS = [
    (text, AmqpArray(0x41, (True, True, True)) if text == "e0 03 03 41" else value) for text, value in ENCODINGS
]


def sized(text: str) -> bytes:
    """The bytes, with the sizes of arrays of arrays and of described ones put right."""
    data = bytearray.fromhex(text)
    if data[0] in (0xC0, 0xC1, 0xE0):
        data[1] = len(data) - 2
    elif data[0] in (0xD0, 0xD1, 0xF0):
        data[1:5] = struct.pack(">I", len(data) - 5)
    return bytes(data)


@pytest.mark.parametrize(("text", "value"), ENCODINGS, ids=[text[:12] for text, _ in ENCODINGS])
def test_each_constructor_is_read(text: str, value: Any) -> None:
    data = sized(text)
    for buffer in (data, memoryview(data)):
        assert decode(buffer) == (value, len(data))
        assert decode(memoryview(b"xx" + data), 2) == (value, len(data) + 2)
        assert skip(buffer, 0) == len(data)


def test_every_constructor_is_among_the_encodings() -> None:
    assert {bytes.fromhex(text[:2])[0] for text, _ in ENCODINGS} == {*CONSTRUCTORS, 0}


@pytest.mark.parametrize(("text", "value"), ENCODINGS, ids=[text[:12] for text, _ in ENCODINGS])
def test_what_ends_too_early_or_is_too_short_is_malformed(text: str, value: Any) -> None:
    data = sized(text)
    for end in range(len(data)):
        for read in (decode, lambda short: skip(short, 0)):
            with pytest.raises(AmqpViolation) as raised:
                read(data[:end])
            assert raised.value.condition == DECODE_ERROR


TYPED: list[tuple[Any, str]] = [
    (Ubyte(7), "50 07"),
    (Ushort(7), "60 0007"),
    (Uint(0), "43"),
    (Uint(7), "52 07"),
    (Uint(256), "70 00000100"),
    (Ulong(0), "44"),
    (Ulong(7), "53 07"),
    (Ulong(256), "80 0000000000000100"),
    (Byte(-1), "51 ff"),
    (Short(-1), "61 ffff"),
    (Int(-1), "54 ff"),
    (Int(1000), "71 000003e8"),
    (-1, "55 ff"),
    (1000, "81 00000000000003e8"),
    ((1 << 64) - 1, "80 ffffffffffffffff"),
    (Float(1.5), "72 3fc00000"),
    (1.5, "82 3ff8000000000000"),
    (Char("é"), "73 000000e9"),
    (Timestamp(1), "83 0000000000000001"),
    (UUID, "98 12345678123456781234567812345678"),
    (b"ab", "a0 02 6162"),
    (bytearray(b"ab"), "a0 02 6162"),
    (memoryview(b"ab"), "a0 02 6162"),
    ("ab", "a1 02 6162"),
    (Symbol("ab"), "a3 02 6162"),
    ([], "45"),
    ((True,), "c0 02 01 41"),
    ({}, "c1 01 00"),
    (True, "41"),
    (None, "40"),
    (AmqpDecimal(b"\1\2\3\4"), "74 01020304"),
]


@pytest.mark.parametrize(("value", "text"), TYPED, ids=[text for _, text in TYPED])
def test_the_class_of_a_value_says_how_it_is_written(value: Any, text: str) -> None:
    assert encode(value) == bytes.fromhex(text)


def test_an_array_of_symbols() -> None:
    assert encode_symbols(("a", "bc")) == bytes.fromhex("e0 07 02 a3 01 61 02 6263")
    long = "x" * 300
    assert decode(encode_symbols(("a", long)))[0].items == ("a", long)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        1 << 64,
        -(1 << 63) - 1,
        Ubyte(256),
        Byte(200),
        Char("ab"),
        Symbol("é"),
        "\ud800",
        AmqpDecimal(b"12"),
        AmqpArray(0x01, (1,)),
        AmqpArray(0x60, ("a",)),
        1j,
    ],
)
def test_what_amqp_has_no_type_for_is_told(value: Any) -> None:
    with pytest.raises(MessageFormatError):
        encode(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01",
        "ff",
        "99",
        "56 02",  # a boolean of two
        "73 00110000",  # behind the last character
        "73 0000d800",  # half of a character
        "a1 01 ff",  # no UTF-8
        "a3 02 c3a9",  # no ASCII
        "c0 00 00",
        "c0 01 01",  # more items than bytes
        "c0 04 01 41 42",
        "c0 02 01 a1",
        "d0 ffffffff 00000001 40",
        "d0 00000003 00000000",
        "c1 02 01 41",  # half of a pair
        "c1 05 04 41 40 41 40",  # a key twice
        "c1 04 02 45 40 ",  # a list as a key
        "c1 05 02 c1 01 00 40",  # a map as a key
        "e0 02 01 01",  # items of no type
        "e0 06 01 00 00 53 01 40",  # a described descriptor
        "e0 05 01 00 40 40 40",
        "e0 01 00",
        "f0 00000005 00010000 41",  # many values without bytes
        "00 40 40",  # a descriptor that is null
        "00 52 24 45",  # a uint
        "00 00 53 01 53 01 40",
        "00 53 24",
    ],
)
def test_what_is_no_encoding_is_malformed(text: str) -> None:
    with pytest.raises(AmqpViolation) as raised:
        decode(bytes.fromhex(text))
    assert raised.value.condition == DECODE_ERROR


def test_an_array_of_values_without_bytes_is_bounded() -> None:
    def array(count: int) -> bytes:
        return bytes.fromhex("f0 00000005") + struct.pack(">I", count) + b"\x45"

    assert len(decode(array(EMPTY_ITEMS_MAX))[0].items) == EMPTY_ITEMS_MAX
    with pytest.raises(AmqpViolation):
        decode(array(EMPTY_ITEMS_MAX + 1))


@pytest.mark.parametrize("around", [lambda data: encode([None])[:2] + b"\1" + data, lambda data: b"\0\x53\x01" + data])
def test_nesting_is_bounded(around: Any) -> None:
    def nested(levels: int) -> bytes:
        data = b"\x45"
        for _ in range(levels):
            data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data if around(b"")[0] == 0xC0 else around(data)
        return data

    decode(nested(NESTING_MAX - 1))
    for levels in (NESTING_MAX + 1, 3000):
        with pytest.raises(AmqpViolation):
            decode(nested(levels))


numbers = (
    st.integers(-(1 << 63), (1 << 64) - 1)
    | st.integers(0, 255).map(Ubyte)
    | st.integers(0, 65535).map(Ushort)
    | st.integers(0, (1 << 32) - 1).map(Uint)
    | st.integers(0, (1 << 64) - 1).map(Ulong)
    | st.integers(-128, 127).map(Byte)
    | st.integers(-(1 << 15), (1 << 15) - 1).map(Short)
    | st.integers(-(1 << 31), (1 << 31) - 1).map(Int)
    | st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp)
    | st.floats(allow_nan=False)
    | st.floats(allow_nan=False, width=32).map(Float)
)
symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
plain = (
    st.none()
    | st.booleans()
    | numbers
    | texts
    | symbols
    | st.binary(max_size=300)
    | st.uuids()
    | st.characters(exclude_categories=("Cs",)).map(Char)
    | st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(AmqpDecimal)
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(texts | symbols, inner, max_size=5)
        | st.builds(Described, st.integers(0, (1 << 64) - 1) | symbols, inner)
        | st.lists(st.integers(0, 65535), max_size=5).map(lambda items: AmqpArray(0x60, tuple(items)))
        | st.lists(st.lists(inner, max_size=2), max_size=3).map(lambda items: AmqpArray(0xD0, tuple(items), 7))
    ),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read_again(value: Any) -> None:
    data = encode(value)
    found, end = decode(data)
    assert found == value
    assert end == len(data) == skip(data, 0)
    assert encode(decode(memoryview(data))[0]) == encode(found)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        value, end = decode(data)
    except AmqpViolation:
        return
    assert end <= len(data)
    assert skip(data, 0) == end
    if type(value) is not AmqpArray:
        encode(value)
