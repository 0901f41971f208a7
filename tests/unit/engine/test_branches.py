"""Transactions in two phases: prepared ones wait for their decision (T-05 … T-08)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.engine.transactions import transaction_log
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.model.errors import (
    IllegalStateError,
    ResourceAllocationError,
    StoreDamagedError,
    TransactionRolledBackError,
)
from tests.unit.engine.pairs import KEY, OTHER, Pair, counts, rig_of
from tests.unit.engine.rig import Client, Rig

# ---- two phases ----------------------------------------------------------------------------------------------------


def prepared(rig: Rig, *, xa: bool = False) -> Pair:
    pair = Pair(rig)
    if xa:
        pair.client.ok("txn_begin", txn=1, key=KEY)
    args = pair.work()
    if xa:
        pair.client.ok("txn_stage", **args)
        args["acks"] = []
    assert pair.client.ok("txn_prepare", key=KEY, coordinator="h9", **args) == {"vote": "commit"}
    return pair


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_prepared_transaction_waits_for_its_decision(commit: bool, restarts: int) -> None:  # T-05
    rig = rig_of()
    pair = prepared(rig)
    pair.client.session.close()
    for _ in range(restarts):
        rig = rig.restart()
    assert counts(rig) == (1, 2)
    assert rig.bodies("in") == rig.bodies("out") == []
    (row,) = rig.host.transactions.transaction_rows()
    assert (row["state"], row["messages"], row["acks"], row["coordinator"]) == ("PREPARED", 2, 1, "h9")
    decider = Client(rig)
    assert decider.ok("txn_decide", key=KEY, commit=commit) == {}
    assert counts(rig) == ((0, 2) if commit else (1, 0))
    assert decider.ok("txn_decide", key=KEY, commit=commit) == {}, "saying it again is allowed"
    assert decider.fails("txn_decide", key=KEY, commit=not commit) == "illegal_state"
    again = rig.restart()
    assert counts(again) == ((0, 2) if commit else (1, 0))
    assert Client(again).ok("txn_outcome", key=KEY) == {"state": "committed" if commit else "rolled_back"}


def test_a_vote_comes_when_it_is_durable() -> None:
    rig = rig_of()
    pair = Pair(rig)
    assert pair.client.unanswered("txn_prepare", key=KEY, coordinator="", **pair.work())
    (batch,) = rig.commits()
    assert {entry.destination for entry in batch} == {0, rig.destination("in").number, rig.destination("out").number}


def test_who_did_nothing_has_nothing_to_decide() -> None:
    rig = rig_of()
    client = Pair(rig).client
    assert client.ok("txn_prepare", txn=1, key=KEY, coordinator="", acks=[]) == {"vote": "read_only"}
    assert not rig.host.transactions.by_number


def test_an_unknown_key_cannot_be_committed_and_is_rolled_back_already() -> None:
    rig = rig_of()
    client = Client(rig)
    assert client.fails("txn_decide", key=KEY, commit=True) == "illegal_state"
    assert client.ok("txn_decide", key=OTHER, commit=False) == {}


def test_an_outcome_that_everybody_knows_can_be_forgotten() -> None:
    rig = rig_of()
    prepared(rig).client.ok("txn_decide", key=KEY, commit=True)
    client = Client(rig)
    assert client.ok("txn_forget", key=KEY) == {}
    assert client.ok("txn_forget", key=KEY) == {}
    assert rig.host.transactions.outcome(KEY) == "unknown"
    assert rig.restart().host.transactions.outcome(KEY) == "unknown"


@pytest.mark.parametrize("key", [b"", b"x" * 161, "text"])
def test_a_key_has_bounds(key: Any) -> None:
    assert Client(rig_of()).fails("txn_decide", key=key, commit=False) == "protocol"


def test_a_destination_of_a_prepared_transaction_cannot_be_destroyed() -> None:
    rig = rig_of()
    prepared(rig)
    for name in ("in", "out"):
        with pytest.raises(IllegalStateError, match="prepared transaction"):
            rig.host.removal.destroy(name, lambda: None)
    rig.host.transactions.decide_by_hand(1, False, lambda: None)
    rig.sync()
    rig.host.removal.destroy("out", lambda: None)


def test_a_destination_of_an_open_transaction_may_go_and_the_transaction_is_rolled_back() -> None:
    rig = rig_of()
    pair = Pair(rig)
    args = pair.work()
    rig.host.removal.destroy("out", lambda: None)
    assert pair.client.fails("txn_commit", key=KEY, **args) == "transaction_rolled_back"
    assert rig.held("in") == 1


def test_a_checkpoint_carries_prepared_transactions_and_outcomes() -> None:
    rig = rig_of()
    prepared(rig)
    pair = Pair(rig)
    pair.client.ok("txn_commit", key=OTHER, txn=1, acks=[])
    rig.store.checkpoint_after_entries = 1
    pair.client.send(pair.producer, "z", first=50)
    rig.sync()
    again = rig.restart()
    assert [row["state"] for row in again.host.transactions.transaction_rows()] == ["PREPARED"]
    assert Client(again).ok("txn_outcome", key=OTHER) == {"state": "committed"}
    Client(again).ok("txn_decide", key=KEY, commit=True)
    assert sorted(again.bodies("out")) == ["x", "y", "z"]


# ---- administration and XA -----------------------------------------------------------------------------------------


def test_an_administrator_commits_only_what_is_prepared() -> None:  # T-08
    rig = rig_of()
    pair = Pair(rig)
    pair.work()
    transactions = rig.host.transactions
    (row,) = transactions.transaction_rows()
    assert (row["state"], row["kind"], row["client_id"], row["connection"]) == ("STARTED", "local", "c", "conn")
    with pytest.raises(IllegalStateError, match="STARTED"):
        transactions.decide_by_hand(row["id"], True, lambda: None)
    transactions.decide_by_hand(row["id"], False, lambda: None)
    rig.sync()
    assert counts(rig) == (1, 0)
    with pytest.raises(IllegalStateError, match="no transaction"):
        transactions.decide_by_hand(row["id"], False, lambda: None)


def test_a_branch_is_ended_by_one_session_and_prepared_by_another() -> None:  # T-07
    rig = rig_of()
    pair = Pair(rig)
    pair.client.ok("txn_begin", txn=1, key=KEY)
    assert pair.client.fails("txn_begin", txn=1, key=KEY) == "protocol"
    pair.client.ok("txn_stage", **pair.work())
    assert [row["state"] for row in rig.host.transactions.transaction_rows()] == ["COMPLETE"]
    manager = Client(rig)
    assert manager.ok("txn_recover") == []
    assert manager.ok("txn_prepare", txn=9, key=KEY, acks=[]) == {"vote": "commit"}
    assert manager.ok("txn_recover") == [KEY]
    assert manager.fails("txn_begin", txn=3, key=KEY) == "illegal_state"
    assert manager.ok("txn_decide", key=KEY, commit=True) == {}
    assert counts(rig) == (0, 2)
    assert manager.ok("txn_recover") == []


def test_a_failed_branch_can_only_be_rolled_back() -> None:  # T-08
    rig = rig_of()
    pair = Pair(rig)
    pair.client.ok("txn_begin", txn=1, key=KEY)
    pair.client.ok("txn_stage", failed=True, **pair.work())
    for op, more in (("txn_prepare", {"coordinator": ""}), ("txn_commit", {})):
        assert pair.client.fails(op, txn=1, key=KEY, acks=[], **more) == "illegal_state"
    assert pair.client.ok("txn_decide", key=KEY, commit=False) == {}
    assert counts(rig) == (1, 0)


@pytest.mark.parametrize("auto", [True, False])
def test_autorollback_ends_prepared_branches_at_startup(auto: bool) -> None:  # T-06
    rig = rig_of()
    prepared(rig, xa=True)
    again = rig.restart(imq__transaction__autorollback=auto)
    again.sync()
    assert counts(again) == ((1, 0) if auto else (1, 2))
    assert Client(again).ok("txn_recover") == ([] if auto else [KEY])


def test_autorollback_leaves_local_transactions_to_their_coordinator() -> None:
    rig = rig_of()
    prepared(rig)
    again = rig.restart(imq__transaction__autorollback=True)
    assert counts(again) == (1, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_a_checkpoint_carries_what_administrators_decided_about_branches(commit: bool) -> None:
    rig = rig_of()
    pair = prepared(rig, xa=True)
    rig.host.transactions.decide_by_hand(1, commit, lambda: None)
    rig.sync()
    assert counts(rig) == ((0, 2) if commit else (1, 0))
    rig.store.checkpoint_after_entries = 1
    pair.client.send(pair.producer, "z", first=50)
    rig.sync()
    again = rig.restart()
    client = Client(again)
    (row,) = again.host.transactions.transaction_rows()
    assert row["state"] == ("HEURISTICALLY_COMMITTED" if commit else "HEURISTICALLY_ROLLED_BACK")
    assert client.ok("txn_decide", key=KEY, commit=True) == {"heuristic": commit}
    assert client.ok("txn_recover") == [KEY]
    assert client.ok("txn_outcome", key=KEY) == {"state": "committed" if commit else "rolled_back"}
    assert client.fails("txn_begin", txn=7, key=KEY) == "illegal_state"
    assert client.ok("txn_forget", key=KEY) == {}
    assert again.restart().host.transactions.transaction_rows() == []


def test_only_so_many_decisions_of_administrators_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "HEURISTICS_MAX", 0)
    rig = rig_of()
    prepared(rig, xa=True)
    with pytest.raises(ResourceAllocationError, match=r"xa\.forget"):
        rig.host.transactions.decide_by_hand(1, True, lambda: None)
    assert [row["state"] for row in rig.host.transactions.transaction_rows()] == ["PREPARED"]


# ---- the log -------------------------------------------------------------------------------------------------------


def test_the_log_of_transactions_is_read_as_it_was_written() -> None:
    log = TxLog()
    log.apply(transaction_log.note(transaction_log.PREPARED, 4, KEY, "xa", "", 5).meta)
    log.apply(transaction_log.decided(7, OTHER, True, True).meta)
    again = TxLog.decode(log.encode())
    assert again.prepared == log.prepared
    assert again.next_number == 8
    assert again.outcome(OTHER) is True
    assert again.outcome(KEY) is None


@pytest.mark.parametrize("meta", [b"", b"[]", b'["decided",1,"zz",true,false]', b"{}"])
def test_a_note_that_is_none_is_damage(meta: bytes) -> None:
    with pytest.raises(StoreDamagedError):
        TxLog().apply(meta)
    with pytest.raises(StoreDamagedError):
        TxLog.decode(meta)


def test_only_so_many_outcomes_are_remembered() -> None:
    log = TxLog()
    for number in range(20):
        log.remember(bytes([number]) * 20, True, False, most=2)
    assert len(log.outcomes) == 2
    for number in range(3):
        log.remember(b"session1" + bytes([number]) * 8, True, False)
    assert log.outcome(b"session1" + b"\2" * 8) is True
    assert log.outcome(b"session1" + b"\1" * 8) is None, "a session asks for its latest only"


def test_a_transaction_that_was_rolled_back_is_an_error_of_its_own() -> None:
    rig = rig_of()
    transactions = rig.host.transactions
    transactions.log.remember(KEY, False, False)
    late = transactions.begin_transaction(Client(rig).session)
    with pytest.raises(TransactionRolledBackError):
        transactions.commit(late, KEY, lambda: None)
    assert not transactions.by_number
