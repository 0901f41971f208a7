"""Requests about transactions: what is checked, and what the host's transactions are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.engine.sessions.transaction_requests import KEY_BYTES_MAX, TransactionRequests
from raybroker.engine.transactions.transaction_log import HeuristicRow, TxLog
from raybroker.engine.transactions.transaction_state import TransactionState
from raybroker.engine.transactions.transactions import Transaction
from raybroker.model.errors import ProtocolError, TransactionRolledBackError
from raybroker.model.settings.setting import INT_MAX
from tests.unit.engine.rig import RecordingPeer

KEY = b"k"


class FakeTransactions:
    """Remembers what it is asked. ``known``: by key; ``gone``: staging raises."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.known: dict[bytes, Transaction] = {}
        self.log = TxLog()
        self.gone = False

    def begin_transaction(self, session: Any, key: bytes, kind: str) -> Transaction:
        return Transaction(7, key, kind, 0, session)

    def find(self, key: bytes) -> Transaction | None:
        return self.known.get(key)

    def stage(self, transaction: Transaction, acks: Any) -> None:
        if self.gone:
            raise TransactionRolledBackError("gone")
        self.calls.append(("stage", list(acks)))

    def roll_back(self, transaction: Transaction, done: Any) -> None:
        self.calls.append(("roll_back", transaction.number))
        done()

    def commit(self, transaction: Transaction, key: bytes, done: Any, *, shared: bool) -> None:
        self.calls.append(("commit", transaction.number, key, shared))
        done()

    def prepare(self, transaction: Transaction, key: bytes, coordinator: str, done: Any) -> None:
        self.calls.append(("prepare", transaction.number, key, coordinator))
        done("commit")

    def decide(self, key: bytes, commit: bool, done: Any) -> None:
        self.calls.append(("decide", key, commit))
        done()

    def forget_transaction(self, key: bytes, done: Any) -> None:
        self.calls.append(("forget", key))
        done()

    def conclude(self, key: bytes, done: Any) -> None:
        done("rolled_back")

    def recoverable(self) -> list[str]:
        return ["branch"]


class Asking:
    """A session with local transaction 1, and consumer 4 with epoch 44."""

    def __init__(self) -> None:
        self.transactions = FakeTransactions()
        self.ended: list[bool] = []
        meters: Any = SimpleNamespace(ended=self._count)
        self.operations: Any = TransactionRequests(self.transactions, meters).operations()  # type: ignore[arg-type]
        self.peer = RecordingPeer()
        self.consumer: Any = SimpleNamespace(number=44)
        self.local = Transaction(1, b"local", "local", 0, None)
        self.session: Any = SimpleNamespace(
            peer=self.peer,
            client=object(),
            transactions={1: self.local},
            transaction=lambda number: self.session.transactions[number],
            consumer=lambda handle, epoch: self.consumer if (handle, epoch) == (4, 44) else None,
        )

    def _count(self, *, commit: bool) -> None:
        self.ended.append(commit)

    def ask(self, operation: str, **args: Any) -> Any:
        self.operations[operation](self.session, 5, {"txn": 1, "key": KEY} | args)
        ((_, request, answer),) = self.peer.take("reply")
        assert request == 5
        return answer

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        return self.transactions.calls


def test_a_local_one_joins_its_acknowledgements_and_is_committed() -> None:
    world = Asking()
    assert world.ask("txn_commit", acks=[[4, 44, [[1, 2], [5, 5]]]], shared=True, delay_ms=30) == {}
    assert world.calls == [("stage", [(world.consumer, [(1, 2), (5, 5)])]), ("commit", 1, KEY, True)]
    assert (world.session.transactions, world.local.delay_ms) == ({}, 30)


def test_acknowledgements_of_a_consumer_that_is_gone_roll_it_back() -> None:
    world = Asking()
    with pytest.raises(TransactionRolledBackError, match="a consumer of the transaction is gone"):
        world.ask("txn_commit", acks=[[4, 43, [[1, 1]]]])
    assert (world.calls, world.session.transactions) == ([("roll_back", 1)], {})


