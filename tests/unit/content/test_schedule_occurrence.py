"""The message of a schedule: the one that was given, as of now, with more properties (B17)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content.headers import content_of, decode_header, encode_header
from raybroker.content.schedule_occurrence import occurrence_block
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import MessageTooLargeError

PROPERTIES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9) | st.text(max_size=5), max_size=3)


def given_block(header: bytes = b"", body: bytes = b"body", timestamp_ms: int = 5, **more: Any) -> Block:
    options = {"producer": 1, "first_seq": 1, "persistent": True, "kinds": 1} | more
    return Block(encode_block([body], timestamp_ms=timestamp_ms, headers=[header] if header else None, **options))


def occurrence(block: Block, properties: dict[str, Any] | None = None, *, ttl_ms: int = 0, delay_ms: int = 0) -> Block:
    found = Block(
        occurrence_block(
            block, properties or {"s": 1}, producer=9, first_seq=7, now_ms=1_000, ttl_ms=ttl_ms, delay_ms=delay_ms
        )
    )
    found.check()
    return found


@given(
    PROPERTIES,
    PROPERTIES,
    st.binary(max_size=20),
    st.booleans(),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from((0, 1, 0x81)),
)
def test_it_is_the_message_that_was_given_as_of_now(
    own: dict[str, Any],
    more: dict[str, Any],
    body: bytes,
    persistent: bool,
    priority: int,
    ttl_ms: int,
    delay_ms: int,
    kind: int,
) -> None:
    header = encode_header(own, "corr", "queue:r", "t", None)
    block = given_block(header, body, persistent=persistent, priority=priority, kinds=kind)
    found = occurrence(block, more, ttl_ms=ttl_ms, delay_ms=delay_ms)
    assert (found.count, bytes(found.body(0)), found.kind_of(0)) == (1, body, kind)
    assert (found.persistent, found.priority_of(0)) == (persistent, priority)
    assert (found.producer, found.seq_of(0), found.timestamp_ms) == (9, 7, 1_000)
    assert found.expires_of(0) == (1_000 + ttl_ms if ttl_ms else 0)
    assert found.deliver_at_of(0) == (1_000 + delay_ms if delay_ms else 0)
    fields = decode_header(found.header(0))
    assert fields.properties == own | (more or {"s": 1})
    assert (fields.correlation_id, fields.reply_to, fields.type) == ("corr", "queue:r", "t")


def test_a_message_without_headers_gets_some() -> None:
    assert content_of(occurrence(given_block())).properties(0) == {"s": 1}


def test_its_deduplication_id_is_left_out() -> None:  # B25
    block = given_block(encode_header({"a": 1}, None, None, None, "only-once"))
    assert content_of(occurrence(block)).dedup_ids() is None


def test_a_message_without_a_timestamp_stays_without() -> None:
    assert occurrence(given_block(timestamp_ms=0)).timestamp_ms == 0


def test_headers_that_do_not_decode_are_none() -> None:
    assert content_of(occurrence(given_block(b"\xc1nonsense"))).properties(0) == {"s": 1}


def test_headers_that_leave_no_room_are_refused() -> None:
    block = given_block(encode_header({"a": "x" * (MESSAGE_HEADERS_BYTES_MAX - 20)}, None, None, None))
    with pytest.raises(MessageTooLargeError, match="headers"):
        occurrence(block, {"b": "y" * 100})
