"""Transactions of a host from their beginning to their outcome, without sessions or a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.engine.path.wakeups import Durations, Wakeups
from raybroker.engine.sessions.attachments import Attachments
from raybroker.engine.transactions.transactions import Transaction, Transactions
from raybroker.model.errors import IllegalStateError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made

CONFIG = {
    "imq.transaction.producer.maxNumMsgs": 1000,
    "imq.transaction.consumer.maxNumMsgs": 100,
    "imq.txn.reapLimit": 100,
    "raybroker.transaction.timeout_ms": 5000,
}


class World(Desk):
    """``ended``: whether each transaction that ended was committed, as meters count it."""

    def __init__(self) -> None:
        super().__init__()
        self.home = self.add()
        self.ended: list[bool] = []
        self.votes: list[str] = []
        meters: Any = SimpleNamespace(ended=self._count, life=SimpleNamespace(rolled_back=lambda home, number: None))
        config: Any = CONFIG
        self.wakeups = Wakeups()
        self.transactions = Transactions(
            self.executor,
            self.registry,
            Attachments(1),
            Durations(self.wakeups, self.time),
            meters,
            self.clock,
            config,
            self.lines.append,
        )

    def _count(self, *, commit: bool) -> None:
        self.ended.append(commit)

    def opened(self, *bodies: str, key: bytes = b"k") -> Transaction:
        """A transaction that has sent something."""
        transaction = self.transactions.begin(None, key)
        if bodies:
            transaction.homes[self.home] = None
            block = made(*bodies, producer=99, first_seq=self.own.take_seqs(len(bodies)))
            command, block = self.own.send(self.home, block)
            self.executor.perform(self.home, command._replace(txn=transaction.number), block)
        return transaction

    def waiting(self) -> int:
        return sum(run.count for state, run in self.home.queues[0].contents() if state == "waiting")


def test_one_that_did_nothing_votes_read_only_and_is_over() -> None:
    world = World()
    world.transactions.prepare(world.opened(), b"k", "", world.votes.append)
    assert (world.votes, world.transactions.by_number, world.transactions.log.prepared) == (["read_only"], {}, {})


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_one_ends_as_it_is_decided_and_once(commit: bool) -> None:
    world = World()
    transaction = world.opened("a", "b")
    world.transactions.prepare(transaction, b"k", "there", world.votes.append)
    assert (world.votes, world.waiting(), world.transactions.outcome(b"k")) == (["commit"], 0, "prepared")
    assert world.transactions.prepared_in(world.home) == transaction.number
    done: list[str] = []
    world.transactions.decide(b"k", commit, lambda: done.append("decided"))
    world.transactions.decide(b"k", commit, lambda: done.append("again"))
    assert done == ["decided", "again"]
    assert (world.waiting(), world.ended) == (2 if commit else 0, [commit])
    assert world.transactions.outcome(b"k") == ("committed" if commit else "rolled_back")
    with pytest.raises(IllegalStateError, match="committed already" if commit else "rolled back already"):
        world.transactions.decide(b"k", not commit, lambda: None)


def test_an_unknown_one_can_be_rolled_back_and_never_committed_after_that() -> None:
    world = World()
    with pytest.raises(IllegalStateError, match="no transaction of that id"):
        world.transactions.decide(b"?", True, lambda: None)
    world.transactions.conclude(b"?", world.votes.append)
    assert world.votes == ["rolled_back"]
    with pytest.raises(IllegalStateError, match="rolled back already"):
        world.transactions.decide(b"?", True, lambda: None)


def test_one_that_is_open_for_too_long_is_rolled_back() -> None:
    world = World()
    transaction = world.opened("a")
    assert world.wakeups.due(world.clock.ms + 5000) == [0]
    world.clock.ms += 4999
    world.transactions.tick()
    assert transaction.number in world.transactions.by_number
    world.clock.ms += 1
    world.transactions.tick()
    assert (transaction.state, world.ended, world.home.staged) == ("ROLLEDBACK", [False], {})
    assert world.lines == [f"transaction {transaction.number} was open for too long and is rolled back"]


def test_a_destination_with_a_prepared_transaction_cannot_go() -> None:
    world = World()
    transaction = world.opened("a")
    world.transactions.prepare(transaction, b"k", "", world.votes.append)
    with pytest.raises(IllegalStateError, match=f"prepared transaction {transaction.number}"):
        world.transactions.without(world.home)
    world.transactions.decide(b"k", True, lambda: None)
    world.transactions.without(world.home)


def test_an_open_one_loses_its_destination_and_can_only_be_rolled_back() -> None:
    world = World()
    transaction = world.opened("a")
    world.transactions.without(world.home)
    assert "queue q was destroyed" in str(transaction.refusal)
    assert transaction.homes == {}
