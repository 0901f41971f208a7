"""Compression of blocks by the host that keeps them: what the store and paging files get instead of plain blocks.

Off, which is the default, nothing is called that would not be called without it.  What was compressed is opened where
it is read back, whatever the properties say by then.  Limits and quotas count the bytes that came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from raybroker.engine.pager import PageFiles
from raybroker.model.block import Block
from raybroker.model.large_block import LargePayload, payload_of
from raybroker.model.record import Buffer, PackedPayload, Payload
from raybroker.model.settings import ConfigView

STORE: Final = "raybroker.store.message_compression_enabled"
PAGING: Final = "raybroker.paging.message_compression_enabled"


class Packing(Protocol):
    """Who knows how blocks are packed."""

    def packed(self, data: Buffer) -> Buffer: ...


class Writer(Protocol):
    """Who gives blocks to the store. ``payload``: what it gives of a new block."""

    payload: Callable[[Block], Payload]


class BlockCompression:
    """Of one host.

    blocks       blocks that the store got compressed, since the start
    saved_bytes  how many bytes fewer it got
    """

    def __init__(self, codec: Packing, config: ConfigView, writer: Writer, files: PageFiles | None) -> None:
        self.blocks = self.saved_bytes = 0
        self._packed = codec.packed
        self._config = config
        self._writer = writer
        self._files = files
        self.configure()

    @property
    def paging_saved_bytes(self) -> int:
        """How many bytes fewer paging files got, since the start."""
        return 0 if self._files is None else self._files.saved_bytes

    def configure(self) -> None:
        """The configuration may have changed."""
        self._writer.payload = self._payload if self._config[STORE] else payload_of
        if self._files is not None:
            self._files.pack = self._packed if self._config[PAGING] else None

    def _payload(self, block: Block) -> Payload:
        found = payload_of(block)
        if type(found) is LargePayload:
            return found  # Its body is in a file of the store already.
        data = self._packed(block.view)
        saved = block.nbytes - memoryview(data).nbytes
        if not saved:
            return (data,)
        self.blocks += 1
        self.saved_bytes += saved
        return PackedPayload((data,))
