"""What selectors and deduplication read in a block: each header under its name, and nothing out of damaged bytes."""

from __future__ import annotations

from array import array
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.consumer.message import message_id as of_client
from raybroker.content.headers import HEADER_NAMES, content_of, dedup_ids, encode_header, message_id
from raybroker.model.blocks.block import Block, encode_block
from tests.unit.content.test_headers import names, optional, property_values

ids = st.none() | st.text("ab", min_size=1, max_size=4)
headers = st.lists(
    st.tuples(st.dictionaries(names, property_values, max_size=3), optional, optional, optional, ids),
    min_size=1,
    max_size=6,
)


def block_of(encoded: list[bytes], **columns: Any) -> Block:
    return Block(
        encode_block(
            [b"x"] * len(encoded),
            producer=0xAB,
            first_seq=7,
            timestamp_ms=1_000,
            persistent=True,
            kinds=0,
            headers=encoded,
            **columns,
        )
    )


@given(headers)
def test_the_headers_of_every_message_are_found_under_their_names(rows: list[tuple[Any, ...]]) -> None:
    block = block_of([encode_header(*row) for row in rows])
    content = content_of(block)
    for _ in range(2):
        for index, (properties, correlation, back, type_, _dedup) in enumerate(rows):
            assert content.properties(index) == properties
            found = [content.header(index, name) for name in ("JMSCorrelationID", "JMSReplyTo", "JMSType")]
            assert found == [correlation, back, type_]
    expected = [row[4] for row in rows]
    assert dedup_ids(block) == content.dedup_ids() == (expected if any(expected) else None)


def test_headers_that_stand_in_the_block_are_those_of_the_message() -> None:
    columns = {"priorities": b"\1\2\3", "expires": array("Q", (0, 5, 0)), "deliver_at": array("Q", (0, 0, 2_000))}
    picked = Block(b"".join(block_of([b"", b"", b""], **columns).pick(0b110)))
    for block, first in ((block_of([b"", b"", b""], **columns), 0), (picked, 1)):
        content = content_of(block)
        for index, row in enumerate([(1, 0, 1_000), (2, 5, 1_000), (3, 0, 2_000)][first:]):
            names = ("JMSPriority", "JMSExpiration", "JMSDeliveryTime")
            assert tuple(content.header(index, name) for name in names) == row
            assert content.header(index, "JMSMessageID") == message_id(0xAB, 7 + first + index)
            assert content.header(index, "JMSTimestamp") == 1_000
            assert content.header(index, "JMSDeliveryMode") == "PERSISTENT"


def test_the_delivery_mode_of_messages_that_are_not_kept() -> None:
    block = Block(encode_block([b""], producer=1, first_seq=1, timestamp_ms=0, persistent=False, kinds=0))
    assert content_of(block).header(0, "JMSDeliveryMode") == "NON_PERSISTENT"


def test_names_that_are_no_headers_are_absent_and_those_with_jmsx_are_properties() -> None:
    content = content_of(block_of([encode_header({"JMSXGroupID": "g", "Jms": 1}, None, None, None)]))
    assert content.header(0, "JMSXGroupID") == "g"
    assert [content.header(0, name) for name in ("JMSXGroupSeq", "Jms", "JMSDestination", "")] == [None] * 4


def test_jmsxgroupid_is_the_unit_of_order_unless_a_property_says_otherwise() -> None:
    rows = [
        encode_header(None, None, None, None, unit="u"),
        encode_header({"JMSXGroupID": "g"}, None, None, None, unit="u"),
        encode_header({"a": 1}, None, None, None),
    ]
    content = content_of(block_of(rows))
    assert [content.header(index, "JMSXGroupID") for index in range(3)] == ["u", "g", None]


def test_a_block_without_headers_has_nothing_but_its_own() -> None:
    content = content_of(Block(encode_block([b""], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)))
    assert content.properties(0) == {}
    assert content.header(0, "JMSType") is None
    assert content.dedup_ids() is None


