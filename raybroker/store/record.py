"""A small durable log of opaque frames: the configuration change record and the path map are kept in one each.

    file   = header, batch …        header = MAGIC 8 bytes, version u32
    batch  = BATCH 4 bytes, length of the body u32, CRC-32 of the body u32, CRC-32 of the 12 bytes before u32, body
    body   = (length u32, frame) …

One ``append`` writes one batch, and the next is written only after that was synced.  A batch that is not whole, with no
whole one behind it, was therefore never acknowledged and is cut off.  A batch that is not whole in front of a whole one
was damaged later: the file is refused, with the offset.  ``replace`` writes a new file beside the old one and renames
it; so does ``open``, because bytes of a failed sync, or a name that was not synced, may be in memory only.  A lock
beside the file is held as long as the file is open: two processes never write it.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from raybroker.model.errors import IllegalStateError, StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO, read_whole, write_all

MAGIC: Final = b"RBRECORD"
VERSION: Final = 1
BATCH: Final = b"\xb5RB\x0a"
BATCH_BYTES_MAX: Final = 64 << 20
"""Most bytes of a batch; a frame is at most a whole record."""
PORTION_BYTES: Final = 1 << 20
"""A file that is written whole has batches of about this size."""

_HEADER: Final = struct.Struct("<8sI")
_BATCH: Final = struct.Struct("<4sII")
_U32: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _BATCH.size + _U32.size


class RecordIO(FileIO):
    """The journal's system calls; tests fail and record them."""


class RecordFile:
    """One log.  ``open`` comes first, ``close`` last; calls may come from any thread and take turns.

    ``close`` waits for the write of another thread, because the number of a file that is closed under a thread may
    belong to another file when that thread writes on.  After an error while writing nothing more can be written: open
    the file anew to read its content.
    """

    def __init__(self, path: Path, io: RecordIO | None = None) -> None:
        self.path = path
        self.cut_bytes = 0
        """Bytes that ``open`` cut off the end."""
        self._io = io or RecordIO()
        self._fd = -1
        self._lock = -1
        self._size = 0
        self._dead = ""
        self._turns = threading.RLock()

    # ---- opening

    def open(self) -> list[bytes]:
        """Returns all frames in order, which are on disk then; makes the file when there is none.

        Raises StoreDamagedError naming the offset, IllegalStateError when another process has it, StoreError.
        """
        assert self._fd < 0, "open once"
        try:
            self._take_lock()
            frames = self._read()
            self._rewrite(frames)
            return frames
        except OSError as error:
            self.close()
            raise StoreError(f"{self.path} cannot be opened: {error}") from None
        except BaseException:
            self.close()
            raise

    def _read(self) -> list[bytes]:
        if not self._io.exists(self.path):
            return []
        data = read_whole(self._io, self.path)
        frames, end = scan(data, str(self.path))
        self.cut_bytes = len(data) - end
        return frames

    def _take_lock(self) -> None:
        path = self.path.with_name(self.path.name + ".lock")
        if not self._io.exists(self.path.parent):
            self._io.make_directory(self.path.parent)
        try:
            self._lock = self._io.create(path)
        except FileExistsError:
            self._lock = self._io.open(path)
        if not self._io.try_lock(self._lock):
            raise IllegalStateError(f"{self.path} is in use by another process")

    def close(self) -> None:
        """Releases the file; may be called again."""
        with self._turns:
            for fd in (self._fd, self._lock):
                if fd >= 0:
                    self._io.close(fd)
            self._fd = self._lock = -1
            self._dead = self._dead or "it is closed"

    # ---- writing

    def append(self, frames: Sequence[bytes]) -> None:
        """Durable when it returns, all or none.  Raises StoreError."""
        if not frames:
            return
        batch = encode(frames)
        with self._turns:
            self._check()
            try:
                write_all(self._io, self._fd, [batch], self._size)
                self._io.fdatasync(self._fd)
            except OSError as error:
                raise self._failed(error) from None
            self._size += len(batch)

    def replace(self, frames: Sequence[bytes]) -> None:
        """Put these frames in the place of all there were, at once; durable when it returns.  Raises StoreError."""
        with self._turns:
            self._check()
            try:
                self._rewrite(frames)
            except OSError as error:
                raise self._failed(error) from None

    def _rewrite(self, frames: Sequence[bytes]) -> None:
        new = self._beside()
        if self._io.exists(new):
            self._io.unlink(new)
        fd = self._make(new, frames)
        old, self._fd = self._fd, fd
        if old >= 0:
            self._io.close(old)
        self._size = self._io.size(fd)
        self._io.rename(new, self.path)
        self._io.fsync_dir(self.path.parent)

    def _make(self, path: Path, frames: Sequence[bytes]) -> int:
        """A whole new file, on disk but for its name; as it gets its name later, it may have several batches."""
        fd = self._io.create(path)
        try:
            at = 0
            for part in (_HEADER.pack(MAGIC, VERSION), *(encode(some) for some in portions(frames))):
                write_all(self._io, fd, [part], at)
                at += len(part)
            self._io.fdatasync(fd)
        except BaseException:
            self._io.close(fd)
            raise
        return fd

    def _beside(self) -> Path:
        return self.path.with_name(self.path.name + ".new")

    def _check(self) -> None:
        if self._dead or self._fd < 0:
            raise StoreError(f"{self.path} cannot be written: {self._dead or 'it is not open'}")

    def _failed(self, error: OSError) -> StoreError:
        self._dead = str(error)
        return StoreError(f"{self.path} cannot be written: {error}")


