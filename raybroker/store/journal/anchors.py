"""The anchors of the journal, which it trusts before it reads a segment: the manifest and the commit mark.

The *manifest* says which segment files belong to the log, in which order, and how each sealed one ends.  It is two
files written in turn, whole, each synced before anything relies on it; the one with the higher generation counts.  So
changing the set of segments needs no rename, no directory sync and, the files being allocated beforehand, no room: a
full disk can still be cleaned up.

The *commit mark* says "everything before sequence S was durable".  It is written after each sync, behind the
confirmations, and not synced itself: a power cut may leave an older one, which is still true, and after the death of
only the process it may lack the last batch.  The mark distinguishes a tail that was never acknowledged (cut silently)
from one that was (damage, named).  Two slots in two sectors, written in turn, survive a torn write.  The mark also
names the generation of the manifest, so that falling back to the older manifest because the newer is unreadable is
noticed unless the newer was still being written.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from raybroker.model.errors import StoreDamagedError, StoreFullError
from raybroker.store.fileio import FileIO, read_exact, write_all
from raybroker.store.journal.format import SECTOR_BYTES, FormatError

MANIFEST_NAMES: Final = ("manifest.0", "manifest.1")
MARK_NAME: Final = "commit.mark"

_MANIFEST_MAGIC: Final = b"RBmanif"
PLAIN: Final = 1
OWN_FILES: Final = 2
"""The format of a store in which blocks have had files of their own; releases that know only 1 refuse it."""
COMPRESSED: Final = 3
"""The format of a store that has had compressed blocks, and may have had what 2 has; older releases refuse it."""
_MANIFEST = struct.Struct("<8sQ16sIIQII")
_SEALED: Final = 1
_RELAXED: Final = 1
_CLEAN: Final = 1
_ROW = struct.Struct("<QIIQQQIIQQQIIII")
_CRC = struct.Struct("<I")
_MARK_MAGIC: Final = b"RBmark_1"
_MARK = struct.Struct("<8s16sQIIQQQI")
_MANIFEST_STEP_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One segment in the manifest.  The fields of its end are zero until it is sealed."""

    number: int
    slot: int
    size_bytes: int
    first_seq: int
    chain: int
    sealed: bool = False
    end_seq: int = 0
    end_chain: int = 0
    data_end: int = 0
    checkpoint_offset: int = 0
    summary_offset: int = 0
    summary_bytes: int = 0
    summary_crc: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """The segments of the log, oldest first.

    ``base_seq`` is the first sequence number of this incarnation; ``relaxed`` says that it does not sync its commits;
    ``form`` is the least format that allows what there may be in it, so that older releases read what they can.
    """

    generation: int
    store: bytes
    incarnation: int
    base_seq: int
    relaxed: bool
    segments: tuple[SegmentRecord, ...]
    form: int = PLAIN

    def encode(self) -> bytes:
        parts = [
            _MANIFEST.pack(
                _MANIFEST_MAGIC + b"%d" % self.form,
                self.generation,
                self.store,
                self.incarnation,
                _RELAXED if self.relaxed else 0,
                self.base_seq,
                len(self.segments),
                0,
            )
        ]
        for s in self.segments:
            parts += (
                _ROW.pack(
                    s.number,
                    s.slot,
                    _SEALED if s.sealed else 0,
                    s.size_bytes,
                    s.first_seq,
                    s.end_seq,
                    s.chain,
                    s.end_chain,
                    s.data_end,
                    s.checkpoint_offset,
                    s.summary_offset,
                    s.summary_bytes,
                    s.summary_crc,
                    s.blocks,
                    0,
                ),
            )
        body = b"".join(parts)
        return body + _CRC.pack(crc32(body))

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """Raises FormatError; bytes behind the checksum are of no meaning."""
        if len(data) < _MANIFEST.size or data[:7] != _MANIFEST_MAGIC:
            raise FormatError("no manifest")
        form = data[7] - ord("0")
        if not PLAIN <= form <= COMPRESSED:
            raise FormatError(
                f"it has the format {data[7:8].decode('ascii', 'replace')!r}, of a newer release; this one reads 1 to 3"
            )
        _, generation, store, incarnation, flags, base_seq, count, _ = _MANIFEST.unpack_from(data)
        end = _MANIFEST.size + count * _ROW.size
        if len(data) < end + 4 or _CRC.unpack_from(data, end)[0] != crc32(data[:end]):
            raise FormatError("the checksum of the manifest is wrong")
        found = []
        for row in _ROW.iter_unpack(data[_MANIFEST.size : end]):
            number, slot, sealed, size, first, last, chain, end_chain, data_end, checkpoint, *summary, _ = row
            found.append(
                SegmentRecord(
                    number,
                    slot,
                    size,
                    first,
                    chain,
                    bool(sealed & _SEALED),
                    last,
                    end_chain,
                    data_end,
                    checkpoint,
                    *summary,
                )
            )
        return Manifest(generation, store, incarnation, base_seq, bool(flags & _RELAXED), tuple(found), form)


