"""Bodies in parts, of which the large ones are the buffers of the values themselves: what ``encode_body`` makes, and no
copy is made for it.

For the bodies that go by reference: a broker writes them to its store straight from the object store of Ray.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgpack

from raybroker.content.arrays import is_array, pack_array
from raybroker.content.arrow_tables import ArrowStream, is_table, stream_of
from raybroker.content.bodies import MAP, OBJECT
from raybroker.model.blocks.large_block import PIECE_BYTES
from raybroker.model.blocks.record import Buffer

_PLAIN: Final = (str, bool, int, float, type(None))
ITEMS_MAX: Final = 1_000
"""Entries of a dict that goes by reference."""
_LENGTH_BITS: Final = 32
_FIXED: Final = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
"""Bytes of an extension value → its first byte, where the length is not written."""


def is_plain_array(value: Any) -> bool:
    """An array without objects and without names of fields."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and is_array(value) and not value.dtype.hasobject and value.dtype.names is None


def bytes_in(value: Any) -> int:
    """Bytes of the arrays and tables in a value that may go by reference; 0 for any other."""
    if is_plain_array(value) or is_table(value):
        return int(value.nbytes)
    if type(value) is not dict or len(value) > ITEMS_MAX:
        return 0
    found = 0
    for name, one in value.items():
        if type(name) is str and is_plain_array(one):
            found += one.nbytes
        elif type(name) is not str or type(one) not in _PLAIN:
            return 0
    return found


def shared_form(value: Any) -> Any:
    """What an object store gets of a value: itself, or its stream."""
    return stream_of(value) if is_table(value) else value


def from_shared(value: Any) -> Any:
    """The value of a shared form, without a copy."""
    return value.table() if type(value) is ArrowStream else value


def parts_of(form: Any) -> tuple[int, list[Buffer]]:
    """(kind, parts) of a shared form: one after another, the bytes of the body.

    Raises TypeError and ValueError for what cannot travel.
    """
    from raybroker.content.msgpack_types import ARRAY, ARROW

    if type(form) is ArrowStream:
        return OBJECT, _extension(ARROW, [form.which, memoryview(form.stream)])
    if type(form) is not dict:
        return OBJECT, _extension(ARRAY, pack_array(form), lone=True)
    packer = msgpack.Packer(use_bin_type=True, strict_types=True)
    parts: list[Buffer] = [packer.pack_map_header(len(form))]
    for name, one in form.items():
        parts.append(packer.pack(name))
        if is_plain_array(one):
            parts += _extension(ARRAY, pack_array(one))
        else:
            parts.append(packer.pack(one))
    return MAP, parts


def _extension(code: int, parts: Sequence[Buffer], *, lone: bool = False) -> list[Buffer]:
    """An extension value; ``lone``: the body is that array, whose length has four bytes in any case."""
    size = sum(map(len, parts))
    if size >> _LENGTH_BITS:
        raise ValueError("a value of more than 4 GiB")
    fixed = None if lone else _FIXED.get(size)
    if fixed is not None:
        head = bytes((fixed, code))
    else:
        width, first = (4, 0xC9) if lone or size >= 1 << 16 else (1, 0xC7) if size < 1 << 8 else (2, 0xC8)
        head = bytes((first, *size.to_bytes(width, "big"), code))
    return [head, *parts]


def size_of_parts(parts: Sequence[Buffer]) -> int:
    """Bytes of a body in parts."""
    return sum(map(len, parts))


def piece_of(parts: Sequence[Buffer], number: int) -> bytes:
    """One piece of a body in parts."""
    start, wanted = number * PIECE_BYTES, PIECE_BYTES
    found: list[Buffer] = []
    for part in parts:
        size = len(part)
        if start >= size:
            start -= size
            continue
        found.append(memoryview(part)[start : start + wanted])
        wanted -= len(found[-1])
        start = 0
        if not wanted:
            break
    return b"".join(found)


def pieces_in(parts: Sequence[Buffer]) -> Iterator[bytes]:
    """All pieces of a body in parts, in order."""
    found: list[Buffer] = []
    room = PIECE_BYTES
    for part in parts:
        view, start = memoryview(part), 0
        while start < len(view):
            some = view[start : start + room]
            found.append(some)
            start += len(some)
            room -= len(some)
            if not room:
                yield b"".join(found)
                found, room = [], PIECE_BYTES
    if found:
        yield b"".join(found)
