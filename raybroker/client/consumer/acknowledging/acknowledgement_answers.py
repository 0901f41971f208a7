"""Answers to acknowledgements and to other outcomes of received messages, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from raybroker.client.consumer.acknowledging import unacknowledged_ranges
from raybroker.client.consumer.acknowledging.returned_deliveries import UNCONFIRMED
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.model.errors import BrokerError, IllegalStateError

OVERDUE = "its ack deadline (ack_timeout_ms) was over, or it was taken back otherwise"


class Confirmation(Future[int]):
    """The broker's answer about deliveries of one consumer: how many of them it did not know any more."""

    def __init__(self, consumer: ConsumerCore, epoch: int, ranges: unacknowledged_ranges.Ranges) -> None:
        super().__init__()
        self._consumer = consumer
        self._epoch = epoch
        self._ranges = ranges

    def verdict(self) -> BrokerError | None:
        """Return, once it is done, None when everything was settled, or why not."""
        error = self.exception()
        if error is not None and not isinstance(error, BrokerError):
            raise error
        unknown, failure = 0 if error is not None else self.result(), self._consumer.failure
        why = OVERDUE if failure is None else f"its consumer has ended: {failure}"
        if unknown:
            count = unacknowledged_ranges.size(self._ranges)
            what = "the message" if count == 1 else f"{unknown} of {count} messages"
            error = IllegalStateError(
                f"{what} could not be settled: the broker had taken it back before, because {why}"
            )
        if error is not None:
            self._consumer.went_back(self._epoch, self._ranges, why if unknown else UNCONFIRMED)
        return error


class Keeping(Confirmation):
    """The broker's answer about a checkpoint: the message stays with its consumer, whatever it is."""

    def verdict(self) -> BrokerError | None:
        error = self.exception()
        if error is not None and not isinstance(error, BrokerError):
            raise error
        return error


class Faulty(Confirmation):
    """Stands among the answers for what could not be asked for at all."""

    def __init__(self, fault: BrokerError) -> None:
        Future.__init__(self)
        self._fault = fault
        self.set_result(0)

    def verdict(self) -> BrokerError | None:
        return self._fault


Confirmations = list[Confirmation]


def check(confirmations: Iterable[Confirmation]) -> None:
    """Raises, when all of these answers are there, for the first that is not what was asked for.

    Waits for them: on an event loop only to be called when they are there.
    """
    faults = [fault for fault in [one.verdict() for one in confirmations] if fault is not None]
    if faults:
        raise faults[0]
