"""The bytes of held blocks: in memory while there is room, otherwise in the store.

The oldest blocks are the next to be delivered, so a full cache keeps what it has and lets new arrivals be read back
from the store when their turn comes.  Blocks that are nowhere else (non-persistent ones) are the pager's where there
is one, and otherwise kept; limits on messages and bytes are what bounds them.  A block often leaves in several pieces,
so the last few that were asked for stay opened, and so does the latest that came: mostly it leaves at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from raybroker.engine.memory.pager import Pager
from raybroker.engine.ports import BodyStore, Store
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import Buffer

OPENED_MAX: Final = 64
OPENED_BYTES_MAX: Final = 32 << 20
"""Opened blocks that wait for their next piece; the latest one stays whatever its size."""


class BlockCache:
    """``budget_bytes``: how much of persistent blocks is kept in memory; ``pager``: keeps those that are not stored;
    ``bodies``: where large bodies are, None: nowhere; ``unpacked``: opens what the store got compressed."""

    def __init__(
        self,
        store: Store,
        budget_bytes: int,
        pager: Pager | None = None,
        bodies: BodyStore | None = None,
        unpacked: Callable[[Buffer], Buffer] = bytes,
    ) -> None:
        self._store = store
        self._unpacked = unpacked
        self.pager = pager
        self._bodies = bodies
        self._large: dict[tuple[int, int], LargeBlock] = {}
        """Blocks whose bodies are in files that the store does not know, or does not know yet."""
        self.budget_bytes = self._given_bytes = budget_bytes
        self._kept: dict[tuple[int, int], Buffer] = {}
        """Blocks that are in no store, or may not be there yet."""
        self._copies: dict[tuple[int, int], Buffer] = {}
        """Blocks that are in the store, or on their way there."""
        self._opened: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._opened_bytes = 0
        self._newest: tuple[tuple[int, int], Block] | None = None
        self.kept_bytes = 0
        self.read_back = 0

    def put(
        self, destination: int, ordinal: int, block: Block, *, stored: bool, staged: bool = False, topic: bool = False
    ) -> bool:
        """Keep a new block until it is durable; True when it should be demoted then.

        ``staged``: the store may be given the block later, with its transaction.
        """
        key = destination, ordinal
        self._newest = key, block
        if type(block) is LargeBlock:
            self._large[key] = block
            return stored
        if not stored and self.pager is not None:
            self.pager.put(key, block.view, topic=topic, fixed=staged)
            return False
        (self._copies if stored else self._kept)[key] = block.view
        self.kept_bytes += block.nbytes
        return stored and self.kept_bytes > self.budget_bytes

    def get(self, destination: int, ordinal: int) -> Block:
        """The block; raises StoreError when it has to be read and cannot be."""
        key = destination, ordinal
        if self._newest is not None and self._newest[0] == key:
            return self._newest[1]
        block = self._opened.get(key)
        if block is None and self._bodies is not None:
            block = self._large.get(key) or self._bodies.large(destination, ordinal)
        if block is None:
            data = self._copies.get(key) or self._kept.get(key)
            if data is None and self.pager is not None:
                data = self.pager.get(key)
            if data is None:
                self.read_back += 1
                data = self._unpacked(self._store.read(destination, ordinal))
            block = Block(data)
            if block.count > 1:
                self._open(key, block)
        return block

    def check(self, destination: int, ordinal: int) -> None:
        """Read the block if that has to be done; raises as :meth:`get`."""
        key = destination, ordinal
        if key in self._copies or key in self._kept or key in self._opened or key in self._large:
            return
        if self.pager is not None and self.pager.check(key):
            return
        self._store.read(destination, ordinal)

    def demote(self, destination: int, ordinal: int) -> None:
        """The store has this block by now: it stays only if there is room."""
        key = destination, ordinal
        if self._large.pop(key, None) is not None:
            return
        if self.pager is not None:
            data = self.pager.take_block(key)
            if data is not None:
                self._copies[key] = data
                self.kept_bytes += memoryview(data).nbytes
        if self.kept_bytes > self.budget_bytes:
            self._let_go(key)
        elif key in self._kept:
            self._copies[key] = self._kept.pop(key)

    def keep_copies(self, keep: bool) -> None:
        """Whether persistent blocks are kept at all once the store has them."""
        self.budget_bytes = self._given_bytes if keep else 0

    def copies(self) -> list[tuple[int, int]]:
        """Destination and ordinal of the blocks that are kept, and in the store or on their way there."""
        return list(self._copies)

    def drop(self, keys: Collection[tuple[int, int]]) -> None:
        """The store has these blocks by now: their copies leave, and so do all opened blocks."""
        for key in keys:
            if key in self._copies:
                self._let_go(key)
        self._opened.clear()
        self._opened_bytes = 0

    def retire(self, destination: int, ordinals: Collection[int], *, stored: bool) -> None:
        """Nobody will ask for these blocks again; those that are ``stored`` are durably known to be dead."""
        for ordinal in ordinals:
            key = destination, ordinal
            self._let_go(key)
            block = self._opened.pop(key, None)
            if block is not None:
                self._opened_bytes -= block.nbytes
        if stored:
            self._store.free(destination, ordinals)

    def bytes_elsewhere(self, destination: int | None = None) -> dict[str, int]:
        """Bytes of a destination's blocks, or of all, that are neither in memory nor in the store: in paging files, and
        by reference."""
        paged = 0
        if self.pager is not None:
            paged = self.pager.paged_bytes if destination is None else self.pager.paged_bytes_of(destination)
        referred = (
            block.bodies_bytes
            for (number, _), block in self._large.items()
            if block.referred and destination in (None, number)
        )
        return {"paged_bytes": paged, "reference_bytes": sum(referred)}

    def figures(self) -> dict[str, int]:
        """What metrics tell of it."""
        return {
            "block_cache_bytes": self.kept_bytes,
            "block_cache_limit_bytes": self.budget_bytes,
            "blocks_read_back_total": self.read_back,
            "reference_bytes": self.bytes_elsewhere()["reference_bytes"],
        }

    def _let_go(self, key: tuple[int, int]) -> None:
        """The bytes of a block leave, as they came."""
        if self._large and self._large.pop(key, None) is not None:
            if self._newest is not None and self._newest[0] == key:
                self._newest = None
            return
        data = self._copies.pop(key, None)
        if data is None:
            data = self._kept.pop(key, None)
        if data is not None:
            self.kept_bytes -= memoryview(data).nbytes
        elif self.pager is not None:
            self.pager.drop(key)
        if self._newest is not None and self._newest[0] == key:
            self._newest = None

    def _open(self, key: tuple[int, int], block: Block) -> None:
        self._opened[key] = block
        self._opened_bytes += block.nbytes
        while len(self._opened) > 1 and (len(self._opened) > OPENED_MAX or self._opened_bytes > OPENED_BYTES_MAX):
            _, oldest = self._opened.popitem(last=False)
            self._opened_bytes -= oldest.nbytes
