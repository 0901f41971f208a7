"""Taking a block: what is written, held and owed, and what a producer is told, by a destination of two lists."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.admission import intake
from raybroker.core.admission.admission import DUPLICATE, Admission
from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.counters import Counters
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.durable import records
from raybroker.core.outcome import DeadLetter, Gate, Outcome, Refused, Retire, SendAnswered
from raybroker.core.selector.content import Content
from raybroker.core.settlement import Settlement
from raybroker.core.staged_transaction import StagedTransaction
from raybroker.core.subscription import Subscription
from raybroker.model.blocks.record import BLOCK
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.naming.names import DestinationType
from tests.unit.core.parts import Parts

PRODUCER, ATTACHMENT = 70, 7
SENT = SendAnswered(ATTACHMENT, 1, 2, ())
NOTHING = Outcome()


class Taken:
    """A queue, or a topic whose subscriptions want the messages that ``wants`` says."""

    kind: DestinationType = "queue"
    name = "d"

    def __init__(self, subscriptions: dict[int, Subscription] | None = None, **attributes: Any) -> None:
        self.parts = Parts(**attributes)
        self.current = self.parts.step
        self.policy = self.parts.policy
        self.block_index = self.parts.index
        self.counters = Counters()
        self.queues: dict[int, DeliveryQueue] = {1: self.parts.queue}
        if subscriptions is not None:
            self.kind = "topic"
            self.queues = {n: self._subscription(n, one) for n, one in subscriptions.items()}
        self.staged: dict[int, StagedTransaction] = {}
        self.admission = Admission(
            "d", self.current, self.policy, self.block_index, self.counters, self.parts.works, self.queues
        )
        self.admission.producers.attach(ATTACHMENT, PRODUCER)
        self.settlement = Settlement(self.current, self.block_index, self.counters, self._clear)
        self.wants: dict[int, int] | None = None
        self.withheld = 0

    def _subscription(self, number: int, one: Subscription) -> DeliveryQueue:
        return DeliveryQueue(number, self.current, self.policy, self.block_index, self.parts.works, one)

    def _clear(self, queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        if queue.owes is None:
            return mask, self.block_index.held[ordinal].left == mask.bit_count()
        queue.owes[ordinal] &= ~mask
        for other in self.queues.values():
            mask &= ~other.owed(ordinal)
        return mask, not queue.owes[ordinal]

    def claims(self, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        found = {number: mask & (-1 if self.wants is None else self.wants.get(number, 0)) for number in self.queues}
        return {number: chosen for number, chosen in found.items() if chosen}

    def owing(self, block: BlockEntry, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        return self.claims(mask & ~(block.parts and self.withheld), content, origin)

    def arrived(self, ordinal: int, fresh: dict[int, int], content: Content | None) -> None:
        for number, mask in fresh.items():
            self.queues[number].arrive(ordinal, mask, content)

    def send(self, *sizes: int, first: int = 1, persistent: bool = True, **more: Any) -> Outcome:
        out = self.current.begin(self.current.now_ms)
        attachment = more.pop("attachment", ATTACHMENT)
        intake.send(self, cmd.Send(attachment, PRODUCER, first, sizes or (4, 4), persistent, 1, **more), out)
        return out

    def waiting(self, number: int = 1) -> list[tuple[int, int]]:
        return [(run.ordinal, run.mask) for run in self.queues[number].pending.runs()]


def durable(name: str) -> Subscription:
    return Subscription(name=name, durable=True)


def written(out: Outcome) -> list[int | str]:
    return ["block" if entry.kind == BLOCK else records.kind_of(entry.meta) for entry in out.records]


def test_a_persistent_block_is_written_and_told_when_it_is_durable_and_waits() -> None:
    destination = Taken()
    out = destination.send(4, 6)
    (entry,) = out.records
    assert (entry.kind, entry.destination, entry.ordinal, out.accepted) == (BLOCK, 1, 1, 1)
    meta = records.decode_block_meta(entry.meta)
    assert (meta.messages, meta.producer, meta.first_seq, list(array("I", meta.sizes))) == (2, PRODUCER, 1, [4, 6])  # type: ignore[arg-type]
    assert (meta.txn, meta.claims) == (0, None)
    assert (out.after_durable, out.immediate) == ([SENT], [])
    assert destination.waiting() == [(1, 0b11)]
    assert (destination.counters.messages_in, destination.counters.bytes_in) == (2, 10)
    assert (destination.block_index.held[1].stored, destination.block_index.held[1].claims) == (True, 1)


@pytest.mark.parametrize(
    ("attributes", "more", "immediate", "later"),
    [
        ({}, {"persistent": False}, [], []),
        ({}, {"persistent": False, "confirm": True}, [], [SENT]),
        ({}, {"confirm": False}, [], []),
        ({"limitBehavior": "FLOW_CONTROL", "maxNumMsgs": 50}, {"persistent": False}, [SENT], []),
        ({"limitBehavior": "FLOW_CONTROL", "maxNumMsgs": 50}, {"persistent": False, "attachment": 0}, [], []),
        ({}, {"txn": 5}, [], []),
    ],
)
def test_only_who_waits_or_gets_credit_back_is_told(
    attributes: dict[str, Any], more: dict[str, Any], immediate: list[SendAnswered], later: list[SendAnswered]
) -> None:
    out = Taken(**attributes).send(**more)
    assert (out.immediate, out.after_durable) == (immediate, later)


def test_what_is_not_persistent_is_held_and_not_written() -> None:
    destination = Taken()
    out = destination.send(persistent=False)
    assert (out.records, destination.waiting(), destination.block_index.held[1].stored) == ([], [(1, 0b11)], False)
    assert not destination.admission.producers.taken[PRODUCER]


def test_what_exceeds_a_limit_is_refused_and_the_rest_is_taken_and_written_so() -> None:
    destination = Taken(maxNumMsgs=2)
    out = destination.send(4, 4, 4)
    (sent,) = out.after_durable
    assert isinstance(sent, SendAnswered)
    assert [(row.start, row.end, row.code) for row in sent.refused] == [(2, 3, "quota_exceeded")]
    assert written(out) == [records.REFUSED, "block"]
    assert records.decode(out.records[0].meta).rows == [records.RecordRow(1, 0b100)]
    assert (destination.waiting(), destination.block_index.messages, destination.block_index.peak_messages) == (
        [(1, 0b11)],
        2,
        2,
    )
    assert destination.admission.producers.taken == {PRODUCER: [(1, 3)]}
    assert (destination.counters.refused, destination.counters.messages_in) == (1, 2)


def test_refusals_are_told_in_order_at_once_to_whom_nobody_waits_for() -> None:
    destination = Taken(maxBytesPerMsg=5, maxNumMsgs=1)
    out = destination.send(4, 9, 4, persistent=False)
    (sent,) = out.immediate
    assert isinstance(sent, SendAnswered)
    assert [row.start for row in sent.refused] == [1, 2]
    assert out.after_durable == []


def test_refusals_for_different_reasons_are_told_in_order() -> None:
    destination = Taken(duplicateWindowMs=1_000, maxNumMsgs=2)
    destination.send(4, dedup_ids=["a"])
    (sent,) = destination.send(4, 4, 4, first=2, dedup_ids=["b", "c", "a"]).after_durable
    assert isinstance(sent, SendAnswered)
    assert [(row.start, row.code) for row in sent.refused] == [(1, "quota_exceeded"), (2, DUPLICATE)]


def test_exactly_the_sequence_numbers_of_what_is_taken_are_and_none_of_what_the_host_sends() -> None:
    destination = Taken(maxBytesPerMsg=5)
    destination.send(9, 4, 9, 4, first=5)
    assert destination.admission.producers.taken == {PRODUCER: [(6, 7), (8, 9)]}
    destination = Taken()
    destination.send(attachment=0)
    assert (destination.admission.producers.taken[PRODUCER], destination.waiting()) == ([], [(1, 0b11)])


def test_messages_wait_where_they_are_owed_with_the_parts_of_units_of_work_left_out() -> None:
    destination = Taken(unitOfWorkHandlingPolicy="SingleMessageDelivery")
    destination.withheld = 0b01
    destination.send()
    destination.send(first=3, columns=Columns(works=records.PartColumn(0, (records.PartKey("u", 1, False), None))))
    assert destination.waiting() == [(1, 0b11), (2, 0b10)]


def test_a_duplicate_is_told_and_is_no_refusal_and_only_stored_ids_are_written() -> None:
    destination = Taken(duplicateWindowMs=1_000)
    assert written(destination.send(dedup_ids=["a", None])) == [records.DEDUP, "block"]
    out = destination.send(first=3, dedup_ids=["a", "b"], persistent=False)
    assert out.records == []
    assert out.immediate == [SendAnswered(ATTACHMENT, 3, 2, (Refused(0, 1, DUPLICATE, "a"),))]
    assert (destination.counters.refused, destination.counters.duplicates, destination.waiting()[-1]) == (
        0,
        1,
        (2, 0b10),
    )


def test_the_same_block_again_is_told_and_changes_nothing() -> None:
    destination = Taken()
    destination.send()
    out = destination.send()
    assert (out.after_durable, out.records, out.accepted) == ([SENT], [], None)
    assert (destination.block_index.messages, destination.counters.messages_in) == (2, 2)


def test_who_has_left_is_not_heard_and_loses_its_transaction() -> None:
    destination = Taken()
    destination.admission.producers.detach(ATTACHMENT, forget=False)
    assert destination.send() == NOTHING
    (lost,) = destination.send(txn=5).immediate
    assert isinstance(lost, SendAnswered)
    assert [(row.start, row.end, row.code) for row in lost.refused] == [(0, 2, "transaction_rolled_back")]
    assert (destination.block_index.messages, destination.staged) == (0, {})


def test_a_block_of_a_transaction_is_charged_and_neither_seen_nor_counted_nor_written() -> None:
    destination = Taken(maxNumMsgs=1)
    out = destination.send(txn=5, dedup_ids=["a", "b"], moved=True)
    assert (out.records, out.after_durable, destination.waiting(), destination.counters.moved_in) == ([], [], [], 0)
    (told,) = out.immediate
    assert isinstance(told, SendAnswered)
    assert [row.start for row in told.refused] == [1], "what is refused is told before the transaction ends"
    (staged,) = destination.staged[5].blocks
    assert (staged.ordinal, staged.mask, staged.attachment, staged.ids, staged.moved) == (
        out.accepted,
        0b01,
        ATTACHMENT,
        ["a", "b"],
        True,
    )
    assert (destination.block_index.messages, destination.block_index.peak_messages) == (1, 1)
    assert destination.block_index.held[1].transacted


def test_what_was_moved_here_counts_apart() -> None:
    destination = Taken()
    destination.send(moved=True)
    assert (destination.counters.moved_in, destination.counters.messages_in) == (2, 0)


def test_a_unit_of_order_keeps_the_place_of_what_a_transaction_sends() -> None:
    destination = Taken()
    destination.send(txn=5, columns=Columns(units=("a", "b")))
    destination.send(first=3, columns=Columns(units=("a", None)))
    destination.parts.consumer()
    destination.parts.queue.settle_units()
    destination.parts.queue.dispatch()
    assert destination.waiting() == [(2, 0b01)], "its unit's first message is not visible yet"


def test_a_topic_holds_what_somebody_is_owed_and_writes_what_durable_subscriptions_are() -> None:
    destination = Taken({1: durable("a"), 2: durable("b"), 3: Subscription(name="c")})
    destination.wants = {1: 0b011, 2: 0b111, 3: 0b001}
    out = destination.send(4, 4, 4)
    assert records.decode_block_meta(out.records[0].meta).claims == {1: 0b011, 2: None}
    assert [destination.waiting(number) for number in (1, 2, 3)] == [[(1, 0b011)], [(1, 0b111)], [(1, 0b001)]]
    assert destination.block_index.held[1].claims == 3


def test_a_topic_settles_what_nobody_wants_and_does_not_call_it_refused() -> None:
    destination = Taken({1: durable("a")})
    destination.wants = {1: 0b01}
    out = destination.send()
    assert written(out) == ["block"]
    assert (destination.block_index.messages, destination.block_index.peak_messages) == (1, 1)
    assert destination.counters.messages_in == 2


def test_what_no_durable_subscription_wants_is_written_down_with_the_next_block_that_one_does() -> None:
    destination = Taken({1: durable("a"), 2: Subscription(name="b")})
    destination.wants = {2: 0b11}
    assert destination.send().records == []
    destination.wants = {}
    assert (destination.send(first=3).accepted, destination.block_index.messages) == (None, 2)
    assert destination.admission.producers.unwritten == {PRODUCER: [(1, 5)]}
    destination.wants = None
    out = destination.send(first=5)
    assert written(out) == [records.TAKEN, "block"]
    taken = records.decode(out.records[0].meta)
    assert (taken.spans, records.decode_number(taken.rest)) == ([records.Span(1, 4)], PRODUCER)
    assert destination.admission.producers.unwritten == {}


def test_one_subscription_alone_gets_what_is_for_it_and_must_be_there() -> None:
    destination = Taken({1: durable("a"), 2: durable("b")})
    destination.wants = {}
    destination.send(only=2)
    assert (destination.waiting(1), destination.waiting(2)) == ([], [(1, 0b11)])
    with pytest.raises(InvalidDestinationError, match="topic d has no subscription 3"):
        destination.send(first=3, only=3)
    assert destination.counters.messages_in == 2


def test_a_composed_message_takes_the_place_of_its_parts_beyond_all_limits() -> None:
    destination = Taken(maxNumMsgs=2)
    destination.send()
    (run,) = destination.parts.queue.remove({1: 0b11})
    destination.parts.queue.dead_letters.add(run)
    send = cmd.Send(0, PRODUCER, 9, [100], True, 0)
    for parts in ([(1, 0b11), (1, 0b100)], [(2, 0b1)]):
        intake.composed(destination, cmd.Composed(1, parts, send), destination.current.begin(0))
        assert destination.current.out == NOTHING, "not all of its parts are here any more"
    intake.composed(destination, cmd.Composed(9, [], send), destination.current.begin(0))
    assert destination.current.out == NOTHING, "its delivery queue is gone"
    intake.composed(destination, cmd.Composed(1, [(1, 0b11)], send), destination.current.begin(0))
    assert (destination.waiting(), list(destination.block_index.held)) == ([(2, 0b1)], [2])
    assert destination.current.out.after_durable == [Retire((1,), True)]
    assert written(destination.current.out) == [records.ACKED, "block"]
    assert destination.counters.messages_in == 2, "its parts were counted"


@pytest.mark.parametrize(
    ("behavior", "reason", "left"),
    [
        ("REMOVE_OLDEST", "OLDEST", [(1, 0b10), (2, 0b1)]),
        ("REMOVE_LOW_PRIORITY", "LOW_PRIORITY", [(1, 0b01), (2, 0b1)]),
    ],
)
def test_the_excess_is_discarded_as_the_destination_says(
    behavior: str, reason: str, left: list[tuple[int, int]]
) -> None:
    destination = Taken(limitBehavior=behavior, maxNumMsgs=2)
    destination.send(columns=Columns(priorities=bytes((6, 5))))
    out = destination.send(4, first=3, columns=Columns(priority=5))
    (dead,) = out.immediate
    assert isinstance(dead, DeadLetter)
    assert (dead.reason, dead.comment, dead.mask.bit_count()) == (reason, f"limitBehavior {behavior}", 1)
    assert (sorted(destination.waiting()), destination.counters.removed) == (left, 1)


def test_what_is_discarded_leaves_every_subscription_and_dies_once() -> None:
    destination = Taken({1: durable("a"), 2: durable("b")}, limitBehavior="REMOVE_OLDEST", maxNumMsgs=1)
    destination.send()
    assert (destination.waiting(1), destination.waiting(2), destination.block_index.messages) == (
        [(1, 0b10)],
        [(1, 0b10)],
        2,
    )
    assert [type(effect) for effect in destination.current.out.immediate] == [DeadLetter]


def test_what_an_open_transaction_sends_pushes_nothing_out() -> None:
    destination = Taken(limitBehavior="REMOVE_OLDEST", maxNumMsgs=2)
    destination.send()
    out = destination.send(first=3, txn=5)
    assert (out.immediate, destination.waiting()) == ([], [(1, 0b11)])
    destination.staged.clear()
    intake.discard_excess(destination)
    assert destination.waiting() == []


def test_a_full_destination_slows_its_producers_down_only_under_flow_control() -> None:
    destination = Taken(limitBehavior="FLOW_CONTROL", maxNumMsgs=3)
    assert Gate(ATTACHMENT, "slow") not in destination.send().immediate
    assert Gate(ATTACHMENT, "slow") in destination.send(4, first=3).immediate
    destination = Taken(limitBehavior="REJECT_NEWEST", maxNumMsgs=2)
    assert destination.send().immediate == []
