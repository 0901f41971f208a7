"""Bodies in parts are the bytes that any other message of the same value has, and come apart into the same pieces."""

from __future__ import annotations

import pickle
from typing import Any

import numpy
import pyarrow
import pytest

from raybroker.content.bodies import decode_body, encode_body
from raybroker.content.scattered import (
    bytes_in,
    from_shared,
    parts_of,
    piece_of,
    pieces_in,
    shared_form,
    size_of_parts,
)
from raybroker.model.blocks.large_block import PIECE_BYTES, pieces_of
from raybroker.model.errors import MessageFormatError

TABLE = pyarrow.table({"n": list(range(50_000)), "text": ["a"] * 50_000})
BATCH = pyarrow.RecordBatch.from_pydict({"n": [1, 2, None]})
VALUES = [
    numpy.arange(300_000.0),
    numpy.asfortranarray(numpy.ones((300, 400))),
    numpy.arange(PIECE_BYTES * 2, dtype=numpy.uint8)[::2],
    numpy.float32([]),
    {"x": numpy.arange(100_000), "label": "cat", "none": None, "n": 1, "real": 1.5, "yes": True},
    {"one": numpy.zeros(1, numpy.uint8), "empty": numpy.zeros((0, 3)), "middle": numpy.zeros(30_000, numpy.uint8)},
    TABLE,
    TABLE.slice(7, 11),
    BATCH,
    BATCH.slice(0, 0),
    pyarrow.table({"none": pyarrow.array([], pyarrow.int8())}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_parts_are_the_bytes_of_the_body(value: Any) -> None:
    kind, parts = parts_of(shared_form(value))
    data = b"".join(parts)
    assert (kind, data) == encode_body(value, exact=True)
    assert size_of_parts(parts) == len(data)
    assert b"".join(pieces_in(parts)) == data
    assert [piece_of(parts, number) for number in range(pieces_of(len(data)))] == list(pieces_in(parts))
    assert all(len(piece) == PIECE_BYTES for piece in list(pieces_in(parts))[:-1])


@pytest.mark.parametrize(
    "value", [TABLE, TABLE.slice(7, 11), BATCH, BATCH.slice(0, 0)], ids=["table", "slice", "batch", "empty"]
)
def test_a_table_of_arrow_comes_back_as_it_was(value: Any) -> None:
    kind, data = encode_body({"table": value, "more": 1})
    found = decode_body(kind, data)["table"]
    assert type(found) is type(value)
    assert found.equals(value)
    shared = from_shared(pickle.loads(pickle.dumps(shared_form(value))))
    assert type(shared) is type(value)
    assert shared.equals(value)


def test_a_damaged_table_is_refused() -> None:
    kind, data = encode_body(TABLE)
    for damaged in (data[:-40_000], data[:6] + b"X" + data[7:], data[:6] + b"T" + bytes(len(data) - 7)):
        with pytest.raises(MessageFormatError, match="does not decode"):
            decode_body(kind, damaged)


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (numpy.zeros(10), 80),
        ({"x": numpy.zeros(10), "y": numpy.zeros(2, numpy.uint8), "n": 1}, 82),
        (TABLE.slice(0, 10), TABLE.slice(0, 10).nbytes),
        ({"x": numpy.zeros(10), "more": [1]}, 0),
        ({1: numpy.zeros(10)}, 0),
        (numpy.array([object()]), 0),
        (numpy.zeros(10, dtype=[("a", "f8")]), 0),
        ({str(number): numpy.zeros(1) for number in range(1_001)}, 0),
        ("text", 0),
    ],
    ids=["array", "arrays", "table", "mixed", "keys", "objects", "records", "many", "text"],
)
def test_what_may_go_by_reference_is_measured(value: Any, nbytes: int) -> None:
    assert bytes_in(value) == nbytes
