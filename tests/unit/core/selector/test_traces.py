"""Traces: what a selector needs in the encoded headers, and that a block without it has no message for the selector."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given

from raybroker.content.headers import BlockContent, content_of, pack_fields
from raybroker.core.selector import compile_selector
from raybroker.core.selector.grammar import parse
from raybroker.core.selector.traces import traces
from raybroker.model.blocks.block import Block, encode_block
from tests.unit.core.selector.test_against_reference import MESSAGES, SELECTORS


class Unsearched(BlockContent):
    """Every message of it is compared."""

    __slots__ = ()

    def may_have(self, trace: bytes) -> bool:
        return True


def block_of(headers: list[bytes]) -> Block:
    bodies = [b""] * len(headers)
    return Block(
        encode_block(bodies, producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0, headers=headers)
    )


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("last = TRUE", {b"last\xc3"}),
        ("last <> TRUE", {b"last\xc2"}),
        ("FALSE = last", {b"last\xc2"}),
        ("last", {b"last\xc3"}),
        ("NOT NOT last", {b"last\xc3"}),
        ("NOT last", set()),
        ("a OR b", set()),
        ("region = 'EU' AND n >= 1", {b"region", b"EU", b"n"}),
        ("region <> 'EU'", {b"region"}),
        ("a = b", {b"a", b"b"}),
        ("a IS NULL", set()),
        ("a IS NOT NULL", {b"a"}),
        ("a NOT IN ('x')", {b"a"}),
        ("a NOT LIKE 'x'", {b"a"}),
        ("a NOT BETWEEN 1 AND 2", {b"a"}),
        ("a + 1 = 2", set()),
        ("JMSType = 'x'", set()),
        ("JMSXGroupID = 'x'", set()),
    ],
)
def test_a_selector_needs_what_its_conditions_cannot_be_true_without(text: str, needed: set[bytes]) -> None:
    assert traces(parse(text)) == needed


@given(SELECTORS, MESSAGES)
def test_blocks_are_compared_as_their_messages_are(text: str, rows: list[dict[str, Any]]) -> None:
    try:
        selector = compile_selector(text)
    except ValueError:
        return
    everything = (1 << len(rows)) - 1
    block = block_of([pack_fields({"p": row}) for row in rows])
    assert selector.pick(content_of(block), everything, 0) == selector.pick(Unsearched(block), everything, 0)


def _str8(text: str) -> bytes:
    data = text.encode()
    return b"\xd9" + bytes([len(data)]) + data


def test_headers_of_another_encoder_are_found() -> None:
    """It writes short texts with a length of a byte, or of two."""
    wide = b"\x81\xd9\x01p\x82" + _str8("last") + b"\xc3" + b"\xda\x00\x06region" + _str8("EU")
    assert msgpack.unpackb(wide) == {"p": {"last": True, "region": "EU"}}
    content = content_of(block_of([b"", wide, b""]))
    assert compile_selector("last = TRUE AND region = 'EU'").pick(content, 0b111, 0) == 0b010
    assert compile_selector("last = FALSE").pick(content, 0b111, 0) == 0


def test_blocks_without_headers_have_no_message_for_a_property() -> None:
    bodies = [b""] * 3
    block = Block(encode_block(bodies, producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0))
    assert compile_selector("last = TRUE").pick(content_of(block), 0b111, 0) == 0
    assert compile_selector("last IS NULL").pick(content_of(block), 0b111, 0) == 0b111
