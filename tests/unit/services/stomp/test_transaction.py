"""A transaction alone: what was put into it happens with its commit, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.model.errors import ResourceAllocationError, TransactionRolledBackError
from raybroker.services.stomp import transaction as module
from raybroker.services.stomp.subscription import StompSubscription
from raybroker.services.stomp.transaction import StompTransaction
from tests.unit.services.stomp.parts import Client, Session, message, subscription


class Transactions:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.fault: Exception | None = None

    def join(self, messages: list[Any], /) -> None:
        self.told.append([one.body for one in messages])

    async def commit(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.told.append("commit")

    async def rollback(self) -> None:
        self.told.append("rollback")


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def received(session: Session) -> StompSubscription:
    """A subscription with three messages that wait for acknowledgements."""
    one = subscription("client", *map(message, (1, 2, 3)), session=session)

    async def run() -> None:
        await one.deliver(Client())

    asyncio.run(run())
    return one


def test_a_commit_joins_what_was_acknowledged_then_refuses(received: StompSubscription, session: Session) -> None:
    transactions = Transactions()
    one = StompTransaction("t", transactions, None)  # type: ignore[arg-type]
    one.acknowledge(received, received.take_unacknowledged(2))
    one.refuse(received, received.take_unacknowledged(3), dead=True)
    assert (received.lent, session.asked) == (3, [])
    confirmations = asyncio.run(one.commit())
    assert transactions.told == [["m1", "m2"], "commit"]
    assert (session.asked, confirmations.waiting, received.lent) == (["reject m3"], session.answers, 0)
    assert asyncio.run(one.commit()).waiting == []
    assert transactions.told[2:] == ["commit"]


def test_what_an_aborted_one_had_is_unacknowledged_again(received: StompSubscription, session: Session) -> None:
    transactions = Transactions()
    one = StompTransaction("t", transactions, None)  # type: ignore[arg-type]
    one.acknowledge(received, received.take_unacknowledged(1))
    one.refuse(received, received.take_unacknowledged(3), dead=False)
    asyncio.run(one.abort())
    assert (transactions.told, session.asked, received.lent) == (["rollback"], [], 0)
    assert list(received.take_unacknowledged(3)) == [1, 2, 3]


def test_nothing_is_refused_when_the_commit_fails(received: StompSubscription, session: Session) -> None:
    transactions = Transactions()
    transactions.fault = TransactionRolledBackError("no")
    one = StompTransaction("t", transactions, None)  # type: ignore[arg-type]
    one.refuse(received, received.take_unacknowledged(3), dead=True)
    with pytest.raises(TransactionRolledBackError):
        asyncio.run(one.commit())
    assert session.asked == []


def test_a_transaction_has_a_bound_and_begins_anew_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRANSACTION_FRAMES_MAX", 2)
    one = StompTransaction("t", Transactions(), None)  # type: ignore[arg-type]
    for end in (one.commit, one.abort, one.commit):
        for _ in range(2):
            one.require_room()
            one.enter()
        for refused in (one.require_room, one.enter):
            with pytest.raises(ResourceAllocationError, match=r"transaction 't' has more than 2 frames"):
                refused()
        asyncio.run(end())
