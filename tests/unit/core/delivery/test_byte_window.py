"""The byte window against a plain list of what is in the buffer."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.byte_window import ONE_GOES_PART, ByteWindow

MOST = 1000
sizes = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 3000)), min_size=1, max_size=8)
steps = st.lists(st.one_of(sizes, st.integers(1, 10)), max_size=60)


@given(steps)
def test_what_is_in_the_buffer_is_bounded_and_nothing_waits_at_an_empty_one(found: list[list[int] | int]) -> None:
    window, tag = ByteWindow(MOST), 1
    buffered: list[int] = []
    waiting: list[int] = []
    for step in found:
        if isinstance(step, int):
            del buffered[:step]
            window.taken(tag - 1 - len(buffered))
        else:
            waiting += step
        while waiting and not window.full:
            block = BlockEntry(len(waiting), array("I", waiting), persistent=True)
            mask = window.fitting(block, block.everything)
            count = mask.bit_count()
            assert mask == (1 << count) - 1
            assert count == len(waiting) or window.full
            if mask:
                window.sent(tag, block, mask)
            tag += count
            before, buffered, waiting = sum(buffered), buffered + waiting[:count], waiting[count:]
            assert not count or sum(buffered) <= MOST or (count == 1 and before * ONE_GOES_PART <= MOST)
        assert window.nbytes == sum(buffered)
        assert not waiting or sum(buffered) * ONE_GOES_PART > MOST or sum(buffered) + waiting[0] > MOST
        assert buffered or not waiting


def test_equal_sizes_are_counted_as_well() -> None:
    window, block = ByteWindow(MOST), BlockEntry(10, 300, persistent=True)
    assert window.fitting(block, 0b1111110000) == 0b0001110000
    window.sent(5, block, 0b0001110000)
    assert (window.nbytes, window.full) == (900, True)
    assert window.taken(5) is True
    assert (window.nbytes, window.full) == (600, False)
    assert window.taken(5) is False
    assert window.fitting(block, 0b11) == 0b1
    window.restart()
    assert (window.nbytes, window.full) == (0, False)
