"""Entries in runs against the same entries one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.blocks import record
from raybroker.model.blocks.record import BLOCK, NOTE, EntryRun, LogEntry, in_runs

ENTRIES = st.lists(
    st.builds(
        lambda note, home, ordinal, width: (
            LogEntry(NOTE, home, 0, b"note") if note else LogEntry(BLOCK, home, ordinal, bytes([ordinal]) * width)
        ),
        st.integers(0, 9).map(lambda n: n == 9),
        st.integers(1, 2),
        st.integers(1, 12),
        st.integers(0, 2),
    ),
    max_size=40,
)
ASCENDING = st.integers(0, 40).map(lambda count: [LogEntry(BLOCK, 1, n, b"%2d" % n) for n in range(count)])


@given(st.one_of(ENTRIES, ASCENDING), st.sampled_from((1, 2, 7, 1_000)))
def test_runs_are_the_entries_in_their_order(entries: list[LogEntry], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "RUN_BLOCKS_MAX", most)
        found = list(in_runs(entries))
    flat: list[LogEntry] = []
    for entry in found:
        flat += entry.entries() if isinstance(entry, EntryRun) else [entry]
    assert flat == entries
    assert all(entry.blocks <= most for entry in found if isinstance(entry, EntryRun))


def test_neighbours_are_one_run() -> None:
    entries = [LogEntry(BLOCK, 1, n, b"%2d" % n) for n in range(10, 30)]
    assert list(in_runs(entries)) == [EntryRun(1, 10, 20, b"".join(entry.meta for entry in entries))]
