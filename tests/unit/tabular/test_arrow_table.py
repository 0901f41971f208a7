"""Messages as tables: columns, their types, names that meet, and what is made of whole blocks."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from raybroker.client.consumer.message import Message, ReceivedDelivery, runs_of  # noqa: E402 - after the skip
from raybroker.content.bodies import encode_body  # noqa: E402
from raybroker.content.headers import encode_header  # noqa: E402
from raybroker.model.blocks.block import Block, encode_block  # noqa: E402
from raybroker.model.errors import UnreadableError  # noqa: E402
from raybroker.tabular import arrow_table  # noqa: E402
from raybroker.tabular.arrow_table import COLUMNS, RUN_MIN, compact, expanded  # noqa: E402

TIME_MS = 1_700_000_000_000


def table_of(messages: Sequence[Message]) -> Any:
    return arrow_table.table_of(runs_of(messages))


def received(
    bodies: Sequence[Any], attempt: int = 2, mask: int = 0, first_seq: int = 7, **columns: Any
) -> list[Message]:
    """The messages of a block; ``mask``: those that were picked out of it."""
    encoded = [encode_body(body) for body in bodies]
    kinds = {kind for kind, _ in encoded}
    data = encode_block(
        [body for _, body in encoded],
        producer=1,
        first_seq=first_seq,
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
    "a digit more": received(BYTES, first_seq=90),
    "as many digits": received(BYTES, first_seq=100, attempt=1),
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


@pytest.mark.parametrize("joined_bytes", [0, 1 << 20])
@pytest.mark.parametrize("bodies", [BYTES, TEXTS, [{"n": 1, "more": ["x"]}] * 9])
def test_a_table_that_travels_is_the_same_table(
    monkeypatch: pytest.MonkeyPatch, joined_bytes: int, bodies: Sequence[Any]
) -> None:
    monkeypatch.setattr(arrow_table, "JOINED_BYTES", joined_bytes)
    made = table_of(received(bodies) + received(bodies, first_seq=1000))
    assert made.num_rows == 2 * len(bodies)
    passed = compact(made)
    assert isinstance(passed, pa.Table) == (joined_bytes == 0 and type(bodies[0]) is not dict)
    assert expanded(pickle.loads(pickle.dumps(passed, protocol=5))) == made


def test_a_text_that_is_none_is_told_as_by_its_message() -> None:
    messages = received(["text"] * RUN_MIN)
    offset = messages[0]._delivery.offsets[0]
    damaged = bytearray(messages[0]._delivery.view)
    damaged[offset] = 0xFF
    messages[0]._delivery.view = memoryview(bytes(damaged))
    with pytest.raises(UnreadableError):
        table_of(messages)
