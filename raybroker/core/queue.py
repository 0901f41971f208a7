"""A queue: every message goes to exactly one consumer and stays until that consumer acknowledged it."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.selector.content import Content
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.settings.settings import DestinationAttributes


class Queue(Destination):
    """One delivery queue, which is always there; every message is its."""

    kind = "queue"

    def __init__(
        self, number: int, name: str, attributes: DestinationAttributes, *, reap_ms: int | None = None
    ) -> None:
        super().__init__(number, name, attributes, reap_ms=reap_ms)
        self.queue = self.new_queue(0)

    def queue_for(self, command: cmd.AttachConsumer) -> DeliveryQueue:
        if command.subscription is not None:
            raise InvalidDestinationError(f"queue {self.name} has no subscriptions; those are for topics")
        return self.queue

    def claims(self, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        return {0: mask}

    def left_by(self, queue: DeliveryQueue) -> None:
        """The delivery queue of a queue stays."""

    def clear_queue(self, queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        return mask, self.block_index.held[ordinal].left == mask.bit_count()
