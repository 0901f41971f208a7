"""Blocks are kept in memory within a budget, read back when they are not, and read once however many pieces leave."""

from __future__ import annotations

from raybroker.engine.block_cache import OPENED_BYTES_MAX, OPENED_MAX, BlockCache
from raybroker.model.block import Block, encode_block
from raybroker.model.record import BLOCK, Entry
from raybroker.store.memory import MemoryStore


def block(count: int, size: int = 100) -> bytes:
    bodies = [bytes([n % 251]) * size for n in range(count)]
    return encode_block(bodies, producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)


def filled(blocks: int, data: bytes, budget_bytes: int) -> tuple[BlockCache, MemoryStore]:
    store = MemoryStore()
    assert list(store.recover()) == []
    cache = BlockCache(store, budget_bytes)
    for ordinal in range(1, blocks + 1):
        crowded = cache.put(1, ordinal, Block(data), stored=True)
        store.commit([Entry(BLOCK, 1, ordinal, b"", (data,))])
        if crowded:
            cache.demote(1, ordinal)
    return cache, store


def test_the_oldest_blocks_are_kept_and_the_others_read_back() -> None:
    data = block(4)
    cache, _ = filled(5, data, budget_bytes=2 * len(data))
    assert cache.kept_bytes == 2 * len(data)
    for ordinal in range(1, 6):
        assert bytes(cache.get(1, ordinal).view) == data
    assert cache.read_back == 3


def test_a_block_that_leaves_in_pieces_is_read_once() -> None:
    cache, _ = filled(1, block(50), budget_bytes=0)
    for index in range(50):
        assert cache.get(1, 1).body(index)[0] == index
    assert cache.read_back == 1


def test_opened_blocks_are_few_and_go_when_they_are_dropped() -> None:
    data = block(10, size=OPENED_BYTES_MAX // 30)
    cache, _ = filled(2 * OPENED_MAX, data, budget_bytes=0)
    for ordinal in range(1, 2 * OPENED_MAX + 1):
        cache.get(1, ordinal)
    assert len(cache._opened) * len(data) <= OPENED_BYTES_MAX
    assert cache._opened_bytes == len(cache._opened) * len(data)
    for ordinal in range(1, 2 * OPENED_MAX + 1):
        cache.retire(1, [ordinal], stored=False)
    assert (cache._opened_bytes, cache.kept_bytes) == (0, 0)


def test_blocks_that_are_nowhere_else_are_kept_whatever_the_budget() -> None:
    cache = BlockCache(MemoryStore(), 0)
    data = block(3)
    assert not cache.put(1, 1, Block(data), stored=False)
    assert bytes(cache.get(1, 1).view) == data
    assert cache.read_back == 0


def test_a_block_is_there_before_the_store_has_it() -> None:
    cache = BlockCache(MemoryStore(), 0)
    data = block(3)
    assert cache.put(1, 1, Block(data), stored=True), "it has to go once it is durable"
    assert bytes(cache.get(1, 1).view) == data
    assert cache.read_back == 0
