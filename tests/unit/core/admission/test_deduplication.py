"""Deduplication ids: bounded in time and in number, and what a destination does with them (B25)."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.core.admission.deduplication import Deduplication, first_of_each
from raybroker.core.outcome import SendAnswered
from raybroker.core.subscription import Subscription
from tests.unit.core.driven_destination import DrivenDestination, of, refusals


def test_the_oldest_ids_go_first() -> None:
    known = Deduplication()
    known.take_ids([("a", 1), ("b", 2), ("c", 3)], 2, persistent=True)
    assert [known.known(text) for text in ("a", "b", "c", None)] == [False, True, True, False]
    known.take_ids([("b", 4)], 2, persistent=True)
    known.take_ids([("d", 5)], 2, persistent=True)
    assert list(known.taken) == ["b", "d"], "an id that is taken again counts from then on"


def test_ids_of_another_place_are_known_in_the_order_in_which_they_were_taken() -> None:
    known = Deduplication()
    known.take_ids([("a", 3), ("b", 6)], 9, persistent=True)
    known.take_ids([("c", 7)], 9, persistent=False)
    known.take_earlier([("d", 1, True), ("a", 5, True), ("b", 2, False), ("e", 8, False), ("c", 4, True)], 9)
    assert list(known.taken.items()) == [("d", 1), ("a", 5), ("b", 6), ("c", 7), ("e", 8)]
    assert known.volatile == {"e"}, "what lasts at one of both places lasts"
    known.take_earlier([("f", 9, False)], 2)
    assert (list(known.taken), known.volatile) == (["e", "f"], {"e", "f"})


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_was_taken_elsewhere_is_not_taken_again_also_after_a_crash(*, checkpoint: bool) -> None:
    before = DrivenDestination(duplicateWindowMs=1000)
    before.send(before.producer(), [1, 1], dedup_ids=["a", "b"])
    before.send(before.producer(8), [1], producer=8, dedup_ids=["c"], persistent=False)
    ids = before.core.admission.known_ids()
    assert [(text, lasting) for text, _, lasting in ids] == [("a", True), ("b", True), ("c", False)]
    after = DrivenDestination(duplicateWindowMs=1000)
    for _ in range(2):
        after.do(cmd.TakeKnownIds(ids))
    assert after.core.admission.known_ids() == ids, "again does no harm"
    out = after.send(after.producer(), [1, 1, 1], dedup_ids=["a", "c", "d"], persistent=False)
    assert [(r.start, r.code) for r in refusals(out)] == [(0, "duplicate"), (1, "duplicate")]
    there = after.crash(checkpoint=checkpoint)
    out = there.send(there.producer(), [1, 1, 1], dedup_ids=["a", "b", "c"])
    assert [(r.start, r.code) for r in refusals(out)] == [(0, "duplicate"), (1, "duplicate")]
    there.now_ms += 1001
    assert refusals(there.send(there.producer(), [1], dedup_ids=["a"])) == []


def test_a_place_without_a_window_knows_no_ids_of_another_one() -> None:
    destination = DrivenDestination()
    destination.do(cmd.TakeKnownIds([("a", 1, True)]))
    assert destination.core.admission.known_ids() == []


def test_ids_leave_the_window() -> None:
    known = Deduplication()
    known.take_ids([("a", 1), ("b", 2)], 9, persistent=True)
    known.forget_before(2)
    assert list(known.taken) == ["b"], "the window includes its first moment"
    known.forget_before(3)
    assert not known.taken


def test_of_messages_with_one_id_the_first_is_chosen_and_those_without_one_are() -> None:
    assert first_of_each(["a", None, "a", "b", None, "b"], 0b111111) == 0b011011
    assert first_of_each(["a", None, "a", "b", None, "b"], 0b110110) == 0b110110
    known = Deduplication()
    assert known.without_known(["a", None], 0b11, persistent=True) == 0b11
    known.take_ids([("a", 1)], 9, persistent=True)
    assert known.without_known(["a", None, "b", "a"], 0b0111, persistent=True) == 0b0110


def test_an_id_is_taken_once_within_the_window() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    producer = destination.producer()
    assert refusals(destination.send(producer, [1, 1], dedup_ids=["a", None])) == []
    again = destination.send(producer, [1, 1, 1], dedup_ids=["a", None, "b"])
    assert [(r.start, r.end, r.code, r.text) for r in refusals(again)] == [(0, 1, "duplicate", "a")]
    assert destination.core.block_index.messages == 4
    assert destination.core.counters.duplicates == 1
    assert destination.core.counters.refused == 0
    destination.now_ms += 1001
    assert refusals(destination.send(producer, [1], dedup_ids=["a"])) == []


def test_two_messages_of_one_block_have_one_id() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    out = destination.send(destination.producer(), [1, 1], dedup_ids=["a", "a"])
    assert [(r.start, r.code) for r in refusals(out)] == [(1, "duplicate")]


def test_without_a_window_ids_mean_nothing() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    destination.send(producer, [1], dedup_ids=["a"])
    assert refusals(destination.send(producer, [1], dedup_ids=["a"])) == []
    assert not destination.core.duplicates.taken


def test_a_message_that_was_refused_does_not_take_its_id() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000, maxNumMsgs=1)
    producer = destination.producer()
    out = destination.send(producer, [1, 1], dedup_ids=["a", "b"])
    assert [(r.start, r.code) for r in refusals(out)] == [(1, "quota_exceeded")]
    assert list(destination.core.duplicates.taken) == ["a"]


def test_ids_of_another_producer_count_as_well() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    destination.send(destination.producer(7), [1], dedup_ids=["a"])
    out = destination.send(destination.producer(8), [1], producer=8, dedup_ids=["a"])
    assert [r.code for r in refusals(out)] == ["duplicate"]


def test_ids_survive_a_restart() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    destination.send(destination.producer(), [1], dedup_ids=["a"])
    destination.send(destination.producer(8), [1], producer=8, persistent=False, dedup_ids=["v"])
    for checkpoint in (False, True):
        again = destination.crash(checkpoint=checkpoint)
        out = again.send(again.producer(9), [1], producer=9, dedup_ids=["a"])
        assert [r.code for r in refusals(out)] == ["duplicate"]
        destination = again


def test_the_id_of_an_open_transaction_is_not_taken_before_its_commit() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    producer = destination.producer()
    destination.send(producer, [1], dedup_ids=["a"], txn=5)
    assert refusals(destination.send(producer, [2], dedup_ids=["a"])) == [], "it may be rolled back yet"
    destination.do(cmd.Decide(5, False))
    assert [r.code for r in refusals(destination.send(producer, [1], dedup_ids=["a"]))] == ["duplicate"]
    assert (destination.core.block_index.messages, destination.core.block_index.bytes_held) == (1, 2)


def test_ids_of_messages_that_a_restart_ends_leave_the_window_like_others() -> None:
    known = Deduplication()
    known.take_ids([("a", 1), ("b", 2), ("c", 3)], 2, persistent=False)
    known.take_ids([("b", 4)], 2, persistent=True)
    assert (list(known.taken), known.volatile, known.lasting()) == (["c", "b"], {"c"}, [("b", 4)])
    known.forget_before(4)
    assert (list(known.taken), known.volatile) == (["b"], set())


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("second", ["sent", "committed", "prepared"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_persistent_message_is_stored_whose_id_only_a_non_persistent_one_has(
    kind: str, second: str, checkpoint: bool
) -> None:
    destination = DrivenDestination(kind, duplicateWindowMs=1000)
    if kind == "topic":
        destination.do(cmd.Subscribe(Subscription("c", "d", True)))
    producer = destination.producer()
    destination.send(producer, [1], persistent=False, dedup_ids=["a"])
    assert [r.code for r in refusals(destination.send(producer, [2], persistent=False, dedup_ids=["a"]))] == [
        "duplicate"
    ]
    outcomes = [destination.send(producer, [4], dedup_ids=["a"], txn=5 * (second != "sent"))]
    if second == "prepared":
        destination.do(cmd.Prepare(5))
    if second != "sent":
        outcomes.append(destination.do(cmd.Decide(5, True)))
    assert [r for out in outcomes for effect in of(out, SendAnswered) for r in effect.refused] == []
    assert destination.core.block_index.bytes_held == 5
    for persistent in (True, False):
        again = destination.send(producer, [1], persistent=persistent, dedup_ids=["a"])
        assert [r.code for r in refusals(again)] == ["duplicate"], "the second copy is what the id stands for"
    destination = destination.crash(checkpoint=checkpoint)
    assert destination.core.block_index.bytes_held == 4
    out = destination.send(destination.producer(8), [1], producer=8, dedup_ids=["a"])
    assert [r.code for r in refusals(out)] == ["duplicate"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_forgets_the_id_of_a_message_that_it_ends(checkpoint: bool) -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    destination.send(destination.producer(), [1], persistent=False, dedup_ids=["a"])
    destination = destination.crash(checkpoint=checkpoint)
    assert refusals(destination.send(destination.producer(8), [1], producer=8, dedup_ids=["a"])) == []
    assert destination.crash().core.block_index.messages == 1


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("prepared", ["", "prepared", "restarted", "checkpoint"])
@pytest.mark.parametrize("ids", [["a"], ["a", "b"], ["b", "a", None], ["b", "b", "a"]])
def test_a_commit_leaves_out_messages_whose_ids_others_took_meanwhile(
    kind: str, prepared: str, ids: list[str | None]
) -> None:
    destination = DrivenDestination(kind, duplicateWindowMs=1000)
    if kind == "topic":
        destination.do(cmd.Subscribe(Subscription("c", "d", True)))
    producer = destination.producer()
    destination.send(producer, [4] * len(ids), dedup_ids=ids, txn=5)
    destination.send(producer, [1], dedup_ids=["a"])
    if prepared:
        destination.do(cmd.Prepare(5))
    if prepared in ("restarted", "checkpoint"):
        destination = destination.crash(checkpoint=prepared == "checkpoint")
        producer = destination.producer()
    out = destination.do(cmd.Decide(5, True))
    fresh = sum(text is None for text in ids) + ("b" in ids)
    told = [r for effect in of(out, SendAnswered) for r in effect.refused]
    assert sum(r.end - r.start for r in told) == len(ids) - fresh == destination.core.counters.duplicates
    for _ in range(2):
        assert (destination.core.block_index.messages, destination.core.block_index.bytes_held) == (
            1 + fresh,
            1 + 4 * fresh,
        )
        for text in {"a", *ids} - {None}:
            again = destination.send(destination.producer(8), [1], producer=8, dedup_ids=[text])
            assert [r.code for r in refusals(again)] == ["duplicate"]
        destination = destination.crash(checkpoint=prepared == "checkpoint")


def test_of_two_transactions_the_one_that_commits_first_takes_the_id() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    producer = destination.producer()
    destination.send(producer, [1], dedup_ids=["a"], txn=5)
    destination.send(producer, [2], dedup_ids=["a"], txn=6)
    destination.do(cmd.Decide(6, True))
    destination.do(cmd.Decide(5, True))
    assert destination.core.block_index.bytes_held == 2
    destination = destination.crash()
    assert destination.core.block_index.bytes_held == 2


def test_a_message_of_the_same_block_and_id_as_one_that_was_refused_is_no_duplicate() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000, maxBytesPerMsg=5)
    out = destination.send(destination.producer(), [6, 3, 4], dedup_ids=["a", "a", "a"])
    assert [(r.start, r.code) for r in sorted(refusals(out))] == [(0, "message_too_large"), (2, "duplicate")]
    assert destination.core.block_index.bytes_held == 3


def test_of_equal_ids_in_a_block_one_at_most_fits_under_a_limit() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000, maxNumMsgs=2)
    out = destination.send(destination.producer(), [1] * 5, dedup_ids=["a", "a", None, "b", "b"])
    assert [(r.start, r.code) for r in sorted(refusals(out))] == [
        (1, "duplicate"),
        (3, "quota_exceeded"),
        (4, "quota_exceeded"),
    ]


def test_a_late_retry_of_two_messages_with_one_id_is_no_duplicate_of_itself() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000, maxNumMsgs=1)
    producer = destination.producer()
    destination.send(producer, [1], dedup_ids=["x"])
    destination.send(producer, [1, 1], first=2, dedup_ids=["a", "b"])
    destination.ack(destination.consumer(), 1)
    destination.send(producer, [1], first=4, dedup_ids=["y"])
    out = destination.send(producer, [1, 1], first=2, dedup_ids=["a", "a"])
    assert {r.code for r in refusals(out)} == {"quota_exceeded"}, "they were refused before, and are not stored now"


def test_an_id_of_a_transaction_that_a_crash_ended_is_free_again() -> None:
    destination = DrivenDestination(duplicateWindowMs=1000)
    destination.send(destination.producer(), [1], dedup_ids=["a"], txn=5)
    again = destination.crash()
    assert refusals(again.send(again.producer(8), [1], producer=8, dedup_ids=["a"])) == []


def test_an_id_of_a_committed_transaction_is_taken() -> None:
    for prepare in (False, True):
        destination = DrivenDestination(duplicateWindowMs=1000)
        destination.send(destination.producer(), [1], dedup_ids=["a"], txn=5)
        if prepare:
            destination.do(cmd.Prepare(5))
        destination.do(cmd.Decide(5, True))
        again = destination.crash()
        out = again.send(again.producer(8), [1], producer=8, dedup_ids=["a"])
        assert [r.code for r in refusals(out)] == ["duplicate"]
