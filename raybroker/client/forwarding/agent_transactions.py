"""The transactions of a forwarding agent in its own cluster."""

from __future__ import annotations

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.session.branch import Transaction
from raybroker.client.session.transaction import Acks, GiveBack, SessionTransactions, broadcast


class AgentTransactions(SessionTransactions):
    """Transactions whose outcome another cluster may ask for, until it is told that it need not be kept."""

    vouches = True

    def __init__(self, connection: ConnectionCore, handed: HandedOut, give_back: GiveBack) -> None:
        super().__init__(connection, handed, give_back)
        self.decided: list[Channel] = []
        """The hosts that remember how the last one ended."""

    async def _decide(self, transaction: Transaction, acks: dict[Channel, Acks]) -> None:
        self.decided = list(transaction.numbers)[:1]
        await super()._decide(transaction, acks)

    async def forget(self, key: bytes) -> None:
        """The other cluster has ended its part."""
        await broadcast([channel for channel in self.decided if not channel.lost], "txn_forget", {"key": key})
