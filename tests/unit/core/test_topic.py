"""Topics: who gets a copy, how long a subscription lives, and who may use it (D-02, B-08, D-27)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.durable import records
from raybroker.core.outcome import Idle, Retire, SendAnswered
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.model.blocks.record import BLOCK
from raybroker.model.errors import IllegalStateError, InvalidDestinationError, InvalidSelectorError
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

DURABLE = {"client_id": "c", "name": "d", "durable": True}
SHARED = {"client_id": "c", "name": "s", "shared": True}


def topic(**attributes: Any) -> tuple[DrivenDestination, int]:
    """A topic and its producer."""
    destination = DrivenDestination("topic", **attributes)
    return destination, destination.producer()


def subscriptions(destination: DrivenDestination) -> list[str]:
    return [queue.subscription.name for queue in destination.core.queues.values() if queue.subscription is not None]


def blocks(destination: DrivenDestination) -> int:
    return sum(entry.kind == BLOCK for entry in destination.log)


# ---- fan-out -------------------------------------------------------------------------------------------------------


def test_everybody_gets_a_copy_and_the_message_is_kept_once() -> None:  # D-02
    destination, producer = topic()
    consumers = [destination.subscriber() for _ in range(3)]
    out = destination.send(producer, [5])
    assert [handed(out, number) for number in consumers] == [[(1, 0, 1)]] * 3
    assert (destination.core.block_index.messages, destination.core.block_index.bytes_held) == (1, 5)
    destination.ack(consumers[1], 1)
    destination.ack(consumers[0], 1)
    assert destination.core.block_index.messages == 1
    out = destination.ack(consumers[2], 1)
    assert [effect.ordinals for effect in of(out, Retire)] == [(1,)]
    assert destination.core.block_index.messages == 0


def test_without_subscribers_a_message_is_dropped_and_confirmed() -> None:  # D-02
    destination, producer = topic()
    out = destination.send(producer, [1, 1])
    assert out.accepted is None
    assert [sent.refused for sent in of(out, SendAnswered)] == [()]
    assert destination.core.block_index.messages == 0
    assert destination.core.block_index.next_ordinal == 1


def test_a_subscriber_gets_what_is_published_after_it_came() -> None:  # D-02
    destination, producer = topic()
    first = destination.subscriber()
    destination.send(producer, [1])
    second = destination.subscriber()
    out = destination.send(producer, [1])
    assert (handed(out, first), handed(out, second)) == ([(2, 0, 1)], [(2, 0, 1)])


def test_a_selector_of_a_subscription_decides_at_publishing() -> None:  # B-22
    destination, producer = topic()
    red = destination.subscriber(selector="color = 'red'")
    every = destination.subscriber()
    out = destination.send(producer, [1] * 3, properties=[{"color": "red"}, {}, {"color": "blue"}])
    assert [row[1] for row in handed(out, red)] == [0]
    assert [row[1] for row in handed(out, every)] == [0, 1, 2]
    destination.ack(every, 1, 3)
    assert destination.core.block_index.messages == 1
    destination.do(cmd.DetachConsumer(every))
    out = destination.send(producer, [1] * 2, properties=[{"color": "blue"}, {}])
    assert out.accepted is None, "nobody wants any of these"


def test_no_local_keeps_a_connections_own_messages_away() -> None:  # D-27
    destination, producer = topic()
    plain = destination.subscriber(no_local=True, origin="conn-1")
    durable = destination.subscriber(**DURABLE, no_local=True, origin="c")
    out = destination.send(producer, [1], origin=("conn-1", "c"))
    assert handed(out) == []
    out = destination.send(producer, [1], origin=("conn-2", "c"))
    assert (handed(out, plain), handed(out, durable)) == ([(1, 0, 1)], [])
    out = destination.send(producer, [1], origin=("conn-3", "other"))
    assert (handed(out, plain), handed(out, durable)) == ([(2, 0, 1)], [(2, 0, 1)])


def test_redelivery_is_counted_for_each_subscription() -> None:  # W-72
    destination, producer = topic(redeliveryLimit=1)
    one, other = destination.subscriber(), destination.subscriber()
    destination.send(producer, [1])
    destination.settle(one, "fail")
    out = destination.settle(one, "fail", tag=2)
    assert burials(out) == [("UNDELIVERABLE", 1, 1)]
    assert handed(destination.settle(other, "fail")) == [(1, 0, 2)]
    assert burials(destination.settle(other, "fail", tag=2)) == [("UNDELIVERABLE", 1, 1)], "told once for each"


def test_an_expired_message_dies_once() -> None:  # W-72, B-08
    destination, producer = topic()
    destination.core.expiry.scan_ms = 100
    for name in "abc":
        destination.do(cmd.DetachConsumer(destination.subscriber(client_id="c", name=name, durable=True)))
    destination.send(producer, [1], columns=columns(1, ttl=10))
    out = destination.tick(100)
    assert burials(out) == [("EXPIRED", 1, 1)]
    assert destination.core.block_index.messages == 1
    destination.do(cmd.SettleDeadLetters(out.immediate[0].queue, 1, 1))
    assert destination.core.block_index.messages == 0


def test_discarding_takes_a_message_from_everybody() -> None:  # D-11
    destination, producer = topic(maxNumMsgs=1, limitBehavior="REMOVE_OLDEST")
    for name in "ab":
        destination.do(cmd.DetachConsumer(destination.subscriber(client_id="c", name=name, durable=True)))
    destination.send(producer, [1])
    out = destination.send(producer, [1])
    assert burials(out) == [("OLDEST", 1, 1)]
    assert [queue.plain.backlog.count for queue in destination.core.queues.values()] == [1, 1]


# ---- what lives how long -------------------------------------------------------------------------------------------


def test_a_plain_subscription_ends_with_its_consumer() -> None:
    destination, producer = topic()
    consumer = destination.subscriber()
    destination.send(producer, [1, 1])
    destination.do(cmd.DetachConsumer(consumer))
    assert not destination.core.queues
    assert destination.core.block_index.messages == 0


def test_a_shared_subscription_ends_with_its_last_consumer() -> None:  # D-27
    destination, producer = topic()
    consumers = [destination.subscriber(1, "prefetch", **SHARED) for _ in range(2)]
    out = destination.send(producer, [1] * 3)
    assert [len(handed(out, number)) for number in consumers] == [1, 1], "each message goes to one of them"
    out = destination.do(cmd.DetachConsumer(consumers[0]))
    assert subscriptions(destination) == ["s"]
    assert handed(destination.ack(consumers[1], 1), consumers[1]) == [(1, 0, 2)]
    destination.do(cmd.DetachConsumer(consumers[1]))
    assert subscriptions(destination) == []
    assert destination.core.block_index.messages == 0


def test_a_durable_subscription_keeps_messages_while_nobody_is_there() -> None:  # B-08
    destination, producer = topic()
    consumer = destination.subscriber(**DURABLE)
    destination.send(producer, [1])
    destination.do(cmd.DetachConsumer(consumer))
    destination.send(producer, [1])
    _, out = destination.open(subscription=Subscription(**DURABLE))
    assert handed(out) == [(1, 0, 2), (2, 0, 1)]


def test_only_what_a_durable_subscription_wants_is_stored() -> None:
    destination, producer = topic()
    plain = destination.subscriber()
    destination.send(producer, [1])
    assert blocks(destination) == 0
    destination.subscriber(**DURABLE, selector="n = 1")
    destination.send(producer, [1, 1], properties=[{"n": 1}, {"n": 2}])
    assert blocks(destination) == 1
    destination.send(producer, [1], properties=[{"n": 2}])
    assert blocks(destination) == 1
    destination.send(producer, [1], properties=[{"n": 1}], persistent=False)
    assert blocks(destination) == 1
    assert plain in destination.core.queue_of


def test_a_volatile_taker_of_a_stored_block_keeps_it_in_memory_only() -> None:
    destination, producer = topic()
    plain = destination.subscriber()
    durable = destination.subscriber(**DURABLE)
    destination.send(producer, [1])
    destination.ack(durable, 1)
    assert destination.core.block_index.messages == 1
    assert destination.crash().core.block_index.messages == 0
    out = destination.ack(plain, 1)
    assert [effect.persistent for effect in of(out, Retire)] == [True]


def test_after_a_restart_durable_subscriptions_are_there_with_what_they_are_owed() -> None:  # B-08, B-20
    for checkpoint in (False, True):
        destination, producer = topic()
        one = destination.subscriber(**DURABLE)
        other = destination.subscriber(client_id="c", name="e", durable=True, selector="n > 1")
        destination.subscriber()
        destination.subscriber(**SHARED)
        destination.send(producer, [1] * 3, properties=[{"n": n} for n in range(3)])
        destination.ack(one, 2)
        again = destination.crash(checkpoint=checkpoint)
        assert subscriptions(again) == ["d", "e"]
        _, out = again.open(subscription=Subscription(**DURABLE))
        assert handed(out) == [(1, 0, 2), (1, 2, 2)]
        _, out = again.open(subscription=Subscription("c", "e", True, selector="n > 1"))
        assert handed(out) == [(1, 2, 2)]
        assert other in destination.core.queue_of


def test_numbers_of_queues_are_never_used_again() -> None:
    destination, _ = topic()
    for checkpoint in (False, True):
        destination.do(cmd.DetachConsumer(destination.subscriber(**DURABLE)))
        (number,) = destination.core.queues
        destination.do(cmd.Unsubscribe("c", "d"))
        destination = destination.crash(checkpoint=checkpoint)
        destination.do(cmd.DetachConsumer(destination.subscriber(**DURABLE)))
        assert list(destination.core.queues) != [number]
        destination.do(cmd.Unsubscribe("c", "d"))


# ---- who may use it ------------------------------------------------------------------------------------------------


def test_a_second_consumer_of_an_unshared_subscription_is_refused() -> None:  # D-27
    destination, _ = topic()
    destination.subscriber(**DURABLE)
    with pytest.raises(IllegalStateError, match="has a consumer already"):
        destination.subscriber(**DURABLE)
    assert len(destination.core.queue_of) == 1


def test_the_same_name_of_another_client_is_another_subscription() -> None:
    destination, _ = topic()
    destination.subscriber(**DURABLE)
    destination.subscriber(**DURABLE | {"client_id": "other"})
    assert subscriptions(destination) == ["d", "d"]


@pytest.mark.parametrize("change", [{"selector": "n = 1"}, {"no_local": True, "origin": "c"}])
def test_other_options_make_the_subscription_anew(change: dict[str, Any]) -> None:  # D-27
    destination, producer = topic()
    consumer = destination.subscriber(**DURABLE)
    with pytest.raises(IllegalStateError):
        destination.subscriber(**DURABLE | change)
    destination.do(cmd.DetachConsumer(consumer))
    destination.send(producer, [1])
    _, out = destination.open(subscription=Subscription(**DURABLE | change))
    assert handed(out) == [], "what the old one was owed is gone"
    assert destination.core.block_index.messages == 0
    kinds = [records.kind_of(entry.meta) for entry in out.records]
    assert kinds[0] == records.QUEUE_GONE


def test_a_shared_durable_subscription_does_not_take_the_place_of_an_unshared_one() -> None:
    destination, producer = topic()
    consumer = destination.subscriber(**DURABLE)
    destination.send(producer)
    destination.do(cmd.DetachConsumer(consumer))
    with pytest.raises(IllegalStateError, match="exists as an unshared durable subscription"):
        destination.open(subscription=Subscription(**DURABLE | {"shared": True}))
    assert destination.core.block_index.messages == 1


def test_a_durable_and_a_shared_subscription_of_one_name_have_nothing_in_common() -> None:
    destination, _ = topic()
    destination.subscriber(**DURABLE)
    destination.subscriber(**DURABLE | {"durable": False, "shared": True})
    assert len(destination.core.queues) == 2


def test_a_bad_selector_changes_nothing() -> None:
    destination, producer = topic()
    destination.do(cmd.DetachConsumer(destination.subscriber(**DURABLE)))
    destination.send(producer, [1])
    with pytest.raises(InvalidSelectorError):
        destination.subscriber(**DURABLE, selector="n = ")
    assert destination.core.block_index.messages == 1


def test_unsubscribing_deletes_and_is_refused_while_it_is_in_use() -> None:  # D-27
    destination, producer = topic()
    consumer = destination.subscriber(**DURABLE)
    destination.send(producer, [1])
    with pytest.raises(IllegalStateError, match="has a consumer"):
        destination.do(cmd.Unsubscribe("c", "d"))
    destination.do(cmd.DetachConsumer(consumer))
    out = destination.do(cmd.Unsubscribe("c", "d"))
    assert [effect.ordinals for effect in of(out, Retire)] == [(1,)]
    assert destination.core.block_index.messages == 0
    with pytest.raises(InvalidDestinationError, match="no subscription 'd'"):
        destination.do(cmd.Unsubscribe("c", "d"))
    assert destination.crash().core.queues == {}


def test_a_subscription_in_a_transaction_cannot_be_unsubscribed() -> None:
    destination, producer = topic()
    consumer = destination.subscriber(**DURABLE)
    destination.send(producer, [1])
    destination.do(cmd.StageAcks(5, consumer, [(1, 1)]))
    destination.do(cmd.DetachConsumer(consumer))
    with pytest.raises(IllegalStateError, match="transaction"):
        destination.do(cmd.Unsubscribe("c", "d"))
    destination.do(cmd.Decide(5, False))
    destination.do(cmd.Unsubscribe("c", "d"))
    assert destination.core.block_index.messages == 0


def test_a_topic_takes_subscribers_only_and_a_queue_none() -> None:
    destination, _ = topic()
    with pytest.raises(InvalidDestinationError, match="is a topic"):
        destination.consumer()
    queue = DrivenDestination()
    with pytest.raises(InvalidDestinationError, match="no subscriptions"):
        queue.consumer(subscription=Subscription())
    with pytest.raises(IllegalStateError, match="no subscriptions"):
        queue.do(cmd.Unsubscribe("c", "d"))


# ---- administration ------------------------------------------------------------------------------------------------


def test_one_subscription_can_be_purged() -> None:
    destination, producer = topic()
    queues = []
    for name in "ab":
        destination.do(cmd.DetachConsumer(destination.subscriber(client_id="c", name=name, durable=True)))
    queues = list(destination.core.queues)
    destination.send(producer, [1, 1])
    destination.do(cmd.Purge(queues[0]))
    assert [queue.plain.backlog.count for queue in destination.core.queues.values()] == [0, 2]
    destination.do(cmd.Purge())
    assert destination.core.block_index.messages == 0


def test_a_durable_subscription_keeps_an_auto_created_topic() -> None:  # D-22
    destination = DrivenDestination("topic", reap_ms=1000)
    destination.do(cmd.DetachConsumer(destination.subscriber(**DURABLE)))
    assert of(destination.tick(5000), Idle) == []
    destination.do(cmd.Unsubscribe("c", "d"))
    assert of(destination.tick(1000), Idle) == [Idle()]


def test_the_kind_is_a_topic() -> None:
    destination, _ = topic()
    assert isinstance(destination.core, Topic)
    assert destination.core.has_durable_queues() is False


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("sapd"), st.integers(0, 2), st.integers(0, 3)), max_size=40))
def test_every_subscription_gets_everything_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    destination, producer = topic()
    wants = (None, "n > 1", "n = 0")
    open_now: dict[int, tuple[int, int]] = {}
    owed: dict[int, list[tuple[int, int]]] = {}
    for verb, which, n in steps:
        if verb == "s":
            out = destination.send(producer, [1, 1], properties=[{"n": n}, {"n": which}])
            if out.accepted is None:
                continue
            for queue in owed:
                match = (lambda v: True, lambda v: v > 1, lambda v: v == 0)[queue]
                owed[queue] += [(out.accepted, i) for i, v in enumerate((n, which)) if match(v)]
        elif verb == "a" and which not in open_now:
            number, out = destination.open(subscription=Subscription("c", str(which), True, False, wants[which]))
            open_now[which] = number, 1
            owed.setdefault(which, [])
        elif verb == "p" and which in open_now:
            destination.do(cmd.DetachConsumer(open_now.pop(which)[0]))
            continue
        elif verb == "d" and which in open_now and owed[which]:
            number = open_now[which][0]
            item = destination.core.queue_of[number].consumers.by_attachment[number].unsettled[0]
            assert acked(destination.ack(number, item.tag)) == [0]
            owed[which].pop(0)
            continue
        else:
            continue
        for queue, (number, _) in open_now.items():
            assert [row for row in first_indexes(out, number) if row not in owed[queue]] == []
    for queue, rows in owed.items():
        if queue not in open_now:
            _, out = destination.open(subscription=Subscription("c", str(queue), True, False, wants[queue]))
            assert first_indexes(out) == rows


def test_a_message_counts_for_the_limit_until_it_is_dead_for_everybody() -> None:  # D-06
    destination, producer = topic(maxNumMsgs=1, redeliveryLimit=0)
    one, other = destination.subscriber(), destination.subscriber()
    destination.send(producer, [1])
    destination.settle(one, "fail")
    assert [row.code for row in refusals(destination.send(producer, [1]))] == ["quota_exceeded"], (
        "the other one has it still"
    )
    destination.settle(other, "fail")
    out = destination.send(producer, [1, 1])
    assert [(row.start, row.code) for row in refusals(out)] == [(1, "quota_exceeded")]
