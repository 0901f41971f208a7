"""Paging files: bytes of blocks that the store does not have, on disk instead of in memory.

Nothing here survives the process: what a directory has is removed when it is opened, no write is synced, and which
block is where is known in memory alone.  Blocks are written one behind the other into a file of bounded size, many by
one call and in a thread; a file is removed as soon as none of its blocks is needed.  Each read is verified and asks the
kernel to have what follows ready.

Everything but the write itself happens in the thread that calls.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO, read_exact, write_all
from raybroker.store.locations import Locations, location, location_parts

HEAD: Final = b"raybroker paging"
"""What a file begins with; so no block is at offset 0."""
SUFFIX: Final = ".page"
OPEN_MAX: Final = 32
"""Files that are kept open for reading."""
AHEAD_BYTES: Final = 4 << 20
"""How far ahead of a read the kernel is asked to read."""

Row = tuple[int, int, Buffer]
"""Number of a destination, ordinal, bytes."""
Written = Callable[[OSError | None], None]


class _File:
    """``used``: where the next block goes. ``live``: blocks that are needed. ``ahead``: read ahead up to here."""

    __slots__ = ("ahead", "live", "number", "used", "writing")

    def __init__(self, number: int) -> None:
        self.number = number
        self.used = len(HEAD)
        self.live = self.ahead = 0
        self.writing = False


class PagingFiles:
    """``directory`` is made when the first block is written, for its owner alone; its files are ours.

    file_bytes  a file is at most this large, unless one block is larger
    post        runs a function in the caller's thread, soon; may be called from any thread
    """

    def __init__(
        self, directory: Path, file_bytes: int, post: Callable[[Callable[[], None]], object], io: FileIO | None = None
    ) -> None:
        """Remove what an earlier process left; raises StoreError when that is not possible."""
        self.directory = directory
        self.file_bytes = file_bytes
        self.bytes_by_destination: dict[int, int] = {}
        """Live bytes of each destination that has any."""
        self.pack: Callable[[Buffer], Buffer] | None = None
        """What blocks are compressed with, in the thread; whoever reads them opens them."""
        self.saved_bytes = 0
        self._post = post
        self._io = io or FileIO()
        self._files: dict[int, _File] = {}
        self._current: _File | None = None
        self._next = 1
        self._index: dict[int, Locations] = {}
        self._open: OrderedDict[int, int] = OrderedDict()
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False
        try:
            self._empty()
        except OSError as error:
            raise StoreError(f"{directory}, the directory for paging, cannot be emptied: {error}") from error

    def _empty(self) -> None:
        io = self._io
        if not io.exists(self.directory):
            return
        mode = io.mode(self.directory)
        if mode & 0o077:
            raise StoreError(
                f"{self.directory} has mode {mode:03o}: message bodies are for their owner alone"
                f" (chmod go= {self.directory})"
            )
        for name in io.names(self.directory):
            if name.endswith(SUFFIX):
                io.unlink(self.directory / name)

    # ---- writing ---------------------------------------------------------------------------------------------------

    def write(self, rows: Sequence[Row], done: Written) -> None:
        """Write blocks, one behind the other; one write is under way at a time.

        ``done`` hears in the caller's thread that all of them can be read, or the error, after which none can.
        """
        sizes = [memoryview(data).nbytes for _, _, data in rows]
        file = self._place(sum(sizes))
        file.writing = True
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="raybroker-paging")
        self._thread.submit(self._write, file, rows, sizes, self.pack, done)

    def _place(self, nbytes: int) -> _File:
        file = self._current
        if file is None or (file.used + nbytes > self.file_bytes and file.used > len(HEAD)):
            self._current = file = self._files[self._next] = _File(self._next)
            self._next += 1
        return file

    def _write(
        self,
        file: _File,
        rows: Sequence[Row],
        sizes: Sequence[int],
        pack: Callable[[Buffer], Buffer] | None,
        done: Written,
    ) -> None:
        """Write the rows into the file; it runs in the thread."""
        io, path, crcs = self._io, self._path(file.number), []
        failure: OSError | None = None
        saved = 0
        try:
            if pack is not None:
                rows = [(destination, ordinal, pack(data)) for destination, ordinal, data in rows]
                saved = sum(sizes)
                sizes = [memoryview(data).nbytes for _, _, data in rows]
                saved -= sum(sizes)
            fd = self._create(path) if file.used == len(HEAD) else io.open(path)
            try:
                write_all(io, fd, [data for _, _, data in rows], file.used, sum(sizes))
            finally:
                io.close(fd)
            crcs = [crc32(data) for _, _, data in rows]
        except OSError as error:
            failure = error
        # A loop that has ended takes nothing any more, and nobody waits for it.
        with suppress(RuntimeError):
            self._post(partial(self._finish, file, rows, sizes, crcs, saved, failure, done))

    def _create(self, path: Path) -> int:
        io = self._io
        if not io.exists(self.directory):
            io.make_directory(self.directory)
        with suppress(FileNotFoundError):  # A write that failed may have left it.
            io.unlink(path)
        fd = io.create(path)
        try:
            write_all(io, fd, [HEAD], 0)
        except OSError:
            io.close(fd)
            raise
        return fd

    def _finish(
        self,
        file: _File,
        rows: Sequence[Row],
        sizes: Sequence[int],
        crcs: Sequence[int],
        saved: int,
        failure: OSError | None,
        done: Written,
    ) -> None:
        if self._closed:
            return
        file.writing = False
        if failure is None:
            for (destination, ordinal, _), nbytes, crc in zip(rows, sizes, crcs, strict=True):
                index = self._index.get(destination)
                if index is None:
                    index = self._index[destination] = Locations()
                index[ordinal] = location(file.number, file.used, nbytes, crc)
                file.used += nbytes
                self.bytes_by_destination[destination] = self.bytes_by_destination.get(destination, 0) + nbytes
            file.live += len(rows)
            self.saved_bytes += saved
        else:
            if self._current is file:
                self._current = None  # The next write begins a file of its own.
            if not file.live:
                self._remove(file)
        done(failure)

    # ---- reading and freeing -----------------------------------------------------------------------------------------

    def has(self, destination: int, ordinal: int) -> bool:
        index = self._index.get(destination)
        return index is not None and index.get(ordinal) is not None

    def read(self, destination: int, ordinal: int) -> bytes:
        """The bytes of a block that is here, verified; raises StoreDamagedError when they are not what was written."""
        number, offset, nbytes, crc = location_parts(self._index[destination][ordinal])
        file, path = self._files[number], self._path(number)
        try:
            fd = self._opened(number)
            if offset + nbytes > file.ahead:
                file.ahead = offset + nbytes + AHEAD_BYTES
                os.posix_fadvise(fd, offset, nbytes + AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            data = read_exact(self._io, fd, nbytes, offset)
        except OSError as error:
            raise StoreDamagedError(f"block {ordinal} cannot be read from {path}: {error}") from error
        if len(data) != nbytes or crc32(data) != crc:
            raise StoreDamagedError(f"block {ordinal} in {path} at {offset} is not what was written there")
        return data

    def free(self, destination: int, ordinal: int) -> int:
        """Nobody needs the block any more; returns how many bytes it had, 0 when it is not here."""
        index = self._index.get(destination)
        found = None if index is None else index.pop(ordinal)
        if index is None or found is None:
            return 0
        number, _, nbytes, _ = location_parts(found)
        left = self.bytes_by_destination[destination] - nbytes
        if left:
            self.bytes_by_destination[destination] = left
        else:
            del self.bytes_by_destination[destination], self._index[destination]
        file = self._files[number]
        file.live -= 1
        if not file.live and not file.writing:
            self._remove(file)
        return nbytes

    @property
    def files(self) -> int:
        """Files there are."""
        return len(self._files)

    def remove_all(self) -> None:
        """Remove everything."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown()
        for file in list(self._files.values()):
            self._remove(file)
        if self._io.exists(self.directory):
            with suppress(OSError):
                os.rmdir(self.directory)

    # ---- internals -------------------------------------------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:08d}{SUFFIX}"

    def _opened(self, number: int) -> int:
        fd = self._open.get(number)
        if fd is None:
            fd = self._open[number] = self._io.open(self._path(number), write=False)
            if len(self._open) > OPEN_MAX:
                self._io.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(number)
        return fd

    def _remove(self, file: _File) -> None:
        """A file that cannot be removed now goes at the next start."""
        del self._files[file.number]
        if self._current is file:
            self._current = None
        fd = self._open.pop(file.number, None)
        if fd is not None:
            self._io.close(fd)
        with suppress(OSError):
            self._io.unlink(self._path(file.number))