# ---- the format


def encode(frames: Iterable[bytes]) -> bytes:
    """One batch.  Raises StoreError for one that is too large."""
    parts: list[bytes] = []
    for frame in frames:
        parts += (_U32.pack(len(frame)), frame)
    body = b"".join(parts)
    if len(body) > BATCH_BYTES_MAX:
        raise StoreError(f"{len(body)} bytes at a time; at most {BATCH_BYTES_MAX} are allowed")
    head = _BATCH.pack(BATCH, len(body), zlib.crc32(body))
    return head + _U32.pack(zlib.crc32(head)) + body


def portions(frames: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The frames in order, some at a time."""
    some: list[bytes] = []
    nbytes = 0
    for frame in frames:
        some.append(frame)
        nbytes += len(frame)
        if nbytes >= PORTION_BYTES:
            yield some
            some, nbytes = [], 0
    if some:
        yield some


def scan(data: bytes, name: str) -> tuple[list[bytes], int]:
    """The frames in the content of a file, and the end of its last whole batch.  Raises StoreDamagedError."""
    if len(data) < _HEADER.size:
        raise StoreDamagedError(f"{name} is damaged at offset 0: it has no header")
    magic, version = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise StoreDamagedError(f"{name} is damaged at offset 0: it is no record of version {VERSION}")
    frames: list[bytes] = []
    at = _HEADER.size
    while at < len(data):
        body = _body(data, at)
        if body is None:
            if _whole_after(data, at + 1):
                raise StoreDamagedError(f"{name} is damaged at offset {at}: what stands there is unknown")
            break
        frames += _frames(body, at, name)
        at += _HEAD_BYTES + len(body)
    return frames, at


def _body(data: bytes, at: int) -> bytes | None:
    """The body of a whole batch at this offset."""
    if len(data) - at < _HEAD_BYTES:
        return None
    tag, length, crc = _BATCH.unpack_from(data, at)
    if tag != BATCH or _U32.unpack_from(data, at + _BATCH.size)[0] != zlib.crc32(data[at : at + _BATCH.size]):
        return None
    body = data[at + _HEAD_BYTES : at + _HEAD_BYTES + length]
    return body if len(body) == length and zlib.crc32(body) == crc else None


def _whole_after(data: bytes, at: int) -> bool:
    while (at := data.find(BATCH, at)) >= 0:
        if _body(data, at) is not None:
            return True
        at += 1
    return False


def _frames(body: bytes, at: int, name: str) -> list[bytes]:
    frames = []
    here = 0
    while here < len(body):
        if here + _U32.size > len(body):
            raise StoreDamagedError(f"{name} is damaged at offset {at}: a batch has a length without a frame")
        (length,) = _U32.unpack_from(body, here)
        here += _U32.size + length
        if here > len(body):
            raise StoreDamagedError(f"{name} is damaged at offset {at}: a frame is longer than its batch")
        frames.append(body[here - length : here])
    return frames
