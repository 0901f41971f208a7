"""Blocks are kept in memory within a budget, read back when they are not, and read once however many pieces leave."""

from __future__ import annotations

from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.block_cache import OPENED_BYTES_MAX, OPENED_MAX, BlockCache
from raybroker.engine.memory.pager import Pager
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.store.memory import MemoryStore
from tests.unit.engine.rig import Clock
from tests.unit.engine.test_pager import Files


def block(count: int, size: int = 100) -> bytes:
    bodies = [bytes([n % 251]) * size for n in range(count)]
    return encode_block(bodies, producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)


def filled(blocks: int, data: bytes, budget_bytes: int) -> tuple[BlockCache, MemoryStore]:
    store = MemoryStore()
    assert list(store.recover()) == []
    cache = BlockCache(store, budget_bytes)
    for ordinal in range(1, blocks + 1):
        crowded = cache.put(1, ordinal, Block(data), stored=True)
        store.commit([LogEntry(BLOCK, 1, ordinal, b"", (data,))])
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


def test_what_is_stored_is_not_paged_and_what_is_paged_is_not_stored() -> None:
    store, files, data = MemoryStore(), Files(), block(4)
    assert list(store.recover()) == []
    cache = BlockCache(store, 1 << 20, Pager(files, 0, MeasuredTime(Clock()), lambda line: None))
    for ordinal in range(1, 9_001):
        stored = ordinal % 2 == 0
        cache.put(1, ordinal, Block(data), stored=stored)
        files.sync()
    assert files.kept
    assert all(ordinal % 2 for _, ordinal in files.kept)
    assert cache.kept_bytes == 4_500 * len(data)
    assert all(bytes(cache.get(1, ordinal).view) == data for ordinal in range(1, 9_001))
    assert cache.read_back == 0
    cache.retire(1, range(1, 9_001), stored=False)
    assert cache.bytes_elsewhere(1)["paged_bytes"] == cache.kept_bytes == 0
    assert cache.pager is not None
    assert not cache.pager.held_bytes


def test_what_its_transaction_stored_is_the_caches_from_then_on() -> None:
    store, data = MemoryStore(), block(4)
    cache = BlockCache(store, 1 << 20, Pager(Files(), 0, MeasuredTime(Clock()), lambda line: None))
    cache.put(1, 1, Block(data), stored=False, staged=True)
    cache.demote(1, 1)
    assert cache.kept_bytes == len(data)
    assert cache.pager is not None
    assert not cache.pager.held_bytes
    assert bytes(cache.get(1, 1).view) == data


def test_copies_of_what_the_store_has_are_dropped_and_the_rest_stays() -> None:  # B-17
    data = block(3)
    cache, _ = filled(3, data, budget_bytes=1 << 20)
    cache.put(1, 4, Block(data), stored=False)
    cache.get(1, 1)
    cache.keep_copies(False)
    assert sorted(cache.copies()) == [(1, 1), (1, 2), (1, 3)]
    cache.retire(1, [2], stored=False)
    cache.drop([(1, 1), (1, 2), (1, 3)])
    assert (cache.copies(), cache.kept_bytes, cache._opened) == ([], len(data), {})
    assert bytes(cache.get(1, 3).view) == data
    assert bytes(cache.get(1, 4).view) == data
    assert cache.read_back == 1
    assert cache.put(1, 5, Block(data), stored=True), "it leaves as soon as the store has it"
    cache.keep_copies(True)
    assert not cache.put(1, 6, Block(data), stored=True)


def test_what_a_commit_has_stored_is_a_copy_from_then_on() -> None:
    cache = BlockCache(MemoryStore(), 1 << 20)
    cache.put(1, 1, Block(block(1)), stored=False)
    cache.demote(1, 1)
    assert cache.copies() == [(1, 1)]
    assert cache.get(1, 1).count == 1
