"""Transactions that acknowledge messages which other sessions of the connection have received.

For protocols such as STOMP, where a subscription belongs to no transaction and each acknowledgement says which one it
is part of.  Messages stay with the session that received them, unacknowledged, until the commit.
"""

from __future__ import annotations

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging import unacknowledged_ranges
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.message import Message
from raybroker.client.session.branch import Transaction
from raybroker.client.session.transaction import Acks, GiveBack, SessionTransactions
from raybroker.model.errors import IllegalStateError, TransactionRolledBackError


class JointTransactions(SessionTransactions):
    """The joint transactions of one session; on the IO loop."""

    def __init__(self, connection: ConnectionCore, handed: HandedOut, give_back: GiveBack) -> None:
        super().__init__(connection, handed, give_back)
        self._joined: list[Message] = []
        """What the open transaction acknowledges of other sessions."""

    def join(self, messages: list[Message]) -> None:
        """The open transaction acknowledges these, received in "client" sessions of the same connection."""
        self._joined.extend(messages)

    def under_way(self) -> bool:
        """Return True: its client may have received what it acknowledges after its sends."""
        return True

    def take_acks(self, transaction: Transaction) -> dict[Channel, Acks]:
        """Raises TransactionRolledBackError for a message that went back meanwhile: somebody else may have it."""
        found = super().take_acks(transaction)
        tags: dict[tuple[ConsumerCore, int], list[int]] = {}
        joined, self._joined = self._joined, []
        for message in joined:
            consumer = message._delivery.consumer
            if not isinstance(consumer, ConsumerCore):
                raise IllegalStateError("a message that was only looked at is not acknowledged")
            if not consumer.settle_one(message):
                raise TransactionRolledBackError(
                    f"the transaction was rolled back: message {message.id} that it acknowledges had gone back"
                )
            self.settling.append(consumer)
            tags.setdefault((consumer, message._delivery.epoch), []).append(message.tag)
        for (consumer, epoch), of_consumer in tags.items():
            place = consumer.place
            if place is None:
                raise TransactionRolledBackError(
                    f"the transaction was rolled back: the connection to the host of {consumer.name} was lost"
                )
            channel, handle = place
            transaction.number_on(channel, consumer.destination)
            ranges = unacknowledged_ranges.ranges_of(sorted(of_consumer))
            found.setdefault(channel, []).append([handle, epoch, [list(one) for one in ranges]])
        return found
