"""Open local transactions as administrators see them, and what ends them from outside (A-43, A-45, T-08)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.errors import TransactionRolledBackError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, nothing, state_of, take, until


def listed(connection: Any) -> list[tuple[str, int, int]]:
    """(state, messages sent, messages received) of each."""
    return [(row["state"], row["messages"], row["acks"]) for row in connection.admin().list_transactions()]


def counted(connection: Any) -> tuple[int, int]:
    """Transactions committed and rolled back."""
    (found,) = [row["own"] for row in connection.admin().metrics()]
    return found["transactions_committed_total"], found["transactions_rolled_back_total"]


def test_a_transaction_that_has_only_received_is_listed_with_what_it_has(broker: LoopbackBroker) -> None:
    connection, names = broker.connect(), [broker.name(), broker.name()]
    session = connection.session(transacted=True)
    consumers = [session.consumer(name) for name in names]
    for name in names:
        connection.session().producer(name).send_many(range(5))
    take(consumers[0], 3)
    until(lambda: listed(connection) == [("STARTED", 0, 3)])
    take(consumers[1], 2)
    until(lambda: listed(connection) == [("STARTED", 0, 5)])
    (row,) = connection.admin().list_transactions()
    assert row["kind"] == "local"
    consumers[1].close()
    assert listed(connection) == [("STARTED", 0, 5)], "what a closed consumer has received stays in its transaction"
    session.commit()
    assert listed(connection) == []
    assert [held(connection, name) for name in names] == [2, 3]


def rolled_back(session: Any) -> None:
    session.rollback()


def closed(session: Any) -> None:
    session.close()


@pytest.mark.parametrize("end", [rolled_back, closed])
@pytest.mark.parametrize("told", [False, True])
def test_each_rollback_is_counted_once(broker: LoopbackBroker, end: Callable[[Any], None], told: bool) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("x")
    for _ in range(3):
        session = connection.session(transacted=True)
        take(session.consumer(name), 1)
        if told:
            until(lambda: len(listed(connection)) == 1)
        end(session)
        until(lambda: listed(connection) == [])
        session.close()
    session = connection.session(transacted=True)
    session.rollback()
    take(session.consumer(name), 1)
    session.commit()
    session.close()
    until(lambda: counted(connection)[0] == 1)
    assert counted(connection) == (1, 3), "nothing was in the others"


@ONE_FACE
@pytest.mark.parametrize("prefetch", [None, 1])
def test_what_a_transaction_received_that_was_open_for_too_long_goes_to_others(
    make_broker: MakeBroker, prefetch: int | None
) -> None:
    broker = make_broker(raybroker__transaction__timeout_ms=1000)
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many("abc")
    session = connection.session(transacted=True)
    consumer = session.consumer(name, prefetch=prefetch)
    take(consumer, 1)
    other = connection.session().consumer(name)
    found = [(m.body, m.delivery_count > 1) for m in take(other, 3)]
    assert sorted(body for body, _ in found) == ["a", "b", "c"]
    assert ("a", True) in found
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    other.close()
    connection.session().producer(name).send("next")
    assert bodies(take(consumer, 1)) == ["next"]
    session.commit()
    assert held(connection, name) == 0
    until(lambda: counted(connection)[0] == 1)
    assert counted(connection) == (1, 1)


def test_an_administrator_frees_what_an_open_transaction_has_received(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send("a")
    session = connection.session(transacted=True)
    consumer = session.consumer(name)
    take(consumer, 1)
    until(lambda: len(listed(connection)) == 1)
    other = connection.session().consumer(name)
    assert nothing(other, 0.01)
    (row,) = connection.admin().list_transactions()
    connection.admin().rollback_transaction(row["id"])
    assert take(other, 1)[0].redelivered
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    until(lambda: state_of(connection, name)["unacknowledged"] <= 1)
