"""What the core writes down is read as it was written."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.durable import records
from raybroker.core.durable.records import BlockMeta, JournalRecord, RecordRow, Span
from raybroker.core.subscription import Subscription
from raybroker.model.errors import StoreDamagedError

BIG = st.integers(0, 2**64 - 1)
MASK = st.integers(1, 2**1024 - 1) | st.integers(1, 2**20)
U32 = st.integers(0, 2**32 - 1)
SPANS = st.lists(st.builds(Span, BIG, BIG, U32), max_size=9)
UNITS = st.none() | st.text(st.characters(), max_size=9)
ROWS = st.lists(st.builds(RecordRow, BIG, MASK, U32, BIG), max_size=9)


@given(st.integers(1, 255), U32, SPANS, ROWS, st.binary(max_size=20))
def test_a_note_is_read_as_it_was_written(
    kind: int, queue: int, spans: list[Span], rows: list[RecordRow], rest: bytes
) -> None:
    rest = b"" if kind == records.FAILED else rest  # It has its own there.
    note = records.encode(kind, queue, spans, rows, rest)
    assert records.kind_of(note) == kind
    assert records.decode(note) == JournalRecord(kind, queue, spans, rows, rest)


@given(st.lists(st.tuples(st.text(max_size=64), BIG), max_size=9))
def test_deduplication_ids_are_read_as_they_were_written(ids: list[tuple[str, int]]) -> None:
    assert records.decode_dedup(records.encode_dedup(ids)) == ids


@given(BIG)
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    assert records.decode_number(records.encode_number(number)) == number


@st.composite
def metas(draw: st.DrawFn) -> BlockMeta:
    count = draw(st.integers(1, 30))

    def column(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
        return st.lists(values, min_size=count, max_size=count) | values.map(lambda value: [value] * count)

    def times() -> array[int] | None:
        found = draw(st.none() | column(BIG))
        return None if found is None else array("Q", found)

    priorities = draw(st.none() | column(st.integers(0, 9)))
    claims = draw(st.none() | st.dictionaries(U32, st.none() | st.integers(1, 2**count - 1), max_size=4))
    return BlockMeta(
        count,
        draw(BIG),
        draw(BIG),
        records.pack_sizes(draw(column(U32))),
        draw(st.integers(0, 9)),
        None if priorities is None else bytes(priorities),
        times(),
        times(),
        draw(st.just(0) | BIG),
        claims,
        draw(st.none() | st.lists(UNITS, min_size=count, max_size=count).map(tuple)),
    )


@given(metas())
def test_the_meta_of_a_block_is_read_as_it_was_written(meta: BlockMeta) -> None:
    assert records.decode_block_meta(records.encode_block_meta(meta)) == meta


@pytest.mark.parametrize("different", [1, 255, 256, 1000])
def test_units_of_order_cost_little_more_than_their_names(different: int) -> None:
    units = tuple(f"u{i % different}" for i in range(1000))
    data = records.encode_block_meta(BlockMeta(1000, 7, 1, 1024, units=units))
    assert records.decode_block_meta(data).units == units
    assert len(data) < 64 + different * 6 + 1000 * (1 if different < 256 else 2)
    with pytest.raises(ValueError, match="cut off"):
        records.decode_block_meta(data[:-1] if different < 256 else data[:-2])


@pytest.mark.parametrize(("units", "more"), [(255, 0), (256, 0), (600, 0), (600, 1), (255, 1)])
def test_units_are_read_as_they_were_written_whether_every_message_has_its_own_or_not(units: int, more: int) -> None:
    names = (*(f"unit {i}" for i in range(units)), *[None] * more)
    data = records.encode_block_meta(BlockMeta(len(names), 7, 1, 1024, units=names))
    assert records.decode_block_meta(data).units == names


def test_the_encoded_names_of_many_units_do_not_fill_the_memory() -> None:
    for start in range(0, 2 * records.UNITS_KEPT, 1000):
        names = tuple(f"unit {start + i}" for i in range(1000))
        data = records.encode_block_meta(BlockMeta(1000, 7, 1, 1024, units=names))
        assert records.decode_block_meta(data).units == names
        assert len(records._encoded) <= records.UNITS_KEPT


def test_a_plain_block_costs_few_bytes() -> None:
    assert len(records.encode_block_meta(BlockMeta(500, 7, 1, 1024))) < 32
    expires = array("Q", [99] * 500)
    assert len(records.encode_block_meta(BlockMeta(500, 7, 1, 1024, expires=expires))) < 48


def test_sizes_are_kept_as_one_number_when_they_are_equal() -> None:
    assert records.pack_sizes([7, 7, 7]) == 7
    assert list(records.pack_sizes([7, 8])) == [7, 8]  # type: ignore[arg-type]


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9))
def test_long_columns_are_cut_into_notes(a: int, b: int, more_a: int, more_b: int) -> None:
    first = range(a * records.ROWS_MAX + more_a)
    second = range(b * records.ROWS_MAX + more_b)
    cut = list(records.in_records(first, second))
    assert [row for some, _ in cut for row in some] == list(first)
    assert [row for _, some in cut for row in some] == list(second)
    assert all(len(x) <= records.ROWS_MAX and len(y) <= records.ROWS_MAX and (x or y) for x, y in cut)


@pytest.mark.parametrize("size", [0, 1, 5, 12])
def test_a_note_that_is_cut_short_does_not_decode(size: int) -> None:
    note = records.encode(records.ACKED, 0, [Span(1, 2)], [RecordRow(3, 1)])
    with pytest.raises((struct.error, IndexError)):
        records.decode(note[:size])


@pytest.mark.parametrize("one", [Subscription(), Subscription("cid", "näme", True, True, "a = 'x'", True, "conn")])
def test_a_subscription_is_read_as_it_was_written(one: Subscription) -> None:
    assert Subscription.decode(one.encode()) == one


@pytest.mark.parametrize("data", [b"", b"{", b"[1,2,3,4,5,6,7,8,9]", b"7"])
def test_bytes_that_are_no_subscription_are_damage(data: bytes) -> None:
    with pytest.raises(StoreDamagedError):
        Subscription.decode(data)


def test_metas_of_messages_sent_alone_are_read_together() -> None:
    metas = [records.encode_block_meta(records.BlockMeta(1, 9, n, 70_000 + n, n % 10)) for n in range(1, 30)]
    found = records.decode_alone(b"".join(metas), len(metas))
    assert found is not None
    assert list(found[0]) == [70_000 + n for n in range(1, 30)]
    assert list(found[1]) == [n % 10 for n in range(1, 30)]
    for other in (
        records.BlockMeta(2, 9, 1, 5),
        records.BlockMeta(1, 9, 1, array("I", [5])),
        records.BlockMeta(1, 9, 1, 5, txn=3),
        records.BlockMeta(1, 9, 1, 5, priorities=b"\4"),
        records.BlockMeta(1, 9, 1, 5, claims={1: None}),
    ):
        assert records.decode_alone(b"".join([*metas, records.encode_block_meta(other)]), len(metas) + 1) is None


def test_a_plain_block_is_written_as_any_other() -> None:
    for count, size in ((1, 0), (1, 1024), (1000, 7), (1, (1 << 32) - 1)):
        plain = records.encode_plain_meta(count, 7, 1 << 60, size)
        assert plain == records.encode_block_meta(BlockMeta(count, 7, 1 << 60, size))


def test_failures_by_a_cause_stand_behind_the_record_and_only_where_there_are_any() -> None:
    """What was written before there were causes is read as it was, and written as it was"""
    own, apart = RecordRow(7, 0b101, 3, 12), RecordRow(9, 0b1, 2 | 5 << 32 | 255 << 64, 0)
    before = records.encode(records.FAILED, 4, (), [own])
    assert len(before) == len(records.encode(records.DISPATCHED, 4, (), [own])), "nothing stands behind it"
    assert records.decode(before) == JournalRecord(records.FAILED, 4, [], [own])
    both = records.encode(records.FAILED, 4, (), [own, apart])
    assert records.decode(both).rows == [own, apart]
    with pytest.raises(struct.error):
        records.decode(both[:-1])


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    record = records.encode(records.CHECKPOINT, 2, (), [RecordRow(7, 1 << 40)], b"\x01half")
    assert records.decode(record) == JournalRecord(records.CHECKPOINT, 2, [], [RecordRow(7, 1 << 40)], b"\x01half")
