"""What the parts of a destination are made of, without the destination."""

from __future__ import annotations

from raybroker.core.blocks.block_entry import PLAIN, BlockEntry, Columns
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.policy import DestinationPolicy
from raybroker.core.step import Step
from raybroker.core.subscription import Subscription
from raybroker.core.unit_of_work import UnitsOfWork
from raybroker.model.settings.settings import DestinationAttributes

NOW = 1_000


class Parts:
    """A step that has begun, a policy and a block index, and a delivery queue made of them."""

    def __init__(self, subscription: Subscription | None = None, **attributes: object) -> None:
        self.step = Step(1)
        self.out = self.step.begin(NOW)
        self.policy = DestinationPolicy(DestinationAttributes(**attributes))  # type: ignore[arg-type]
        self.index = BlockIndex()
        self.works = UnitsOfWork(self.index)
        self.queue = DeliveryQueue(1, self.step, self.policy, self.index, self.works, subscription)

    def block(self, count: int, columns: Columns = PLAIN, *, persistent: bool = True) -> int:
        """Hold a block of messages of 4 bytes, which the delivery queue is owed; returns its ordinal."""
        ordinal = self.index.accept(BlockEntry(count, 4, persistent, columns))
        if self.queue.owes is not None:
            self.queue.owes[ordinal] = (1 << count) - 1
        return ordinal

    def arrive(self, count: int, columns: Columns = PLAIN, *, persistent: bool = True) -> int:
        """Messages of a new block wait in the delivery queue, if their time has come."""
        ordinal = self.block(count, columns, persistent=persistent)
        self.queue.arrive(ordinal, (1 << count) - 1, None, self.queue.next_arrival())
        return ordinal

    def consumer(self, number: int = 7, *, credit: int = -1, no_ack: bool = False, lease_ms: int = 0) -> Consumer:
        one = Consumer(AttachConsumer(number, "credit", limit=credit, no_ack=no_ack, held=False, lease_ms=lease_ms))
        self.queue.consumers.attach(one, active_max=-1, backup_max=0, name="d")
        self.queue.consumers.rank(local_first=False)
        return one
