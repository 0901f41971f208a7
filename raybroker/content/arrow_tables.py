"""Tables and record batches of Arrow as bytes: a stream of Arrow's IPC format, behind a byte that says which it is.

pyarrow is optional.  Sending needs no import, since whoever has a table has pyarrow; reading one imports it then.
"""

from __future__ import annotations

import sys
from typing import Any

from raybroker.model.blocks.record import Buffer

_TABLE = b"T"
_BATCH = b"B"


def is_table(value: object) -> bool:
    """True for a table and for a record batch."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and type(value) in (pyarrow.Table, pyarrow.RecordBatch)


def pack_table(table: Any) -> list[Buffer]:
    """A table or record batch as the byte that says which, and its stream."""
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return [_TABLE if type(table) is pyarrow.Table else _BATCH, memoryview(sink.getvalue())]


def unpack_table(data: Buffer) -> Any:
    """The table or record batch; raises ValueError for damaged bytes."""
    view = memoryview(data)
    return opened(bytes(view[:1]), bytes(view[1:]), trusted=False)


def opened(which: bytes, stream: Buffer, *, trusted: bool) -> Any:
    """The table in a stream, as views of it; ``trusted``: it is what :func:`pack_table` has made, and is not examined.

    Raises ValueError for damaged bytes.
    """
    try:
        import pyarrow
    except ImportError:
        raise ValueError("it has a table of Arrow, and pyarrow is not installed here: pip install pyarrow") from None
    try:
        table = pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)).read_all()
        if not trusted:
            table.validate(full=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"a table of Arrow that is damaged: {error}") from None
    if which == _TABLE:
        return table
    if which != _BATCH:
        raise ValueError("it is neither a table of Arrow nor a record batch")
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema=table.schema)


class ArrowStream:
    """A table in its stream, as an object store gives it to processes of one node, without a copy."""

    __slots__ = ("stream", "which")

    def __init__(self, which: bytes, stream: Any) -> None:
        self.which = which
        self.stream = stream
        """An array of bytes of numpy."""

    def table(self) -> Any:
        """Views of the stream."""
        return opened(self.which, memoryview(self.stream), trusted=True)


def stream_of(table: Any) -> ArrowStream:
    """The stream of a table or record batch: the one copy of it that is made."""
    import numpy

    which, stream = pack_table(table)
    return ArrowStream(bytes(which), numpy.frombuffer(stream, dtype=numpy.uint8))
