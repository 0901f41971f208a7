"""Packed blocks against a plain dictionary of entries."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks import held_blocks
from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.blocks.held_blocks import HeldBlocks
from raybroker.core.durable.records import PartColumn, PartKey

PAGE = 1 << held_blocks.PAGE_BITS
COLD = (held_blocks.HOT_PAGES + 2) * PAGE


def fields(entry: BlockEntry) -> tuple[object, ...]:
    return tuple(getattr(entry, name) for name in BlockEntry.__slots__)


def alone(size: int = 7, columns: Columns | None = None, *, persistent: bool = True) -> BlockEntry:
    return BlockEntry(1, size, persistent, columns or Columns())


KINDS = (
    alone,
    lambda: alone(9),
    lambda: alone(columns=Columns(9)),
    lambda: alone(columns=Columns(0)),
    lambda: alone(columns=Columns(4, expires=array("Q", [5_000]))),
    lambda: alone(persistent=False),
    lambda: alone(columns=Columns(4, deliver_at=array("Q", [5_000]))),
    lambda: alone(columns=Columns(units=("a",))),
    lambda: alone(columns=Columns(works=PartColumn(1, (PartKey("a", 1, True),)))),
    lambda: BlockEntry(3, 7, True),
    lambda: BlockEntry(2, array("I", [1, 2]), True),
    lambda: alone(columns=Columns(4, priorities=b"\3")),
)


@given(
    st.lists(st.tuples(st.integers(0, len(KINDS) - 1), st.integers(1, 40)), max_size=12),
    st.lists(st.tuples(st.sampled_from(("take", "look", "settle", "told")), st.integers(0, 400)), max_size=40),
)
def test_packed_and_unpacked_blocks_are_indistinguishable(
    kinds: list[tuple[int, int]], then: list[tuple[str, int]]
) -> None:
    """Pages of four, so that a short queue has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_blocks, "PAGE_BITS", 2)
        patch.setattr(held_blocks, "HOT_PAGES", 0)
        index, plain = BlockIndex(), dict[int, BlockEntry]()
        for kind, times in kinds:
            for _ in range(times):
                plain[index.accept(KINDS[kind]())] = KINDS[kind]()
        held = index.held
        for what, number in then:
            if what == "look":
                found = held.get(number)
                assert (found is not None) == (number in plain)
                assert found is None or fields(found) == fields(plain[number])
            elif number not in plain:
                with pytest.raises(KeyError):
                    held[number]
            elif what == "take":
                assert fields(held[number]) == fields(plain[number])
            elif what == "told":
                held[number].told_dead = plain[number].told_dead = 1
            elif not plain[number].done:
                mask = plain[number].everything
                assert index.settle_messages(number, mask)
                del plain[number]
        assert len(held) == len(plain)
        assert bool(held) == bool(plain)
        assert list(held) == sorted(plain)
        assert list(held.keys()) == sorted(plain)
        assert {o: fields(e) for o, e in held.items()} == {o: fields(e) for o, e in plain.items()}
        assert [fields(e) for e in held.values()] == [fields(plain[o]) for o in sorted(plain)]
        assert all(o in held for o in plain)
        assert -1 not in held
        assert held.oldest() == min(plain, default=None)
        assert index.messages == sum(e.left for e in plain.values())
        stored = [o for o in sorted(plain) if plain[o].stored]
        assert all(held.is_stored(o) == plain[o].stored for o in plain)
        spans = held.stored_spans(set())
        assert [o for a, b in spans for o in range(a, b + 1)] == stored
        assert all(after[0] > before[1] + 1 for before, after in pairwise(spans))


def test_what_has_begun_is_not_packed() -> None:
    index = BlockIndex()
    entries = [alone() for _ in range(COLD)]
    for entry in entries[PAGE : PAGE + 3]:
        entry.transacted = True
    entries[PAGE + 4].claims = 2
    entries[PAGE + 5].told_dead = 1
    for entry in entries:
        index.accept(entry)
    kept = {o for o, _ in index.held.unpacked() if o < 2 * PAGE}
    assert index.held.pages_count > PAGE
    assert {PAGE + 1, PAGE + 2, PAGE + 3, PAGE + 5, PAGE + 6} <= kept
    assert index.held[PAGE + 5].claims == 2


def test_a_page_of_which_most_is_gone_is_not_made() -> None:
    index = BlockIndex()
    for ordinal in range(1, COLD + 1):
        assert index.accept(alone()) == ordinal
        if ordinal > 3:
            index.settle_messages(ordinal - 3, 1)
    assert not index.held.pages


def test_taking_a_block_unpacks_it_alone_and_the_last_one_ends_its_page() -> None:
    index = BlockIndex()
    for _ in range(COLD):
        index.accept(alone())
    held = index.held
    packed = held.pages_count
    assert held[PAGE].count == 1
    assert held.pages_count == packed - 1
    for ordinal in range(PAGE, 2 * PAGE):
        index.settle_messages(ordinal, 1)
    assert 1 not in held.pages
    assert len(held) == COLD - PAGE


def test_recovered_blocks_come_as_pages() -> None:
    held = HeldBlocks()
    held[3] = alone()
    sizes = array("I", [n % 3 for n in range(3 * PAGE)])
    held.add_alone([(10, sizes, bytes([4, 7] * (len(sizes) // 2)))])
    assert held.pages_count >= 2 * PAGE
    assert list(held) == [3, *range(10, 10 + 3 * PAGE)]
    for ordinal in (10, PAGE - 1, PAGE, 2 * PAGE + 5, 9 + 3 * PAGE):
        at = ordinal - 10
        assert fields(held[ordinal]) == fields(alone(sizes[at], Columns(7 if at % 2 else 4)))


def test_the_oldest_is_found_across_a_long_gap() -> None:
    held = HeldBlocks()
    for ordinal in (5, 100_000, 200_000):
        held[ordinal] = alone()
    assert held.oldest() == 5
    del held[5]
    assert held.oldest() == 100_000
    del held[100_000], held[200_000]
    assert held.oldest() is None


def test_a_fresh_block_is_found_and_a_packed_one_is_not() -> None:
    index = BlockIndex()
    for _ in range(COLD):
        index.accept(alone())
    held = index.held
    assert held.fresh(COLD) is held[COLD]
    assert held.fresh(PAGE) is None
    assert held.get(PAGE) is not None
    assert held.fresh(COLD + 1) is None
