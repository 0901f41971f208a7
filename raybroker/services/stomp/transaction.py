"""One transaction of a STOMP client: its SEND, ACK and NACK frames happen with COMMIT, together, or not at all."""

from __future__ import annotations

from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations
from raybroker.client.consumer.message import Message
from raybroker.client.producer.members.unnamed import UnnamedProducer
from raybroker.client.session.joint_transaction import JointTransactions
from raybroker.model.errors import ResourceAllocationError
from raybroker.services.stomp.limits import TRANSACTION_FRAMES_MAX
from raybroker.services.stomp.subscription import Settling, StompSubscription


class StompTransaction:
    """``transactions``: of a session of its own; ``producer``: of that session."""

    def __init__(self, name: str, transactions: JointTransactions, producer: UnnamedProducer) -> None:
        self.name = name
        self._transactions = transactions
        self.producer = producer
        self._frames = 0
        self._acknowledged: list[tuple[StompSubscription, dict[int, Message]]] = []
        self._refused: list[tuple[StompSubscription, dict[int, Message], bool]] = []

    def require_room(self) -> None:
        """Raises ResourceAllocationError when no more frames may be part of it."""
        if self._frames >= TRANSACTION_FRAMES_MAX:
            raise ResourceAllocationError(
                f"transaction {self.name!r:.80} has more than {TRANSACTION_FRAMES_MAX} frames; COMMIT it more often"
            )

    def enter(self) -> None:
        """One more frame is part of it; raises ResourceAllocationError when there are too many."""
        self.require_room()
        self._frames += 1

    def acknowledge(self, subscription: StompSubscription, messages: dict[int, Message]) -> None:
        subscription.lent += len(messages)
        self._acknowledged.append((subscription, messages))

    def refuse(self, subscription: StompSubscription, messages: dict[int, Message], *, dead: bool) -> None:
        subscription.lent += len(messages)
        self._refused.append((subscription, messages, dead))

    async def commit(self) -> Settling:
        """Raises when it was rolled back. Returns the answers to its NACK frames, which have no part in it."""
        for subscription, messages in self._acknowledged:
            subscription.lent -= len(messages)
            self._transactions.join(list(messages.values()))
        await self._transactions.commit()
        found: Confirmations = []
        for subscription, messages, dead in self._refused:
            subscription.lent -= len(messages)
            found += subscription.refuse(messages, dead=dead).waiting
        self._clear()
        return Settling(found)

    async def abort(self) -> None:
        """What it sent is destroyed; what it acknowledged is unacknowledged as before."""
        await self._transactions.rollback()
        for subscription, messages in (*self._acknowledged, *(row[:2] for row in self._refused)):
            subscription.restore(messages)
        self._clear()

    def _clear(self) -> None:
        self._acknowledged.clear()
        self._refused.clear()
        self._frames = 0
