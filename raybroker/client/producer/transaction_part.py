"""A producer's part in the transactions of its session: what its failure takes away of them."""

from __future__ import annotations

from typing import Any

from raybroker.client.session.branch import Transaction
from raybroker.client.session.current_transaction import CurrentTransaction


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

    def end(self) -> None:
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
