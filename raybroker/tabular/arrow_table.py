"""Messages as a table of Arrow: one row a message.

Messages come in blocks, whose bodies lie one behind the other, as those of a column of Arrow do.  So the columns of a
run of messages without headers are made at once, and that of bodies of bytes or text is a view of the block, or a copy
of its bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from raybroker.client.consumer.message import Message, MessageRun
from raybroker.content.bodies import AMQP, BYTES, TEXT
from raybroker.content.headers import id_prefix
from raybroker.model.blocks.block import Block

COLUMNS: Final = ("id", "timestamp", "priority", "redelivered", "correlation_id", "type")
_TYPES: Final = (pa.string(), pa.int64(), pa.int64(), pa.bool_(), pa.string(), pa.string())
_BODIES: Final = {BYTES: pa.binary(), TEXT: pa.string()}
"""Kinds of bodies that are views → the type of their column."""
JOINED_BYTES: Final = 32 << 20
"""Bodies of so many bytes at most are copied into one chunk: many small chunks cost more on their way to another
process than the copy."""
RUN_MIN: Final = 8
"""Messages of a run whose columns are made at once; making those of fewer takes longer than to ask each."""


def table_of(runs: Sequence[MessageRun]) -> pa.Table:
    """One row a message: COLUMNS, and the body, whose keys are columns when all bodies are dicts with text keys, else
    the column ``body``."""
    columns = header_columns(runs)
    body = _views(runs)
    if body is not None:
        return pa.table({**columns, "body": body})
    bodies = [message.body for run in runs for message in run.messages()]
    if not all(map(_has_names, bodies)):
        return pa.table({**columns, "body": _column(bodies)})
    names = {f"_{key}" if key in COLUMNS else key: key for body in bodies for key in body}
    return pa.table({**columns, **{name: _column([body.get(key) for body in bodies]) for name, key in names.items()}})


def compact(table: pa.Table) -> pa.RecordBatch | pa.Table:
    """The table as a record batch, unless a column has several chunks.

    A record batch travels as its buffers; with a table, who serializes it goes through each column and imports pandas,
    which takes longer than to read some hundred thousand messages.
    """
    columns = table.columns
    if any(column.num_chunks != 1 for column in columns):
        return table
    return pa.RecordBatch.from_arrays([column.chunk(0) for column in columns], schema=table.schema)


def expanded(passed: pa.RecordBatch | pa.Table) -> pa.Table:
    """The table of what :func:`compact` gave."""
    return pa.Table.from_batches([passed]) if isinstance(passed, pa.RecordBatch) else passed


def header_columns(runs: Sequence[MessageRun]) -> dict[str, Any]:
    """The columns COLUMNS, each of its type also where every message lacks it."""
    parts: list[Sequence[Any]] = []
    asked: list[Message] = []
    for run in runs:
        if len(run) < RUN_MIN or not _is_bare(run.block):
            asked += run.messages()
            continue
        if asked:
            parts.append(_asked(asked))
            asked = []
        parts.append(_of_run(run))
    if asked or not parts:
        parts.append(_asked(asked))
    # One chunk a column: what a table costs on its way to another process grows with its chunks.
    columns = parts[0] if len(parts) == 1 else [pa.concat_arrays(chunks) for chunks in zip(*parts, strict=True)]
    return dict(zip(COLUMNS, columns, strict=True))


def _is_bare(block: Block) -> bool:
    """Its messages have no headers, and are none of AMQP, which have those in their bodies."""
    return not block.headers_bytes and block.uniform and block.kind != AMQP


def _asked(messages: Sequence[Message]) -> list[Any]:
    """The header columns of messages, each asked by itself."""
    values = (
        [message.id for message in messages],
        [message.timestamp for message in messages],
        [message.priority for message in messages],
        [message.delivery_count > 1 for message in messages],
        [message.correlation_id for message in messages],
        [message.type for message in messages],
    )
    return [pa.array(found, of) for found, of in zip(values, _TYPES, strict=True)]


def _of_run(run: MessageRun) -> list[Any]:
    """The header columns of messages without headers."""
    block, count, within = run.block, len(run), range(run.start, run.end)
    sequence: Sequence[int] = (
        [block.seq_of(index) for index in within]
        if block.gaps
        else range(block.first_seq + run.start, block.first_seq + run.end)
    )
    priorities = array("q", [block.priority]) * count if block.plain else array("q", map(block.priority_of, within))
    redelivered = (b"\xff" if run.delivery.attempt > 1 else b"\0") * (count // 8 + 1)
    return [
        _ids(id_prefix(block.producer), sequence),
        _integers(array("q", [block.timestamp_ms]) * count),
        _integers(priorities),
        pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(redelivered)]),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
    ]


def _ids(prefix: str, sequence: Sequence[int]) -> Any:
    """The ids of ascending sequence numbers."""
    text = (prefix + "%d") * len(sequence) % tuple(sequence)
    width = len(prefix) + len(str(sequence[0]))
    if len(text) == width * len(sequence):  # All have as many digits as the first, since none has fewer.
        ends = array("i", range(0, len(text) + 1, width))
    else:
        ends = array("i", accumulate((len(prefix) + len(str(number)) for number in sequence), initial=0))
    return _of_buffers(pa.string(), ends, text.encode())


def _integers(values: array[int]) -> Any:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _of_buffers(of: Any, ends: array[int], data: bytes | memoryview) -> Any:
    """A column of bytes or text: each from one of ``ends`` to the next one."""
    return pa.Array.from_buffers(of, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _views(runs: Sequence[MessageRun]) -> Any:
    """The bodies as views of their blocks; None unless all of them are bytes, or all are text, and long runs."""
    kind = runs[0].block.kind if runs else -1
    if kind not in _BODIES or len(runs) * RUN_MIN > sum(map(len, runs)):
        return None
    if not all(run.block.uniform and run.block.kind == kind and run.delivery.view.nbytes for run in runs):
        return None
    chunks = [_view(run, _BODIES[kind]) for run in runs]
    if kind == TEXT:
        try:
            for chunk in chunks:
                chunk.validate(full=True)
        except pa.ArrowInvalid:
            return None  # Reading the body says which it is, and why.
    if len(chunks) > 1 and sum(run.nbytes for run in runs) <= JOINED_BYTES:
        return pa.concat_arrays(chunks)
    return pa.chunked_array(chunks, _BODIES[kind])


def _view(run: MessageRun, of: Any) -> Any:
    offsets = run.delivery.offsets[run.start : run.end + 1]
    first = offsets[0]
    ends = array("i", [offset - first for offset in offsets])
    return _of_buffers(of, ends, run.delivery.view[first : offsets[-1]])


def _has_names(body: object) -> bool:
    return type(body) is dict and all(type(key) is str for key in body)


def _column(values: list[Any]) -> Any:
    # Arrow asks each value for its type, which takes longer than to copy it.
    if all(type(value) is bytes for value in values):
        return pa.array(values, pa.binary())
    return pa.array(values)
