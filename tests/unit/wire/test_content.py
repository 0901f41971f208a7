"""Bodies and headers as bytes: every kind comes back as it was, and what cannot travel is refused by name."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import MessageFormatError, MessageTooLargeError, ProtocolError
from raybroker.wire import content
from raybroker.wire.content import BYTES, OBJECT, PICKLE, TEXT, decode_body, decode_header, encode_body, encode_header

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.floats(allow_nan=False), st.text(max_size=9),
    st.binary(max_size=9),
)  # fmt: skip
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
    assert kind == {bytes: BYTES, str: TEXT}.get(type(body), OBJECT)


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aXbXcX")[::2]])
def test_other_buffers_travel_as_bytes(body: Any) -> None:
    kind, data = encode_body(body)
    assert kind == BYTES
    assert decode_body(kind, data) == b"abc"


class Own:
    """A type of an application."""


BAD_BODIES = {
    "object": object(), "own type": Own(), "a set": {1}, "a tuple": (1, 2), "a tuple inside": {"a": (1, 2)},
    "a date": datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC), "a decimal": decimal.Decimal(1),
    "a number past 64 bits": 1 << 64, "a number below 64 bits": -(1 << 63) - 1, "a complex number": 1j,
    "a function": len, "half of a character": "\ud800", "half of a character inside": ["\ud800"],
    "half of a character as a key": {"\ud800": 1}, "a set inside": [[{1}]],
}  # fmt: skip


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


# ---- headers ---------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
optional = st.none() | st.text(max_size=9)


@given(st.dictionaries(names, scalars, max_size=5), optional, optional, optional)
def test_headers_come_back_as_they_were(
    properties: dict[str, Any], correlation: str | None, back: str | None, type_: str | None
) -> None:
    data = encode_header(properties, correlation, back, type_)
    assert decode_header(memoryview(data) if data else None) == (properties, correlation, back, type_)
    assert bool(data) == any((properties, correlation is not None, back is not None, type_ is not None))


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"a b": 1}, "a b"), ({"": 1}, "''"), ({"1a": 1}, "1a"), ({1: 1}, "1"), ({"a": [1]}, "list"),
        ({"a": {}}, "dict"),
        ({"a": 1 << 64}, "int"), ({"a": -(1 << 63) - 1}, "int"), ({"a": object()}, "object"), ({"a-b": 1}, "a-b"),
        ({"a": "\ud800"}, "property"), ({f"p{n}": n for n in range(1001)}, "1001"),
    ],
)  # fmt: skip
def test_a_property_that_cannot_travel_is_refused_by_name(properties: dict[Any, Any], word: str) -> None:
    with pytest.raises(MessageFormatError, match=word):
        encode_header(properties, None, None, None)


@pytest.mark.parametrize("fields", [(1, None, None), (None, b"x", None), (None, None, 1.0), ("\ud800", None, None)])
def test_a_header_that_is_no_text_is_refused(fields: tuple[Any, Any, Any]) -> None:
    with pytest.raises(MessageFormatError):
        encode_header(None, *fields)


def test_headers_may_have_64_kib_and_not_a_byte_more() -> None:
    spare = content.MESSAGE_HEADERS_BYTES_MAX - len(encode_header({"p": b"x" * 60_000}, None, None, None))
    assert len(encode_header({"p": b"x" * (60_000 + spare)}, None, None, None)) == content.MESSAGE_HEADERS_BYTES_MAX
    with pytest.raises(MessageTooLargeError, match="65537"):
        encode_header({"p": b"x" * (60_001 + spare)}, None, None, None)


@given(st.binary(max_size=60))
def test_only_a_protocol_error_leaves_the_header_decoder(data: bytes) -> None:
    try:
        decode_header(data)
    except ProtocolError:
        return


@pytest.mark.parametrize(
    "fields", [[], 1, None, "x", {"p": []}, {"p": 1}, {"c": 1}, {"r": [1]}, {"t": {}}, {"p": None}]
)
def test_headers_of_another_shape_are_refused(fields: Any) -> None:
    with pytest.raises(ProtocolError):
        decode_header(msgpack.packb(fields))
