"""The notice that a program's node is drained: what consumers were told, together."""

from __future__ import annotations

import math

from raybroker.client.connection.drain_notice import DRAINING, STAYING, DrainNotice


def test_a_program_is_told_once_however_many_consumers_are() -> None:
    notice = DrainNotice()
    assert notice.left_s(0.0) is None
    told = notice.told(1, leaving=True, left_ms=60_000, now_s=10.0)
    assert told is not None
    assert (told.kind, "goes in 60 s" in told.text) == (DRAINING, True)
    assert notice.told(2, leaving=True, left_ms=59_500, now_s=10.5) is None
    assert notice.left_s(20.0) == 50.0
    assert notice.left_s(100.0) == 0.0, "it is over, and nobody has taken it back"


def test_a_nearer_deadline_is_new_and_a_later_one_is_not() -> None:
    notice = DrainNotice()
    told = notice.told(1, leaving=True, left_ms=None, now_s=0.0)
    assert told is not None
    assert "goes soon" in told.text
    assert notice.left_s(0.0) == math.inf
    assert notice.told(2, leaving=True, left_ms=30_000, now_s=0.0) is not None
    assert notice.told(3, leaving=True, left_ms=90_000, now_s=0.0) is None


def test_it_is_over_when_nobody_leaves() -> None:
    notice = DrainNotice()
    notice.told(1, leaving=True, left_ms=None, now_s=0.0)
    notice.told(2, leaving=True, left_ms=None, now_s=0.0)
    assert notice.told(1, leaving=False, left_ms=None, now_s=1.0) is None
    told = notice.told(2, leaving=False, left_ms=None, now_s=1.0)
    assert told is not None
    assert told.kind == STAYING
    assert notice.told(2, leaving=False, left_ms=None, now_s=1.0) is None


def test_a_consumer_that_has_ended_says_nothing_any_more() -> None:
    notice = DrainNotice()
    notice.told(1, leaving=True, left_ms=None, now_s=0.0)
    notice.consumer_ended(1)
    assert notice.left_s(0.0) is None
