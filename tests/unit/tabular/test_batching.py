"""Batches of the tables of several readers, against a plain twin: a list."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from raybroker.tabular.batching import TableBatch, TableBatches, shares  # noqa: E402 - after the skip


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), max_size=12), st.none() | st.integers(1, 9))
def test_batches_have_the_rows_in_order_and_say_whose_they_are(tables: list[tuple[int, int]], size: int | None) -> None:
    batching = TableBatches(size)
    sent: list[tuple[int, int]] = []
    found: list[TableBatch] = []
    for reader, rows in tables:
        numbers = range(len(sent), len(sent) + rows)
        batching.add(reader, pa.table({"reader": [reader] * rows, "n": list(numbers)}))
        sent += [(reader, number) for number in numbers]
        found += batching.whole()
    assert batching.wanted
    assert [batch.table.num_rows for batch in found] == (
        [rows for _, rows in tables] if size is None else [size] * (len(sent) // size)
    )
    if (last := batching.rest()) is not None:
        found.append(last)
    got = [(row["reader"], row["n"]) for batch in found for row in batch.table.to_pylist()]
    assert got == sent
    for batch in found:
        assert batch.taken == Counter(batch.table.column("reader").to_pylist())


def test_columns_that_one_table_lacks_are_null_there() -> None:
    batching = TableBatches(2)
    batching.add(0, pa.table({"n": [1]}))
    batching.add(1, pa.table({"n": [2], "more": ["x"]}))
    (batch,) = batching.whole()
    assert batch.table.to_pylist() == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]


@given(st.integers(0, 1000), st.integers(1, 20))
def test_shares_are_even_and_whole(total: int, parts: int) -> None:
    found = shares(total, parts)
    assert sum(found) == total
    assert max(found) - min(found) <= 1
