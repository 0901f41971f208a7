"""Messages as rows of Spark, by the columns of a schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from raybroker.tabular.batching import shares

SCHEMA: Final = (
    "id string, timestamp bigint, priority int, redelivered boolean, correlation_id string, type string, body binary"
)
HEADERS: Final = {
    "id": lambda message: message.id,
    "timestamp": lambda message: message.timestamp,
    "priority": lambda message: message.priority,
    "redelivered": lambda message: message.delivery_count > 1,
    "correlation_id": lambda message: message.correlation_id,
    "type": lambda message: message.type,
}
BODY: Final = "body"
Column = tuple[str, str]
"""Name and type, as Spark calls it."""


class RowsPart(InputPartition):
    """Rows that one task of Spark gives out: they are in the partition itself."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        super().__init__(len(rows))
        self.rows = rows


def columns_of(schema: Any) -> list[Column]:
    """The columns of a schema of Spark."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def row_of(message: Any, columns: Sequence[Column]) -> tuple[Any, ...]:
    """A message as a row: headers, ``body``, and of bodies that are dicts the keys that the schema names."""
    body = message.body
    row = []
    for name, kind in columns:
        if name == BODY:
            row.append(whole_body(body, kind))
        elif name in HEADERS:
            row.append(HEADERS[name](message))
        else:
            row.append(body.get(name) if isinstance(body, dict) else None)
    return tuple(row)


def whole_body(body: Any, kind: str) -> Any:
    """A body in a column of a type: bytes and text as they are, the text of others in JSON; else as it is."""
    if kind == "binary":
        if isinstance(body, bytes):
            return body
        return (body if isinstance(body, str) else _json(body)).encode()
    if kind == "string":
        if isinstance(body, bytes):
            return body.decode(errors="replace")
        return body if isinstance(body, str) else _json(body)
    return body


def parts_of(rows: list[tuple[Any, ...]], parts: int) -> list[RowsPart]:
    """Rows in so many parts, each in order, and none that is empty."""
    found, start = [], 0
    for share in shares(len(rows), min(parts, len(rows)) or 1):
        found.append(RowsPart(rows[start : start + share]))
        start += share
    return [part for part in found if part.rows]


def _json(body: Any) -> str:
    return json.dumps(body, default=str, ensure_ascii=False)
