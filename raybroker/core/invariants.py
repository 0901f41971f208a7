"""Invariants of a destination between two steps, as one check for tests and the simulator.

Every message that a delivery queue is owed is at exactly one place: it waits, rests, is hidden, is with a consumer, in
a transaction or dying.  The totals that limits and administrators see are sums over that.  Waiting messages are in
order, so that the next one is always at hand.  Windows agree with what is held.  The cost is linear in blocks, runs
and delivery queues, so nothing calls this in a running broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from raybroker.core.blocks import ranges
from raybroker.core.delivery.backlog import Bucket
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import position
from raybroker.core.delivery.sorted_backlog import SortedBacklog
from raybroker.core.delivery.window import CreditWindow, DrainWindow, PrefetchWindow
from raybroker.core.destination import Destination
from raybroker.core.unit_of_order.invariants import check_units
from raybroker.model.definitions.pauses import CONSUMPTION


def check(destination: Destination) -> None:
    """Raises AssertionError that says which invariant of ``destination`` does not hold."""
    _check_block_index(destination)
    for queue in destination.queues.values():
        backlog = queue.plain.backlog
        if isinstance(backlog, SortedBacklog):
            backlog.check()
        else:
            for bucket in backlog.buckets.values():
                _check_bucket(bucket)
        waiting = sum(run.count for run in backlog.runs())
        assert waiting == backlog.count, f"{backlog.count} messages are counted as waiting, {waiting} are"
        _check_places(destination, queue)
        for ordinal, index, _ in queue.consumers.checkpoints:
            assert queue.owed(ordinal) >> index & 1, f"a checkpoint of message {index} of block {ordinal} is left"
        for attachment, consumer in queue.consumers.by_attachment.items():
            assert consumer.attachment == attachment
            assert destination.queue_of[attachment] is queue
            _check_consumer(consumer)
        _check_turns(destination, queue)
        _check_draining(destination, queue)
        check_units(destination, queue)
    held = destination.block_index.held
    dead = [row for queue in destination.queues.values() for row in queue.dead_letters.masks.items()]
    nbytes = sum(held[ordinal].bytes_of(mask) for ordinal, mask in dead)
    totals = destination.block_index.dead, destination.block_index.dead_bytes
    found = sum(mask.bit_count() for _, mask in dead), nbytes
    assert found == totals, f"{totals} messages and bytes are counted as dead letters, {found} are"
    for producer, rows in destination.producers.taken.items():
        _check_ranges(rows, f"sequence numbers of producer {producer}")


def _check_block_index(destination: Destination) -> None:
    block_index = destination.block_index
    messages = held_bytes = 0
    waiting = {block.ordinal for staged in destination.staged.values() for block in staged.blocks}
    for ordinal, block in block_index.held.items():
        assert 0 < ordinal < block_index.next_ordinal, f"block {ordinal} has a number that was not given out"
        assert 0 < block.left <= block.count, f"block {ordinal} is held with {block.left} of {block.count} left"
        assert not block.done & ~block.everything
        assert block.count - block.done.bit_count() == block.left, f"block {ordinal} miscounts what is left"
        messages += block.left
        held_bytes += block.bytes_of(block.everything & ~block.done)
        if destination.kind == "topic" and ordinal not in waiting:
            owed = [
                queue.owes[ordinal] for queue in destination.queues.values() if queue.owes and ordinal in queue.owes
            ]
            union = 0
            for mask in owed:
                assert mask, f"block {ordinal} is owed to a delivery queue that is owed nothing of it"
                union |= mask
            count = f"block {ordinal} is owed to {len(owed)} delivery queues, {block.claims} counted"
            assert len(owed) == block.claims, count
            assert union == block.everything & ~block.done, f"block {ordinal} is held for nobody, or not for all"
    assert messages == block_index.messages, f"{block_index.messages} messages are counted, {messages} are held"
    assert held_bytes == block_index.bytes_held, f"{block_index.bytes_held} bytes are counted, {held_bytes} are held"
    assert block_index.peak_messages >= messages
    assert block_index.peak_bytes >= held_bytes


def _check_ranges(rows: ranges.Ranges, what: str) -> None:
    before = -1
    for start, end in rows:
        assert before < start < end, f"{what} are not sorted, disjoint and joined: {rows}"
        before = end


def _check_bucket(bucket: Bucket) -> None:
    assert bucket, f"an empty bucket stands for priority {bucket.priority}"
    for runs in (list(bucket.all_fresh()), list(reversed(bucket.returned))):
        for before, after in pairwise(runs):
            assert position(before) < position(after), f"{after} waits behind {before}"
    assert bucket.tail is bucket.fresh or len(bucket.fresh) > 1, "pages stand behind a short front"
    assert not bucket.pages or bucket.tail is not bucket.fresh, "pages stand behind the end of a bucket"
    for run in (*bucket.all_fresh(), *bucket.returned):
        assert run.mask, f"an empty run waits: {run}"
        assert run.priority == bucket.priority, f"{run} is in the bucket of priority {bucket.priority}"


def _places(destination: Destination, queue: DeliveryQueue) -> Iterator[tuple[str, int, int]]:
    for state, run in queue.contents():
        yield state, run.ordinal, run.mask
    for ordinal, mask in queue.dead_letters.masks.items():
        yield "dying", ordinal, mask
    for staged in destination.staged.values():
        for number, delivery in staged.acks:
            if number == queue.number:
                yield "acknowledged in a transaction", delivery.run.ordinal, delivery.run.mask


def _check_places(destination: Destination, queue: DeliveryQueue) -> None:
    """No message is at two places, none is nowhere, and none that is settled is anywhere."""
    held = destination.block_index.held
    seen: dict[int, int] = {}
    for state, ordinal, mask in _places(destination, queue):
        assert ordinal in held, f"block {ordinal} is {state} and not held"
        assert not seen.get(ordinal, 0) & mask, f"a message of block {ordinal} is {state} and elsewhere"
        seen[ordinal] = seen.get(ordinal, 0) | mask
    staged = {block.ordinal for transaction in destination.staged.values() for block in transaction.blocks}
    for ordinal in held if queue.owes is None else queue.owes:
        owed = 0 if ordinal in staged else queue.owed(ordinal)
        assert seen.pop(ordinal, 0) == owed, f"messages of block {ordinal} are nowhere, or settled and somewhere"
    assert not seen, f"blocks {list(seen)} are somewhere and not owed"


def _check_consumer(consumer: Consumer) -> None:
    tag = 0
    for item in consumer.unsettled:
        assert item.tag > tag, f"deliveries of consumer {consumer.attachment} are not in order of tags"
        assert item.count == item.run.mask.bit_count() > 0
        assert item.run.attempts > 0
        tag = item.tag + item.count - 1
    assert tag < consumer.next_tag
    assert not (consumer.asked.no_ack and consumer.unsettled), "a consumer without acknowledgements holds messages"
    window = consumer.window
    unsettled = sum(item.count for item in consumer.unsettled)
    assert consumer.have == unsettled, f"{consumer.have} messages are counted with a consumer, it has {unsettled}"
    if isinstance(window, CreditWindow):
        assert window.credit >= -1, "more was sent than was granted"
    elif isinstance(window, PrefetchWindow):
        assert window.outstanding == unsettled, f"{window.outstanding} are counted, {unsettled} are outstanding"
        assert not 0 < window.limit < unsettled or window.full, "more is outstanding than the prefetch limit"
        assert window.limit <= 0 or not window.full or unsettled * 2 > window.limit, "full, though half is settled"


def _check_turns(destination: Destination, queue: DeliveryQueue) -> None:
    """Every consumer with room has a turn, and none waits beside a message that matches it."""
    turn = queue.consumers.turn
    assert len({id(consumer) for consumer in turn}) == len(turn), "a consumer has two turns"
    for consumer in turn:
        assert consumer.queued
    for consumer in queue.consumers.by_attachment.values():
        if consumer.room() > 0:
            assert consumer.queued, f"consumer {consumer.attachment} has room and no turn"
            timed = destination.policy.batch_wait_ms or destination.attributes.affinityKey
            if CONSUMPTION in destination.paused or timed:
                continue
            for_him = queue.plain.backlog.has_for(consumer.selector)
            assert not for_him, f"messages wait and consumer {consumer.attachment} has room"


def _check_draining(destination: Destination, queue: DeliveryQueue) -> None:
    """Drain mode leaves no credit behind, and a consumer in it has been told of every message that waits for it."""
    staying = (c for c in queue.consumers.by_attachment.values() if c.active and not c.leaving)
    local = any(not c.asked.remote for c in staying)
    for attachment, consumer in queue.consumers.by_attachment.items():
        outranked = consumer.asked.remote and local and destination.attributes.localDeliveryPreferred
        serving = consumer.active and queue.dispatch_gate.dispatching and not outranked
        assert consumer.serving == serving, f"consumer {attachment} is served wrongly"
        drains = isinstance(consumer.window, DrainWindow)
        assert drains == (attachment in queue.consumers.draining), f"consumer {attachment} is in two modes"
        if not drains:
            continue
        assert not consumer.window.left(), f"consumer {attachment} keeps {consumer.window.left()} of its credit"
        passed_over = queue.consumers.is_passed_over(consumer, destination.current.now_ms)
        if consumer is queue.consumers.passed_over and queue.number not in destination.current.touched:
            passed_over = True  # It is told by the tick that is due, or by what changes the delivery queue before.
        if consumer.armed and consumer.listening() and CONSUMPTION not in destination.paused and not passed_over:
            waits = queue.plain.backlog.has_for(consumer.selector) and not destination.attributes.affinityKey
            assert not waits, f"consumer {attachment} is not told what waits for it"
