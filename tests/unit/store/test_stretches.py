"""Rows of blocks in pieces against row by row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybroker.store.journal.format import JournalBlockRow, SummaryWriter, iter_summary
from raybroker.store.journal.stretches import Stretch, gathered, summary_pieces

PARTS = st.lists(
    st.tuples(
        st.integers(1, 3), st.sampled_from((1, 5_000, 2**32 - 40, 2**33)), st.integers(1, 700), st.integers(0, 2)
    ),
    max_size=4,
)


@given(PARTS)
def test_pieces_are_the_rows_of_the_summary(parts: list[tuple[int, int, int, int]]) -> None:
    writer = SummaryWriter()
    for destination, first, count, width in parts:
        for at in range(count):
            writer.add(
                JournalBlockRow(first + at, destination, 512 * at, at, 7 * at, bytes([at % 200]) * width, 0), 512
            )
    data = writer.encode()
    found = []
    for piece in summary_pieces(data, writer.blocks):
        found += piece.block_rows() if isinstance(piece, Stretch) else piece
    assert found == list(iter_summary(data, writer.blocks))


def test_a_long_stretch_is_one_piece() -> None:
    writer = SummaryWriter()
    for at in range(1_000):
        writer.add(JournalBlockRow(at + 1, 1, 512 * at, 9, 1, b"meta", 0), 512)
    (piece,) = summary_pieces(writer.encode(), writer.blocks)
    assert isinstance(piece, Stretch)
    assert (piece.first, len(piece.offsets)) == (1, 1_000)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(0, 1)), max_size=60))
def test_gathered_rows_keep_their_order_within_each_destination(steps: list[tuple[int, int, int]]) -> None:
    nexts, rows = {1: 1, 2: 1, 3: 2**33}, []
    for at, (destination, gap, width) in enumerate(steps):
        nexts[destination] += 1 + (gap if gap > 7 else 0)
        rows.append((nexts[destination], destination, 512 * at, at, 7 * at, b"m" * (26 + width), 0))
    found = list(gathered([rows[:20], rows[20:]]))
    for destination in nexts:
        mine = [row for stretch in found if stretch.destination == destination for row in stretch.block_rows()]
        assert mine == [row for row in rows if row[1] == destination]
    ends = dict[int, tuple[int, int]]()
    for stretch in found:
        width = len(stretch.metas) // len(stretch.sizes)
        assert ends.get(stretch.destination) != (stretch.first, width), "two stretches could have been one"
        ends[stretch.destination] = stretch.end, width
