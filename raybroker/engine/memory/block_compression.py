"""Compression of blocks by the host that keeps them: what the store and paging files get instead of plain blocks.

Off, which is the default, nothing is called that would not be called without it.  What was compressed is opened where
it is read back, whatever the properties say by then.  Limits and quotas count the bytes that came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from raybroker.engine.memory.pager import PageFiles
from raybroker.engine.ports import Notice
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargePayload, payload_of
from raybroker.model.blocks.record import Buffer, PackedPayload, Payload
from raybroker.model.settings.settings import ConfigView

STORE: Final = "raybroker.store.message_compression_enabled"
PAGING: Final = "raybroker.paging.message_compression_enabled"


class Packing(Protocol):
    """Who knows how blocks are packed."""

    def packed(self, data: Buffer) -> Buffer: ...


class PayloadWriter(Protocol):
    """Who gives blocks to the store. ``payload``: what it gives of a new block."""

    payload: Callable[[Block], Payload]


class PlainStore(Protocol):
    """A store that may have to keep blocks as they came."""

    def plain_because(self) -> str: ...


class BlockCompression:
    """The compression of blocks of one host; ``report`` takes a line for the log.

    blocks       blocks that the store got compressed, since the start
    saved_bytes  how many bytes fewer it got
    """

    def __init__(
        self,
        codec: Packing,
        config: ConfigView,
        store: PlainStore,
        writer: PayloadWriter,
        files: PageFiles | None,
        report: Callable[[str], None],
    ) -> None:
        self.blocks = self.saved_bytes = 0
        self._packed = codec.packed
        self._config = config
        self._store = store
        self._report = report
        self._reported = ""
        self._writer = writer
        self._files = files
        self.configure()

    @property
    def paging_saved_bytes(self) -> int:
        """How many bytes fewer paging files got, since the start."""
        return 0 if self._files is None else self._files.saved_bytes

    def configure(self) -> None:
        """The configuration may have changed."""
        self._choose()
        if self._files is not None:
            self._files.pack = self._packed if self._config[PAGING] else None

    @property
    def refused_because(self) -> str:
        """Why the store gets no compressed blocks though it should, for people; "" when it does, or should not."""
        return self._store.plain_because() if self._config[STORE] else ""

    def follow_store(self) -> None:
        """The store may have changed its mind; called about once a second."""
        if self._config[STORE]:
            self._choose()

    def _choose(self) -> None:
        because = self.refused_because
        self._writer.payload = self._payload if self._config[STORE] and not because else payload_of
        if because != self._reported:
            self._reported = because
            self._report(because or Notice("messages are compressed where they are stored from now on"))

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
        return PackedPayload((data,), found)
