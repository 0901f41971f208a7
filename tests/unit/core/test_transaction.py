"""What a transaction does at one destination: nothing that anybody sees, until it is decided (T-01 … T-05)."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.core.durable import records
from raybroker.core.outcome import Retire, SendAnswered
from raybroker.core.subscription import Subscription
from raybroker.model.blocks.record import BLOCK
from raybroker.model.errors import TransactionRolledBackError
from tests.unit.core.driven_destination import (
    DrivenDestination,
    acked,
    burials,
    columns,
    first_indexes,
    handed,
    of,
    refusals,
)

TXN = 5


def kinds(destination: DrivenDestination) -> list[int | str]:
    return ["block" if e.kind == BLOCK else records.kind_of(e.meta) for e in destination.log]


def test_what_was_sent_is_seen_when_it_is_committed() -> None:  # T-02, T-04
    destination = DrivenDestination()
    producer, consumer = destination.producer(), destination.consumer()
    out = destination.send(producer, [1, 1], txn=TXN)
    assert of(out, SendAnswered) == [], "the end of the transaction tells"
    assert handed(out) == []
    assert not destination.log
    assert destination.core.block_index.messages == 2, "it is charged"
    out = destination.do(cmd.Decide(TXN, True))
    assert handed(out, consumer) == [(1, 0, 1), (1, 1, 1)]
    assert kinds(destination) == ["block", records.DISPATCHED]
    assert not destination.core.staged


def test_what_was_sent_vanishes_when_it_is_rolled_back() -> None:  # T-03
    destination = DrivenDestination()
    destination.consumer()
    destination.send(destination.producer(), [1, 1], txn=TXN)
    out = destination.do(cmd.Decide(TXN, False))
    assert handed(out) == []
    assert [effect.ordinals for effect in of(out, Retire)] == [(1,)]
    assert destination.core.block_index.messages == 0
    assert not destination.log


def test_consumed_messages_are_gone_when_it_is_committed() -> None:  # T-02
    destination = DrivenDestination()
    consumer = destination.consumer(2, "prefetch")
    destination.send(destination.producer(), [1] * 3)
    out = destination.do(cmd.StageAcks(TXN, consumer, [(1, 2)]))
    assert handed(out) == [(1, 2, 1)], "its window has room again"
    assert destination.core.block_index.messages == 3
    assert acked(destination.ack(consumer, 1)) == [1], "it is not with the consumer any more"
    destination.do(cmd.Decide(TXN, True))
    assert destination.core.block_index.messages == 1
    assert records.ACKED in kinds(destination)


def test_consumed_messages_come_back_when_it_is_rolled_back() -> None:  # T-03
    destination = DrivenDestination(redeliveryLimit=1)
    consumer = destination.consumer()
    destination.send(destination.producer(), [1, 1])
    destination.do(cmd.StageAcks(TXN, consumer, [(2, 2)]))
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 1)]))
    out = destination.do(cmd.Decide(TXN, False))
    assert handed(out) == [(1, 0, 2), (1, 1, 2)], "in order and flagged"
    destination.do(cmd.StageAcks(TXN, consumer, [(3, 4)]))
    out = destination.do(cmd.Decide(TXN, False))
    assert {row[0] for row in burials(out)} == {"UNDELIVERABLE"}, "rollbacks count as failures"


def test_a_rollback_may_ask_for_a_delay() -> None:  # W-67
    destination = DrivenDestination()
    consumer = destination.consumer()
    destination.send(destination.producer(), [1])
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 1)]))
    assert handed(destination.do(cmd.Decide(TXN, False, 40))) == []
    assert handed(destination.tick(40)) == [(1, 0, 2)]


@pytest.mark.parametrize("ranges", [[(1, 3)], [(0, 1)], [(1, 1), (9, 9)]])
def test_what_is_not_with_the_consumer_cannot_be_part_of_it(ranges: list[tuple[int, int]]) -> None:
    destination = DrivenDestination()
    consumer = destination.consumer()
    destination.send(destination.producer(), [1, 1])
    with pytest.raises(TransactionRolledBackError):
        destination.do(cmd.StageAcks(TXN, consumer, ranges))
    assert not destination.core.staged
    assert acked(destination.ack(consumer, 1, 2)) == [0], "nothing has changed"


def test_naming_a_message_twice_counts_it_once() -> None:
    destination = DrivenDestination()
    consumer = destination.consumer(2, "prefetch")
    destination.send(destination.producer(), [1, 1])
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 2), (2, 2)]))
    assert destination.core.staged[TXN].acknowledged == 2


def test_a_consumer_that_is_gone_cannot_stage() -> None:
    with pytest.raises(TransactionRolledBackError):
        DrivenDestination().do(cmd.StageAcks(TXN, 999, [(1, 1)]))


def test_a_consumer_may_leave_before_its_transaction_ends() -> None:
    destination = DrivenDestination()
    consumer = destination.consumer()
    destination.send(destination.producer(), [1])
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 1)]))
    destination.do(cmd.DetachConsumer(consumer))
    assert destination.queue.plain.backlog.count == 0, "the message stays with the transaction"
    destination.do(cmd.Decide(TXN, True))
    assert destination.core.block_index.messages == 0


def test_deciding_what_is_not_there_does_nothing() -> None:
    destination = DrivenDestination()
    out = destination.do(cmd.Decide(99, True))
    assert not out.records
    assert not out.after_durable


def test_two_transactions_do_not_see_each_other() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    destination.consumer()
    destination.send(producer, [1], txn=1)
    destination.send(producer, [1], txn=2)
    assert first_indexes(destination.do(cmd.Decide(2, True))) == [(2, 0)]
    assert first_indexes(destination.do(cmd.Decide(1, True))) == [(1, 0)]


def test_a_commit_cannot_fail_for_a_limit() -> None:  # T-04
    destination = DrivenDestination(maxNumMsgs=2)
    producer = destination.producer()
    destination.send(producer, [1], txn=TXN)
    assert of(destination.send(producer, [1], txn=TXN), SendAnswered) == []
    assert [r.code for r in refusals(destination.send(producer, [1]))] == ["quota_exceeded"]
    assert [r.code for r in refusals(destination.send(producer, [1], txn=TXN))] == ["quota_exceeded"]
    destination.do(cmd.Decide(TXN, True))
    assert destination.core.block_index.messages == 2


def test_a_pause_refuses_sends_and_lets_a_commit_through() -> None:  # W-123
    destination = DrivenDestination()
    producer = destination.producer()
    destination.consumer()
    destination.send(producer, [1], txn=TXN)
    destination.do(cmd.Pause("production"))
    assert [r.code for r in refusals(destination.send(producer, [1], txn=TXN))] == ["destination_paused"]
    assert len(handed(destination.do(cmd.Decide(TXN, True)))) == 1


def test_priorities_and_delays_count_from_the_commit_on() -> None:
    destination = DrivenDestination()
    destination.send(
        destination.producer(), [1, 1, 1], txn=TXN, columns=columns(3, priorities=[1, 9, 5], delay=[0, 0, 100])
    )
    destination.do(cmd.Decide(TXN, True))
    assert first_indexes(destination.open()[1]) == [(1, 1), (1, 0)]
    assert first_indexes(destination.tick(100)) == [(1, 2)]


# ---- restart and preparation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_open_at_a_crash_is_rolled_back(checkpoint: bool) -> None:  # T-05
    destination = DrivenDestination()
    producer, consumer = destination.producer(), destination.consumer()
    destination.send(producer, [1, 1])
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 1)]))
    destination.send(producer, [1], txn=TXN)
    again = destination.crash(checkpoint=checkpoint)
    assert not again.core.staged
    assert handed(again.open()[1]) == [(1, 0, 2), (1, 1, 2)]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_what_is_prepared_waits_for_its_decision_across_a_crash(checkpoint: bool, commit: bool) -> None:  # T-05
    destination = DrivenDestination()
    producer, consumer = destination.producer(), destination.consumer()
    destination.send(producer, [1, 1])
    destination.send(producer, [1, 1], txn=TXN)
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 1)]))
    destination.do(cmd.Prepare(TXN))
    for _ in range(2):
        destination = destination.crash(checkpoint=checkpoint)
        staged = destination.core.staged[TXN]
        assert (staged.prepared, staged.messages, staged.acknowledged) == (True, 2, 1)
        assert destination.core.block_index.messages == 4
    consumer, out = destination.open()
    assert handed(out) == [(1, 1, 2)]
    out = destination.do(cmd.Decide(TXN, commit))
    assert handed(out) == ([(2, 0, 1), (2, 1, 1)] if commit else [(1, 0, 2)])
    assert destination.core.block_index.messages == (3 if commit else 2)


@pytest.mark.parametrize("commit", [False, True])
def test_a_decision_is_known_after_a_crash(commit: bool) -> None:
    destination = DrivenDestination()
    consumer = destination.consumer(1)
    producer = destination.producer()
    destination.send(producer, [1])
    destination.send(producer, [1, 1], txn=TXN)
    destination.do(cmd.StageAcks(TXN, consumer, [(1, 1)]))
    destination.do(cmd.Prepare(TXN))
    destination.do(cmd.Decide(TXN, commit))
    again = destination.crash()
    assert not again.core.staged
    assert first_indexes(again.open()[1]) == ([(2, 0), (2, 1)] if commit else [(1, 0)])


def test_a_prepared_block_is_not_taken_twice() -> None:
    destination = DrivenDestination()
    destination.send(destination.producer(), [1, 1], txn=TXN)
    destination.do(cmd.Prepare(TXN))
    destination.do(cmd.Decide(TXN, True))
    again = destination.crash()
    out = again.send(again.producer(), [1, 1], first=1)
    assert refusals(out) == []
    assert again.core.block_index.messages == 2


# ---- topics --------------------------------------------------------------------------------------------------------


def test_a_topic_delivers_to_who_is_there_at_the_commit() -> None:
    destination = DrivenDestination("topic")
    producer = destination.producer()
    before = destination.subscriber()
    destination.send(producer, [1], txn=TXN, properties=[{"n": 1}])
    after = destination.subscriber(selector="n = 1")
    other = destination.subscriber(selector="n = 2")
    destination.do(cmd.DetachConsumer(before))
    out = destination.do(cmd.Decide(TXN, True))
    assert handed(out) == [(1, 0, 1)]
    assert handed(out, after) == [(1, 0, 1)]
    assert handed(out, other) == []


def test_a_commit_that_nobody_wants_leaves_nothing() -> None:
    for prepare in (False, True):
        destination = DrivenDestination("topic")
        destination.send(destination.producer(), [1], txn=TXN)
        if prepare:
            destination.do(cmd.Prepare(TXN))
        out = destination.do(cmd.Decide(TXN, True))
        assert [effect.ordinals for effect in of(out, Retire)] == [(1,)]
        assert destination.core.block_index.messages == 0


def test_a_subscription_that_ends_takes_its_part_along() -> None:
    destination = DrivenDestination("topic")
    producer = destination.producer()
    plain = destination.subscriber()
    durable = destination.subscriber(client_id="c", name="d", durable=True)
    destination.send(producer, [1])
    destination.do(cmd.StageAcks(TXN, plain, [(1, 1)]))
    destination.do(cmd.StageAcks(TXN, durable, [(1, 1)]))
    destination.do(cmd.DetachConsumer(plain))
    assert destination.core.staged[TXN].acknowledged == 1
    destination.do(cmd.Decide(TXN, False))
    assert handed(destination.ack(durable, 1)) == []
    destination.ack(durable, 2)
    assert destination.core.block_index.messages == 0


def test_a_subscriber_with_a_selector_gets_its_share_of_what_was_prepared_before_a_restart() -> None:
    destination = DrivenDestination("topic")
    destination.do(cmd.DetachConsumer(destination.subscriber(client_id="c", name="d", durable=True)))
    destination.send(destination.producer(), [1, 1], txn=TXN, properties=[{"n": 1}, {"n": 2}])
    destination.do(cmd.Prepare(TXN))
    again = destination.crash()
    red = again.consumer(subscription=Subscription(selector="n = 2"))
    out = again.do(cmd.Decide(TXN, True))
    assert first_indexes(out, red) == [(1, 1)]
