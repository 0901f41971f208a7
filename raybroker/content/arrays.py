"""Arrays and scalars of numpy as bytes: what kind of numbers they are, their shape, and the raw buffer.

numpy is optional.  Sending needs no import, since whoever has an array has numpy; reading one imports it then.  A
received array is a view into the received message: nothing is copied, and it cannot be written to (``array.copy()``
can).  Only plain numbers, truth values, times, texts of fixed length and records of these travel, never objects.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Final

import msgpack

from raybroker.model.blocks.record import Buffer

HEAD_BYTES_MAX: Final = 1 << 16
DIMENSIONS_MAX: Final = 64


def is_scalar(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def is_array(value: object) -> bool:
    """True for an array whose content is all of it; subclasses, but for mapped files, have more."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) in (numpy.ndarray, numpy.memmap)


@lru_cache(256)
def _description(dtype: Any) -> Any:
    """A dtype as text or nested lists; raises TypeError for one that does not come back from that as it was."""
    import numpy

    found = numpy.lib.format.dtype_to_descr(dtype) if dtype.names is not None else dtype.str
    if dtype.hasobject or _dtype(_listed(found)) != dtype:
        raise TypeError(f"arrays of {dtype} cannot travel")
    return _listed(found)


def _listed(description: Any) -> Any:
    return [_listed(part) for part in description] if isinstance(description, list | tuple) else description


def _tupled(description: Any) -> Any:
    """Lists of fields with tuples in them, as numpy wants them: (name, type) or (name, type, shape)."""
    if not isinstance(description, list):
        return description
    return [(_named(field[0]), _tupled(field[1]), *(tuple(shape) for shape in field[2:])) for field in description]


def _named(name: Any) -> Any:
    return tuple(name) if isinstance(name, list) else name


def _dtype(description: Any) -> Any:
    import numpy

    if isinstance(description, str):
        return numpy.dtype(description)
    return numpy.lib.format.descr_to_dtype(_tupled(description))


def pack_array(array: Any) -> list[Buffer]:
    """An array as its head and its raw buffer, which is that of the array itself where that is contiguous.

    Raises TypeError for one that cannot travel.
    """
    import numpy

    order = "C"
    if not array.flags.c_contiguous:
        if array.flags.f_contiguous:
            order, array_ = "F", array.T
        else:
            array_ = numpy.ascontiguousarray(array)
    else:
        array_ = array
    head = msgpack.packb([_description(array.dtype), list(array.shape), order])
    raw: Buffer = memoryview(array_.reshape(-1).view("u1")) if array.nbytes else b""
    return [len(head).to_bytes(4, "little"), head, raw]


def unpack_array(data: Buffer) -> Any:
    """The array, a view into ``data`` that cannot be written to; raises ValueError for damaged bytes."""
    numpy = _numpy()
    view = memoryview(data).toreadonly()
    size = int.from_bytes(view[:4], "little")
    if size > HEAD_BYTES_MAX:
        raise ValueError("the head of an array is too long")
    try:
        description, shape, order = msgpack.unpackb(view[4 : 4 + size])
        dtype = _dtype(description)
        if dtype.hasobject or len(shape) > DIMENSIONS_MAX or order not in ("C", "F"):
            raise ValueError(f"an array of {dtype}")
        return numpy.ndarray(tuple(shape), dtype, buffer=view[4 + size :], order=order)
    except (TypeError, IndexError, OverflowError, MemoryError, SyntaxError, AttributeError, KeyError) as error:
        raise ValueError(f"an array that is damaged: {error}") from None


def pack_scalar(value: Any) -> bytes:
    """A scalar: as an array without dimensions."""
    import numpy

    return b"".join(pack_array(numpy.asarray(value)))


def unpack_scalar(data: Buffer) -> Any:
    found = unpack_array(data)
    if found.shape != ():
        raise ValueError("a scalar has dimensions")
    return found[()]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ValueError("it has an array, and numpy is not installed here: pip install numpy") from None
    return numpy
