"""What is always true of a queue between two steps, as one check for tests and the simulator.

Every held message is at exactly one place: it waits in the backlog, or one consumer holds it.  The totals that limits
and administrators see are sums over that.  Waiting messages are in order, so that the next one is always at hand.
Windows agree with what is held.  The cost is linear in blocks and runs, so nothing calls this in a running broker.
"""

from __future__ import annotations

from collections.abc import Iterator

from raybroker.core import ranges
from raybroker.core.backlog import Backlog
from raybroker.core.consumers import Consumer
from raybroker.core.queue import Queue
from raybroker.core.window import CreditWindow, PrefetchWindow


def check(queue: Queue) -> None:
    """Raises AssertionError that says which invariant of ``queue`` does not hold."""
    _check_ledger(queue)
    _check_backlog(queue.backlog)
    _check_places(queue)
    for attachment, consumer in queue.consumers.by_attachment.items():
        assert consumer.attachment == attachment
        _check_consumer(consumer)
    _check_turns(queue)
    _check_producers(queue)


def _check_ledger(queue: Queue) -> None:
    ledger = queue.ledger
    messages = held_bytes = 0
    for ordinal, block in ledger.held.items():
        assert 0 < ordinal < ledger.next_ordinal, f"block {ordinal} has a number that was not given out"
        assert 0 < block.left <= block.count, f"block {ordinal} is held with {block.left} of {block.count} left"
        done = block.done or []
        _check_ranges(done, f"settled messages of block {ordinal}")
        assert block.count - ranges.total(done) == block.left, f"block {ordinal} miscounts what is left"
        messages += block.left
        held_bytes += block.bytes_of(0, block.count) - sum(block.bytes_of(a, b) for a, b in done)
    assert messages == ledger.messages, f"{ledger.messages} messages are counted, {messages} are held"
    assert held_bytes == ledger.bytes_held, f"{ledger.bytes_held} bytes are counted, {held_bytes} are held"
    assert ledger.peak_messages >= messages
    assert ledger.peak_bytes >= held_bytes


def _check_ranges(rows: ranges.Ranges, what: str) -> None:
    before = -1
    for start, end in rows:
        assert before < start < end, f"{what} are not sorted, disjoint and joined: {rows}"
        before = end


def _check_backlog(backlog: Backlog) -> None:
    at = (0, 0)
    count = 0
    returned = list(reversed(backlog.returned))
    for run in (*returned, *backlog.fresh):
        assert run.start < run.end, f"an empty run waits: {run}"
        assert at <= (run.ordinal, run.start), f"{run} waits behind {at}"
        at = run.ordinal, run.end
        count += run.end - run.start
    assert all(run.attempts > 0 for run in returned), "a message that was never handed out came back"
    assert not any(run.attempts for run in backlog.fresh), "a message that was handed out counts as fresh"
    assert count == backlog.count, f"{backlog.count} messages are counted as waiting, {count} are"


def _places(queue: Queue) -> Iterator[tuple[int, int, int]]:
    backlog = queue.backlog
    yield from ((run.ordinal, run.start, run.end) for run in backlog.returned)
    yield from ((run.ordinal, run.start, run.end) for run in backlog.fresh)
    for consumer in queue.consumers.by_attachment.values():
        yield from ((item.ordinal, item.start, item.end) for item in consumer.unsettled)


def _check_places(queue: Queue) -> None:
    """No message is at two places, none is nowhere, and none that is settled is anywhere."""
    held = queue.ledger.held
    places: dict[int, ranges.Ranges] = {}
    total = 0
    for ordinal, start, end in _places(queue):
        assert ordinal in held, f"block {ordinal} is somewhere and not held"
        places.setdefault(ordinal, []).append((start, end))
        total += end - start
    for ordinal, parts in places.items():
        parts.sort()
        at = 0
        done = held[ordinal].done or []
        for start, end in parts:
            assert at <= start, f"a message of block {ordinal} is at two places: {parts}"
            assert end <= held[ordinal].count
            gaps = list(ranges.missing(done, start, end))
            assert gaps == [(start, end)], f"a settled message of block {ordinal} is still somewhere"
            at = end
    assert total == queue.ledger.messages, f"{queue.ledger.messages} messages are held, {total} are at a place"


def _check_consumer(consumer: Consumer) -> None:
    tag = 0
    for item in consumer.unsettled:
        assert item.tag > tag, f"deliveries of consumer {consumer.attachment} are not in order of tags"
        assert item.attempts > 0
        tag = item.tag + item.end - item.start - 1
    assert tag < consumer.next_tag
    assert not (consumer.no_ack and consumer.unsettled), "a consumer without acknowledgements holds messages"
    window = consumer.window
    unsettled = sum(item.end - item.start for item in consumer.unsettled)
    if isinstance(window, CreditWindow):
        assert window.credit >= -1, "more was sent than was granted"
    elif isinstance(window, PrefetchWindow):
        assert window.outstanding == unsettled, f"{window.outstanding} are counted, {unsettled} are outstanding"
        assert window.limit <= 0 or unsettled <= window.limit, "more is outstanding than the prefetch limit"
        assert window.limit <= 0 or not window.full or unsettled * 2 > window.limit, "full, though half is settled"


def _check_turns(queue: Queue) -> None:
    """Whoever has room has a turn, and nobody waits beside a free consumer."""
    turn = queue.consumers.turn
    assert len({id(consumer) for consumer in turn}) == len(turn), "a consumer has two turns"
    for consumer in turn:
        assert consumer.queued
    for consumer in queue.consumers.by_attachment.values():
        if consumer.room() > 0:
            assert consumer.queued, f"consumer {consumer.attachment} has room and no turn"
            assert not queue.backlog.count, f"messages wait and consumer {consumer.attachment} has room"


def _check_producers(queue: Queue) -> None:
    for producer, rows in queue.producers.taken.items():
        _check_ranges(rows, f"sequence numbers of producer {producer}")
