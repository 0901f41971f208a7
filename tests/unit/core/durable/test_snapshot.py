"""A snapshot has everything durable of a destination in few records, and nothing that is not."""

from __future__ import annotations

import pytest

from raybroker.core.admission.admission import Admission
from raybroker.core.counters import Counters
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import records
from raybroker.core.durable.snapshot import HEAD, TAKEN, section, sections, snapshot
from raybroker.core.staged_transaction import StagedBlock, StagedTransaction
from raybroker.core.subscription import Subscription
from tests.unit.core.parts import NOW, Parts

Row, Span = records.RecordRow, records.Span


class Saved:
    """A destination of one delivery queue, whose blocks the store has."""

    def __init__(self, subscription: Subscription | None = None) -> None:
        self.parts = Parts(subscription)
        self.current = self.parts.step
        self.block_index = self.parts.index
        self.queue = self.parts.queue
        self.queues: dict[int, DeliveryQueue] = {1: self.queue}
        self.next_queue = 5
        self.staged: dict[int, StagedTransaction] = {}
        self.counters = Counters()
        self.admission = Admission(
            "d", self.parts.step, self.parts.policy, self.block_index, self.counters, self.parts.works, self.queues
        )

    def arrive(self, count: int, *, persistent: bool = True) -> int:
        return self.parts.arrive(count, persistent=persistent)

    def stage(self, txn: int, ordinal: int, *, prepared: bool) -> None:
        block = StagedBlock(ordinal, self.block_index.held[ordinal].everything, 70, 1, None, ("", ""), True)
        self.staged[txn] = StagedTransaction([block], prepared=prepared)

    def written(self) -> list[tuple[int, list[Span], list[Row]]]:
        """The records of delivery queues and transactions, without those that say nothing."""
        _, _, *rest = sections(snapshot(self), HEAD.size)
        found = [records.decode(data) for data in rest]
        return [(one.kind, one.spans, one.rows) for one in found if one.spans or one.rows]


def test_sections_come_back_as_they_were() -> None:
    pieces = [b"", b"one", b"\0" * 300]
    assert list(sections(b"head" + b"".join(map(section, pieces)), 4)) == pieces


def test_numbers_go_on_where_they_were() -> None:
    destination = Saved()
    destination.arrive(1)
    assert HEAD.unpack_from(snapshot(destination)) == (2, 5, 0)


def test_sequence_numbers_and_deduplication_ids_are_kept() -> None:
    destination = Saved()
    for first, end in ((1, 4), (6, 9)):
        destination.admission.producers.take_sequences(70, first, end)
    destination.admission.duplicates.take_ids([("a", NOW)], 10, persistent=True)
    destination.admission.duplicates.take_ids([("v", NOW)], 10, persistent=False)
    taken, ids, *_ = sections(snapshot(destination), HEAD.size)
    assert list(TAKEN.iter_unpack(taken)) == [(70, 1, 4), (70, 6, 9)]
    assert records.decode_dedup(ids) == [("a", NOW)]


def test_a_queue_has_what_is_stored_and_says_what_of_it_is_settled() -> None:
    destination = Saved()
    for persistent in (True, True, False, True):
        destination.arrive(2, persistent=persistent)
    destination.block_index.settle_messages(2, 0b01)
    assert destination.written() == [(records.LIVE, [Span(1, 2), Span(4, 4)], []), (records.ACKED, [], [Row(2, 0b01)])]


def test_a_durable_subscription_is_kept_with_what_it_is_owed_and_another_is_not() -> None:
    one = Subscription(name="s", durable=True)
    destination = Saved(one)
    destination.arrive(2)
    _, _, first, *_ = sections(snapshot(destination), HEAD.size)
    assert (records.kind_of(first), Subscription.decode(records.decode(first).rest)) == (records.QUEUE, one)
    assert destination.written() == [(records.LIVE, [Span(1, 1)], []), (records.OWED, [], [Row(1, 0b11)])]
    destination = Saved(Subscription(name="s"))
    destination.arrive(2)
    assert destination.written() == []


