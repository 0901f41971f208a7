"""Frames as bytes, and headers of each version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import ProtocolError
from raybroker.wire.stomp.frame import (
    VERSIONS,
    StompFrame,
    Version,
    decode_headers,
    encode,
    escaped,
    receipt,
    unescaped,
)


@pytest.mark.parametrize(
    ("version", "line"),
    [("1.0", "k:a:b\\ c "), ("1.1", "k:a\\cb\\\\\\nc "), ("1.2", "k:a\\cb\\\\\\nc\\r")],
)
def test_each_version_escapes_what_it_can(version: Version, line: str) -> None:
    value = {"1.0": "a:b\\\nc\0", "1.1": "a:b\\\nc\0", "1.2": "a:b\\\nc\r"}[version]
    assert encode(StompFrame("RECEIPT", {"k": value}), version) == f"RECEIPT\n{line}\n\n\0\n".encode()


def test_connected_is_never_escaped() -> None:
    assert encode(StompFrame("CONNECTED", {"session": "a:b"}), "1.2") == b"CONNECTED\nsession:a:b\n\n\0\n"
    assert encode(StompFrame("CONNECTED", {"a": "b\nx:y\0"}), "1.2") == b"CONNECTED\na:b x:y \n\n\0\n"


def test_a_body_comes_with_its_length() -> None:
    assert encode(StompFrame("MESSAGE", {}, b"a\0b"), "1.2") == b"MESSAGE\ncontent-length:3\n\na\0b\0\n"


@pytest.mark.parametrize(("version", "text"), [("1.1", "\\r"), ("1.1", "\\t"), ("1.2", "\\t"), ("1.2", "end\\")])
def test_an_unknown_escape_is_an_error(version: Version, text: str) -> None:
    with pytest.raises(ProtocolError, match="is no escape of STOMP"):
        unescaped(text, version)


@given(st.sampled_from(("1.1", "1.2")), st.text())
def test_what_was_escaped_is_read_again(version: Version, text: str) -> None:
    said = text.replace("\0", " ")
    said = said.replace("\r", " ") if version == "1.1" else said
    found = escaped(text, version)
    assert not set("\n\0\r") & set(found)
    assert unescaped(found, version) == said


def test_version_1_0_escapes_nothing_and_ignores_blanks_at_the_ends() -> None:
    assert decode_headers(["login : ann ", "path:a\\nb"], "1.0", "SEND") == {"login": "ann", "path": "a\\nb"}
    assert decode_headers(["login: ann"], "1.1", "SEND") == {"login": " ann"}


def test_of_a_repeated_header_the_first_counts() -> None:
    assert decode_headers(["foo:World", "foo:Hello"], "1.2", "MESSAGE") == {"foo": "World"}


@pytest.mark.parametrize("line", ["nothing", ":value", ""])
def test_a_line_that_is_no_header(line: str) -> None:
    with pytest.raises(ProtocolError, match="is no header"):
        decode_headers([line], "1.2", "SEND")


def test_the_versions_are_in_order() -> None:
    assert sorted(VERSIONS) == list(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("receipt_id", ["1", "a:b\\c", "line\nand\rmore\0", "ü" * 3, ""])
def test_a_receipt_is_written_as_every_frame_is(receipt_id: str, version: Version) -> None:
    assert receipt(receipt_id, version) == encode(StompFrame("RECEIPT", {"receipt-id": receipt_id}), version)
