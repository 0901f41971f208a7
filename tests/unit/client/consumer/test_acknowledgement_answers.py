"""Answers about deliveries: what they mean, and which consumer is told."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.consumer.acknowledging.acknowledgement_answers import OVERDUE, Confirmation, check
from raybroker.client.consumer.acknowledging.returned_deliveries import UNCONFIRMED
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, StoreDamagedError


class Consumer:
    failure: BrokerError | None = None

    def __init__(self) -> None:
        self.back: list[tuple[Any, ...]] = []

    def went_back(self, epoch: int, ranges: Any, why: str, /) -> None:
        self.back.append((epoch, ranges, why))


def confirmation(consumer: Consumer, *ranges: tuple[int, int]) -> Confirmation:
    return Confirmation(consumer, 5, list(ranges))


def test_an_answer_without_unknown_deliveries_is_good() -> None:
    consumer = Consumer()
    one = confirmation(consumer, (1, 3))
    one.set_result(0)
    check([one])
    assert consumer.back == []


@pytest.mark.parametrize(
    ("ranges", "unknown", "text"), [([(1, 1)], 1, "the message could"), ([(1, 2), (5, 5)], 2, "2 of 3 messages could")]
)
def test_deliveries_that_the_broker_had_taken_back_are_an_error(
    ranges: list[tuple[int, int]], unknown: int, text: str
) -> None:
    consumer = Consumer()
    one = confirmation(consumer, *ranges)
    one.set_result(unknown)
    with pytest.raises(IllegalStateError, match=f"^{text} not be settled: .*ack deadline"):
        check([one])
    assert consumer.back == [(5, ranges, OVERDUE)]


def test_what_a_consumer_that_has_ended_cannot_settle_is_for_that_reason() -> None:
    consumer = Consumer()
    consumer.failure = StoreDamagedError("block 7 is damaged")
    one = confirmation(consumer, (1, 1))
    one.set_result(1)
    with pytest.raises(IllegalStateError, match=r"because its consumer has ended: block 7 is damaged$"):
        check([one])
    assert consumer.back == [(5, [(1, 1)], "its consumer has ended: block 7 is damaged")]


def test_of_several_faults_the_first_is_raised_and_every_consumer_is_told() -> None:
    first, second = Consumer(), Consumer()
    lost, late = confirmation(first, (1, 1)), confirmation(second, (2, 2))
    lost.set_exception(ConnectionLostError("cut"))
    late.set_result(1)
    with pytest.raises(ConnectionLostError, match="cut"):
        check([lost, late])
    assert (first.back, second.back) == ([(5, [(1, 1)], UNCONFIRMED)], [(5, [(2, 2)], OVERDUE)])


def test_an_error_of_our_own_is_not_an_answer() -> None:
    one = confirmation(Consumer(), (1, 1))
    one.set_exception(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        one.verdict()
