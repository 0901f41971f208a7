"""Histograms count the same, one observation at a time or many at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.histogram import BATCH, PARTS, RATIO, SECONDS, Histogram

EDGES = st.sampled_from([BATCH, RATIO, SECONDS])
VALUES = st.lists(st.floats(0, 6000) | st.sampled_from([*BATCH, *RATIO, *SECONDS]), max_size=60)


@given(EDGES, VALUES, VALUES)
def test_many_at_once_count_as_one_after_another(
    edges: tuple[float, ...], some: list[float], more: list[float]
) -> None:
    singly, at_once = Histogram(edges), Histogram(edges)
    for value in (*some, *more):
        singly.observe(value)
    at_once.observe_all(some)
    at_once.observe_all(more)
    assert at_once.counts == singly.counts
    assert isinstance(singly.total, int)
    assert abs(at_once.total - singly.total) < 1e-6 * max(singly.total, PARTS)
