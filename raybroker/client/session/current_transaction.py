"""The open transaction of a session, as the producers and consumers of the session know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.session.branch import Transaction
from raybroker.model.errors import BrokerError, IllegalStateError

P = TypeVar("P", bound=Endpoint)


class CurrentTransaction(Generic[P]):
    """``under_way()``: whether the open one has sent or received something, in any thread.

    transaction  the open one; None outside of the branches of an XA session
    producers    of the session, until the transaction that was open when they were closed has ended
    """

    def __init__(self, under_way: Callable[[], bool]) -> None:
        self.under_way = under_way
        self.transaction: Transaction | None = None
        self.producers: list[P] = []

    def nothing_open(self) -> IllegalStateError:
        return IllegalStateError("no transaction is open in this session: call xa.start(xid) first")

    def lose(self, why: str, channel: Channel | None = None) -> None:
        """A connection ended; what it held of the open transaction is rolled back by its host."""
        current = self.transaction
        if current is not None and not current.lost and (channel is None or channel in current.numbers):
            current.lost = why
            for producer in self.producers:
                producer.on_writable()

    def refused(self, error: BrokerError) -> None:
        """A host did not take a message of the open transaction."""
        if self.transaction is not None and self.transaction.refusal is None:
            self.transaction.refusal = error
