"""A queue as a dataset of Ray Data: what was handed over is taken, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, IllegalStateError
from tests.contracts.handles import state_of, until

MESSAGES = 300


@pytest.fixture
def filled(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Makes a queue ``q`` with messages 0 … 299 and gives what is left of them, received anew."""
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "q", hosting="shared")
        connection.session().producer("q").send_many({"n": n} for n in range(MESSAGES))

        def left() -> list[Any]:
            until(lambda: state_of(connection, "q")["unacknowledged"] == 0)
            return [message.body["n"] for message in connection.session().browser("q")]

        yield left
        connection.admin().destroy_destination("queue", "q")


def source(**options: Any) -> Any:
    return rb.data.read_queue("q", **{"batch": 20, "idle_s": 2.0} | options)


def ns(rows: Any) -> list[int]:
    return [row["n"] for row in rows]


def test_looking_at_a_queue_takes_nothing(filled: Callable[[], list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    dataset = source()
    assert "n" in dataset.columns()
    assert dataset.schema() is not None
    dataset.show(1)
    dataset.map(lambda row: {"twice": row["n"] * 2}).show(1)
    shown = capsys.readouterr().out
    assert "'n': 0" in shown
    assert "'twice': 0" in shown
    assert dataset.count() == MESSAGES
    assert dataset.filter(lambda row: row["n"] < 10).count() == 10
    assert filled() == list(range(MESSAGES))
    assert not any(row["redelivered"] for row in source().take(5))


def test_the_first_rows_are_taken_and_no_others(filled: Callable[[], list[int]]) -> None:
    assert ns(source().take(5)) == [0, 1, 2, 3, 4]
    assert filled() == list(range(5, MESSAGES))
    assert ns(source().limit(10).take_all()) == list(range(5, 15))
    assert source().take_batch(5, batch_format="pyarrow").column("n").to_pylist() == list(range(15, 20))
    assert ns(source(limit=40).limit(100).map(lambda row: row).take_all()) == list(range(20, 60))
    assert filled() == list(range(60, MESSAGES))


@pytest.mark.parametrize(("tasks", "batch_format"), [(1, "default"), (2, "pandas"), (1, "pyarrow")])
def test_an_iteration_that_is_left_early_takes_what_it_handed_over(
    filled: Callable[[], list[int]], tasks: int, batch_format: str
) -> None:
    handed = []
    for batch in source(tasks=tasks).iter_batches(batch_size=30, batch_format=batch_format):
        column = batch["n"]
        handed.append(column.to_pylist() if hasattr(column, "to_pylist") else column.tolist())
        assert "raybroker.row" not in (batch.column_names if hasattr(batch, "column_names") else list(batch))
        if len(handed) == 4:
            break
    del batch
    given = {n for numbers in handed[:-1] for n in numbers}
    assert sorted(filled()) == [n for n in range(MESSAGES) if n not in given]
    again = source(tasks=tasks).take_all()
    assert {row["n"] for row in again if row["redelivered"]} >= set(handed[-1])
    assert sorted(ns(again)) == [n for n in range(MESSAGES) if n not in given]
    assert filled() == []


def test_rows_are_taken_one_by_one_and_to_the_end(filled: Callable[[], list[int]]) -> None:
    rows = source().iter_rows()
    assert [next(rows)["n"] for _ in range(3)] == [0, 1, 2]
    rows.close()
    assert filled() == list(range(MESSAGES))  # The rows of a batch are handed over with it.
    assert sorted(ns(source(tasks=3).iter_rows())) == list(range(MESSAGES))
    assert filled() == []


def test_a_transformed_queue_is_taken_whole_or_not_at_all(filled: Callable[[], list[int]]) -> None:
    twice = source().map(lambda row: {"twice": row["n"] * 2})
    for first_rows in (lambda: twice.take(5), lambda: twice.limit(5), lambda: twice.take_batch(5)):
        with pytest.raises(IllegalStateError, match="nobody can tell which messages"):
            first_rows()
    with pytest.raises(IllegalStateError, match="does not hand over"):
        next(twice.iter_batches(batch_size=7, drop_last=True))
    rows = twice.iter_rows()
    next(rows)
    rows.close()
    assert filled() == list(range(MESSAGES))

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 250:
            raise ValueError("no 250")
        return row

    with pytest.raises(Exception, match="no 250"):
        source(tasks=2).map(fails).materialize()
    assert sorted(filled()) == list(range(MESSAGES))
    assert sorted(row["twice"] for row in twice.take_all()) == [2 * n for n in range(MESSAGES)]
    assert filled() == []


def test_what_a_queue_cannot_do_a_materialized_dataset_does(filled: Callable[[], list[int]], tmp_path: Any) -> None:
    for name in ("streaming_split", "union", "sum", "groupby"):
        with pytest.raises(AttributeError, match=r"materialize\(\) takes them"):
            getattr(source(), name)
    with pytest.raises(AttributeError, match="no attribute 'coutn'"):
        source().coutn  # noqa: B018 - the access is what is tested
    source(limit=100).write_parquet(str(tmp_path / "first"))
    assert len(filled()) == MESSAGES - 100
    held = source().materialize()
    assert filled() == []
    assert held.sum("n") == sum(range(100, MESSAGES))
    assert held.count() == MESSAGES - 100


def test_arguments_are_checked_before_anything_is_taken() -> None:
    for wrong in (
        *({"tasks": 0}, {"batch": True}, {"limit": -1}, {"limit": 1.5}, {"idle_s": 0}, {"idle_s": True}),
        *({"until": "never"}, {"limit_bytes": 0}, {"limit_bytes": 2, "tasks": 3}, {"round_s": 0}),
        {"round_messages": 0},
    ):
        with pytest.raises(ConfigError):
            rb.data.read_queue("q", **wrong)
    with pytest.raises(TypeError, match="'limits'"):
        rb.data.read_queue("q", limits=3)
    for wrong in (0, True, "5"):
        with pytest.raises(ConfigError, match="limit="):
            source().take(wrong)
