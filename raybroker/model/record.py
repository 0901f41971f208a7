"""Records of a store: entries of a log, opaque to it but for their kind.

The core decides what an entry means; a store only has to know which entries carry a message block (they live until
freed), which are notes (they live until a checkpoint supersedes them) and which are checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview
Payload = tuple[Buffer, ...]

BLOCK: Final = 1
NOTE: Final = 2
CHECKPOINT: Final = 3

NOTE_BYTES_MAX: Final = 1 << 20
"""A note is small; what is larger belongs into a checkpoint or a block."""


class Entry(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class StoreStats:
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
