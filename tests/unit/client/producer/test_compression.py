"""Bodies that travel compressed: because they are large, or because a property of their message says so."""

from __future__ import annotations

import os
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.producer.bodies.body_encoding import encode_any
from raybroker.client.producer.bodies.compression import (
    CODECS,
    Compressor,
    body_encoder,
    compressed,
    compresses,
    squeezed,
)
from raybroker.client.producer.bodies.xml_validation import Validator
from raybroker.client.producer.send_many import encoded
from raybroker.content.bodies import (
    COMPRESS,
    COMPRESSED_SIZE,
    DEFLATED,
    TEXT,
    UNCOMPRESSED_SIZE,
    ZSTD,
    decode_body,
    encode_body,
)
from raybroker.content.headers import decode_header, encode_header
from raybroker.model.errors import MessageTooLargeError
from raybroker.model.settings.setting import INT_MAX

BODY = b"a" * 1000
GZIP = CODECS["GZIP_DEFAULT_COMPRESSION"]


def connection(threshold: int = 100, *, collocated: bool = False, codec: str = "GZIP_DEFAULT_COMPRESSION") -> Any:
    attributes = {"DefaultCompressionThreshold": threshold, "MessageCompressionOptions": codec}
    return SimpleNamespace(attributes=attributes, message_bytes_max=10_000, collocated=collocated)


@pytest.mark.parametrize("properties", [{}, {COMPRESS: False}, {COMPRESS: "true"}, {"other": COMPRESS}])
def test_other_messages_travel_as_they_are(properties: dict[str, Any]) -> None:
    header = encode_header(properties, None, None, None)
    assert compressed(0, BODY, header) == (0, BODY, header)


def test_a_message_that_asks_for_it_is_smaller_and_keeps_its_headers() -> None:
    header = encode_header({COMPRESS: True, "n": 1}, "corr", None, "type", unit="u")
    _, data, marked = compressed(0, BODY, header)
    assert len(data) < len(BODY)
    found, before = decode_header(marked), decode_header(header)
    assert found._replace(properties={}) == before._replace(properties={})
    assert found.properties["n"] == 1


def test_only_bodies_above_the_threshold_are_compressed() -> None:
    encode = Compressor(encode_body, 100, GZIP, 10_000)
    assert encode("x" * 100) == (TEXT, b"x" * 100)
    kind, data = encode("x" * 101)
    assert (kind, zlib.decompress(data)) == (TEXT | DEFLATED, b"x" * 101)
    assert decode_body(kind, data) == "x" * 101


def test_what_would_not_be_smaller_stays_as_it_is() -> None:
    noise = os.urandom(1_000)
    assert Compressor(encode_body, 0, GZIP, 10_000)(noise) == (0, noise)
    assert Compressor(encode_body, 0, GZIP, 10_000)("") == (TEXT, b"")


def test_the_largest_message_is_measured_before_it_is_compressed() -> None:
    """Whoever received a larger one could not open it."""
    encode = Compressor(encode_body, 100, GZIP, 1_000)
    assert len(encode(BODY)[1]) < 100
    with pytest.raises(MessageTooLargeError, match=r"1001 bytes exceeds imq\.message\.max_size=1000"):
        encode(BODY + b"a")


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "ZSTD"])
def test_every_level_of_zlib_is_opened_alike(codec: str) -> None:
    kind, data = body_encoder(connection(codec=codec))(BODY)
    assert decode_body(kind, data) == BODY
    assert len(data) < 100


def test_where_nothing_is_compressed_the_encoder_is_the_plain_one() -> None:
    """So that the feature costs nothing where it is not used."""
    assert body_encoder(connection(INT_MAX)) is encode_body
    assert body_encoder(connection(INT_MAX), pickles=True) is encode_any
    assert body_encoder(connection(), threshold_bytes=INT_MAX) is encode_body
    assert body_encoder(connection(collocated=True)) is encode_body
    assert body_encoder(connection(10_000)) is encode_body
    assert compresses(body_encoder(connection(INT_MAX), threshold_bytes=10))
    assert compresses(body_encoder(connection(), pickles=True))


def test_the_property_wants_zlib_and_both_sizes_also_of_a_large_body() -> None:
    kind, data = body_encoder(connection(codec="GZIP_BEST_SPEED"))(BODY)
    kind, data, marked = compressed(kind, data, encode_header({COMPRESS: True}, None, None, None))
    assert decode_body(kind, data) == BODY
    sizes = {COMPRESSED_SIZE: len(data), UNCOMPRESSED_SIZE: len(BODY)}
    assert decode_header(marked).properties == {COMPRESS: True, **sizes}


@pytest.mark.parametrize("validated", [False, True])
def test_send_many_compresses_bytes_too(validated: bool) -> None:
    encode: Any = body_encoder(connection())
    if validated:
        pytest.importorskip("lxml")
        encode = Validator("q", (), reload=False, encode=encode)
    kinds, data, _ = encoded([BODY, b"short"], encode, None, 10_000)
    assert kinds == bytes([DEFLATED, 0])
    assert [decode_body(*row) for row in zip(kinds, data, strict=True)] == [BODY, b"short"]


def test_what_is_sent_on_is_compressed_only_above_the_threshold_and_only_once() -> None:  # W-50
    text = b"flight " * 100
    kind, small = squeezed(TEXT, text, 699)
    assert (kind, zlib.decompress(small)) == (TEXT | DEFLATED, text)
    assert squeezed(TEXT, text, 700) == (TEXT, text)
    assert squeezed(TEXT | DEFLATED, text, 1) == (TEXT | DEFLATED, text)
    assert squeezed(TEXT | ZSTD, text, 1) == (TEXT | ZSTD, text)
    assert squeezed(TEXT, b"ab", 1) == (TEXT, b"ab"), "what gets no smaller stays"
