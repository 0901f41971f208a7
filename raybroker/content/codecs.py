"""Codecs of compressed bodies: DEFLATE in the envelope of zlib, and Zstandard (RFC 8878) with the size in its frame.

zlib is part of Python.  Zstandard needs the package zstandard, which is an extra (``pip install 'raybroker[zstd]'``):
most programs compress nothing, and whoever chooses it has to install it where its messages are sent and received.
The broker itself needs it only to show a body to an administrator.
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any, Final

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ConfigError, MessageFormatError

ZSTD_LEVEL: Final = 3
"""Zstandard's own default."""
STEP_BYTES: Final = 64 * 1024
"""What is decompressed only to be counted takes so much memory."""
_INSTALL: Final = "needs a library that is not installed here: pip install 'raybroker[zstd]'"


def zstandard() -> Any:
    """The library; raises ConfigError when it is not installed."""
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise ConfigError(f"MessageCompressionOptions=ZSTD {_INSTALL}") from None


def zstd(data: bytes) -> bytes:
    """One frame of Zstandard with the size of ``data`` in it; raises ConfigError."""
    found: bytes = zstandard().ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True).compress(data)
    return found


def inflate(data: Buffer, most: int) -> bytes:
    """What was compressed with zlib; raises MessageFormatError when it is damaged or larger than ``most`` bytes."""
    machine = zlib.decompressobj()
    try:
        whole = machine.decompress(data, most + 1)
    except zlib.error as error:
        raise MessageFormatError(f"a compressed body does not inflate: {error}") from None
    if len(whole) > most:
        del whole  # Whoever keeps the error keeps its traceback, and that would keep the body.
        raise _too_large(most)
    if not machine.eof or machine.unused_data:
        raise MessageFormatError("a compressed body does not end where it should")
    return whole


def inflated_size(data: Buffer, most: int) -> int:
    """Bytes of what was compressed with zlib, without keeping them; some more than ``most`` stands for all that are
    more. Raises MessageFormatError when it is damaged."""
    machine = zlib.decompressobj()
    size, rest = 0, data
    try:
        while not machine.eof and size <= most:
            came = len(machine.decompress(rest, STEP_BYTES))
            rest = machine.unconsumed_tail
            size += came
            if not came and not rest:
                break
    except zlib.error as error:
        raise MessageFormatError(f"a compressed body does not inflate: {error}") from None
    if size <= most and (not machine.eof or machine.unused_data):
        raise MessageFormatError("a compressed body does not end where it should")
    return size


def unzstd_size(data: Buffer) -> int:
    """Bytes of what :func:`zstd` compressed, as it says; raises as :func:`unzstd` does."""
    try:
        library = zstandard()
    except ConfigError:
        raise MessageFormatError(f"a body that was compressed with Zstandard {_INSTALL}") from None
    try:
        size: int = library.get_frame_parameters(data).content_size
    except library.ZstdError as error:
        raise MessageFormatError(f"a compressed body does not inflate: {error}") from None
    if size in (library.CONTENTSIZE_ERROR, library.CONTENTSIZE_UNKNOWN):
        raise MessageFormatError("a compressed body does not say how large it is")
    return size


def unzstd(data: Buffer, most: int) -> bytes:
    """What :func:`zstd` compressed; raises MessageFormatError when it is damaged or larger than ``most`` bytes, and
    where the library is missing."""
    size = unzstd_size(data)
    if size > most:  # Before any memory is taken for it.
        raise _too_large(most)
    library = zstandard()
    try:
        whole: bytes = library.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except library.ZstdError as error:
        raise MessageFormatError(f"a compressed body does not inflate: {error}") from None
    if len(whole) != size:
        raise MessageFormatError("a compressed body does not end where it should")
    return whole


def _too_large(most: int) -> MessageFormatError:
    return MessageFormatError(f"a compressed body is larger than the {most} bytes allowed by imq.message.max_size")
