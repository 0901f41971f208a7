"""A reader of Ray Data alone, over a broker in this process: what it acknowledges, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import IllegalStateError

pytest.importorskip("pyarrow")
reader = pytest.importorskip("raybroker.tabular.queue_reader")

OPTIONS = reader.ReadingOptions("q", "default", None, 4, 0.05, None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Callable[..., Any], ...]]:
    """Makes readers of a queue with messages 0 … 11, tells what is left in it, and how many are not acknowledged."""
    with rb.loopback(broker="read") as connection:
        monkeypatch.setattr(reader, "connect", lambda cluster: rb.loopback(broker="read"))
        connection.session().producer("q").send_many(range(12))
        yield (
            lambda *part, looks=False, **more: reader.QueueReader(OPTIONS, reader.ReaderPart(*part, **more), looks),
            lambda: sorted(message.body for message in connection.session().browser("q")),
            lambda: connection.admin().query_destination("queue", "q")["messages"],
        )


def rows(table: Any) -> list[int]:
    return list(table.column("body").to_pylist())


def test_nothing_is_acknowledged_before_the_end(made: Any) -> None:
    make, left, _ = made
    one = make()
    assert [rows(one.table(0, index)) for index in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert one.table(0, 3) is None
    one.finish(acknowledge=False)
    assert left() == list(range(12))
    other = make(6)
    assert rows(other.table(0, 0)) + rows(other.table(0, 1)) == list(range(6))
    assert other.table(0, 2) is None
    other.finish(acknowledge=True)
    assert left() == list(range(6, 12))


def test_messages_are_acknowledged_as_they_are_handed_over(made: Any) -> None:
    make, left, messages = made
    one = make(stepwise=True)
    assert [rows(one.table(0, index)) for index in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    one.handed(3)
    one.handed(6)
    assert messages() == 6
    one.finish(acknowledge=True)
    assert left() == [6, 7, 8, 9, 10, 11]


def test_a_look_takes_nothing_and_ends_at_its_limit(made: Any) -> None:
    make, left, _ = made
    one = make(6, looks=True)
    assert rows(one.table(0, 0)) + rows(one.table(0, 1)) == list(range(6))
    assert one.table(0, 2) is None
    one.finish(acknowledge=True)
    assert left() == list(range(12))


def test_a_read_task_that_runs_a_second_time_is_given_the_same(made: Any) -> None:
    make, left, _ = made
    one = make()
    first = [rows(one.table(0, index)) for index in range(2)]
    again = [one.table(0, index) for index in range(4)]
    assert [None if table is None else rows(table) for table in again] == [*first, [8, 9, 10, 11], None]
    one.finish(acknowledge=True)
    assert left() == []


def test_a_second_run_is_refused_where_what_it_needs_is_not_kept(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make, left, _ = made
    monkeypatch.setattr(reader, "KEPT_BYTES", 1)
    one = make()
    assert [rows(one.table(0, index)) for index in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(IllegalStateError, match=r"more than 1 bytes, and cannot run again"):
        one.table(0, 0)
    one.finish(acknowledge=False)
    assert left() == list(range(12))


def test_bytes_bound_what_is_taken_and_the_rest_is_given_back_unflagged(made: Any) -> None:
    make, left, _ = made
    one = make(limit_bytes=6)  # Each body is one byte.
    assert rows(one.table(0, 0)) + rows(one.table(0, 1)) == list(range(6))
    assert one.table(0, 2) is None
    one.finish(acknowledge=True)
    assert left() == list(range(6, 12))


def test_rounds_are_acknowledged_one_by_one(made: Any) -> None:
    make, left, messages = made
    one = make(10)
    assert one.begin_round(1, 6, 60.0, 1.0) is reader.RoundBegin.SOME
    assert [rows(one.table(1, index)) for index in range(2)] == [[0, 1, 2, 3], [4, 5]]
    assert one.table(1, 2) is None
    assert messages() == 12
    one.end_round()
    assert messages() == 6
    assert one.table(0, 0) is None  # A task of an execution that is over gets nothing.
    assert one.begin_round(2, 6, 60.0, 1.0) is reader.RoundBegin.SOME
    assert rows(one.table(2, 0)) == [6, 7, 8, 9]
    assert one.table(2, 1) is None
    assert one.begin_round(3, 6, 60.0, 0.01) is reader.RoundBegin.OVER
    one.finish(acknowledge=False)
    assert left() == list(range(6, 12))


def test_a_reader_goes_on_until_it_is_stopped_or_its_time_is_over(made: Any) -> None:
    _, left, _ = made
    endless = OPTIONS._replace(ends_empty=False)
    one = reader.QueueReader(endless, reader.ReaderPart())
    assert [len(rows(one.table(0, index))) for index in range(3)] == [4, 4, 4]
    stopping = threading.Timer(0.2, one.receive_no_more)
    stopping.start()
    assert one.table(0, 3) is None  # It waited longer than idle_s.
    one.finish(acknowledge=True)
    assert left() == []
    other = reader.QueueReader(endless, reader.ReaderPart(left_s=0.2))
    assert other.table(0, 0) is None
    other.finish(acknowledge=True)
