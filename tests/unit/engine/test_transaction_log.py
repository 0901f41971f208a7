"""The log of transactions: what its notes and checkpoints bring back, and how much it remembers."""

from __future__ import annotations

import pytest

from raybroker.engine.transactions import transaction_log as log
from raybroker.engine.transactions.transaction_log import HEURISTIC, PREPARED, TxLog
from raybroker.model.errors import StoreDamagedError


def key(session: int, number: int) -> bytes:
    """Of a local transaction: its session, and the number there."""
    return session.to_bytes(8, "big") + number.to_bytes(8, "big")


def test_a_prepared_transaction_waits_until_its_decision() -> None:
    found = TxLog()
    found.apply(log.note(PREPARED, 4, b"k", "xa", "", 77).meta)
    row = found.prepared[4]
    assert (row.key, row.kind, row.coordinator, row.created_ms, found.next_number) == (b"k", "xa", "", 77, 5)
    found.apply(log.decided(4, b"k", True, False).meta)
    assert (found.prepared, found.outcome(b"k"), found.decided) == ({}, True, {4: True})


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_the_quick_note_of_a_decision_is_as_the_general_one(commit: bool, shared: bool) -> None:
    assert log.decided(7, b"\x01k", commit, shared) == log.note(log.DECIDED, 7, b"\x01k", commit, shared)


def test_of_one_session_the_latest_transaction_is_remembered() -> None:
    found = TxLog()
    found.remember(key(1, 5), True, False)
    found.remember(key(2, 1), False, False)
    found.remember(key(1, 6), False, False)
    found.remember(key(1, 4), True, False)
    assert found.outcomes == {key(2, 1): False, key(1, 6): False}
    assert [found.superseded(key(1, number)) for number in (5, 6, 7)] == [True, False, False]
    assert not found.superseded(b"an xa key")


def test_the_oldest_outcomes_are_forgotten_first() -> None:
    found = TxLog()
    for session in range(5):
        found.remember(key(session, 1), True, False, most=3)
    assert list(found.outcomes) == [key(session, 1) for session in (2, 3, 4)]
    assert not found.superseded(key(0, 0)), "nothing is left of its session"


def test_a_heuristic_outcome_counts_until_it_is_forgotten() -> None:
    found = TxLog()
    found.apply(log.note(HEURISTIC, 3, b"k", False, 9).meta)
    assert (found.outcome(b"k"), found.heuristic[b"k"].state) == (False, "HEURISTICALLY_ROLLED_BACK")
    assert found.forget_transaction(b"k")
    assert not found.forget_transaction(b"k")
    assert found.outcome(b"k") is None


def test_a_checkpoint_brings_back_what_still_matters() -> None:
    found = TxLog()
    found.apply(log.note(PREPARED, 2, b"p", "local", "host", 1).meta)
    found.apply(log.note(HEURISTIC, 3, b"h", True, 9).meta)
    found.remember(b"s", True, True)
    found.remember(key(1, 1), False, False)
    again = TxLog.decode(found.encode())
    assert (again.next_number, again.prepared, again.heuristic) == (4, found.prepared, found.heuristic)
    assert [again.outcome(one) for one in (b"s", key(1, 1), b"h", b"?")] == [True, False, True, None]
    assert again.superseded(key(1, 0))


@pytest.mark.parametrize("data", [b"", b"[]", b'["decided"]', b'["decided", 1, "zz"]'])
def test_notes_that_do_not_decode_are_damage(data: bytes) -> None:
    with pytest.raises(StoreDamagedError):
        TxLog().apply(data)
    with pytest.raises(StoreDamagedError):
        TxLog.decode(data)
