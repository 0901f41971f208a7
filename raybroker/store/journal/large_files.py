"""Bodies that come in pieces: each is written to a file of its own as it comes, before the block that it belongs to.

The file is one of ``own_files``, allocated at once, so that a full disk is told before anything is sent.  When the
last piece is synced the block can come; the log then gets a reference.  A body whose block never comes, or is refused,
leaves its file to the pool.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from zlib import crc32

from raybroker.model.blocks.large_block import PIECE_BYTES, LargePayload, piece_bytes, pieces_of
from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.model.errors import StoreError, StoreFullError
from raybroker.store.fileio import FileIO, write_all
from raybroker.store.journal.format import OWN_FILE, Packed, pack_entries, with_flag
from raybroker.store.journal.own_files import OwnFiles, Reference
from raybroker.store.journal.reserve import FULL_ERRNOS

_CRC: Final = struct.Struct("<I")


class StoredBody:
    """A body that the log refers to; see LargeBody."""

    __slots__ = ("_own", "_reference")

    def __init__(self, own: OwnFiles, reference: Reference) -> None:
        self._own = own
        self._reference = reference

    @property
    def nbytes(self) -> int:
        return self._reference.nbytes

    def piece(self, number: int) -> bytes:
        return self._own.read_piece(self._reference, number)

    def claim(self) -> bool:
        """False: its file belongs to a block."""
        return False


class NewBody:
    """A body that comes; raises StoreFullError when there is no room for it, StoreError when its file cannot be made.

    ``write`` and ``finish`` may be called in any thread, one at a time; ``piece`` in any, once it is finished.
    """

    def __init__(self, own: OwnFiles, io: FileIO, nbytes: int) -> None:
        self.nbytes = nbytes
        self._own = own
        self._io = io
        self._crcs = bytearray()
        self._crc = 0
        self._written = 0
        self._claimed = self._kept = False
        self._fd = self._number = -1
        try:
            self._number, self._fd = own.make_file(nbytes)
        except OSError as error:
            raise StoreError(f"no file for a body of {nbytes} bytes can be made: {error}") from error

    @property
    def written(self) -> int:
        """Pieces that are there."""
        return self._written

    def write(self, data: bytes) -> None:
        """The next piece, of the size that it has to have; raises StoreFullError or StoreError."""
        assert len(data) == piece_bytes(self.nbytes, self._written)
        try:
            write_all(self._io, self._fd, (data,), self._written * PIECE_BYTES, len(data))
        except OSError as error:
            kind = StoreFullError if error.errno in FULL_ERRNOS else StoreError
            raise kind(f"a piece of a body of {self.nbytes} bytes cannot be written: {error}") from error
        self._crcs += _CRC.pack(crc32(data))
        self._crc = crc32(data, self._crc)
        self._written += 1

    def finish(self) -> None:
        """Make it durable; raises StoreError, and it is lost then."""
        assert self._written == pieces_of(self.nbytes)
        fd, self._fd = self._fd, -1
        try:
            self._own.sync(fd)
        except OSError as error:
            raise StoreError(f"a body of {self.nbytes} bytes cannot be made durable: {error}") from error
        finally:
            self._io.close(fd)

    def piece(self, number: int) -> bytes:
        return self._own.read_piece(self._reference(b""), number)

    def claim(self) -> bool:
        """Whether a block that asks now gets the file; the first one does."""
        claimed, self._claimed = self._claimed, True
        if not claimed:
            self._own.claimed += 1
        return not claimed

    def reference(self, front: bytes) -> Reference:
        """Return the reference for the log, with what stands before the body."""
        return self._reference(front)

    def keep(self) -> None:
        """The log has the reference: from now on the file is the block's."""
        self._kept = True
        self._own.claimed -= 1

    def _reference(self, front: bytes) -> Reference:
        return Reference(self._number, self.nbytes, self._crc, bytes(self._crcs), front)

    def __del__(self) -> None:
        """Nobody can ask for it any more; in any thread, holding any lock."""
        if self._kept or self._number < 0:
            return
        with suppress(OSError):
            if self._fd >= 0:
                self._io.close(self._fd)
            self._own.drop(self._number)


def has_large(entries: Sequence[LogEntry], packed: Packed, record_bytes: int) -> bool:
    """Whether a payload of the batch has a file of its own, or is larger than ``record_bytes`` and gets one."""
    return any(row.nbytes > record_bytes for row in packed.blocks) or any(
        type(entry.payload) is LargePayload for entry in entries
    )


def put_out(
    entries: Sequence[LogEntry],
    packed: Packed,
    own: OwnFiles,
    record_bytes: int,
    references: dict[tuple[int, int], Reference],
) -> Packed:
    """The batch with references in the place of large payloads, which are written now unless they came in pieces.

    ``references``: gets them. Raises StoreFullError and OSError.
    """
    rows = iter(packed.blocks)
    changed = list(entries)
    at: list[int] = []
    among_blocks: list[int] = []
    blocks = 0
    for place, entry in enumerate(entries):
        if entry.kind != BLOCK:
            continue
        row, payload = next(rows), entry.payload
        if type(payload) is LargePayload or row.nbytes > record_bytes:
            if type(payload) is LargePayload:
                reference = _new_body(payload).reference(bytes(payload[0]))
            else:
                reference = own.write(payload, row.nbytes, row.crc)
            references[entry.destination, entry.ordinal] = reference
            changed[place] = entry._replace(payload=(reference.encode(),))
            at.append(place)
            among_blocks.append(blocks)
        blocks += 1
    return with_flag(pack_entries(changed), at, among_blocks, OWN_FILE)


def keep_bodies(entries: Sequence[LogEntry]) -> None:
    """The log has the references: the files of bodies that came in pieces are those of their blocks now."""
    for entry in entries:
        if type(entry.payload) is LargePayload:
            _new_body(entry.payload).keep()


def _new_body(payload: LargePayload) -> NewBody:
    assert isinstance(payload.large, NewBody), "a body of another store"
    return payload.large
