"""A broker's part of a queue that gets copies: when it moves, and when its clients are ended."""

from __future__ import annotations

import pytest

from raybroker.cluster.replicas.member_move import COPY_MS, LAST_MESSAGES, SETTLE_MS, MemberMove, MovePhase, SeenMember

MANY = LAST_MESSAGES + 1


def seen(messages: int = 0, unacknowledged: int = 0, clients: int = 0, *, others: bool = True) -> SeenMember:
    return SeenMember(messages, unacknowledged, clients, others)


def copying(now_ms: int = 0) -> MemberMove:
    move = MemberMove(now_ms)
    assert move.saw(seen(MANY), now_ms) is MovePhase.COPYING
    return move


def test_a_member_moves_while_its_producers_go_on_and_its_clients_wait_for_the_rest_alone() -> None:
    move = MemberMove(0)
    assert move.saw(seen(MANY, 3, 2), 100) is MovePhase.SETTLING
    assert move.saw(seen(MANY, 0, 2), 200) is MovePhase.COPYING
    assert move.serves
    assert not move.is_waiting(MANY)
    assert move.saw(seen(MANY, 0, 2), 300) is MovePhase.COPYING
    assert move.saw(seen(LAST_MESSAGES, 0, 2), 400) is MovePhase.CLOSING
    assert (move.serves, move.closed_ms) == (False, 400)
    assert move.saw(seen(LAST_MESSAGES, 0, 1), 500) is MovePhase.CLOSING, "a client may still send"
    assert move.saw(seen(LAST_MESSAGES, 0, 0), 600) is MovePhase.EMPTYING
    assert move.saw(seen(1, 0, 0), 700) is MovePhase.EMPTYING
    assert move.saw(seen(0, 0, 0), 800) is MovePhase.OVER


def test_clients_are_not_ended_before_the_others_are_nearly_done() -> None:
    move = copying()
    assert move.saw(seen(0, others=False), 100) is MovePhase.COPYING
    assert move.is_waiting(0)
    assert move.saw(seen(0), 200) is MovePhase.CLOSING


def test_consumers_that_do_not_settle_are_ended_so_that_nothing_overtakes_what_they_have() -> None:
    move = MemberMove(0)
    assert move.saw(seen(MANY, 1, 1), SETTLE_MS - 1) is MovePhase.SETTLING
    assert move.saw(seen(MANY, 1, 1), SETTLE_MS) is MovePhase.CLOSING
    assert move.saw(seen(MANY, 1, 0), SETTLE_MS + 1) is MovePhase.CLOSING, "what it had is not there again yet"
    assert move.saw(seen(MANY, 0, 0), SETTLE_MS + 2) is MovePhase.EMPTYING


def test_a_member_whose_consumers_were_let_go_on_settles_once_more() -> None:
    move = copying()
    assert move.saw(seen(MANY, 5), 100) is MovePhase.SETTLING
    assert move.saw(seen(MANY, 0), 200) is MovePhase.COPYING


@pytest.mark.parametrize("others", [True, False])
def test_producers_that_are_faster_than_what_moves_wait_in_the_end(others: bool) -> None:
    move = copying()
    assert move.saw(seen(MANY, others=others), COPY_MS - 1) is MovePhase.COPYING
    assert move.saw(seen(MANY, others=others), COPY_MS) is MovePhase.CLOSING


def test_what_comes_late_serves_nobody() -> None:
    move = MemberMove(7, late=True)
    assert (move.serves, move.closed_ms) == (False, 7)
    assert move.saw(seen(MANY), 8) is MovePhase.EMPTYING
