"""What is always true of a destination between two steps, as one check for tests and the simulator.

Every message that a lane is owed is at exactly one place: it waits, rests, is hidden, is with a consumer, in a
transaction or dying.  The totals that limits and administrators see are sums over that.  Waiting messages are in order,
so that the next one is always at hand.  Windows agree with what is held.  The cost is linear in blocks, runs and lanes,
so nothing calls this in a running broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from raybroker.core import ranges
from raybroker.core.backlog import ANY, UNSORTED, Shelf, position
from raybroker.core.consumers import Consumer
from raybroker.core.destination import Destination
from raybroker.core.lane import Lane
from raybroker.core.unit_invariants import check_units
from raybroker.core.window import CreditWindow, DrainWindow, PrefetchWindow


def check(home: Destination) -> None:
    """Raises AssertionError that says which invariant of ``home`` does not hold."""
    _check_ledger(home)
    for lane in home.lanes.values():
        for shelf in lane.backlog.shelves.values():
            _check_shelf(shelf)
        waiting = sum(run.count for shelf in lane.backlog.shelves.values() for run in (*shelf.fresh, *shelf.returned))
        assert waiting == lane.backlog.count, f"{lane.backlog.count} messages are counted as waiting, {waiting} are"
        _check_places(home, lane)
        for attachment, consumer in lane.consumers.by_attachment.items():
            assert consumer.attachment == attachment
            assert home.lane_of[attachment] is lane
            _check_consumer(consumer)
        _check_turns(home, lane)
        _check_draining(home, lane)
        check_units(home, lane)
    dying = sum(picks.bit_count() for lane in home.lanes.values() for picks in lane.dying.values())
    assert dying == home.dying, f"{home.dying} messages are counted as dying, {dying} are"
    held = home.ledger.held
    nbytes = sum(held[o].bytes_of(picks) for lane in home.lanes.values() for o, picks in lane.dying.items())
    assert nbytes == home.dying_bytes, f"{home.dying_bytes} bytes are counted as dying, {nbytes} are"
    for producer, rows in home.producers.taken.items():
        _check_ranges(rows, f"sequence numbers of producer {producer}")


def _check_ledger(home: Destination) -> None:
    ledger = home.ledger
    messages = held_bytes = 0
    waiting = {block.ordinal for staged in home.staged.values() for block in staged.blocks}
    for ordinal, block in ledger.held.items():
        assert 0 < ordinal < ledger.next_ordinal, f"block {ordinal} has a number that was not given out"
        assert 0 < block.left <= block.count, f"block {ordinal} is held with {block.left} of {block.count} left"
        assert not block.done & ~block.everything
        assert block.count - block.done.bit_count() == block.left, f"block {ordinal} miscounts what is left"
        messages += block.left
        held_bytes += block.bytes_of(block.everything & ~block.done)
        if home.kind == "topic" and ordinal not in waiting:
            owed = [lane.owes[ordinal] for lane in home.lanes.values() if lane.owes and ordinal in lane.owes]
            union = 0
            for picks in owed:
                assert picks, f"block {ordinal} is owed to a lane that is owed nothing of it"
                union |= picks
            assert len(owed) == block.claims, f"block {ordinal} is owed to {len(owed)} lanes, {block.claims} counted"
            assert union == block.everything & ~block.done, f"block {ordinal} is held for nobody, or not for all"
    assert messages == ledger.messages, f"{ledger.messages} messages are counted, {messages} are held"
    assert held_bytes == ledger.bytes_held, f"{ledger.bytes_held} bytes are counted, {held_bytes} are held"
    assert ledger.peak_messages >= messages
    assert ledger.peak_bytes >= held_bytes


def _check_ranges(rows: ranges.Ranges, what: str) -> None:
    before = -1
    for start, end in rows:
        assert before < start < end, f"{what} are not sorted, disjoint and joined: {rows}"
        before = end


def _check_shelf(shelf: Shelf) -> None:
    assert shelf, f"an empty shelf stands for priority {shelf.priority}"
    for runs in (list(shelf.fresh), list(reversed(shelf.returned))):
        for before, after in pairwise(runs):
            assert position(before) < position(after), f"{after} waits behind {before}"
    for run in (*shelf.fresh, *shelf.returned):
        assert run.picks, f"an empty run waits: {run}"
        assert run.priority == shelf.priority, f"{run} is on the shelf of priority {shelf.priority}"


def _places(home: Destination, lane: Lane) -> Iterator[tuple[str, int, int]]:
    for state, run in lane.places():
        yield state, run.ordinal, run.picks
    for ordinal, picks in lane.dying.items():
        yield "dying", ordinal, picks
    for staged in home.staged.values():
        for number, delivery in staged.acks:
            if number == lane.number:
                yield "acknowledged in a transaction", delivery.run.ordinal, delivery.run.picks


def _check_places(home: Destination, lane: Lane) -> None:
    """No message is at two places, none is nowhere, and none that is settled is anywhere."""
    held = home.ledger.held
    seen: dict[int, int] = {}
    for state, ordinal, picks in _places(home, lane):
        assert ordinal in held, f"block {ordinal} is {state} and not held"
        assert not seen.get(ordinal, 0) & picks, f"a message of block {ordinal} is {state} and elsewhere"
        seen[ordinal] = seen.get(ordinal, 0) | picks
    staged = {block.ordinal for transaction in home.staged.values() for block in transaction.blocks}
    for ordinal in held if lane.owes is None else lane.owes:
        owed = 0 if ordinal in staged else lane.owed(ordinal)
        assert seen.pop(ordinal, 0) == owed, f"messages of block {ordinal} are nowhere, or settled and somewhere"
    assert not seen, f"blocks {list(seen)} are somewhere and not owed"


def _check_consumer(consumer: Consumer) -> None:
    tag = 0
    for item in consumer.unsettled:
        assert item.tag > tag, f"deliveries of consumer {consumer.attachment} are not in order of tags"
        assert item.count == item.run.picks.bit_count() > 0
        assert item.run.attempts > 0
        tag = item.tag + item.count - 1
    assert tag < consumer.next_tag
    assert not (consumer.no_ack and consumer.unsettled), "a consumer without acknowledgements holds messages"
    window = consumer.window
    unsettled = sum(item.count for item in consumer.unsettled)
    if isinstance(window, CreditWindow):
        assert window.credit >= -1, "more was sent than was granted"
    elif isinstance(window, PrefetchWindow):
        assert window.outstanding == unsettled, f"{window.outstanding} are counted, {unsettled} are outstanding"
        assert not 0 < window.limit < unsettled or window.full, "more is outstanding than the prefetch limit"
        assert window.limit <= 0 or not window.full or unsettled * 2 > window.limit, "full, though half is settled"


def _check_turns(home: Destination, lane: Lane) -> None:
    """Whoever has room has a turn, and nobody waits beside a message that is for him."""
    turn = lane.consumers.turn
    assert len({id(consumer) for consumer in turn}) == len(turn), "a consumer has two turns"
    for consumer in turn:
        assert consumer.queued
    shelves = lane.backlog.shelves.values()
    for consumer in lane.consumers.by_attachment.values():
        if consumer.room() > 0:
            assert consumer.queued, f"consumer {consumer.attachment} has room and no turn"
            if "consumption" in home.paused:
                continue
            for_him = [
                s for s in shelves
                if consumer.selector == ANY or (s.signature != UNSORTED and s.signature >> consumer.selector & 1)
            ]  # fmt: skip
            assert not for_him, f"messages wait and consumer {consumer.attachment} has room"


def _check_draining(home: Destination, lane: Lane) -> None:
    """Drain mode leaves no credit behind, and nobody in it waits for messages that he has not been told of (D-19)."""
    local = any(c.active and not c.remote for c in lane.consumers.by_attachment.values())
    for attachment, consumer in lane.consumers.by_attachment.items():
        outranked = consumer.remote and local and home.attributes.localDeliveryPreferred
        serving = consumer.active and lane.gathering.dispatching and not outranked
        assert consumer.serving == serving, f"consumer {attachment} is served wrongly"
        drains = isinstance(consumer.window, DrainWindow)
        assert drains == (attachment in lane.consumers.draining), f"consumer {attachment} is in two modes"
        if not drains:
            continue
        assert not consumer.window.left(), f"consumer {attachment} keeps {consumer.window.left()} of its credit"
        if consumer.armed and consumer.listening() and "consumption" not in home.paused:
            assert not lane.backlog.has_for(consumer.selector), f"consumer {attachment} is not told what waits for it"
