"""What a second run of a read task is given."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from raybroker.errors import IllegalStateError  # noqa: E402 - after the skip
from raybroker.tabular.kept_tables import KeptTables  # noqa: E402 - after the skip


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def test_tables_are_the_same_whenever_they_are_asked_for() -> None:
    kept = KeptTables(1 << 20)
    made = [table(0, 1), table(2), table(3, 4, 5)]
    for one in made:
        kept.add(one)
    assert kept.made == 3
    assert [kept.table(index) for index in range(3)] == made


def test_what_does_not_fit_is_forgotten_from_the_front_and_said() -> None:
    kept = KeptTables(2 * table(0).nbytes)
    for number in range(4):
        kept.add(table(number))
    assert kept.made == 4
    assert kept.table(3).column("n").to_pylist() == [3]
    with pytest.raises(IllegalStateError, match="cannot run again in this execution"):
        kept.table(1)
