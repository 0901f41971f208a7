"""Messages as tables: columns, their types, names that meet, and what is made of whole blocks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from raybroker.client.consumer.message import Message, ReceivedDelivery  # noqa: E402 - after the skip
from raybroker.content.bodies import encode_body  # noqa: E402
from raybroker.content.headers import encode_header  # noqa: E402
from raybroker.model.blocks.block import Block, encode_block  # noqa: E402
from raybroker.model.errors import UnreadableError  # noqa: E402
from raybroker.tabular.arrow_table import COLUMNS, RUN_MIN, table_of  # noqa: E402

TIME_MS = 1_700_000_000_000


def received(bodies: Sequence[Any], attempt: int = 2, mask: int = 0, **columns: Any) -> list[Message]:
    """The messages of a block; ``mask``: those that were picked out of it."""
    encoded = [encode_body(body) for body in bodies]
    kinds = {kind for kind, _ in encoded}
    data = encode_block(
        [body for _, body in encoded],
        producer=1,
        first_seq=7,
        timestamp_ms=TIME_MS,
        persistent=True,
        kinds=kinds.pop() if len(kinds) == 1 else bytes(kind for kind, _ in encoded),
        **columns,
    )
    block = Block(b"".join(Block(data).pick(mask)) if mask else data)
    consumer: Any = SimpleNamespace(unpickles=False, message_bytes_max=1 << 20)
    delivery = ReceivedDelivery(block, consumer, epoch=1, tag=1, attempt=attempt)
    return [Message(delivery, index) for index in range(block.count)]


def test_headers_have_their_types_where_all_lack_them() -> None:
    for count in (2, RUN_MIN):
        table = table_of(received([b"a"] * (count - 1) + [b"b"]))
        assert table.column_names == [*COLUMNS, "body"]
        assert [str(field.type) for field in table.schema] == [
            "string", "int64", "int64", "bool", "string", "string", "binary",
        ]  # fmt: skip
        assert table.to_pylist()[-1] == {
            "id": f"ID:0000000000000001-{6 + count}", "timestamp": TIME_MS, "priority": 4, "redelivered": True,
            "correlation_id": None, "type": None, "body": b"b",
        }  # fmt: skip


def test_keys_of_bodies_are_columns_unless_one_body_has_none() -> None:
    rows = table_of(received([{"n": 1, "id": "mine"}, {"n": 2, "more": [1.5]}])).to_pylist()
    assert [(row["n"], row["_id"], row["more"]) for row in rows] == [(1, "mine", None), (2, None, [1.5])]
    assert table_of(received([{"n": 1}, {"n": 2}])).column("n").to_pylist() == [1, 2]
    assert table_of(received(["text", None])).column("body").to_pylist() == ["text", None]
    with pytest.raises(pa.lib.ArrowException):
        table_of(received(["text", 1]))


BYTES = [b"%d" % number * (number % 5) for number in range(40)]
TEXTS = [f"é{number}" * (number % 4) for number in range(40)]
HEADERS = [encode_header({"n": 1}, f"c{number}", None, "kind") for number in range(40)]
RUNS = {
    "bytes": received(BYTES),
    "text": received(TEXTS),
    "numbers": received(list(range(40))),
    "picked out": received(BYTES, mask=0b1011_0111_1111_1101_1111),
    "priorities": received(BYTES, priorities=bytes(number % 10 for number in range(40))),
    "headers": received(TEXTS, headers=HEADERS),
    "some of a block": received(BYTES)[3:21],
    "short": received(TEXTS[:3]),
    "not one behind the other": received(BYTES)[::-1],
}


@pytest.mark.parametrize("first", RUNS)
@pytest.mark.parametrize("second", [*RUNS, None])
def test_what_is_made_of_blocks_is_what_each_message_says(first: str, second: str | None) -> None:
    messages = RUNS[first] + (RUNS[second] if second else [])
    if len({type(message.body) for message in messages}) > 1:
        return  # No column takes both.
    assert table_of(messages).to_pylist() == [
        {
            "id": message.id,
            "timestamp": message.timestamp,
            "priority": message.priority,
            "redelivered": message.delivery_count > 1,
            "correlation_id": message.correlation_id,
            "type": message.type,
            "body": message.body,
        }
        for message in messages
    ]


def test_bodies_of_a_block_are_not_copied() -> None:
    messages = received([b"x" * 1000] * 50)
    column = table_of(messages).column("body")
    view = pa.py_buffer(messages[0]._delivery.view)
    start = column.chunk(0).buffers()[2].address
    assert view.address <= start < view.address + view.size


def test_a_text_that_is_none_is_told_as_by_its_message() -> None:
    messages = received(["text"] * RUN_MIN)
    offset = messages[0]._delivery.offsets[0]
    damaged = bytearray(messages[0]._delivery.view)
    damaged[offset] = 0xFF
    messages[0]._delivery.view = memoryview(bytes(damaged))
    with pytest.raises(UnreadableError):
        table_of(messages)