def manifest_bytes(segments: int) -> int:
    """Size of a manifest of that many segments."""
    return _MANIFEST.size + segments * _ROW.size + 4


class ManifestFiles:
    """The two manifest files.  ``current`` is durable; ``write`` makes the next one so."""

    def __init__(self, io: FileIO, directory: Path) -> None:
        self._io = io
        self._fds: list[int] = []
        self._room_bytes = 0
        self._directory = directory
        self.current: Manifest | None = None
        self.valid_bytes: list[int] = []
        self.generations: list[int] = []

    def load(self, *, write: bool = True) -> list[str]:
        """Open both files and take the newest valid manifest; returns the faults of files that are not valid."""
        faults: list[str] = []
        found: list[Manifest] = []
        rooms: list[int] = []
        for name in MANIFEST_NAMES:
            fd = self._io.open(self._directory / name, write=write)
            self._fds.append(fd)
            rooms.append(self._io.size(fd))
            try:
                found.append(Manifest.decode(read_exact(self._io, fd, rooms[-1], 0)))
                self.valid_bytes.append(manifest_bytes(len(found[-1].segments)))
                self.generations.append(found[-1].generation)
            except FormatError as error:
                self.valid_bytes.append(0)
                faults.append(f"{name}: {error}")
        self._room_bytes = min(rooms)
        self.current = max(found, key=lambda manifest: manifest.generation, default=None)
        return faults

    def create(self, manifest: Manifest) -> None:
        """Both files, the first holding ``manifest``; durable once the caller has synced the directory."""
        for name in MANIFEST_NAMES:
            self._fds.append(self._io.create(self._directory / name))
        self.reserve(0)
        for fd in self._fds:
            write_all(self._io, fd, [manifest.encode()], 0)
            self._io.fdatasync(fd)
        self.current = manifest

    def reserve(self, segments: int) -> None:
        """Allocate room for a manifest of that many segments, so that writing one cannot meet a full disk."""
        needed = manifest_bytes(segments)
        if self._room_bytes >= needed:
            return
        room = -(-needed // _MANIFEST_STEP_BYTES) * _MANIFEST_STEP_BYTES
        for fd in self._fds:
            self._io.fallocate(fd, room)
        self._room_bytes = room

    def must_hold(self, segments: int) -> None:
        """Raises StoreFullError unless a manifest of that many segments can be written without more room."""
        if self._room_bytes < manifest_bytes(segments):
            raise StoreFullError(f"no room for a longer manifest in {self._directory}")

    def write(self, manifest: Manifest) -> None:
        """Replace the older of the two; durable on return."""
        assert self.current is None or manifest.generation == self.current.generation + 1
        fd = self._fds[manifest.generation & 1]
        write_all(self._io, fd, [manifest.encode()], 0)
        self._io.fdatasync(fd)
        self.current = manifest

    def sync(self) -> None:
        """Make the manifests that ``load`` found durable: the process that wrote them may have died before its sync."""
        for fd in self._fds:
            self._io.fdatasync(fd)

    def close(self) -> None:
        while self._fds:
            self._io.close(self._fds.pop())


class Mark(NamedTuple):
    """Everything before ``seq`` was durable, in the manifest of ``generation``.

    ``clean`` says that the log ended exactly there when it was closed.
    """

    store: bytes
    generation: int
    incarnation: int
    clean: bool
    seq: int
    segment: int
    offset: int

    def encode(self) -> bytes:
        body = _MARK.pack(
            _MARK_MAGIC,
            self.store,
            self.generation,
            self.incarnation,
            _CLEAN if self.clean else 0,
            self.seq,
            self.segment,
            self.offset,
            0,
        )
        return body + _CRC.pack(crc32(body))

    @staticmethod
    def decode(data: bytes) -> Mark:
        if len(data) < _MARK.size + 4 or data[:8] != _MARK_MAGIC:
            raise FormatError("no commit mark")
        if _CRC.unpack_from(data, _MARK.size)[0] != crc32(data[: _MARK.size]):
            raise FormatError("the checksum of the commit mark is wrong")
        _, store, generation, incarnation, flags, seq, segment, offset, _ = _MARK.unpack_from(data)
        return Mark(store, generation, incarnation, bool(flags & _CLEAN), seq, segment, offset)


def mark_bytes() -> int:
    """Size of one copy of the mark."""
    return _MARK.size + _CRC.size


class MarkFile:
    """The file of the commit mark: two slots, one a sector."""

    def __init__(self, io: FileIO, directory: Path) -> None:
        self._io = io
        self._path = directory / MARK_NAME
        self._fd = -1
        self._slot = 0
        self._latest = Mark(bytes(16), 0, 0, False, 0, 0, 0)
        self.invalid_slots: list[int] = []

    def create(self, mark: Mark) -> None:
        """Durable once the caller has synced the directory."""
        self._fd = self._io.create(self._path)
        self.write_clean(mark)
        self._latest = mark._replace(clean=True)

    def load(self, *, write: bool = True) -> Mark:
        """The newer valid mark.  Raises StoreDamagedError without one: the acknowledged end is unknown then."""
        self._fd = self._io.open(self._path, write=write)
        data = read_exact(self._io, self._fd, 2 * SECTOR_BYTES, 0)
        found: list[Mark] = []
        for slot in (0, 1):
            try:
                found.append(Mark.decode(data[slot * SECTOR_BYTES : (slot + 1) * SECTOR_BYTES]))
            except FormatError:
                self.invalid_slots.append(slot * SECTOR_BYTES)
        if not found:
            raise StoreDamagedError(f"{self._path}: no valid commit mark: what was acknowledged is unknown")
        self._latest = max(found, key=lambda mark: (mark.incarnation, mark.seq, mark.generation, mark.clean))
        return self._latest

    def withdraw(self) -> None:
        """The clean end that was found is over, durably: from now on what is torn may have been under way."""
        if self._latest.clean:
            data = self._latest._replace(clean=False).encode().ljust(SECTOR_BYTES, b"\0")
            write_all(self._io, self._fd, [data, data], 0)
            self._io.fdatasync(self._fd)

    def write(self, mark: Mark) -> None:
        """Write the mark; on purpose not synced."""
        self._latest = mark
        self.advance(mark.seq, mark.segment, mark.offset)

    def advance(self, seq: int, segment: int, offset: int) -> None:
        """Write the mark that was written last with another end; once a commit, and on purpose not synced."""
        store, generation, incarnation, *_ = self._latest
        data = _MARK.pack(_MARK_MAGIC, store, generation, incarnation, 0, seq, segment, offset, 0)
        data += _CRC.pack(crc32(data))
        self._slot ^= SECTOR_BYTES
        write_all(self._io, self._fd, (data,), self._slot, len(data))

    def write_clean(self, mark: Mark) -> None:
        """Both slots, synced."""
        data = mark._replace(clean=True).encode().ljust(SECTOR_BYTES, b"\0")
        write_all(self._io, self._fd, [data, data], 0)
        self._io.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._io.close(self._fd)
            self._fd = -1
