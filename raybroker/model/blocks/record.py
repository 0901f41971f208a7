"""Records of a store: entries of a log, opaque to it but for their kind.

The core decides what an entry means; a store only has to know which entries carry a message block (they live until
freed), which are notes (they live until a checkpoint supersedes them) and which are checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview
Payload = tuple[Buffer, ...]


class PackedPayload(tuple[Buffer, ...]):  # noqa: SLOT001 - a tuple has no room for slots that hold anything
    """The payload of a block that was compressed where it is kept: a store says in its format that it has such, so
    that a release which cannot open them refuses it by name.

    ``plain``: the same block as it came, for a store that may not say so.
    """

    plain: Payload

    def __new__(cls, packed: Payload, plain: Payload) -> PackedPayload:
        made = super().__new__(cls, packed)
        made.plain = plain
        return made


BLOCK: Final = 1
NOTE: Final = 2
CHECKPOINT: Final = 3
LOST: Final = 4
"""Never stored: stands where lenient reading of a damaged store found entries lost; its ordinal says which range."""

NOTE_BYTES_MAX: Final = 1 << 20
"""A note is small; what is larger belongs into a checkpoint or a block."""


class LogEntry(NamedTuple):
    """One entry of a store's log.

    kind         BLOCK, NOTE or CHECKPOINT
    destination  id of the destination, unsigned 32 bit; 0 for what concerns the whole host
    ordinal      number of the block within its destination, unsigned 64 bit; 0 unless BLOCK
    meta         opaque bytes, kept in summaries and given back on recovery
    payload      BLOCK only: buffers that are written one after the other
    """

    kind: int
    destination: int
    ordinal: int
    meta: bytes
    payload: Payload = ()


class EntryRun(NamedTuple):
    """BLOCK entries of one destination, with ordinals side by side and metas of one length.

    first  ordinal of the first
    metas  the metas, one behind the other
    """

    destination: int
    first: int
    blocks: int
    metas: bytes

    def entries(self) -> Iterator[LogEntry]:
        size = len(self.metas) // self.blocks
        for at in range(self.blocks):
            yield LogEntry(BLOCK, self.destination, self.first + at, self.metas[at * size : (at + 1) * size])


RUN_BLOCKS_MAX: Final = 1 << 16
"""Blocks of one run that :func:`in_runs` makes."""


def in_runs(entries: Iterable[LogEntry]) -> Iterator[LogEntry | EntryRun]:
    """The entries in their order, with blocks that follow each other and are alike together."""
    metas: list[bytes] = []
    destination = first = expected = width = -1
    for entry in entries:
        kind, number, ordinal, meta, _ = entry
        if metas and (
            kind != BLOCK
            or ordinal != expected
            or number != destination
            or len(meta) != width
            or len(metas) == RUN_BLOCKS_MAX
        ):
            yield EntryRun(destination, first, len(metas), b"".join(metas))
            metas = []
        if kind != BLOCK:
            yield entry
            continue
        if not metas:
            destination, first, width = number, ordinal, len(meta)
        metas.append(meta)
        expected = ordinal + 1
    if metas:
        yield EntryRun(destination, first, len(metas), b"".join(metas))


class StoreStats(NamedTuple):
    """Statistics of a store; sizes in bytes, times in nanoseconds, counts since it was opened."""

    reserved_bytes: int = 0
    used_bytes: int = 0
    live_bytes: int = 0
    segments: int = 0
    own_files: int = 0
    """Blocks in files of their own."""
    own_bytes: int = 0
    free_files: int = 0
    """Files that are kept for such blocks."""
    free_bytes: int = 0
    commits: int = 0
    syncs: int = 0
    sync_ns: int = 0
    sync_ns_last: int = 0
    sync_ns_max: int = 0
