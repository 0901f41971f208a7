"""Drain mode: credit that a broker does not use at once is void, and it says so; and who is preferred (D-19)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.outcome import Deliver, Drained, Outcome, Ready
from tests.simulation.credit_pool import CreditPool
from tests.unit.core.driven_destination import DrivenDestination, first_indexes, of


def told(out: Outcome, attachment: int | None = None) -> list[tuple[str, int]]:
    """What consumers in drain mode hear: how much is void, or that there is something."""
    return [
        ("void", e.unused) if isinstance(e, Drained) else ("ready", 0)
        for e in out.after_durable
        if isinstance(e, Drained | Ready) and attachment in (None, e.attachment)
    ]


def destination_with(count: int, **attributes: object) -> tuple[DrivenDestination, int]:
    destination = DrivenDestination(**attributes)
    producer = destination.producer()
    if count:
        destination.send(producer, [1] * count)
    return destination, producer


def test_what_there_is_comes_at_once_and_the_rest_is_void() -> None:
    destination, producer = destination_with(3)
    number, out = destination.open(drain=True)
    assert not first_indexes(out)
    assert told(out) == [("ready", 0)]
    out = destination.do(cmd.Drain(number, 5))
    assert first_indexes(out, number) == [(1, 0), (1, 1), (1, 2)]
    assert told(out) == [("void", 2)]
    assert isinstance(out.after_durable[-1], Drained), "it comes after the messages"
    out = destination.send(producer)
    assert not of(out, Deliver), "no credit was left"
    assert told(out) == [("ready", 0)]
    assert told(destination.send(producer)) == [], "once is enough"


def test_credit_that_is_used_up_is_not_void() -> None:
    destination, _ = destination_with(3)
    number = destination.consumer(drain=True)
    out = destination.do(cmd.Drain(number, 2))
    assert len(first_indexes(out)) == 2
    assert told(out) == [("ready", 0)], "there is more"
    out = destination.do(cmd.Drain(number, 1))
    assert len(first_indexes(out)) == 1
    assert told(out) == []


def test_a_drain_of_nothing_takes_back_what_was_granted_and_is_always_answered() -> None:
    destination, producer = destination_with(0)
    standing = destination.consumer(10)
    destination.send(producer, [1] * 4)
    assert told(destination.do(cmd.Drain(standing, 0))) == [("void", 6)]
    assert told(destination.do(cmd.Drain(standing, 0))) == [("void", 0)]
    assert told(destination.send(producer)) == [("ready", 0)]
    out = destination.do(cmd.Grant(standing, 3))
    assert len(first_indexes(out)) == 1, "a normal grant ends drain mode"
    assert len(first_indexes(destination.send(producer, [1, 1, 1]))) == 2
    prefetching = DrivenDestination().consumer(3, "prefetch")
    assert prefetching


def test_a_prefetch_window_is_taken_back_and_restored() -> None:
    destination, producer = destination_with(2)
    number = destination.consumer(5, "prefetch")
    assert told(destination.do(cmd.Drain(number, 0))) == [("void", 3)]
    destination.send(producer, [1] * 9)
    destination.do(cmd.Drain(number, 4))
    window = destination.queue.consumers.by_attachment[number].window
    assert window.left() == 0
    destination.do(cmd.Grant(number, 0))
    assert not first_indexes(destination.tick()), "six are with the consumer already, and the limit is five"
    assert not first_indexes(destination.ack(number, 1, 3))
    assert len(first_indexes(destination.ack(number, 4, 4))) == 3, "half of five is settled: up to the limit again"


def test_whoever_is_held_or_paused_hears_nothing_until_that_ends() -> None:
    destination, producer = destination_with(1)
    number, out = destination.open(drain=True, held=True)
    assert told(out) == []
    assert told(destination.do(cmd.Drain(number, 3))) == [("void", 3)]
    assert told(destination.do(cmd.Proceed(number))) == [("ready", 0)]
    destination.do(cmd.Pause("consumption"))
    assert told(destination.do(cmd.Drain(number, 3))) == [("void", 3)]
    assert told(destination.do(cmd.Resume("consumption"))) == [("ready", 0)]
    assert first_indexes(destination.do(cmd.Drain(number, 3)))
    assert producer


def test_a_message_for_another_selector_is_no_reason_to_ask() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    number = destination.consumer(drain=True, selector="n = 1")
    assert told(destination.send(producer, [1, 1], properties=[{"n": 2}, {"n": 3}])) == []
    assert told(destination.do(cmd.Drain(number, 1))) == [("void", 1)]
    assert told(destination.send(producer, properties=[{"n": 1}])) == [("ready", 0)]


def test_after_a_recover_it_is_told_anew_with_a_tag_that_tells_old_from_new() -> None:
    destination, _ = destination_with(2)
    number = destination.consumer(drain=True)
    before = destination.do(cmd.Drain(number, 9))
    out = destination.do(cmd.Release(number, 0, 1))
    assert told(out) == [("ready", 0)]
    (released,) = [e for e in out.immediate if hasattr(e, "next_tag")]
    assert [e.tag for e in before.after_durable if isinstance(e, Drained)] < [released.next_tag]
    assert [e.tag for e in out.after_durable if isinstance(e, Ready)] == [released.next_tag]
    out = destination.do(cmd.Release(number, 1, 1))
    assert len(first_indexes(out)) == 1, "another credit ends drain mode"


def test_deliveries_that_never_left_are_void_in_drain_mode_and_granted_again_without() -> None:
    destination, _ = destination_with(3)
    drains, stands = destination.consumer(drain=True), destination.consumer(1)
    assert told(destination.do(cmd.Missed(drains, 2)), drains) == [("void", 2), ("ready", 0)]
    assert len(first_indexes(destination.do(cmd.Missed(stands, 1)), stands)) == 1


# ---- D-19 ------------------------------------------------------------------------------------------------------------


def test_remote_consumers_get_nothing_while_there_is_a_local_one_even_a_busy_one() -> None:
    destination, producer = destination_with(3, localDeliveryPreferred=True)
    local = destination.consumer(1)
    remote, out = destination.open(drain=True, remote=True)
    assert told(out) == []
    assert told(destination.do(cmd.Drain(remote, 5))) == [("void", 5)]
    out = destination.do(cmd.DetachConsumer(local))
    assert told(out) == [("ready", 0)]
    assert len(first_indexes(destination.do(cmd.Drain(remote, 5)))) == 3
    destination.consumer(1)
    assert told(destination.send(producer, [1, 1])) == []


def test_without_the_attribute_all_are_equal_and_an_update_says_which() -> None:
    destination, producer = destination_with(0)
    destination.consumer(1)
    remote = destination.consumer(2, remote=True)
    assert len(first_indexes(destination.send(producer, [1, 1]), remote)) == 1
    attributes = destination.core.attributes
    destination.do(cmd.Update(type(attributes)(localDeliveryPreferred=True)))
    assert not of(destination.send(producer), Deliver)
    assert len(first_indexes(destination.do(cmd.Update(attributes)), remote)) == 1


def test_a_local_backup_is_no_local_consumer() -> None:
    destination, producer = destination_with(
        0, localDeliveryPreferred=True, maxNumActiveConsumers=1, maxNumBackupConsumers=-1
    )
    remote = destination.consumer(5, remote=True)
    backup = destination.consumer(5)
    assert len(first_indexes(destination.send(producer), remote)) == 1
    out = destination.do(cmd.DetachConsumer(remote))
    assert len(first_indexes(out, backup)) == 1


# ---- the law of the credit pool
# --------------------------------------------------------------------------------------------


class Books:
    """One consumer with one credit pool over several brokers, each with its part of a queue."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.destinations = [DrivenDestination() for _ in range(rng.choice((1, 2, 3)))]
        self.producers = [destination.producer() for destination in self.destinations]
        self.limit = rng.choice((1, 2, 3, 10))
        self.out = [0] * len(self.destinations)
        """Granted and not come, by broker."""
        self.wanting: list[int] = []
        self.buffered: list[tuple[int, int]] = []
        self.got = self.sent = 0
        self.numbers = []
        for index, destination in enumerate(self.destinations):
            number, out = destination.open(drain=True, selector="n > 0" if rng.random() < 0.3 else None)
            self.numbers.append(number)
            self.hear(index, out)

    def hear(self, index: int, out: Outcome) -> None:
        for effect in (*out.immediate, *out.after_durable):
            if isinstance(effect, Deliver):
                count = effect.mask.bit_count()
                self.out[index] -= count
                self.buffered += [(index, effect.tag + i) for i in range(count)]
            elif isinstance(effect, Drained):
                self.out[index] -= effect.unused
                self.wanting = [w for w in self.wanting if w != index]
            elif isinstance(effect, Ready):
                self.wanting.append(index)
        assert min(self.out) >= 0
        assert sum(self.out) + len(self.buffered) <= self.limit, "more is here or granted than the limit"
        assert not self.out[index], "a broker holds credit although it has nothing"

    def ask(self) -> bool:
        free = self.limit - len(self.buffered) - sum(self.out)
        if not free or not self.wanting:
            return False
        index = self.rng.choice(self.wanting)
        count = self.rng.randrange(1, free + 1)
        self.out[index] += count
        self.hear(index, self.destinations[index].do(cmd.Drain(self.numbers[index], count)))
        return True

    def consume(self) -> bool:
        if not self.buffered:
            return False
        index, tag = self.buffered.pop(0)
        self.got += 1
        self.hear(index, self.destinations[index].ack(self.numbers[index], tag))
        return True

    def send(self) -> None:
        index = self.rng.randrange(len(self.destinations))
        count = self.rng.randrange(1, 5)
        self.sent += count
        rows = [{"n": 1}] * count
        out = self.destinations[index].send(self.producers[index], [1] * count, properties=rows)
        self.hear(index, out)


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1))
def test_a_credit_pool_over_several_brokers_keeps_the_law_and_nobody_starves(seed: int) -> None:
    books = Books(seed)
    for _ in range(60):
        books.rng.choice((books.send, books.ask, books.consume))()
    while books.ask() or books.consume():
        pass
    assert books.got == books.sent, "messages wait although there is room for them"


def test_the_books_of_a_credit_pool_refuse_what_was_not_granted() -> None:
    credit_pool = CreditPool(3)
    assert credit_pool.ready() == 3
    credit_pool.check(3)
    assert credit_pool.arrived(2) == 0
    credit_pool.drained(1)
    assert (credit_pool.free(), credit_pool.consumed(1)) == (1, 0)
    with pytest.raises(AssertionError, match="0 were granted"):
        credit_pool.check(1)
