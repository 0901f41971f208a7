"""Recognising retried sends, against a twin that remembers every number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.admission import producer_sequences as module
from raybroker.core.admission.producer_sequences import ProducerSequences
from raybroker.core.queue import Queue
from raybroker.model.errors import IllegalStateError
from raybroker.model.settings.settings import DestinationAttributes


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 3), st.sets(st.integers(0, 5))), max_size=30
    )
)
def test_what_is_fresh_is_what_the_twin_says(sends: list[tuple[int, int, int, set[int]]]) -> None:
    """A producer sends forward, or again from its floor on; some messages are refused."""
    known = ProducerSequences()
    known.attach(1, 7)
    taken: set[int] = set()
    first = floor = 0
    for back, count, settled, refused in sends:
        first = max(floor, first - back)
        after, before = known.fresh(7, first, first + count, floor)
        top = max(taken, default=-1)
        expected = [n for n in range(first, first + count) if n not in taken]
        assert [n for a, b in after for n in range(a, b)] == [n for n in expected if n > top]
        assert [n for a, b in before for n in range(a, b)] == [n for n in expected if n < top]
        for number in expected:
            if number > top and number - first not in refused:
                known.take_sequences(7, number, number + 1)
                taken.add(number)
        floor = min(floor + settled, first + count)
        first += count


def test_a_floor_keeps_what_is_remembered_small() -> None:
    known = ProducerSequences()
    known.attach(1, 7)
    for first in range(1, 1000, 2):
        known.fresh(7, first, first + 1, floor=max(first - 8, 1))
        known.take_sequences(7, first, first + 1)
    assert len(known.taken[7]) <= 5


def test_a_send_below_its_own_floor_is_still_recognised() -> None:
    known = ProducerSequences()
    known.attach(1, 7)
    known.take_sequences(7, 1, 10)
    assert known.fresh(7, 5, 8, floor=100) == ([], [])


def test_a_producer_is_on_its_newest_attachment_only() -> None:
    known = ProducerSequences()
    known.attach(1, 7)
    known.take_sequences(7, 1, 5)
    known.attach(2, 7)
    assert known.attached == {2: 7}
    known.detach(1, forget=True)
    assert known.taken[7] == [(1, 5)], "the end of a connection that was left takes nothing along"
    assert known.others(7) == 0
    assert known.others(8) == 1


def test_saying_goodbye_forgets_and_a_lost_connection_does_not() -> None:
    known = ProducerSequences()
    for attachment, producer in ((1, 7), (2, 8)):
        known.attach(attachment, producer)
        known.take_sequences(producer, 1, 5)
    known.detach(1, forget=True)
    known.detach(2, forget=False)
    assert 7 not in known.taken
    assert known.taken[8] == [(1, 5)]


def test_the_longest_unheard_are_forgotten_first() -> None:
    known = ProducerSequences()
    for number in range(module.PRODUCERS_REMEMBERED_MAX + 3):
        known.attach(number, 10_000 + number)
        known.take_sequences(10_000 + number, 1, 2)
        known.detach(number, forget=False)
    known.attach(99_999, 10_000 + module.PRODUCERS_REMEMBERED_MAX)
    assert 10_000 not in known.taken
    assert 10_000 + module.PRODUCERS_REMEMBERED_MAX in known.taken
    assert len(known.taken) <= module.PRODUCERS_REMEMBERED_MAX + 1


def test_an_opening_that_arrives_after_a_later_one_is_refused() -> None:
    queue = Queue(1, "q", DestinationAttributes())
    queue.step(cmd.AttachProducer(1, 7, generation=2), now_ms=0)
    with pytest.raises(IllegalStateError, match="opened destination q again"):
        queue.step(cmd.AttachProducer(2, 7, generation=1), now_ms=0)
    assert queue.producers.attached == {1: 7}
    queue.step(cmd.DetachProducer(1, forget=True), now_ms=0)
    with pytest.raises(IllegalStateError):
        queue.step(cmd.AttachProducer(3, 7, generation=3), now_ms=0)
    queue.step(cmd.AttachProducer(4, 7), now_ms=0)
    assert queue.producers.attached == {4: 7}, "who does not count openings is always the newest"
