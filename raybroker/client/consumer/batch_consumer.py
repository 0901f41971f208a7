"""A consumer of batches: what the application takes from it is a whole batch, and a batch is one lease."""

from __future__ import annotations

from typing import NoReturn

from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.prefetch.flow_control import BatchFlow
from raybroker.model.batch import MESSAGES_MAX
from raybroker.model.errors import IllegalStateError


class BatchConsumerCore(ConsumerCore):
    """A consumer that was opened with ``batch``."""

    def take_batch(self) -> list[Message]:
        """The batch that is here, as far as it is not void; nothing while it is still to come."""
        if not self._connection.started or self._handed.holds_back:
            return []
        with self._lock:
            here = isinstance(self._flow, BatchFlow) and self._flow.hand_over()
            if not here and self._failure is not None:
                raise self._failure
        return super().take_messages(MESSAGES_MAX) if here else []

    @property
    def has_batch(self) -> bool:
        """Whether a batch is here, or a part of one; with the lock held."""
        return isinstance(self._flow, BatchFlow) and (self._flow.here > 0 or self._flow.buffered > 0)

    def take_one(self) -> NoReturn:
        raise only_batches(self.name)

    def take_messages(self, most: int) -> NoReturn:
        raise only_batches(self.name)

    def require_messages(self) -> NoReturn:
        """Raises IllegalStateError: it gets batches, not messages."""
        raise only_batches(self.name)

    def extend(self, message: Message) -> None:
        """Start the ack deadline of all that the application holds again: what came together is due together."""
        super().extend(message)
        with self._lock:
            ranges = [(first, last) for first, last, _ in self.consumed]
        self._connection.io.post(self._send_extend, self.epoch, ranges)


def only_batches(name: str) -> IllegalStateError:
    """Why a consumer of batches gives no single messages."""
    return IllegalStateError(
        f"the consumer of {name} was opened with batch=: receive_batch() takes what comes, or a function with"
        " rb.listener(batch=…)"
    )
