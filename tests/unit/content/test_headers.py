"""Bodies and headers as bytes: every kind comes back as it was, and what cannot travel is refused by name."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content import bodies, headers
from raybroker.content.bodies import (
    BYTES,
    COMPRESS,
    COMPRESSED_SIZE,
    DEFLATED,
    MAP,
    OBJECT,
    PICKLE,
    STREAM,
    TEXT,
    UNCOMPRESSED_SIZE,
    decode_body,
    deflated,
    encode_body,
)
from raybroker.content.headers import decode_header, encode_header
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import MessageFormatError, MessageTooLargeError, ProtocolError
from raybroker.model.naming.property_names import RESERVED_WORDS, is_header_name

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=9),
    st.binary(max_size=9),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5) | st.integers(0, 99), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_a_body_comes_back_as_it_was_with_its_type(body: Any) -> None:
    kind, data = encode_body(body)
    found = decode_body(kind, memoryview(data))
    assert found == body
    assert type(found) is type(body)
    if isinstance(body, dict):
        assert kind == (MAP if all(isinstance(key, str) for key in body) else OBJECT)
    else:
        assert kind == {bytes: BYTES, str: TEXT, list: STREAM}.get(type(body), OBJECT)


@pytest.mark.parametrize(("kind", "value"), [(MAP, [1]), (MAP, 1), (STREAM, {"a": 1}), (STREAM, None)])
def test_a_map_or_stream_that_is_another_thing_is_refused(kind: int, value: Any) -> None:
    with pytest.raises(MessageFormatError, match=bodies.BODY_TYPES[kind]):
        decode_body(kind, msgpack.packb(value))


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aXbXcX")[::2]])
def test_other_buffers_travel_as_bytes(body: Any) -> None:
    kind, data = encode_body(body)
    assert kind == BYTES
    assert decode_body(kind, data) == b"abc"


class Own:
    """A type of an application."""


BAD_BODIES = {
    "object": object(),
    "own type": Own(),
    "a set": {1},
    "a number past 64 bits": 1 << 64,
    "a number below 64 bits": -(1 << 63) - 1,
    "a complex number": 1j,
    "a function": len,
    "half of a character": "\ud800",
    "half of a character inside": ["\ud800"],
    "half of a character as a key": {"\ud800": 1},
    "a set inside": [[{1}]],
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_of_another_type_is_refused_by_name(name: str) -> None:
    with pytest.raises(MessageFormatError) as caught:
        encode_body(BAD_BODIES[name])
    assert type(BAD_BODIES[name]).__name__ in str(caught.value)


def test_a_body_nested_too_deeply_is_refused() -> None:
    body: list[Any] = []
    for _ in range(5_000):
        body = [body]
    with pytest.raises(MessageFormatError):
        encode_body(body)


def test_whatever_nesting_is_sent_can_be_received() -> None:
    body: Any = 1
    for _ in range(400):
        body = [body]
    assert decode_body(*encode_body(body)) == body


@given(st.integers(0, 255), st.binary(max_size=60))
def test_only_a_format_error_leaves_the_body_decoder(kind: int, data: bytes) -> None:
    try:
        decode_body(kind, data)
    except MessageFormatError:
        assert kind != BYTES


def test_a_pickled_body_is_not_decoded_here() -> None:
    with pytest.raises(MessageFormatError, match="unknown kind 3"):
        decode_body(PICKLE, b"cos\nsystem\n(S'true'\ntR.")


# ---- compression -----------------------------------------------------------------------------------------------------


@given(values, st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)))
def test_a_compressed_body_comes_back_as_it_was(body: Any, properties: dict[str, Any]) -> None:
    kind, plain = encode_body(body)
    kind, data, found = deflated(kind, plain, {**properties, COMPRESS: True})
    assert kind & DEFLATED
    assert decode_body(kind, memoryview(data)) == body
    sizes = {COMPRESSED_SIZE: len(data), UNCOMPRESSED_SIZE: len(plain)}
    assert found == {**properties, COMPRESS: True, **sizes}


def test_a_received_message_that_is_sent_on_gets_sizes_of_its_own() -> None:
    received = {COMPRESS: True, COMPRESSED_SIZE: 1, UNCOMPRESSED_SIZE: 2}
    kind, data, found = deflated(TEXT, b"xyz" * 200, received)
    assert found == {COMPRESS: True, COMPRESSED_SIZE: len(data), UNCOMPRESSED_SIZE: 600}
    assert decode_body(kind, data) == "xyz" * 200
    assert received[COMPRESSED_SIZE] == 1


def test_a_compressed_body_may_inflate_to_the_bound_and_not_a_byte_further() -> None:
    kind, data, _ = deflated(BYTES, bytes(10_000), {})
    assert decode_body(kind, data, 10_000) == bytes(10_000)
    with pytest.raises(MessageFormatError, match="9999 bytes allowed"):
        decode_body(kind, data, 9_999)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"", lambda d: b"\0" + d[1:]])
def test_a_damaged_compressed_body_is_refused(damage: Any) -> None:
    kind, data, _ = deflated(BYTES, bytes(100), {})
    with pytest.raises(MessageFormatError, match="compressed body"):
        decode_body(kind, damage(data))


# ---- headers ---------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,8}", fullmatch=True).filter(
    lambda name: name.upper() not in RESERVED_WORDS and not is_header_name(name)
)
property_values = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.text(max_size=9)
)
optional = st.none() | st.text(max_size=9)


@given(
    st.dictionaries(names, property_values, max_size=5),
    optional,
    optional,
    optional,
    st.none() | st.text("ab", min_size=1),
)
def test_headers_come_back_as_they_were(
    properties: dict[str, Any], correlation: str | None, back: str | None, type_: str | None, dedup: str | None
) -> None:
    data = encode_header(properties, correlation, back, type_, dedup)
    assert decode_header(memoryview(data) if data else None)[:5] == (properties, correlation, back, type_, dedup)
    assert bool(data) == any((properties, correlation is not None, back is not None, type_ is not None, dedup))


@pytest.mark.parametrize("dedup", ["", "x" * 256, 1, b"x", "\ud800"])
def test_a_deduplication_id_has_1_to_255_characters_of_text(dedup: Any) -> None:
    with pytest.raises(MessageFormatError):
        encode_header(None, None, None, None, dedup)
    assert decode_header(encode_header(None, None, None, None, "é" * 255)).dedup_id == "é" * 255


def test_properties_of_messages_without_headers_are_not_shared() -> None:
    decode_header(None).properties["a"] = 1
    assert decode_header(None).properties == {}


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"a b": 1}, "a b"),
        ({"": 1}, "''"),
        ({"1a": 1}, "1a"),
        ({1: 1}, "1"),
        ({"a": [1]}, "list"),
        ({"a": {}}, "dict"),
        ({"a": 1 << 63}, "64 bits"),
        ({"a": -(1 << 63) - 1}, "64 bits"),
        ({"a": b"x"}, "bytes"),
        ({"NOT": 1}, "selector"),
        ({"and": 1}, "selector"),
        ({"Null": 1}, "selector"),
        ({"JMSPriority": 1}, "header"),
        ({"JMSOther": 1}, "header"),
        ({"JMS_BEA_UnitOfOrder": "u"}, "unit_of_order"),
        ({"a\0b": 1}, "identifier"),
        ("abc", "str"),
        ([("a", 1)], "list"),
        ({"a": object()}, "object"),
        ({"a-b": 1}, "a-b"),
        ({"a": "\ud800"}, "property"),
        ({f"p{n}": n for n in range(1001)}, "1001"),
    ],
)
def test_a_property_that_cannot_travel_is_refused_by_name(properties: dict[Any, Any], word: str) -> None:
    with pytest.raises(MessageFormatError, match=word):
        encode_header(properties, None, None, None)


@pytest.mark.parametrize("name", ["a$b", "$", "_x", "größe", "JMSXGroupID", "JMS_ours", "android", "x1"])
def test_a_property_has_the_names_that_a_selector_can_use(name: str) -> None:
    assert decode_header(encode_header({name: 1}, None, None, None)).properties == {name: 1}


@pytest.mark.parametrize("fields", [(1, None, None), (None, b"x", None), (None, None, 1.0), ("\ud800", None, None)])
def test_a_header_that_is_no_text_is_refused(fields: tuple[Any, Any, Any]) -> None:
    with pytest.raises(MessageFormatError):
        encode_header(None, *fields)


def test_headers_may_have_64_kib_and_not_a_byte_more() -> None:
    spare = headers.MESSAGE_HEADERS_BYTES_MAX - len(encode_header({"p": "x" * 60_000}, None, None, None))
    assert len(encode_header({"p": "x" * (60_000 + spare)}, None, None, None)) == headers.MESSAGE_HEADERS_BYTES_MAX
    with pytest.raises(MessageTooLargeError, match="65537"):
        encode_header({"p": "x" * (60_001 + spare)}, None, None, None)


@given(st.binary(max_size=60))
def test_only_a_protocol_error_leaves_the_header_decoder(data: bytes) -> None:
    try:
        decode_header(data)
    except ProtocolError:
        return


@pytest.mark.parametrize(
    "fields",
    [
        [],
        1,
        None,
        "x",
        {"p": []},
        {"p": 1},
        {"c": 1},
        {"r": [1]},
        {"t": {}},
        {"p": None},
        {"d": 1},
        {"p": {"a": [1]}},
        {"p": {"a": msgpack.ExtType(1, b"x")}},
    ],
)
def test_headers_of_another_shape_are_refused(fields: Any) -> None:
    with pytest.raises(ProtocolError):
        decode_header(msgpack.packb(fields))


def test_a_message_without_an_id_says_so_and_selectors_see_none() -> None:
    """R-16"""
    nameless = encode_header({"n": 1}, "c", None, None, no_id=True)
    assert decode_header(nameless).no_id
    assert decode_header(nameless).properties == {"n": 1}
    assert not decode_header(encode_header({"n": 1}, "c", None, None)).no_id
    data = encode_block(
        [b"", b""], producer=7, first_seq=1, timestamp_ms=1, persistent=True, kinds=0, headers=[nameless, b""]
    )
    found = headers.content_of(Block(data))
    assert [found.header(index, "JMSMessageID") for index in (0, 1)] == [None, headers.message_id(7, 2)]
