"""Transactions of a host as its broker asks for them, and messages that go to another host in one.

``key`` and ``txn`` are the global identifier in hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Callable

from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.destinations.transfer import MessageTransfer
from raybroker.engine.transactions.transactions import Transactions
from raybroker.hosting.durable import Changes, Done, durable
from raybroker.hosting.ports.copies import exported_block
from raybroker.model.listing import Row


class TransactionsPort:
    def __init__(self, transactions: Transactions, changes: Changes) -> None:
        self._transactions = transactions
        self.changes = changes

    async def transaction_rows(self) -> list[Row]:
        """id, key, kind (local, xa), state, xid, client_id, connection, messages, acks, created_ms, coordinator."""
        from raybroker.model.naming.xid import Xid

        rows = self._transactions.transaction_rows()
        for row in rows:
            row["xid"] = str(Xid.unpack(bytes.fromhex(row["key"]))) if row["kind"] == "xa" and row["key"] else None
        return rows

    @durable
    async def decide_by_hand(self, done: Done, id: int, commit: bool) -> None:
        self._transactions.decide_by_hand(id, commit, done)

    async def outcome(self, key: str) -> str:
        """committed, rolled_back, prepared, started or unknown."""
        return self._transactions.outcome(bytes.fromhex(key))

    @durable
    async def decide(self, done: Done, key: str, commit: bool) -> None:
        """End a prepared transaction; one that is not known is rolled back for ever. Raises IllegalStateError when it
        ended the other way."""
        self._transactions.decide(bytes.fromhex(key), commit, done)

    @durable
    async def forget_transaction(self, done: Done, key: str) -> None:
        self._transactions.forget_transaction(bytes.fromhex(key), done)


class HandoverPort:
    """Messages that go to another host, see engine.destinations.transfer. ``require_memory`` raises MemoryLowError
    where there is none for what its argument names."""

    def __init__(
        self,
        registry: DestinationRegistry,
        transfer: MessageTransfer,
        require_memory: Callable[[str], None],
        changes: Changes,
    ) -> None:
        self._registry = registry
        self._transfer = transfer
        self._require_memory = require_memory
        self.changes = changes

    async def set_aside(
        self, type: str, name: str, txn: str, messages_max: int, bytes_max: int, whole: bool = False
    ) -> list[bytes]:
        """Blocks of messages that wait, for the transaction; ``whole``: as of MessageTransfer.set_aside."""
        destination = self._registry.find(type, name)
        return self._transfer.set_aside(destination, bytes.fromhex(txn), messages_max, bytes_max, whole=whole)

    async def remembers_ids(self, type: str, name: str) -> bool:
        """Whether the destination takes a message with one deduplication id once."""
        return self._registry.find(type, name).policy.attributes.duplicateWindowMs > 0

    async def known_ids(self, type: str, name: str, start: int, most: int) -> list[tuple[str, int, bool]]:
        """Deduplication ids that are remembered, as of MessageTransfer.take_ids, ``start`` of them left out."""
        return self._registry.find(type, name).admission.known_ids()[start : start + most]

    @durable
    async def take_ids(self, done: Done, type: str, name: str, ids: list[tuple[str, int, bool]]) -> None:
        """Remember what another host has remembered; again does no harm."""
        self._transfer.take_ids(self._registry.find(type, name), ids, done)

    @durable
    async def give(self, done: Done, txn: str) -> None:
        self._transfer.give(bytes.fromhex(txn), done)

    @durable
    async def keep(self, done: Done, txn: str) -> None:
        self._transfer.keep(bytes.fromhex(txn), done)

    @durable
    async def take_over(self, done: Done, type: str, name: str, txn: str, coordinator: str, blocks: list[bytes]) -> int:
        """How many messages were taken."""
        destination = self._registry.find(type, name)
        self._require_memory(f"nothing is forwarded to {type} {name}")
        found = [exported_block(index, data) for index, data in enumerate(blocks)]
        self._transfer.take_over(destination, bytes.fromhex(txn), coordinator, found, done)
        return sum(block.count for block in found)