def test_one_that_cannot_be_staged_is_rolled_back() -> None:
    world = Asking()
    world.transactions.gone = True
    with pytest.raises(TransactionRolledBackError, match="gone"):
        world.ask("txn_prepare")
    assert (world.calls, world.session.transactions) == ([("roll_back", 1)], {})


def test_one_that_was_open_for_too_long_says_so() -> None:
    world = Asking()
    world.local.state = TransactionState.ROLLEDBACK
    with pytest.raises(TransactionRolledBackError, match="open for too long"):
        world.ask("txn_commit")
    assert (world.calls, world.session.transactions) == ([], {})


def test_a_branch_is_begun_once_and_ends_with_what_its_session_says() -> None:
    world = Asking()
    world.ask("txn_begin", txn=2)
    branch = world.session.transactions[2]
    with pytest.raises(ProtocolError, match="transaction 2 has begun already"):
        world.ask("txn_begin", txn=2)
    world.ask("txn_stage", txn=2, failed=True)
    assert (branch.kind, branch.state, list(world.session.transactions)) == ("xa", "FAILED", [1])
    world.ask("txn_stage", txn=1)
    assert world.local.state == "STARTED", "a local one stays open"


def test_a_branch_is_prepared_by_whoever_asks() -> None:
    world = Asking()
    world.transactions.known[KEY] = Transaction(9, KEY, "xa", 0, None, state="COMPLETE")
    assert world.ask("txn_prepare", coordinator="b1") == {"vote": "commit"}
    assert world.calls == [("prepare", 9, KEY, "b1")]
    with pytest.raises(ProtocolError, match="join an XA branch before"):
        world.ask("txn_prepare", acks=[[4, 44, [[1, 1]]]])


def test_one_that_is_known_as_rolled_back_is_not_committed() -> None:
    world = Asking()
    world.transactions.log.remember(KEY, False, False)
    with pytest.raises(TransactionRolledBackError, match="its session ended, or it took too long"):
        world.ask("txn_commit")
    assert world.calls == [("roll_back", 1)]


def test_a_decision_after_that_of_an_administrator_changes_nothing() -> None:
    world = Asking()
    world.ask("txn_decide", commit=True)
    world.transactions.log.heuristic[KEY] = HeuristicRow(9, KEY, False, 0)
    assert world.ask("txn_decide", commit=True) == {"heuristic": False}
    assert world.calls == [("decide", KEY, True)]


def test_a_rollback_of_what_only_received_is_counted() -> None:
    world = Asking()
    world.ask("txn_rollback")
    world.ask("txn_rollback", received=True)
    world.ask("txn_rollback")
    assert (world.calls, world.ended) == ([("roll_back", 1)], [False])


def test_what_reached_the_application_is_remembered_until_the_end() -> None:
    world = Asking()
    world.ask("txn_received", received=[[4, 44, 8, 3], [4, 43, 1, 1]], delay_ms=5)
    assert world.local.received == {44: (world.consumer, 8, 3)}
    world.local.state = TransactionState.PREPARED
    world.ask("txn_received", received=[[4, 44, 9, 1]])
    assert (world.local.received[44][1], world.local.delay_ms) == (8, 5)


def test_outcomes_are_asked_for_and_forgotten_by_key() -> None:
    world = Asking()
    assert world.ask("txn_outcome") == {"state": "rolled_back"}
    assert world.ask("txn_forget") == {}
    assert world.ask("txn_recover") == ["branch"]
    assert world.calls == [("forget", KEY)]


@pytest.mark.parametrize("key", [b"", b"x" * (KEY_BYTES_MAX + 1), "text"])
def test_a_key_is_bytes_within_its_limit(key: Any) -> None:
    with pytest.raises(ProtocolError, match=f"1 to {KEY_BYTES_MAX} bytes"):
        Asking().ask("txn_commit", key=key)


@pytest.mark.parametrize("delay_ms", [-1, INT_MAX + 1])
def test_a_redelivery_delay_is_within_its_limit(delay_ms: int) -> None:
    with pytest.raises(ProtocolError, match="redelivery delay"):
        Asking().ask("txn_commit", delay_ms=delay_ms)
