"""The checkers are told apart by histories whose verdict is known: a checker that accepts everything proves nothing.

A history is written as steps: ``send 1`` (invoked), ``ok 1``, ``fail 1``, ``info 1`` (what the producer heard),
``commit 1``, ``deliver 1 a #2`` (to consumer a, attempt 2; ``volatile`` when not persistent), ``get 1 #2`` (at the
application), ``done 1`` (acknowledged for good), ``undone 1`` (that was rolled back), ``settle 1``, ``discard 1``,
``destroy 1``, ``crash``.  ``1-3`` are three messages of one producer; ``2:1`` is message 1 of producer 2.  ``@7`` is
said of a delivery queue of a topic, ``@sends`` of a topic's producers.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import checkers
from tests.simulation.history import PASSING_SHIFT, SENDS, History, Op, value_of

SENT = "send {0}; commit {0}; ok {0}"


def history(text: str) -> list[Op]:
    ops: list[Op] = []
    for time, step in enumerate(part.strip() for part in text.split(";")):
        verb, *words = step.split()
        attempt = next((int(w[1:]) for w in words if w[0] == "#"), 1)
        process = next((ord(w) for w in words if len(w) == 1 and w.isalpha()), ord("a"))
        kind, f = _VERBS[verb]
        where = next((_WHERE.get(w) or int(w[1:]) for w in words if w[0] == "@"), 0)
        values = _values(words[0]) if words and words[0][0].isdigit() else [0]
        ops += [Op(time, process, kind, f, value, attempt, "volatile" not in words, where) for value in values]
    return ops


def _values(word: str) -> list[int]:
    producer, _, numbers = word.rpartition(":")
    first, _, last = numbers.partition("-")
    return [value_of(int(producer or 1), n) for n in range(int(first), int(last or first) + 1)]


_VERBS = {
    "send": ("invoke", "enqueue"),
    "ok": ("ok", "enqueue"),
    "fail": ("fail", "enqueue"),
    "info": ("info", "enqueue"),
    "commit": ("ok", "commit"),
    "deliver": ("ok", "deliver"),
    "get": ("ok", "dequeue"),
    "settle": ("ok", "settle"),
    "done": ("ok", "consume"),
    "undone": ("fail", "consume"),
    "discard": ("ok", "discard"),
    "destroy": ("ok", "destroy"),
    "crash": ("ok", "crash"),
    "unsee": ("ok", "unsee"),
}


_WHERE = {"@sends": SENDS, "@passing": 3 | 1 << PASSING_SHIFT}


def _numbers(counter: Counter[int]) -> dict[int, int]:
    return {value & 0xFFFF: count for value, count in counter.items()}


@pytest.mark.parametrize(
    ("text", "lost", "unexpected", "duplicated", "recovered"),
    [
        ("crash", {}, {}, {}, {}),
        ("send 1; ok 1; get 1", {}, {}, {}, {}),
        ("send 1; ok 1", {1: 1}, {}, {}, {}),
        ("send 1", {}, {}, {}, {}),
        ("send 1; info 1; get 1", {}, {}, {}, {1: 1}),
        ("send 1; info 1", {}, {}, {}, {}),
        ("send 1; fail 1", {}, {}, {}, {}),
        ("get 7", {}, {7: 1}, {}, {}),
        ("send 1; ok 1; get 1; get 1 #2", {}, {}, {1: 1}, {}),
        ("send 1-3; ok 1-3; get 1; get 3", {2: 1}, {}, {}, {}),
        ("send 1; ok 1; discard 1", {}, {}, {}, {}),
        ("send 1; ok 1; destroy 1", {}, {}, {}, {}),
        ("send 1-2; ok 1; get 2; get 5 #1", {1: 1}, {5: 1}, {}, {2: 1}),
    ],
)
def test_total_queue_knows_the_verdict(
    text: str, lost: dict[int, int], unexpected: dict[int, int], duplicated: dict[int, int], recovered: dict[int, int]
) -> None:
    total = checkers.total_queue(history(text))
    found = [_numbers(part) for part in total]
    assert found == [lost, unexpected, duplicated, recovered]
    assert total.valid == (not lost and not unexpected)


CASES = [
    # every message that came out had gone in
    ("queue", "send 1; get 1", ""),
    ("queue", "get 1; send 1", "came out and is not inside"),
    ("queue", "send 1; get 2", "came out and is not inside"),
    ("queue", "send 1; get 1; get 1 #2", ""),
    ("queue", "send 1; get 1; get 1", "came out twice as attempt 1"),
    ("queue", "send 1; get 1 #2; get 1 #1", ""),
    ("queue", "send 1; get 1 #2; get 1 #2", "came out twice as attempt 2"),
    ("queue", "send 1; fail 1; get 1", "came out and is not inside"),
    ("queue", "send 1; get 1; fail 1", "was refused after it had come out"),
    ("queue", "send 1; get 1; destroy 1; get 1", ""),
    ("queue", "send 1; get 1; destroy 1; fail 1", ""),
    # durable first, and never again
    ("commit_delivery", "send 1; commit 1; deliver 1 a; ok 1; settle 1", ""),
    ("commit_delivery", "send 1; deliver 1 a; commit 1", "delivered before it was durable"),
    ("commit_delivery", "send 1; deliver 1 a volatile", ""),
    ("commit_delivery", "send 1; ok 1; commit 1", "confirmed before it was durable"),
    ("commit_delivery", "send 1; info 1; crash", ""),
    ("commit_delivery", SENT.format(1) + "; deliver 1 a; settle 1; deliver 1 b #2", "acknowledgement was confirmed"),
    ("commit_delivery", SENT.format(1) + "; deliver 1 a; deliver 1 b #2; settle 1", ""),
    ("commit_delivery", SENT.format(1) + "; deliver 1 a; settle 1; crash; deliver 1 a #2", "acknowledgement was"),
    ("commit_delivery", SENT.format(1) + "; deliver 1 a; settle 1; destroy 1; deliver 1 a", ""),
    # a repeated delivery says so
    ("flagged", "deliver 1 a; deliver 1 b #2; deliver 1 a #3", ""),
    ("flagged", "deliver 1 a; deliver 1 b", ""),
    ("flagged", "deliver 1 a; get 1; deliver 1 b", "attempt 1 after attempt 1"),
    ("flagged", "deliver 1 a; get 1; crash; deliver 1 a", "attempt 1 after attempt 1"),
    ("flagged", "deliver 1 a #2; get 1 #2; deliver 1 a", "attempt 1 after attempt 2"),
    ("order", "deliver 2 a; deliver 1 a", "first delivered after"),
    ("order", "deliver 2 a; unsee 1; deliver 1 a", ""),
    ("flagged", "deliver 1 a #2", ""),
    ("flagged", "deliver 1 a; destroy 1; deliver 1 a", ""),
    # first deliveries are in the order of sending
    ("order", "deliver 1-3 a; deliver 4 a", ""),
    ("order", "deliver 2 a; deliver 1 a", "message 1-1 was first delivered after message 1-2"),
    ("order", "deliver 2 a; deliver 1 b", ""),
    ("order", "deliver 2 a; deliver 1 a #2", ""),
    ("order", "deliver 2 a; deliver 1 a volatile", ""),
    ("order", "deliver 1:2 a; deliver 2:1 a; deliver 1:3 a", ""),
    ("order", "deliver 3 a; deliver 3 a", "first delivered after"),
    # what is not persistent does not survive
    ("volatile", "deliver 1 a volatile; crash; deliver 2 a volatile", ""),
    ("volatile", "deliver 1 a volatile; deliver 1 b #2 volatile", ""),
    ("volatile", "deliver 1 a volatile; crash; deliver 1 a #2 volatile", "delivered again after a crash"),
    ("volatile", "deliver 1 a; crash; deliver 1 a #2", ""),
    # what went in is consumed for good
    ("consumed", "send 1; ok 1; done 1", ""),
    ("consumed", "send 1; ok 1; get 1", "acknowledged and never consumed"),
    ("consumed", "send 1; ok 1; done 1; undone 1", "acknowledged and never consumed"),
    ("consumed", "send 1; ok 1; done 1; undone 1; done 1", ""),
    ("consumed", "send 1; info 1", ""),
    ("consumed", "send 1; ok 1; discard 1", ""),
    ("consumed", "send 1; ok 1; destroy 1", ""),
    # what a topic's producer was told to be refused is in no durable subscription
    ("refused", "send 1 @sends; fail 1 @sends", ""),
    ("refused", "send 1 @sends; fail 1 @sends; deliver 1 a @7", "was refused and came out"),
    ("refused", "send 1 @sends; deliver 1 a @7; fail 1 @sends", "was refused and came out"),
    ("refused", "send 1 @sends; ok 1 @sends; deliver 1 a @7", ""),
    ("refused", "send 1 @sends; fail 1 @sends; deliver 1 a @passing", ""),
]


@pytest.mark.parametrize(("checker", "text", "verdict"), CASES)
def test_a_checker_knows_the_verdict(checker: str, text: str, verdict: str) -> None:
    wrong = getattr(checkers, checker)(history(text))
    if verdict:
        assert len(wrong) == 1
        assert verdict in wrong[0]
    else:
        assert wrong == []


def test_queue_judges_every_prefix_as_it_judges_the_whole() -> None:
    ops = history("send 1-2; get 1; get 1 #2; get 3; get 2")
    verdicts = [checkers.queue(ops[:n]) for n in range(len(ops) + 1)]
    first_bad = next(n for n, wrong in enumerate(verdicts) if wrong)
    assert ops[first_bad - 1].value == value_of(1, 3)
    assert all(verdicts[first_bad:])


def test_the_set_test_tells_lost_from_unexpected_from_recovered() -> None:
    verdict = checkers.set_check({1, 2, 3, 4}, {1, 2}, {1, 3, 9})
    assert verdict == ({1, 3}, {2}, {9}, {3})
    assert not verdict.valid
    assert checkers.set_check({1, 2}, {1}, {1, 2}).valid
    assert checkers.set_check(set(), set(), set()).valid


def test_all_checkers_together_accept_a_good_run_and_name_each_fault() -> None:
    good = SENT.format("1-2") + "; deliver 1-2 a; get 1-2; done 1-2; settle 1-2"
    assert checkers.all_of(history(good)) == []
    bad = SENT.format("1-3") + "; deliver 1 a; get 1; deliver 1 b; settle 1; deliver 1 c #3"
    text = "\n".join(checkers.all_of(history(bad)))
    assert "message 1-2 was acknowledged and never came out" in text
    assert "message 1-1 was delivered as attempt 1 after attempt 1" in text
    assert "message 1-1 was delivered after its acknowledgement was confirmed" in text
    assert "set test: message 1-3 is lost" in text


def test_subscriptions_are_judged_one_by_one() -> None:
    sent = "send 1-2 @sends; send 1-2 @7; commit 1-2 @7; ok 1-2 @7; ok 1-2 @sends"
    assert checkers.all_of(history(sent + "; deliver 1-2 a @7; get 1-2 @7; done 1-2 @7; settle 1-2 @7")) == []
    text = "\n".join(checkers.all_of(history(sent + "; deliver 1 a @7; get 1 @7; done 1-2 @7")))
    assert "message 1-2 was acknowledged and never came out (subscription 0x7)" in text
    both = "send 1 @7; send 1 @8; commit 1 @7; commit 1 @8; deliver 1 a @7; deliver 1 b @8"
    assert checkers.all_of(history(both)) == []
    assert "attempt 1 after attempt 1" in "\n".join(checkers.all_of(history(both + "; get 1 @8; deliver 1 b @8")))


def test_a_subscription_that_passes_need_not_wait_for_the_disk() -> None:
    assert checkers.all_of(history("send 1 @passing; deliver 1 a @passing")) == []
    assert checkers.all_of(history("send 1 @7; deliver 1 a @7")) != []


def test_order_is_that_of_a_priority_and_not_of_what_was_delayed() -> None:
    ops = history("deliver 2 a; deliver 1 a")
    assert checkers.order(ops, lambda value: 4) != []
    assert checkers.order(ops, lambda value: value & 1) == []
    assert checkers.order(ops, lambda value: None) == []


def test_a_transaction_is_all_or_nothing() -> None:
    assert checkers.atomic([1, 2, 3], {1, 2, 3, 9}) == []
    assert checkers.atomic([1, 2, 3], {9}) == []
    assert checkers.atomic([], {9}) == []
    wrong = checkers.atomic([value_of(1, 1), value_of(1, 2)], {value_of(1, 2)})
    assert wrong == ["message 1-2 was stored and message 1-1 of the same transaction was not"]


def test_a_history_keeps_runs_and_gives_single_operations() -> None:
    kept = History()
    kept.add(5, 1, "ok", "deliver", value_of(3, 10), 3, 2)
    assert [(op.time, op.value & 0xFF, op.attempt) for op in kept.ops()] == [(5, 10, 2), (5, 11, 2), (5, 12, 2)]
    assert len(kept) == 1


def test_fingerprints_tell_histories_apart() -> None:
    rows = [(1, 1, "invoke", "enqueue", 1, 1), (2, 1, "ok", "enqueue", 1, 1), (1, 1, "ok", "enqueue", 1, 1)]
    prints = set()
    for chosen in (rows[:1], rows[:2], rows[:3], rows[::-1], rows[2:]):
        kept = History()
        for row in chosen:
            kept.add(*row)
        prints.add(kept.fingerprint)
    assert len(prints) == 5
