"""A reader of Ray Data alone, over a broker in this process: what it acknowledges, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import IllegalStateError

pytest.importorskip("pyarrow")
reader = pytest.importorskip("raybroker.data.reader", reason="Ray Data is not installed")

OPTIONS = reader.ReadingOptions("q", "default", None, 4, 0.05, None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Callable[..., Any], ...]]:
    """Makes readers of a queue with messages 0 … 11, tells what is left in it, and how many are not acknowledged."""
    with rb.loopback(broker="read") as connection:
        monkeypatch.setattr(reader, "connect", lambda cluster: rb.loopback(broker="read"))
        connection.session().producer("q").send_many(range(12))
        yield (
            lambda *args, **options: reader.QueueReader(OPTIONS, *args, **options),
            lambda: sorted(message.body for message in connection.session().browser("q")),
            lambda: connection.admin().query_destination("queue", "q")["messages"],
        )


def rows(table: Any) -> list[int]:
    return list(table.column("body").to_pylist())


def test_nothing_is_acknowledged_before_the_end(made: Any) -> None:
    make, left, _ = made
    one = make(None)
    assert [rows(one.next()) for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert one.next() is None
    one.finish(acknowledge=False)
    assert left() == list(range(12))
    other = make(6)
    assert rows(other.next()) + rows(other.next()) == list(range(6))
    assert other.next() is None
    other.finish(acknowledge=True)
    assert left() == list(range(6, 12))


def test_rows_are_acknowledged_as_they_are_handed_over_in_any_order(made: Any) -> None:
    make, left, messages = made
    one = make(None, number=1, step=3)  # The second of three readers.
    tables = [one.next() for _ in range(3)]
    assert tables[1].column(reader.ROW).to_pylist() == [13, 16, 19, 22]
    one.handed([1, 4, 10])  # 0, 1 and 3
    one.handed([16])  # 5
    assert messages() == 10  # 3 and 5 wait for 2, or for the end.
    one.finish(acknowledge=False)
    assert left() == [2, 4, 6, 7, 8, 9, 10, 11]


def test_a_look_takes_nothing_and_ends_at_its_limit(made: Any) -> None:
    make, left, _ = made
    one = make(6, looks=True)
    assert rows(one.next()) + rows(one.next()) == list(range(6))
    assert one.next() is None
    one.finish(acknowledge=True)
    assert left() == list(range(12))


def test_a_read_task_that_runs_a_second_time_is_refused(made: Any) -> None:
    one = made[0](None)
    one.require_first_run()
    with pytest.raises(IllegalStateError, match="cannot run again in this execution"):
        one.require_first_run()
    one.finish(acknowledge=False)
