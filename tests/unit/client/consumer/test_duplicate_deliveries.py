"""Duplicate deliveries after a failover: known by the marked copy that came first."""

from __future__ import annotations

import pytest

from raybroker.client.consumer.prefetch import duplicate_deliveries
from raybroker.client.consumer.prefetch.duplicate_deliveries import DuplicateDeliveries
from raybroker.content.possible_duplicates import in_doubt
from raybroker.model.blocks.block import Block, encode_block


def block(first_seq: int, count: int, producer: int = 7) -> bytes:
    return encode_block(
        [b"x"] * count, producer=producer, first_seq=first_seq, timestamp_ms=1, persistent=True, kinds=0
    )


def marked(first_seq: int, count: int) -> Block:
    return Block(in_doubt(block(first_seq, count)))


def test_a_copy_of_a_marked_message_is_one_that_came_before() -> None:
    seen = DuplicateDeliveries()
    assert not seen.again(marked(10, 3)), "the first of the two is new"
    assert seen.again(Block(block(12, 5))), "one of its messages is enough"
    assert not seen.again(Block(block(13, 5)))
    assert not seen.again(Block(block(10, 3, producer=8)))


def test_messages_without_a_mark_are_never_remembered() -> None:
    seen = DuplicateDeliveries()
    assert not seen.again(Block(block(1, 2)))
    assert not seen.again(Block(block(1, 2)))


def test_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_deliveries, "MESSAGES_MAX", 2)
    seen = DuplicateDeliveries()
    seen.again(marked(1, 3))
    assert not seen.again(Block(block(1, 1)))
    assert seen.again(Block(block(3, 1)))
