"""The block index against a plain dictionary of messages."""

from __future__ import annotations

from array import array
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import NEVER, BlockEntry, Columns
from raybroker.core.blocks.block_index import BlockIndex, spans
from raybroker.core.durable.records import pack_sizes


def held(sizes: list[int], columns: Columns | None = None) -> BlockEntry:
    return BlockEntry(len(sizes), pack_sizes(sizes), True, columns or Columns())


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_block_index_is_what_its_twin_is(blocks: list[list[int]], rng: Random) -> None:
    block_index = BlockIndex()
    twin: dict[tuple[int, int], int] = {}
    peak = 0
    for sizes in blocks:
        ordinal = block_index.accept(held(sizes))
        block_index.note_peak()
        twin |= {(ordinal, i): size for i, size in enumerate(sizes)}
        peak = max(peak, len(twin))
        while twin and rng.random() < 0.5:
            chosen = rng.choice(sorted(twin))[0]
            mine = {i for o, i in twin if o == chosen}
            some = {i for i in mine if rng.random() < 0.6} or mine
            assert block_index.settle_messages(chosen, pk.of_indexes(some)) == (some == mine)
            for index in some:
                del twin[chosen, index]
        assert block_index.messages == len(twin)
        assert block_index.bytes_held == sum(twin.values())
        assert {(o, i) for o, b in block_index.held.items() for i in pk.indexes(b.everything & ~b.done)} == set(twin)
    assert block_index.peak_messages == peak


def test_ordinals_are_given_out_once() -> None:
    block_index = BlockIndex()
    first = block_index.accept(held([1]))
    assert block_index.settle_messages(first, 1)
    assert block_index.accept(held([1])) == first + 1


def test_settling_twice_is_a_bug() -> None:
    block_index = BlockIndex()
    block_index.accept(held([1, 1]))
    block_index.settle_messages(1, 0b01)
    with pytest.raises(AssertionError, match="twice"):
        block_index.settle_messages(1, 0b11)


def test_what_is_stored_is_persistent_unless_said_otherwise() -> None:
    assert BlockEntry(1, 1, True).stored
    assert not BlockEntry(1, 1, False).stored
    assert not BlockEntry(1, 1, True, stored=False).stored


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.integers(0, (1 << 70) - 1))
def test_bytes_are_summed_over_the_mask(sizes: list[int], mask: int) -> None:
    mask &= (1 << len(sizes)) - 1
    assert held(sizes).bytes_of(mask) == sum(size for i, size in enumerate(sizes) if mask >> i & 1)


# ---- columns -------------------------------------------------------------------------------------------------------

TIMES = st.lists(st.sampled_from([0, 5, 6, 7, 9]), min_size=1, max_size=12)


@given(TIMES, st.integers(1, 12), st.integers(0, 4095))
def test_a_message_expires_at_its_time(times: list[int], now_ms: int, mask: int) -> None:
    block = held([1] * len(times), Columns(expires=array("Q", times)))
    mask &= block.everything
    assert block.soonest == min((t for t in times if t), default=NEVER)
    expected = [i for i, t in enumerate(times) if mask >> i & 1 and 0 < t <= now_ms]
    assert pk.indexes(block.expired(mask, now_ms)) == expected


@given(TIMES, st.integers(0, 12), st.integers(0, 4095))
def test_a_message_is_born_at_its_time(times: list[int], now_ms: int, mask: int) -> None:  # W-65
    block = held([1] * len(times), Columns(deliver_at=array("Q", times)))
    mask &= block.everything
    now, later = block.by_birth(mask, now_ms)
    assert pk.indexes(now) == [i for i, t in enumerate(times) if mask >> i & 1 and t <= now_ms]
    assert later == sorted(later)
    assert {i: due for due, some in later for i in pk.indexes(some)} == {
        i: t for i, t in enumerate(times) if mask >> i & 1 and t > now_ms
    }


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 4095))
def test_mask_are_split_by_priority_from_the_highest_down(levels: list[int], mask: int) -> None:  # B-21
    block = held([1] * len(levels), Columns(4, bytes(levels)))
    mask &= block.everything
    groups = block.by_priority(mask)
    assert [level for level, _ in groups] == sorted({levels[i] for i in pk.indexes(mask)}, reverse=True)
    assert {i: level for level, some in groups for i in pk.indexes(some)} == {i: levels[i] for i in pk.indexes(mask)}


def test_a_plain_block_has_one_priority_and_no_times() -> None:
    block = held([1, 1], Columns(7))
    assert block.by_priority(0b11) == [(7, 0b11)]
    assert block.expired(0b11, 1 << 60) == 0
    assert block.by_birth(0b11, 0) == (0b11, [])
    assert block.soonest == NEVER


@given(st.sets(st.integers(0, 40)))
def test_spans_cover_exactly_their_numbers(numbers: set[int]) -> None:
    found = spans(sorted(numbers))
    assert {n for first, last in found for n in range(first, last + 1)} == numbers
    assert all(b[0] > a[1] + 1 for a, b in pairwise(found))


def test_sizes_are_kept_as_one_number_when_they_are_equal() -> None:
    assert pack_sizes([7, 7, 7]) == 7
    assert list(pack_sizes([7, 8])) == [7, 8]  # type: ignore[arg-type]
