"""Messages as a table of Arrow: one row a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

COLUMNS: Final = ("id", "timestamp", "priority", "redelivered", "correlation_id", "type")
_TYPES: Final = (pa.string(), pa.int64(), pa.int64(), pa.bool_(), pa.string(), pa.string())


def table_of(messages: Sequence[Any]) -> pa.Table:
    """One row a message: COLUMNS, and the body, whose keys are columns when all bodies are dicts with text keys, else
    the column ``body``."""
    columns = header_columns(messages)
    bodies = [message.body for message in messages]
    if not all(map(_has_names, bodies)):
        return pa.table({**columns, "body": _column(bodies)})
    names = {f"_{key}" if key in COLUMNS else key: key for body in bodies for key in body}
    return pa.table({**columns, **{name: _column([body.get(key) for body in bodies]) for name, key in names.items()}})


def header_columns(messages: Sequence[Any]) -> dict[str, Any]:
    """The columns COLUMNS, each of its type also where every message lacks it."""
    values = (
        [message.id for message in messages],
        [message.timestamp for message in messages],
        [message.priority for message in messages],
        [message.delivery_count > 1 for message in messages],
        [message.correlation_id for message in messages],
        [message.type for message in messages],
    )
    return {name: pa.array(found, of) for name, found, of in zip(COLUMNS, values, _TYPES, strict=True)}


def _has_names(body: object) -> bool:
    return type(body) is dict and all(type(key) is str for key in body)


def _column(values: list[Any]) -> Any:
    # Arrow asks each value for its type, which takes longer than to copy it.
    if all(type(value) is bytes for value in values):
        return pa.array(values, pa.binary())
    return pa.array(values)
