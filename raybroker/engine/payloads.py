"""The bytes of held blocks: in memory while there is room, otherwise in the store.

The oldest blocks are the next to be delivered, so a full cache keeps what it has and lets new arrivals be read back
from the store when their turn comes.  Blocks that are nowhere else (non-persistent ones) are always kept; limits on
messages and bytes are what bounds them.
"""

from __future__ import annotations

from raybroker.engine.ports import Store
from raybroker.model.block import Block
from raybroker.model.record import Buffer


class Payloads:
    """``budget_bytes``: how much of persistent blocks is kept in memory."""

    def __init__(self, store: Store, budget_bytes: int) -> None:
        self._store = store
        self._budget_bytes = budget_bytes
        self._kept: dict[tuple[int, int], Buffer] = {}
        self.kept_bytes = 0
        self.read_back = 0

    def put(self, destination: int, ordinal: int, view: memoryview, *, persistent: bool) -> None:
        """Keep a new block if there is room."""
        if not persistent or self.kept_bytes + view.nbytes <= self._budget_bytes:
            self._kept[destination, ordinal] = view
            self.kept_bytes += view.nbytes

    def get(self, destination: int, ordinal: int) -> Block:
        """The block; raises StoreError when it has to be read and cannot be."""
        data = self._kept.get((destination, ordinal))
        if data is None:
            self.read_back += 1
            data = self._store.read(destination, ordinal)
        return Block(data)

    def drop(self, destination: int, ordinal: int) -> None:
        data = self._kept.pop((destination, ordinal), None)
        if data is not None:
            self.kept_bytes -= memoryview(data).nbytes
