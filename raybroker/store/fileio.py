"""The system calls of stores on files, all behind one small object, so that tests can fail, record and reorder them.

Errors leave as OSError; the caller decides about their meaning.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from raybroker.model.blocks.record import Buffer

IOV_MAX: Final = 1024
"""Buffers a pwritev takes at once on Linux (UIO_MAXIOV)."""
_PUNCH_HOLE_KEEP_SIZE: Final = 2 | 1
_CANNOT_ERRNOS: Final = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENODEV))
"""What a file system says that cannot give back a part of a file."""


class RoomIO:
    """How long a file is, how much of it has a place on the disk, and how much of it is in memory are three things."""

    def fetch(self, fd: int, offset: int, nbytes: int) -> None:
        """These bytes will be read soon: the kernel may begin to fetch them.  Nobody waits, and nothing fails."""
        with suppress(OSError):
            os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)

    def truncate(self, fd: int, nbytes: int) -> None:
        """Give a file that length; what is new of it has no place on the disk yet, see ``FileIO.fallocate``."""
        os.ftruncate(fd, nbytes)

    def allocated(self, fd: int) -> int:
        """How much of a file has a place on the disk."""
        return os.fstat(fd).st_blocks * 512

    def free_bytes(self, path: Path) -> int:
        """Free space of the file system for this user."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def punch(self, fd: int, start: int, end: int) -> bool:
        """Give the place of a stretch of a file back: it keeps its length and reads as zeros.  False: it cannot be."""
        return _punch(fd, start, end)


class FileIO(RoomIO):
    """Plain files.  Offsets and sizes are bytes; every method may raise OSError."""

    def make_directory(self, path: Path) -> None:
        """Create ``path`` for its owner only, and its missing parents."""
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkdir(path, 0o700)

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def mode(self, path: Path) -> int:
        """Permission bits of ``path``."""
        return stat.S_IMODE(os.stat(path).st_mode)

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def create(self, path: Path) -> int:
        """A new empty file, 0600, opened for reading and writing; it must not exist yet."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def open(self, path: Path, *, write: bool = True) -> int:
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pread(self, fd: int, nbytes: int, offset: int) -> bytes:
        """Up to ``nbytes``; the kernel may return fewer, and does at the end of the file."""
        return os.pread(fd, nbytes, offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write at most IOV_MAX buffers; gives back how many bytes were taken."""
        return os.pwritev(fd, buffers, offset)

    def fallocate(self, fd: int, nbytes: int) -> None:
        """Reserve the first ``nbytes`` of a file on the disk, growing it: a later write there cannot lack room."""
        os.posix_fallocate(fd, 0, nbytes)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Make creations and removals in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def try_lock(self, fd: int) -> bool:
        """Take the exclusive flock; False if somebody else holds it.  The kernel drops it with the last descriptor."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _punch(fd: int, start: int, end: int) -> bool:
    import ctypes  # Seldom needed, and slow to import.

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, start, end - start):
        error = ctypes.get_errno()
        if error in _CANNOT_ERRNOS:
            return False
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))
    return True


def write_all(io: FileIO, fd: int, buffers: Sequence[Buffer], offset: int, nbytes: int = -1) -> None:
    """Write every byte of ``buffers`` at ``offset``; ``nbytes``: how many there are, when the caller knows.

    A short write is continued (it is legal, after a signal for one); a write that takes nothing is an error, because
    repeating it could go on for ever.
    """
    todo = buffers
    while todo:
        part = todo if len(todo) <= IOV_MAX else todo[:IOV_MAX]
        wanted = nbytes if nbytes >= 0 and part is buffers else _bytes_of(part)
        taken = io.pwritev(fd, part, offset)
        offset += taken
        if taken == wanted:
            if part is todo:
                return
            todo = todo[IOV_MAX:]
        elif taken <= 0:
            raise OSError(5, f"a write of {wanted} bytes at {offset} took nothing")
        else:
            todo = [*_rest(part, taken), *todo[IOV_MAX:]]


def _bytes_of(buffers: Sequence[Buffer]) -> int:
    return sum([buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in buffers])


def _rest(buffers: Sequence[Buffer], taken: int) -> list[Buffer]:
    """The rest of ``buffers`` after their first ``taken`` bytes."""
    left: list[Buffer] = []
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if taken >= view.nbytes:
            taken -= view.nbytes
        else:
            left.append(view[taken:])
            taken = 0
    return left


def read_whole(io: FileIO, path: Path) -> bytes:
    """What is in a file; raises OSError."""
    fd = io.open(path, write=False)
    try:
        return read_exact(io, fd, io.size(fd), 0)
    finally:
        io.close(fd)


def read_exact(io: FileIO, fd: int, nbytes: int, offset: int) -> bytes:
    """``nbytes`` from ``offset``, fewer only at the end of the file."""
    data = io.pread(fd, nbytes, offset)
    if len(data) == nbytes or not data:
        return data
    parts = [data]
    have = len(data)
    while have < nbytes:
        data = io.pread(fd, nbytes - have, offset + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)
