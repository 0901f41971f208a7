"""The file of exported messages: written whole or not at all, and checked whole before anything of it is used.

    magic    8 bytes
    frames   each: length u32, checksum (CRC-32 of the bytes) u32, that many bytes: one encoded block of messages
    end      a frame of length 0 whose checksum is the number of frames before it

All integers are little-endian.  A file that was cut, changed or is something else is refused with the place.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from raybroker.cli.exits import UsageError
from raybroker.model.blocks.block import BLOCK_BYTES_MAX

MAGIC: Final = b"RBEXPRT1"
_FRAME: Final = struct.Struct("<II")


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raises UsageError when the file is there already and may not be replaced, or its directory is not."""
    if path.exists() and not overwrite:
        raise UsageError(f"{path} is there already; replace it with -f")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory")


def write(path: Path, blocks: Iterable[bytes], *, overwrite: bool) -> int:
    """Write the blocks as a new file; how many bytes it has. What fails on the way leaves no file behind."""
    check_target(path, overwrite=overwrite)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(MAGIC)
            count = 0
            for block in blocks:
                file.write(_FRAME.pack(len(block), zlib.crc32(block)) + block)
                count += 1
            file.write(_FRAME.pack(0, count))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)
    return size


def read(path: Path) -> Iterator[bytes]:
    """The blocks of a file, one after the other; raises UsageError for a file that is not whole."""
    try:
        with path.open("rb") as file:
            yield from _frames(file, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def check(path: Path) -> int:
    """Read a whole file without using it; how many blocks it has. Raises UsageError."""
    return sum(1 for _ in read(path))


def _frames(file: BinaryIO, path: Path) -> Iterator[bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise UsageError(f"{path} is not a file of exported messages")
    count = 0
    while True:
        at = file.tell()
        head = file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            raise _damaged(path, at, "it ends there; the rest is missing")
        length, checksum = _FRAME.unpack(head)
        if length == 0:
            break
        if length > BLOCK_BYTES_MAX:
            raise _damaged(path, at, f"a block of {length} bytes cannot be")
        block = file.read(length)
        if len(block) < length:
            raise _damaged(path, at, "it ends there; the rest is missing")
        if zlib.crc32(block) != checksum:
            raise _damaged(path, at, "the checksum does not match")
        count += 1
        yield block
    if checksum != count or file.read(1):
        raise _damaged(path, at, "the end does not fit what comes before")


def _damaged(path: Path, at: int, why: str) -> UsageError:
    return UsageError(f"{path} is damaged at byte {at}: {why}")
