"""Verbs of transactions: those of administrators, and those of transaction managers alone."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from raybroker.admin.verb import By, verb
from raybroker.admin.verb_types import Id, Truth
from raybroker.model.listing import Listing, Row


class TransactionVerbs:
    """Transactions as administrators see them."""

    @verb(By.ROWS)
    def list_transactions(self, /) -> Listing:
        """One row a transaction and host: id, host, kind (local, xa), state, messages, acks, created_ms, …"""

    @verb(By.FIRST)
    def query_transaction(self, /, id: Id) -> Row:
        """One transaction by id, or by "host:id" where several hosts have that id.

        Raises InvalidDestinationError when there is none, IllegalStateError when there are several.
        """

    @verb(By.FIRST)
    def commit_transaction(self, /, id: Id) -> None:
        """Commit a PREPARED transaction; raises IllegalStateError naming the state it is in otherwise.

        An XA branch is HEURISTICALLY_COMMITTED then, and listed until its manager calls ``xa.forget``.
        """

    @verb(By.FIRST)
    def rollback_transaction(self, /, id: Id) -> None:
        """Roll a transaction back that has not ended, PREPARED or not.

        A prepared XA branch is HEURISTICALLY_ROLLED_BACK then, and listed until its manager calls ``xa.forget``.
        Raises InvalidDestinationError when there is none of that id.
        """


class ManagerVerbs:
    """What transaction managers may do besides, see ``raybroker.connect_xa``."""

    @verb(By.FIRST)
    def decide_transaction(self, /, id: Id, commit: Truth) -> None:
        """End a prepared XA branch as its manager decided. Raises IllegalStateError in any other state."""

    @verb(By.FIRST)
    def forget_transaction(self, /, id: Id) -> None:
        """Drop a heuristic outcome that its manager knows. Raises IllegalStateError in any other state."""