@pytest.mark.parametrize(
    "encoded",
    [b"\xc1", b"\x81\xa1p\x01", msgpack.packb([1]), b"\x91" * 600, msgpack.packb({"p": {"a": [1, 2]}, "d": "x"})],
)
def test_headers_that_do_not_decode_are_none_and_harm_no_other_message(encoded: bytes) -> None:
    content = content_of(block_of([encoded, encode_header({"a": 1}, None, None, None, "id")]))
    assert (content.properties(0), content.properties(1)) == ({}, {"a": 1})
    assert content.header(0, "JMSType") is None
    assert content.dedup_ids() == [None, "id"]


@pytest.mark.parametrize("dedup", [1, "", "x" * 256, b"x", None])
def test_a_deduplication_id_that_cannot_be_one_is_none(dedup: Any) -> None:
    assert dedup_ids(block_of([msgpack.packb({"d": dedup, "t": 1})])) is None
    assert content_of(block_of([msgpack.packb({"t": 1})])).header(0, "JMSType") is None


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_nothing_leaves_the_content_of_random_headers(encoded: list[bytes]) -> None:
    content = content_of(block_of(encoded))
    for index in range(len(encoded)):
        assert isinstance(content.properties(index), dict)
        for name in HEADER_NAMES:
            content.header(index, name)
    content.dedup_ids()


many = st.lists(st.sampled_from(range(-2, 40)), min_size=9, max_size=90) | st.lists(
    st.sampled_from((-2, -1, 0, 1)), min_size=9, max_size=90
)
"""Blocks whose headers are decoded together: messages by number, of few kinds or of many, and some without."""


def _numbered(number: int) -> bytes:
    return b"" if number == -2 else encode_header({"n": number}, f"c{number}", None, None)


@given(many, st.none() | st.sampled_from((b"\xc1", b"\x81\xa1p\x01", b"\x91", b"\x80\x80")), st.randoms())
def test_headers_decoded_together_are_those_of_each(numbers: list[int], damaged: bytes | None, rng: Any) -> None:
    """``damaged``: bytes in the place of one header, which the others are not to suffer from."""
    encoded = [_numbered(number) for number in numbers]
    expected: list[int | None] = [None if number == -2 else number for number in numbers]
    if damaged is not None:
        encoded[at := rng.randrange(len(encoded))] = damaged
        expected[at] = None
    rows = rng.sample(range(len(encoded)), rng.randrange(1, len(encoded) + 1))
    content, other = content_of(block_of(encoded)), content_of(block_of(encoded))
    assert content.column("n", rows) == [expected[row] for row in rows]
    assert content.column("m", rows) == [None] * len(rows)
    assert [other.properties(index).get("n") for index in range(len(encoded))] == expected
    texts = [None if number is None else f"c{number}" for number in expected]
    assert [content.header(index, "JMSCorrelationID") for index in range(len(encoded))] == texts


def test_headers_that_move_the_bounds_of_others_are_none() -> None:
    """A header that is half of a map with the next one is not the headers of anybody."""
    whole = encode_header({"n": 1}, None, None, None)
    halves = [whole[:3], whole[3:]]
    for filling in ([whole] * 10, [encode_header({"n": n}, None, None, None) for n in range(20)]):
        content = content_of(block_of([*halves, *filling]))
        assert content.column("n", range(3)) == [None, None, content.properties(2)["n"]]


def test_a_column_of_a_block_without_headers_or_of_no_message_has_nothing() -> None:
    content = content_of(Block(encode_block([b""], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)))
    assert content.column("n", [0]) == [None]
    assert content_of(block_of([_numbered(1)] * 9)).column("n", []) == []


def test_host_and_client_make_the_same_message_ids() -> None:
    assert of_client is message_id
    assert message_id(0xAB, 12) == "ID:00000000000000ab-12"
