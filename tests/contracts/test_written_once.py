"""Rows of a task that is run again: what was stored before is not stored again, over a broker in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError, SecurityError

pytest.importorskip("pyarrow")

from raybroker.tabular import once
from raybroker.tabular.once import OutgoingRow, TaskWriter, forget_write, open_ledger


@pytest.fixture
def broker() -> Iterator[tuple[Any, Callable[[], list[Any]]]]:
    """A connection to a broker with a ledger, and what is in the queue ``out``."""
    with rb.loopback(broker="written") as connection:
        open_ledger(connection)
        open_ledger(connection)  # It is there already.
        yield connection, lambda: [message.body for message in connection.session().browser("out")]


def rows(*bodies: Any) -> list[OutgoingRow]:
    return [OutgoingRow(body) for body in bodies]


def other() -> Any:
    """A connection of another process, as far as the broker knows."""
    return rb.loopback(broker="written")


def test_a_task_that_is_run_again_goes_on_behind_what_is_stored(broker: Any) -> None:
    connection, out = broker
    with other() as lost:
        first = TaskWriter(lost, "out", "w", "0")
        first.write_part(rows(1, 2))
        first.write_part(rows(3))
    again = TaskWriter(connection, "out", "w", "0")
    for part in (rows(1, 2), rows(3), rows(4, 5)):
        again.write_part(part)
    again.finish()
    assert out() == [1, 2, 3, 4, 5]
    whole = TaskWriter(connection, "out", "w", "0")
    for part in (rows(1, 2), rows(3), rows(4, 5)):
        whole.write_part(part)
    whole.finish()
    TaskWriter(connection, "out", "w", "1").write_part(rows(6))
    assert out() == [1, 2, 3, 4, 5, 6]


def test_a_run_that_was_taken_for_lost_and_its_successor_share_the_work(broker: Any) -> None:
    connection, out = broker
    with other() as old:
        runs = [TaskWriter(old, "out", "w", "0"), TaskWriter(connection, "out", "w", "0")]
        for number in range(6):
            for run in (runs[number % 2], runs[1 - number % 2]):
                run.write_part(rows(number))
                run._drop_session()
        for run in runs:
            run.finish()
    assert out() == list(range(6))


def test_a_commit_whose_answer_is_lost_is_looked_up(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, out = broker
    task = TaskWriter(connection, "out", "w", "0")
    task.write_part(rows(1))
    session = task._session
    assert session is not None
    committed = session.session.commit

    def lost() -> None:
        committed()
        raise ConnectionLostError("the answer")

    monkeypatch.setattr(session.session, "commit", lost)
    task.write_part(rows(2))
    monkeypatch.undo()

    def never() -> None:
        raise ConnectionLostError("before it was sent")

    task._taken()
    task._session.session.rollback()  # type: ignore[union-attr]
    monkeypatch.setattr(task._session.session, "commit", never)  # type: ignore[union-attr]
    task.write_part(rows(3))
    task.finish()
    assert out() == [1, 2, 3]


def test_other_rows_than_before_are_refused(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, out = broker
    first = TaskWriter(connection, "out", "w", "0")
    first.write_part(rows(1, 2))
    first.write_part(rows(3))
    first.finish()
    shuffled = TaskWriter(connection, "out", "w", "0")
    shuffled.write_part(rows(2, 1))
    with pytest.raises(IllegalStateError, match="w/0 are not those of its run before, of which 2 parts"):
        shuffled.write_part(rows(3))
    shuffled._drop_session()
    fewer = TaskWriter(connection, "out", "w", "0")
    fewer.write_part(rows(1, 2))
    with pytest.raises(IllegalStateError, match="has 1 parts, and 2 of its run before are stored"):
        fewer.finish()
    assert out() == [1, 2, 3]
    forget_write(connection, "w")
    monkeypatch.setattr(once, "HELD_S", 0.05)
    with pytest.raises(IllegalStateError, match="no entry in the queue raybroker-written"):
        TaskWriter(connection, "out", "w", "0").write_part(rows(1))


def test_ids_of_rows_hold_beside_the_ledger(broker: Any) -> None:
    connection, out = broker
    connection.admin().create_destination("queue", "out", duplicateWindowMs=60_000)
    for write in ("a", "b"):
        task = TaskWriter(connection, "out", write, "0")
        task.write_part([OutgoingRow(1, "one"), OutgoingRow(2, "two"), OutgoingRow(2, "two")])
        task.finish()
    assert out() == [1, 2]


def test_a_ledger_that_this_user_may_not_make_has_to_remember_ids(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = broker

    def refused() -> Any:
        raise SecurityError("administration goes through an admin service")

    monkeypatch.setattr(connection, "admin", refused)
    open_ledger(connection)
    monkeypatch.setattr(once, "LEDGER", "another-ledger")
    with pytest.raises(ConfigError, match="raybroker create dst -t q -n another-ledger -o duplicateWindowMs=86400000"):
        open_ledger(connection)
    for ledger in ("raybroker-written", "another-ledger"):
        assert list(connection.session().browser(ledger)) == []