@pytest.mark.parametrize(
    ("attempts", "spans"),
    [
        ((1, 1, 1), [Span(1, 3, 1)]),
        ((1, 2, 2), [Span(1, 1, 1), Span(2, 3, 2)]),
        ((1, 0, 1), [Span(1, 1, 1), Span(3, 3, 1)]),
    ],
)
def test_whole_blocks_that_were_handed_out_alike_are_one_span(attempts: tuple[int, ...], spans: list[Span]) -> None:
    destination = Saved()
    for ordinal, count in enumerate(attempts, 1):
        destination.parts.block(1)
        destination.queue.put_back(Run(ordinal, ordinal, 0b1, count, 0, 4))
    assert [row for row in destination.written() if row[0] == records.DISPATCHED] == [(records.DISPATCHED, spans, [])]


def test_part_of_a_block_is_a_row_and_failures_have_the_time_until_they_rest() -> None:
    destination = Saved()
    destination.parts.block(3)
    destination.queue.put_back(Run(1, 1, 0b001, 2, 1, 4))
    destination.queue.rest(NOW + 50, Run(1, 1, 0b010, 3, 2, 4))
    destination.queue.rest(NOW + 90, Run(1, 1, 0b100, 0, 0, 4))
    destination.parts.block(1, persistent=False)
    destination.queue.rest(NOW + 90, Run(2, 2, 0b1, 1, 1, 4))
    destination.parts.block(1)
    destination.queue.put_back(Run(3, 3, 0b1, 1, 1, 4))
    live, tried, failed = destination.written()
    assert live == (records.LIVE, [Span(1, 1), Span(3, 3)], [])
    assert tried == (records.DISPATCHED, [Span(3, 3, 1)], [Row(1, 0b001, 2), Row(1, 0b010, 3)])
    assert failed[:2] == (records.FAILED, [])
    assert sorted(failed[2]) == [Row(1, 0b001, 1), Row(1, 0b010, 2, 0), Row(1, 0b010, 2, NOW + 50), Row(3, 0b1, 1)]


def test_dead_letters_are_kept_as_they_were_and_what_was_told_of_them_unless_they_are_here() -> None:
    destination = Saved(Subscription(name="s", durable=True))
    destination.parts.block(2)
    destination.queue.dead_letters.add(Run(1, 1, 0b01, 1, records.REJECTED, 4))
    destination.block_index.held[1].told_dead = 0b11
    written = destination.written()
    assert (records.DISPATCHED, [], [Row(1, 0b01, 1)]) in written
    assert (records.FAILED, [], [Row(1, 0b01, records.REJECTED)]) in written
    assert (records.BURIED, [], [Row(1, 0b10)]) in written


def test_a_block_that_waits_for_a_transaction_is_not_owed_and_says_whether_that_is_prepared() -> None:
    destination = Saved()
    destination.arrive(1)
    for txn, prepared in ((5, True), (6, False)):
        ordinal = destination.parts.block(2)
        destination.block_index.settle_messages(ordinal, 0b10)
        destination.stage(txn, ordinal, prepared=prepared)
    assert destination.written() == [
        (records.LIVE, [Span(1, 1)], []),
        (records.WAITING, [Span(3, 3)], []),
        (records.WAITING, [Span(2, 2)], []),
        (records.REFUSED, [], [Row(2, 0b10)]),
    ]
    numbers = [records.decode(data) for data in list(sections(snapshot(destination), HEAD.size))[2:]]
    assert [records.decode_number(one.rest) for one in numbers if one.kind == records.WAITING] == [0, 5]


def test_an_acknowledgement_in_a_prepared_transaction_is_kept_as_handed_out() -> None:
    destination = Saved()
    one = destination.parts.consumer()
    destination.arrive(2)
    destination.queue.dispatch()
    destination.staged[5] = StagedTransaction([], [(1, item) for item in one.settle_tags(1, 1)], prepared=True)
    written = destination.written()
    assert (records.STAGED, [], [Row(1, 0b01, 1)]) in written
    assert (records.DISPATCHED, [], [Row(1, 0b01, 1), Row(1, 0b10, 1)]) in written
    destination.staged[5].prepared = False
    assert [kind for kind, _, _ in destination.written()] == [records.LIVE, records.DISPATCHED]
