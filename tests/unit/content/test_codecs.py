"""Codecs of compressed bodies, against each other's damage and bounds; zlib's are in test_headers.py as well."""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from raybroker.content import codecs
from raybroker.content.bodies import BYTES, DEFLATED, TEXT, WORK, ZSTD, decode_body, size_of
from raybroker.content.codecs import STEP_BYTES, inflate, unzstd, zstd
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ConfigError, MessageFormatError

PLAIN = b"what is said twice can be said once; " * 50


@pytest.fixture
def codec(request: pytest.FixtureRequest) -> tuple[int, Callable[[bytes], bytes], Callable[[Buffer, int], bytes]]:
    if request.param == "zstd":
        pytest.importorskip("zstandard")  # Of the extra zstd, which the tests' own extra brings.
        return ZSTD, zstd, unzstd
    return DEFLATED, zlib.compress, inflate


BOTH = pytest.mark.parametrize("codec", ["zlib", "zstd"], indirect=True)


@BOTH
def test_what_is_compressed_comes_back_up_to_the_bound_and_not_a_byte_further(codec) -> None:  # type: ignore[no-untyped-def]
    bit, shrink, grow = codec
    small = shrink(PLAIN)
    assert len(small) < len(PLAIN) // 10
    assert grow(memoryview(small), len(PLAIN)) == PLAIN
    assert decode_body(TEXT | bit, small) == PLAIN.decode()
    with pytest.raises(MessageFormatError, match=f"larger than the {len(PLAIN) - 1} bytes"):
        grow(small, len(PLAIN) - 1)


@BOTH
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data + b"more",
        lambda data: b"\0" + data[1:],
        lambda data: b"",
        lambda data: data[:5],
    ],
)
def test_damaged_bytes_are_refused(codec, damage: Callable[[bytes], bytes]) -> None:  # type: ignore[no-untyped-def]
    _, shrink, grow = codec
    with pytest.raises(MessageFormatError, match="compressed body"):
        grow(damage(shrink(PLAIN)), 1 << 20)


def test_an_error_does_not_keep_what_was_inflated() -> None:
    with pytest.raises(MessageFormatError) as caught:
        inflate(zlib.compress(bytes(100_000)), 50_000)
    kept = [
        value
        for frame, _ in traceback.walk_tb(caught.tb)
        for value in frame.f_locals.values()
        if isinstance(value, bytes | bytearray | memoryview)
    ]
    assert all(len(value) < 50_000 for value in kept)


def test_a_frame_that_does_not_say_its_size_is_refused() -> None:
    """It could be of any size, and would only be found out after the memory was taken."""
    library = pytest.importorskip("zstandard")
    frame = library.ZstdCompressor(write_content_size=False).compress(PLAIN)
    with pytest.raises(MessageFormatError, match="does not say how large"):
        unzstd(frame, 1 << 20)


def test_a_kind_with_two_codecs_is_refused() -> None:
    with pytest.raises(MessageFormatError, match="unknown kind"):
        decode_body(TEXT | DEFLATED | ZSTD, zlib.compress(PLAIN))


def test_without_the_library_senders_and_receivers_are_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(codecs.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"MessageCompressionOptions=ZSTD .*raybroker\[zstd\]"):
        zstd(PLAIN)
    with pytest.raises(MessageFormatError, match=r"Zstandard .*raybroker\[zstd\]"):
        decode_body(TEXT | ZSTD, b"any")


@pytest.mark.parametrize("compress", [zlib.compress, zstd], ids=["zlib", "zstd"])
@pytest.mark.parametrize("size", [0, 1, STEP_BYTES, STEP_BYTES + 1, 1_000_000])
def test_the_size_is_known_before_the_body_is_whole(compress: Any, size: int) -> None:
    bit = DEFLATED if compress is zlib.compress else ZSTD
    assert size_of(BYTES | bit, compress(bytes(size)), size) == size
    assert size_of(BYTES, bytes(size), 0) == size


def test_counting_ends_where_it_is_too_much() -> None:
    """A bomb costs no more than that."""
    counted = size_of(BYTES | DEFLATED, zlib.compress(bytes(50_000_000)), 100_000)
    assert 100_000 < counted <= 100_000 + STEP_BYTES


@pytest.mark.parametrize("data", [b"", b"no zlib", zlib.compress(b"abc")[:-1], zlib.compress(b"abc") + b"x"])
def test_the_size_of_a_damaged_body_is_not_told(data: bytes) -> None:
    with pytest.raises(MessageFormatError):
        size_of(BYTES | DEFLATED, data, 1000)


def test_a_unit_of_work_has_the_size_of_its_parts() -> None:
    rows = [(BYTES | DEFLATED, b"", zlib.compress(bytes(1000)), "1"), (BYTES, b"", b"abc", "2")]
    packed = msgpack.packb(rows)
    assert size_of(WORK, packed, 10_000) == 1003
    assert size_of(WORK | DEFLATED, zlib.compress(packed), 10_000) == 1003
    assert size_of(WORK, packed, 500) > 500
