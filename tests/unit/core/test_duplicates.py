"""Deduplication ids: bounded in time and in number, and what a destination does with them (B25)."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.duplicates import Duplicates
from tests.unit.core.homes import Home, refusals


def test_the_oldest_ids_go_first() -> None:
    known = Duplicates()
    known.take([("a", 1), ("b", 2), ("c", 3)], 2)
    assert [known.known(text) for text in ("a", "b", "c", None)] == [False, True, True, False]
    known.take([("b", 4)], 2)
    known.take([("d", 5)], 2)
    assert list(known.taken) == ["b", "d"], "an id that is taken again counts from then on"


def test_ids_leave_the_window() -> None:
    known = Duplicates()
    known.take([("a", 1), ("b", 2)], 9)
    known.forget(2)
    assert list(known.taken) == ["b"], "the window includes its first moment"
    known.forget(3)
    assert not known.taken


def test_an_id_is_taken_once_within_the_window() -> None:
    home = Home(duplicateWindowMs=1000)
    producer = home.producer()
    assert refusals(home.send(producer, [1, 1], dedup_ids=["a", None])) == []
    again = home.send(producer, [1, 1, 1], dedup_ids=["a", None, "b"])
    assert [(r.start, r.end, r.code, r.text) for r in refusals(again)] == [(0, 1, "duplicate", "a")]
    assert home.core.ledger.messages == 4
    assert home.core.counters.duplicates == 1
    assert home.core.counters.refused == 0
    home.now_ms += 1001
    assert refusals(home.send(producer, [1], dedup_ids=["a"])) == []


def test_two_messages_of_one_block_have_one_id() -> None:
    home = Home(duplicateWindowMs=1000)
    out = home.send(home.producer(), [1, 1], dedup_ids=["a", "a"])
    assert [(r.start, r.code) for r in refusals(out)] == [(1, "duplicate")]


def test_without_a_window_ids_mean_nothing() -> None:
    home = Home()
    producer = home.producer()
    home.send(producer, [1], dedup_ids=["a"])
    assert refusals(home.send(producer, [1], dedup_ids=["a"])) == []
    assert not home.core.duplicates.taken


def test_a_message_that_was_refused_does_not_take_its_id() -> None:
    home = Home(duplicateWindowMs=1000, maxNumMsgs=1)
    producer = home.producer()
    out = home.send(producer, [1, 1], dedup_ids=["a", "b"])
    assert [(r.start, r.code) for r in refusals(out)] == [(1, "quota_exceeded")]
    assert list(home.core.duplicates.taken) == ["a"]


def test_ids_of_another_producer_count_as_well() -> None:
    home = Home(duplicateWindowMs=1000)
    home.send(home.producer(7), [1], dedup_ids=["a"])
    out = home.send(home.producer(8), [1], producer=8, dedup_ids=["a"])
    assert [r.code for r in refusals(out)] == ["duplicate"]


def test_ids_survive_a_restart() -> None:
    home = Home(duplicateWindowMs=1000)
    home.send(home.producer(), [1], dedup_ids=["a"])
    home.send(home.producer(8), [1], producer=8, persistent=False, dedup_ids=["v"])
    for checkpoint in (False, True):
        again = home.crash(checkpoint=checkpoint)
        out = again.send(again.producer(9), [1], producer=9, dedup_ids=["a"])
        assert [r.code for r in refusals(out)] == ["duplicate"]
        home = again


def test_an_id_of_a_transaction_that_was_rolled_back_is_free_again() -> None:
    home = Home(duplicateWindowMs=1000)
    producer = home.producer()
    home.send(producer, [1], dedup_ids=["a"], txn=5)
    out = home.send(producer, [1], dedup_ids=["a"], txn=6)
    assert [r.code for r in refusals(out)] == ["duplicate"], "it may be committed yet"
    home.do(cmd.Decide(5, False))
    home.do(cmd.Decide(6, False))
    assert refusals(home.send(producer, [1], dedup_ids=["a"])) == []


def test_an_id_of_a_transaction_that_a_crash_ended_is_free_again() -> None:
    home = Home(duplicateWindowMs=1000)
    home.send(home.producer(), [1], dedup_ids=["a"], txn=5)
    again = home.crash()
    assert refusals(again.send(again.producer(8), [1], producer=8, dedup_ids=["a"])) == []


def test_an_id_of_a_committed_transaction_is_taken() -> None:
    for prepare in (False, True):
        home = Home(duplicateWindowMs=1000)
        home.send(home.producer(), [1], dedup_ids=["a"], txn=5)
        if prepare:
            home.do(cmd.Prepare(5))
        home.do(cmd.Decide(5, True))
        again = home.crash()
        out = again.send(again.producer(8), [1], producer=8, dedup_ids=["a"])
        assert [r.code for r in refusals(out)] == ["duplicate"]
