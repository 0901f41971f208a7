"""Own files: the payload of a large block is in a file of its own, and the log has a *reference* to it.

A reference is the payload of a block's row with the flag OWN_FILE: number of the file, size and checksum of what is in
it.  The file is written and synced before the reference is appended, so that group commit and recovery keep their
logic: a block is there when its row is.  Copies of a row, when space is reclaimed, copy the reference only.

A body that came in pieces was written to its file as it came (``large_files``): such a file has the body alone, and
its reference what stands before the body in the block, with a checksum of each piece.

    body-NNNNNNNNNNNNNNNN   the payload of one block; numbers are never used again
    free-NNNNNNNNNNNNNNNN   a file of the pool: kept allocated, to be renamed and written over

A file is free when its block is dead and a checkpoint says so: until then recovery may give the block back.  A file
that recovery finds no reference to is left by a batch that never became durable, and is free as well.  Decisions:

* The pool is that of a store, which is a host's.  A destination with a host of its own has its own pool, as in MQ;
  those of a shared host share one, because a thousand pools would keep a thousand times the files.
* Where there is no room for a new file the pool is given up first, and then the free files of the log.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from raybroker.model.blocks.large_block import PIECE_BYTES, piece_bytes, pieces_of
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.model.settings.settings import ConfigView
from raybroker.model.sizes import MIB
from raybroker.store.fileio import FileIO, read_exact, write_all
from raybroker.store.journal.reserve import FULL_ERRNOS

BODY_PREFIX: Final = "body-"
FREE_PREFIX: Final = "free-"
_REFERENCE: Final = struct.Struct("<QQI")
_CRC: Final = struct.Struct("<I")
_INCARNATION_BITS: Final = 32

Key = tuple[int, int]
"""(destination, ordinal) of a block."""


class OwnFileOptions(NamedTuple):
    """What the properties imq.persist.file.… say.

    record_bytes   a larger payload has a file of its own; -1: none has
    pool_limit     most free files
    clean_percent  of the free files, how many are emptied
    cleanup        remove the free files when the store is closed
    """

    record_bytes: int = MIB
    pool_limit: int = 100
    clean_percent: int = 0
    cleanup: bool = False

    @classmethod
    def from_config(cls, config: ConfigView) -> OwnFileOptions:
        return cls(
            config["imq.persist.file.message.max_record_size"],
            config["imq.persist.file.destination.message.filepool.limit"],
            config["imq.persist.file.message.filepool.cleanratio"],
            config["imq.persist.file.message.cleanup"],
        )


class Reference(NamedTuple):
    """The place of a payload: the number of its file, and size and CRC-32 of what is in it.

    crcs   of a body that came in pieces: the CRC-32 of each, four bytes after four
    front  and what stands before the body in its block
    """

    number: int
    nbytes: int
    crc: int
    crcs: bytes = b""
    front: bytes = b""

    def encode(self) -> bytes:
        return b"".join((_REFERENCE.pack(*self[:3]), self.crcs, self.front))

    @classmethod
    def decode(cls, data: bytes) -> Reference:
        number, nbytes, crc = _REFERENCE.unpack_from(data)
        if len(data) == _REFERENCE.size:
            return cls(number, nbytes, crc)
        end = _REFERENCE.size + _CRC.size * pieces_of(nbytes)
        return cls(number, nbytes, crc, data[_REFERENCE.size : end], data[end:])

    def crc_of(self, piece: int) -> int:
        """The CRC-32 of a piece."""
        return int(_CRC.unpack_from(self.crcs, _CRC.size * piece)[0])


def number_of(name: str, prefix: str) -> int | None:
    """The number in the name of a file of that kind; None for other files."""
    digits = name.removeprefix(prefix)
    return int(digits, 16) if digits != name and len(digits) == 16 else None


def body_name(number: int) -> str:
    """The name of the file with the payload of a block."""
    return f"{BODY_PREFIX}{number:016x}"


class OwnFiles:
    """The own files of a directory.  ``write``, ``collect``, ``adopt`` and ``close`` belong to the committing thread,
    the rest to any."""

    def __init__(
        self, io: FileIO, directory: Path, options: OwnFileOptions, more_room: Callable[[], bool] = bool
    ) -> None:
        """``more_room``: gives up what else there is, in the committing thread; false when that is nothing."""
        self._io = io
        self._more_room = more_room
        self._directory = directory
        self._options = options
        self._lock = threading.Lock()
        self._pool_lock = threading.Lock()
        """Files are taken from the pool and put into it by more than one thread."""
        self._references: dict[Key, Reference] = {}
        self._freed: list[tuple[int, Reference]] = []
        """(where the log ended when it was freed, what)."""
        self._pool: dict[int, int] = {}
        """Number of a free file → its size."""
        self._dropped: deque[int] = deque()
        """Files that nobody will refer to, and that are not in the pool yet."""
        self._reading: dict[int, int] = {}
        """Number of a file → how many read it now."""
        self._next = 0
        self._renamed = False
        """Files became free, and their directory was not synced since."""
        self.freed_bytes = 0
        """Of files that wait for the next checkpoint."""
        self.claimed = 0
        """Bodies that came in pieces, and whose blocks are on their way into the log."""

    def __bool__(self) -> bool:
        """There are own files that are in use, or were until the next checkpoint."""
        return bool(self._references or self._freed)

    # ---- opening

    def adopt(self, incarnation: int, found: Iterable[tuple[Key, Reference]], *, whole: bool) -> None:
        """Take over the references that recovery has found.  Files that none of them names are free.

        ``whole`` False: a reference could not be read, so files that seem to be free may be needed, and are left alone.
        """
        self._next = incarnation << _INCARNATION_BITS
        self._references = dict(found)
        used = {reference.number for reference in self._references.values()}
        for name in self._io.names(self._directory):
            number = number_of(name, BODY_PREFIX)
            if number is not None and number not in used and whole:
                self._to_pool(number)
            number = number_of(name, FREE_PREFIX)
            if number is not None:
                self._pool[number] = self._size(self._directory / name)
        self._trim()

    def _size(self, path: Path) -> int:
        fd = self._io.open(path, write=False)
        try:
            return self._io.size(fd)
        finally:
            self._io.close(fd)

    # ---- writing

    def write(self, buffers: Sequence[Buffer], nbytes: int, crc: int) -> Reference:
        """A payload in a file of its own, durable with its name; nothing refers to it yet.

        It is synced whatever imq.persist.file.sync.enabled says: a log that ends early is cut off there, while a lost
        payload in the middle of it would be damage.

        StoreFullError: there is no room, and nothing of it is left.
        """
        try:
            number, fd = self.make_file(nbytes)
        except StoreFullError:
            if not self._more_room():
                raise
            number, fd = self.make_file(nbytes)
        try:
            write_all(self._io, fd, buffers, 0, nbytes)
            self.sync(fd)
        finally:
            self._io.close(fd)
        return Reference(number, nbytes, crc)

    def make_file(self, nbytes: int) -> tuple[int, int]:
        """Number and descriptor of a file with room for a payload, in any thread; StoreFullError: there is no room."""
        with self._pool_lock:
            self._take_in_dropped()
            self._next += 1
            return self._next, self._take_file(self._path(BODY_PREFIX, self._next), nbytes)

    def sync(self, fd: int) -> None:
        """Make what was written to a file durable, with its name."""
        self._io.fdatasync(fd)
        self._io.fsync_dir(self._directory)

    def _take_file(self, path: Path, nbytes: int) -> int:
        """An allocated file with that name: the smallest free one that is large enough, else the largest, else new."""
        while True:
            fitting = [number for number, size in self._pool.items() if size >= nbytes]
            chosen = (
                min(fitting, key=self._pool.__getitem__)
                if fitting
                else max(self._pool, key=self._pool.__getitem__, default=None)
            )
            try:
                return self._allocated(path, chosen, nbytes)
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                if chosen is None:
                    raise StoreFullError(
                        f"no room for a message of {nbytes} bytes in a file of its own in {self._directory}"
                    ) from error

    def _allocated(self, path: Path, free: int | None, nbytes: int) -> int:
        """Return that free file, or a new one, under its name and allocated; what fails leaves neither."""
        if free is None:
            fd = self._io.create(path)
        else:
            if self._renamed:  # After a power cut it must not be found under its old name with what is written now.
                self._io.fsync_dir(self._directory)
                self._renamed = False
            self._io.rename(self._path(FREE_PREFIX, free), path)
            del self._pool[free]
            fd = self._io.open(path)
        try:
            self._io.fallocate(fd, nbytes)
        except OSError:
            self._io.close(fd)
            self._io.unlink(path)
            raise
        return fd

    def give_up(self, numbers: Iterable[int]) -> None:
        """Files that were written and will not be referred to are free; in any thread."""
        self._dropped.extend(numbers)
        with self._pool_lock:
            self._take_in_dropped()

    def drop(self, number: int) -> None:
        """:meth:`give_up` of one file, put off while the pool is used: whoever drops the last reference to a body may
        hold any lock, and be in the middle of changing the pool."""
        self._dropped.append(number)
        if self._pool_lock.acquire(blocking=False):
            try:
                self._take_in_dropped()
            finally:
                self._pool_lock.release()

    def _take_in_dropped(self) -> None:
        """Put them into the pool; with its lock held."""
        if self._dropped:
            while self._dropped:
                self._to_pool(self._dropped.popleft())
            self._trim()

    def put(self, key: Key, reference: Reference) -> None:
        """The reference is in the log."""
        with self._lock:
            self._references[key] = reference

    # ---- reading

    def get(self, key: Key) -> Reference | None:
        return self._references.get(key)

    def read_piece(self, reference: Reference, piece: int) -> bytes:
        """A verified piece of a body; StoreDamagedError, StoreError as :meth:`read`, and when the file is free."""
        number, nbytes = reference.number, reference.nbytes
        path = self._path(BODY_PREFIX, number)
        with self._open(number, str(path)) as fd:
            data = read_exact(self._io, fd, piece_bytes(nbytes, piece), piece * PIECE_BYTES)
        if crc32(data) != reference.crc_of(piece):
            raise StoreDamagedError(f"{path}: piece {piece} of a body is damaged: its checksum is wrong")
        return data

    def read(self, key: Key, reference: Reference, *, verified: bool = True) -> bytes:
        """The payload; StoreDamagedError if it is not what was written, StoreError if its file cannot be read."""
        number, nbytes, crc = reference[:3]
        path = self._path(BODY_PREFIX, number)
        with self._open(number, f"{path} (destination {key[0]}, block {key[1]})", verified=verified) as fd:
            data = read_exact(self._io, fd, nbytes, 0)
        if verified and (len(data) != nbytes or crc32(data) != crc):
            raise StoreDamagedError(
                f"{path}: {nbytes} bytes (destination {key[0]}, block {key[1]}) are damaged: their checksum is wrong"
            )
        return reference.front + data if reference.front else data

    @contextmanager
    def _open(self, number: int, what: str, *, verified: bool = True) -> Iterator[int]:
        """The descriptor of a file, which stays what it is for so long; ``what`` is written into errors."""
        with self._lock:
            self._reading[number] = self._reading.get(number, 0) + 1
        try:
            fd = self._io.open(self._path(BODY_PREFIX, number), write=False)
            try:
                yield fd
            finally:
                self._io.close(fd)
        except OSError as error:
            kind = StoreDamagedError if verified and isinstance(error, FileNotFoundError) else StoreError
            raise kind(f"{what} cannot be read: {error}") from error
        finally:
            with self._lock:
                self._reading[number] -= 1
                if not self._reading[number]:
                    del self._reading[number]

    # ---- freeing

    def free(self, key: Key, log_end: int) -> None:
        """A block is dead; ``log_end``: the number of the entry that the log will have next."""
        with self._lock:
            reference = self._references.pop(key, None)
            if reference is not None:
                self._freed.append((log_end, reference))
                self.freed_bytes += reference.nbytes

    def collect(self, checkpoint_seq: int) -> None:
        """Put the files of what was freed before that entry, a durable checkpoint, into the pool."""
        with self._lock:
            ready = [item for item in self._freed if item[0] <= checkpoint_seq and item[1].number not in self._reading]
            gone = {reference.number for _, reference in ready}
            self._freed = [item for item in self._freed if item[1].number not in gone]
            self.freed_bytes = sum(reference.nbytes for _, reference in self._freed)
        if gone:
            self.give_up(sorted(gone))

    def _to_pool(self, number: int) -> None:
        free = self._path(FREE_PREFIX, number)
        try:
            self._io.rename(self._path(BODY_PREFIX, number), free)
        except FileNotFoundError:  # Its block was damaged, and is given up.
            return
        self._renamed = True
        self._pool[number] = self._size(free)

    def _trim(self) -> None:
        """Remove free files above the limit, the largest first, and keep some of the others empty."""
        pool, options = self._pool, self._options
        extra = max(len(pool) - options.pool_limit, 0)
        for number in sorted(pool, key=lambda number: (-pool[number], number))[:extra]:
            self._io.unlink(self._path(FREE_PREFIX, number))
            del pool[number]
        clean = len(pool) * options.clean_percent // 100
        for number in sorted(pool, key=lambda number: (pool[number], number))[:clean]:
            if pool[number]:
                path = self._path(FREE_PREFIX, number)
                self._io.unlink(path)
                del pool[number]
                try:
                    self._io.close(self._io.create(path))
                except OSError as error:
                    if error.errno not in FULL_ERRNOS:
                        raise
                    continue  # The pool has one file less: on a full disk it goes first anyway.
                pool[number] = 0

    def drop_pool(self) -> bool:
        """Remove all free files; true when there were any."""
        with self._pool_lock:
            self._take_in_dropped()
            found = bool(self._pool)
            for number in list(self._pool):
                self._io.unlink(self._path(FREE_PREFIX, number))
                del self._pool[number]
            return found

    def close(self) -> None:
        """What a clean end does with the pool."""
        if self._options.cleanup:
            self.drop_pool()

    # ---- figures

    def live(self) -> tuple[int, int]:
        """(files in use, bytes of payloads in them)."""
        with self._lock:
            return len(self._references), sum(reference.nbytes for reference in self._references.values())

    def pool(self) -> tuple[int, int]:
        """(free files, bytes allocated to them)."""
        if self._dropped:
            self.give_up(())
        sizes = list(self._pool.values())
        return len(sizes), sum(sizes)

    def usage(self, destination: int) -> int:
        """Bytes of a destination's payloads."""
        with self._lock:
            return sum(found.nbytes for key, found in self._references.items() if key[0] == destination)

    def _path(self, prefix: str, number: int) -> Path:
        return self._directory / f"{prefix}{number:016x}"
