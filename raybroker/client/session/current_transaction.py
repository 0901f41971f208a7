"""The open transaction of a session, as the producers and consumers of the session know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

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

    def note_refusal(self, error: BrokerError) -> None:
        """A host did not take a message of the open transaction."""
        if self.transaction is not None and self.transaction.refusal is None:
            self.transaction.refusal = error


class TransactionPart:
    """What a producer has to do with transactions.

    transactions  those of its session, or None
    wrote_in      the open one, once the producer has written something in it
    spoils        whose messages its failure took away, 1: of the open one, 2: of the one after that too; 0: of none
    """

    __slots__ = ("spoils", "transactions", "wrote_in")

    def __init__(self, transactions: CurrentTransaction[Any] | None) -> None:
        self.transactions = transactions
        self.wrote_in: Transaction | None = None
        self.spoils = 0

    def end_transaction(self) -> None:
        """The transaction was committed, or rolled back."""
        self.wrote_in = None
        self.spoils = max(self.spoils - 1, 0)

    def fail(self, current: Transaction | None, *, holds_some: bool) -> None:
        """The producer has failed while ``current`` was open; ``holds_some``: with messages that had not left."""
        ending = current is not None and current.complete
        if holds_some:
            self.spoils = 2 if ending else 1
        elif current is not None and self.wrote_in is current and not ending:
            self.spoils = 1
