"""One process at a time: an flock on a file of the store's directory, which names its holder.

The kernel releases the lock when the holder dies, however it dies; the pid in the file is for people only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from raybroker.model.errors import StoreError
from raybroker.store.fileio import FileIO, read_exact, write_all

LOCK_NAME: Final = "lock"
_PID_BYTES: Final = 16


class LockFile:
    """Held from construction to ``release``.  StoreError if another process (or this one, twice) has the store open."""

    def __init__(self, io: FileIO, directory: Path) -> None:
        self._io = io
        path = directory / LOCK_NAME
        try:
            self._fd = io.open(path)
        except FileNotFoundError:
            self._fd = io.create(path)
        try:
            if not io.try_lock(self._fd):
                holder = read_exact(io, self._fd, _PID_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
                raise StoreError(f"the store {directory} is open in process {holder}: two processes never write it")
            write_all(io, self._fd, [b"%-*d" % (_PID_BYTES, os.getpid())], 0)
        except BaseException:
            io.close(self._fd)
            raise

    def release(self) -> None:
        self._io.close(self._fd)
