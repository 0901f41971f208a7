"""A disk with files and names: what was not synced is lost in part when the power fails.

The record file is the production code over ``SimIO``.  After a crash a file has its synced bytes and any prefix of
those written since, in sectors that may be torn; of the names made, renamed and removed since the directory was last
synced a prefix holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from raybroker.model.blocks.record import Buffer
from raybroker.store.record import RecordIO

SECTOR_BYTES = 512


class SimFile:
    """``now``: what a reader sees; ``synced``: what a power cut leaves for sure."""

    def __init__(self) -> None:
        self.now = bytearray()
        self.synced = b""
        self.locked_by: SimIO | None = None

    def lose(self, rng: Random) -> None:
        """The power fails: of what was written since the last sync, each sector is there or not."""
        now, synced = bytes(self.now), self.synced
        kept = bytearray(synced)
        if len(now) > len(synced):
            size = rng.randrange(len(synced), len(now) + 1)
            kept += bytes(size - len(synced))
        for at in range(0, len(kept), SECTOR_BYTES):
            part = slice(at, min(at + SECTOR_BYTES, len(kept)))
            if rng.random() < 0.5:
                kept[part] = now[part].ljust(part.stop - part.start, b"\0")
        self.now = kept
        self.synced = bytes(kept)
        self.locked_by = None


class SimDisk:
    """What one broker's machine has, whichever instance of the broker uses it."""

    def __init__(self) -> None:
        self.names: dict[str, SimFile] = {}
        self.names_synced: dict[str, SimFile] = {}
        self.changes: list[Callable[[dict[str, SimFile]], object]] = []
        self.owner: SimIO | None = None

    def change(self, make: Callable[[dict[str, SimFile]], object]) -> None:
        make(self.names)
        self.changes.append(make)

    def crash(self, rng: Random) -> None:
        names = dict(self.names_synced)
        for make in self.changes[: rng.randrange(len(self.changes) + 1)]:
            make(names)
        self.names = names
        self.names_synced = dict(names)
        self.changes = []
        for file in names.values():
            file.lose(rng)


class SimIO(RecordIO):
    """One process's descriptors.  ``dead``: the process is gone, or the disk was given to a later instance."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.dead = False
        self.fail_in = -1
        self._files: dict[int, SimFile] = {}
        self._next = itertools.count(3)

    def _check(self) -> None:
        if self.dead:
            raise OSError(5, "the disk is not ours any more")
        if self.fail_in == 0:
            raise OSError(5, "the disk is broken")
        if self.fail_in > 0:
            self.fail_in -= 1

    def make_directory(self, path: Path) -> None:
        raise AssertionError("the directory is there")

    def exists(self, path: Path) -> bool:
        return path.name in self.disk.names or path.name == "d"

    def create(self, path: Path) -> int:
        self._check()
        if path.name in self.disk.names:
            raise FileExistsError(path.name)
        file = SimFile()
        self.disk.change(lambda names: names.__setitem__(path.name, file))
        return self._descriptor(file)

    def open(self, path: Path, *, write: bool = True) -> int:
        self._check()
        return self._descriptor(self.disk.names[path.name])

    def _descriptor(self, file: SimFile) -> int:
        fd = next(self._next)
        self._files[fd] = file
        return fd

    def close(self, fd: int) -> None:
        file = self._files.pop(fd)
        if file.locked_by is self:
            file.locked_by = None

    def size(self, fd: int) -> int:
        return len(self._files[fd].now)

    def pread(self, fd: int, nbytes: int, offset: int) -> bytes:
        return bytes(self._files[fd].now[offset : offset + nbytes])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._check()
        data = b"".join(bytes(buffer) for buffer in buffers)
        now = self._files[fd].now
        if len(now) < offset:
            now.extend(bytes(offset - len(now)))
        now[offset : offset + len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        self._check()
        file = self._files[fd]
        file.synced = bytes(file.now)

    def fsync_dir(self, path: Path) -> None:
        self._check()
        self.disk.names_synced = dict(self.disk.names)
        self.disk.changes = []

    def unlink(self, path: Path) -> None:
        self._check()
        self.disk.change(lambda names: names.pop(path.name, None))

    def rename(self, old: Path, new: Path) -> None:
        self._check()

        def make(names: dict[str, SimFile]) -> None:
            if old.name in names:
                names[new.name] = names.pop(old.name)

        self.disk.change(make)

    def try_lock(self, fd: int) -> bool:
        file = self._files[fd]
        if file.locked_by not in (None, self):
            return False
        file.locked_by = self
        return True
