"""Messages as tables: columns, their types, and names that meet."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from raybroker.tabular.arrow_table import COLUMNS, table_of  # noqa: E402 - after the skip


class Seen:
    """A message as a table is made of it."""

    def __init__(self, body: Any) -> None:
        self.id, self.timestamp, self.priority, self.body = "ID:1-1", 1_700_000_000_000, 4, body
        self.delivery_count, self.correlation_id, self.type = 2, None, None


def test_headers_have_their_types_where_all_lack_them() -> None:
    table = table_of([Seen(b"a"), Seen(b"b")])
    assert table.column_names == [*COLUMNS, "body"]
    assert [str(field.type) for field in table.schema] == [
        "string", "int64", "int64", "bool", "string", "string", "binary",
    ]  # fmt: skip
    assert table.to_pylist()[1] == {
        "id": "ID:1-1", "timestamp": 1_700_000_000_000, "priority": 4, "redelivered": True, "correlation_id": None,
        "type": None, "body": b"b",
    }  # fmt: skip


def test_keys_of_bodies_are_columns_unless_one_body_has_none() -> None:
    rows = table_of([Seen({"n": 1, "id": "mine"}), Seen({"n": 2, "more": [1.5]})]).to_pylist()
    assert [(row["n"], row["_id"], row["more"]) for row in rows] == [(1, "mine", None), (2, None, [1.5])]
    assert table_of([Seen({"n": 1}), Seen({"n": 2})]).column("n").to_pylist() == [1, 2]
    assert table_of([Seen("text"), Seen(None)]).column("body").to_pylist() == ["text", None]
    with pytest.raises(pa.lib.ArrowException):
        table_of([Seen("text"), Seen(1)])
