"""Sizes in bytes as MQ writes them: ``1600``, ``1600b``, ``16k``, ``16m``, and ``-1`` for no limit.

The suffixes are MQ's three and no more, in either case: ``k`` is 1024 and ``m`` is 1,048,576.  A ``g`` is refused
with the text that says how to write it, since a configuration that works here should work with MQ's own tools.
"""

from __future__ import annotations

import re
from typing import Final

from raybroker.model.errors import ConfigError

UNLIMITED: Final = -1
KIB: Final = 1024
MIB: Final = 1024 * 1024
SIZE_BYTES_MAX: Final = (1 << 63) - 1
"""Sizes travel and are stored as signed 64-bit integers."""

_SIZE = re.compile(r"(\d{1,19})([bkm]?)", re.ASCII | re.IGNORECASE)
_FACTOR: Final = {"": 1, "b": 1, "k": KIB, "m": MIB}


def parse_size_bytes(value: object) -> int:
    """Bytes meant by a text or an integer; -1 means no limit.

    Raises ConfigError naming the value and the syntax.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{value!r} is not a size: write an integer with an optional b, k or m, such as 16k, or -1")
    if isinstance(value, int):
        size = value
    else:
        text = value.strip()
        if text == "-1":
            return UNLIMITED
        match = _SIZE.fullmatch(text)
        if match is None:
            hint = " (for gigabytes write 1024m)" if text[-1:] in "gG" and text[:-1].isdecimal() else ""
            raise ConfigError(
                f"{value!r} is not a size: write an integer with an optional b, k or m, such as 16k, or -1{hint}"
            )
        size = int(match[1]) * _FACTOR[match[2].lower()]
    if size < UNLIMITED:
        raise ConfigError(f"{value!r} is not a size: the only negative one is -1, which means no limit")
    if size > SIZE_BYTES_MAX:
        raise ConfigError(f"{value!r} is too large: at most {SIZE_BYTES_MAX} bytes")
    return size


def format_size_bytes(size_bytes: int) -> str:
    """The shortest text that :func:`parse_size_bytes` reads back as the same number of bytes."""
    if size_bytes <= 0:
        return str(size_bytes)
    for suffix, factor in (("m", MIB), ("k", KIB)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{suffix}"
    return str(size_bytes)
