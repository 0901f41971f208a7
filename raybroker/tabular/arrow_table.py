"""Messages as a table of Arrow: one row a message.

Messages come in blocks, whose bodies lie one behind the other, as those of a column of Arrow do.  So the columns of a
run of messages without headers are made at once, and that of bodies of bytes or text is a view of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from raybroker.client.consumer.message import MessageRun, runs_of
from raybroker.content.bodies import AMQP, BYTES, TEXT
from raybroker.content.headers import id_prefix
from raybroker.model.blocks.block import Block

COLUMNS: Final = ("id", "timestamp", "priority", "redelivered", "correlation_id", "type")
_TYPES: Final = (pa.string(), pa.int64(), pa.int64(), pa.bool_(), pa.string(), pa.string())
_BODIES: Final = {BYTES: pa.binary(), TEXT: pa.string()}
"""Kinds of bodies that are views → the type of their column."""
RUN_MIN: Final = 8
"""Messages of a run whose columns are made at once; making those of fewer takes longer than to ask each."""


def table_of(messages: Sequence[Any]) -> pa.Table:
    """One row a message: COLUMNS, and the body, whose keys are columns when all bodies are dicts with text keys, else
    the column ``body``."""
    runs = runs_of(messages)
    columns = header_columns(messages, runs)
    body = _views(runs)
    if body is not None:
        return pa.table({**columns, "body": body})
    bodies = [message.body for message in messages]
    if not all(map(_has_names, bodies)):
        return pa.table({**columns, "body": _column(bodies)})
    names = {f"_{key}" if key in COLUMNS else key: key for body in bodies for key in body}
    return pa.table({**columns, **{name: _column([body.get(key) for body in bodies]) for name, key in names.items()}})


def header_columns(messages: Sequence[Any], runs: Sequence[MessageRun]) -> dict[str, Any]:
    """The columns COLUMNS, each of its type also where every message lacks it."""
    parts: list[Sequence[Any]] = []
    asked = at = 0
    for run in runs:
        count = run.end - run.start
        if count >= RUN_MIN and _is_bare(run.block):
            if at > asked:
                parts.append(_asked(messages[asked:at]))
            parts.append(_of_run(run, count))
            asked = at + count
        at += count
    if at > asked or not parts:
        parts.append(_asked(messages[asked:at]))
    if len(parts) == 1:
        return dict(zip(COLUMNS, parts[0], strict=True))
    return {
        name: pa.chunked_array(chunks, of)
        for name, of, chunks in zip(COLUMNS, _TYPES, zip(*parts, strict=True), strict=True)
    }


def _is_bare(block: Block) -> bool:
    """Its messages have no headers, and are none of AMQP, which have those in their bodies."""
    return not block.headers_bytes and block.uniform and block.kind != AMQP


def _asked(messages: Sequence[Any]) -> list[Any]:
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


def _of_run(run: MessageRun, count: int) -> list[Any]:
    """The header columns of messages without headers."""
    block, within = run.block, range(run.start, run.end)
    if block.gaps:
        sequence: Any = [block.seq_of(index) for index in within]
    else:
        sequence = range(block.first_seq + run.start, block.first_seq + run.end)
    ids = pc.binary_join_element_wise(
        pa.scalar(id_prefix(block.producer)), pc.cast(pa.array(sequence, pa.uint64()), pa.string()), ""
    )
    priorities = (
        pa.repeat(pa.scalar(block.priority, pa.int64()), count)
        if block.plain
        else pa.array([block.priority_of(index) for index in within], pa.int64())
    )
    return [
        ids,
        pa.repeat(pa.scalar(block.timestamp_ms, pa.int64()), count),
        priorities,
        pa.repeat(pa.scalar(run.attempt > 1, pa.bool_()), count),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
    ]


def _views(runs: Sequence[MessageRun]) -> Any:
    """The bodies as views of their blocks; None unless all of them are bytes, or all are text, and long runs."""
    kind = runs[0].block.kind if runs else -1
    if kind not in _BODIES or len(runs) * RUN_MIN > sum(run.end - run.start for run in runs):
        return None
    if not all(run.block.uniform and run.block.kind == kind and run.view.nbytes for run in runs):
        return None
    chunks = [_view(run, _BODIES[kind]) for run in runs]
    if kind == TEXT:
        try:
            for chunk in chunks:
                chunk.validate(full=True)
        except pa.ArrowInvalid:
            return None  # Reading the body says which it is, and why.
    return pa.chunked_array(chunks, _BODIES[kind])


def _view(run: MessageRun, of: Any) -> Any:
    first, last = run.offsets[run.start], run.offsets[run.end]
    starts = pa.array([offset - first for offset in run.offsets[run.start : run.end + 1]], pa.int32())
    data = pa.py_buffer(run.view[first:last])
    return pa.Array.from_buffers(of, run.end - run.start, [None, starts.buffers()[1], data])


def _has_names(body: object) -> bool:
    return type(body) is dict and all(type(key) is str for key in body)


def _column(values: list[Any]) -> Any:
    # Arrow asks each value for its type, which takes longer than to copy it.
    if all(type(value) is bytes for value in values):
        return pa.array(values, pa.binary())
    return pa.array(values)
