"""The block against a list of messages: what went in comes back, a part or a pick is a block of its own, damage is
refused."""

from __future__ import annotations

import struct
from array import array
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raybroker.model.blocks import columns
from raybroker.model.blocks.block import (
    BLOCK_MESSAGES_MAX,
    HEAD_BYTES,
    Block,
    count_of,
    encode_block,
)
from raybroker.model.errors import ProtocolError

U64 = (1 << 64) - 1


class Row(NamedTuple):
    """One message of the dumb twin."""

    seq: int
    kind: int
    header: bytes
    body: bytes
    priority: int = 4
    expires: int = 0
    deliver_at: int = 0


class Sample(NamedTuple):
    data: bytes
    rows: list[Row]
    head: dict[str, object]
    uniform: bool
    with_headers: bool

    @property
    def whole(self) -> int:
        return (1 << len(self.rows)) - 1


def times(draw: st.DrawFn, count: int) -> list[int]:
    one = st.one_of(st.just(0), st.integers(0, U64))
    return draw(st.just([0] * count) | st.lists(one, min_size=count, max_size=count))


@st.composite
def samples(draw: st.DrawFn, most: int = 12) -> Sample:
    bodies = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=most))
    count = len(bodies)
    uniform, with_headers = draw(st.booleans()), draw(st.booleans())
    one = draw(st.integers(0, 255))
    kinds = bytes([one] * count) if uniform else draw(st.binary(min_size=count, max_size=count))
    headers = draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count)) if with_headers else None
    first, priority = draw(st.integers(0, U64 - count)), draw(st.integers(0, 9))
    priorities = [priority] * count
    if draw(st.booleans()):
        priorities = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    expires, deliver_at = times(draw, count), times(draw, count)
    head: dict[str, object] = {
        "producer": draw(st.integers(0, U64)),
        "first_seq": first,
        "timestamp_ms": draw(st.integers(0, U64)),
        "persistent": draw(st.booleans()),
    }
    columns_given = draw(st.booleans()) or any(expires) or any(deliver_at) or len(set(priorities)) > 1
    data = encode_block(
        bodies,
        kinds=one if uniform else kinds,
        headers=headers,
        priority=priorities[0],
        priorities=bytes(priorities) if columns_given else None,
        expires=array("Q", expires) if columns_given else None,
        deliver_at=array("Q", deliver_at) if columns_given else None,
        **head,  # type: ignore[arg-type]
    )
    rows = [
        Row(
            first + i,
            kinds[i],
            headers[i] if headers is not None else b"",
            bodies[i],
            priorities[i],
            expires[i],
            deliver_at[i],
        )
        for i in range(count)
    ]
    return Sample(data, rows, head, uniform, with_headers)


@st.composite
def picked(draw: st.DrawFn) -> tuple[Sample, int]:
    """A sample and some of its messages."""
    sample = draw(samples())
    return sample, draw(st.integers(1, sample.whole))


def rows_of(block: Block) -> list[Row]:
    """What a block holds, message by message, through every accessor."""
    kinds, priorities, expires, deliver_at = block.kinds(), block.priorities(), block.expires(), block.deliver_at()
    found = []
    for index in range(block.count):
        header = block.header(index)
        kind = block.kind_of(index)
        assert kinds is None or kinds[index] == kind
        assert block.lengths[index] == block.body(index).nbytes
        row = Row(
            block.seq_of(index),
            kind,
            b"" if header is None else bytes(header),
            bytes(block.body(index)),
            block.priority_of(index),
            block.expires_of(index),
            block.deliver_at_of(index),
        )
        assert row.priority == (block.priority if priorities is None else priorities[index])
        assert row.expires == (0 if expires is None else expires[index])
        assert row.deliver_at == (0 if deliver_at is None else deliver_at[index])
        found.append(row)
    return found


def chosen(rows: list[Row], mask: int) -> list[Row]:
    return [row for index, row in enumerate(rows) if mask >> index & 1]


def opened(buffers: tuple[bytes | bytearray | memoryview, ...]) -> Block:
    block = Block(b"".join(buffers))
    block.check()
    return block


@given(samples())
def test_what_was_encoded_comes_back(sample: Sample) -> None:
    block = Block(sample.data)
    block.check()
    assert rows_of(block) == sample.rows
    assert {name: getattr(block, name) for name in sample.head} == sample.head
    assert block.count == count_of(sample.data) == len(sample.rows)
    assert block.bodies_bytes == sum(len(row.body) for row in sample.rows)
    assert (block.kinds() is None) == sample.uniform
    assert (block.header_offsets() is None) == (not sample.with_headers)
    assert (block.priorities() is None) == (len({row.priority for row in sample.rows}) == 1)
    assert (block.expires() is None) == (not any(row.expires for row in sample.rows))
    assert (block.deliver_at() is None) == (not any(row.deliver_at for row in sample.rows))
    assert not block.gaps


def test_columns_that_say_what_holds_anyway_take_no_room() -> None:
    plain = encode_block([b"a", b"b"], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0, priority=7)
    same = encode_block(
        [b"a", b"b"],
        producer=1,
        first_seq=1,
        timestamp_ms=0,
        persistent=True,
        kinds=0,
        priorities=b"\7\7",
        expires=array("Q", (0, 0)),
        deliver_at=array("Q", (0, 0)),
    )
    assert same == plain


# ---- parts and picks -------------------------------------------------------------------------------------------------


@given(picked())
@example(
    (
        Sample(
            encode_block([b""] * 3, producer=1, first_seq=U64 - 3, timestamp_ms=0, persistent=True, kinds=0),
            [Row(U64 - 3 + i, 0, b"", b"") for i in range(3)],
            {},
            True,
            False,
        ),
        0b101,
    )
)
def test_a_pick_is_the_block_of_those_messages(case: tuple[Sample, int]) -> None:
    sample, mask = case
    block = opened(Block(sample.data).pick(mask))
    expected = chosen(sample.rows, mask)
    assert rows_of(block) == expected
    assert block.first_seq == expected[0].seq
    head = {**sample.head, "first_seq": expected[0].seq}
    assert {name: getattr(block, name) for name in sample.head} == {name: head[name] for name in sample.head}
    assert block.gaps == (expected[-1].seq - expected[0].seq >= len(expected))


@given(picked(), st.data())
def test_a_pick_of_a_pick_is_the_same_bytes_as_picking_at_once(case: tuple[Sample, int], data: st.DataObject) -> None:
    sample, mask = case
    again = data.draw(st.integers(1, (1 << mask.bit_count()) - 1))
    indexes = [i for i in range(len(sample.rows)) if mask >> i & 1]
    at_once = sum(1 << index for at, index in enumerate(indexes) if again >> at & 1)
    inner = opened(opened(Block(sample.data).pick(mask)).pick(again))
    assert rows_of(inner) == chosen(sample.rows, at_once)
    assert bytes(inner.view) == b"".join(Block(sample.data).pick(at_once))


@given(samples(), st.data())
def test_a_pick_of_messages_side_by_side_is_a_part_without_a_copy_of_the_bodies(
    sample: Sample, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(sample.rows) - 1))
    end = data.draw(st.integers(start + 1, len(sample.rows)))
    block = Block(sample.data)
    found = block.pick((1 << end) - (1 << start))
    assert b"".join(found) == b"".join(block.part(start, end))
    assert isinstance(found[-1], memoryview)
    assert found[-1].obj is sample.data


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 1000, BLOCK_MESSAGES_MAX])
def test_a_pick_of_every_third_message_of_a_large_block(count: int) -> None:
    data = encode_block(
        [b"%d" % i for i in range(count)],
        producer=1,
        first_seq=5,
        timestamp_ms=0,
        persistent=True,
        kinds=bytes(i % 7 for i in range(count)),
        headers=[b"h%d" % i for i in range(count)],
        expires=array("Q", range(count)),
    )
    mask = sum(1 << i for i in range(0, count, 3))
    found = rows_of(opened(Block(data).pick(mask)))
    assert found == [Row(5 + i, i % 7, b"h%d" % i, b"%d" % i, 4, i, 0) for i in range(0, count, 3)]


# ---- changes ---------------------------------------------------------------------------------------------------------

overrides = st.fixed_dictionaries(
    {"now_ms": st.integers(0, 1 << 62)},
    optional={
        "priority": st.none() | st.integers(0, 9),
        "persistent": st.none() | st.booleans(),
        "ttl_ms": st.none() | st.integers(0, 1 << 62),
        "delay_ms": st.none() | st.integers(0, 1 << 62),
    },
)


@given(picked(), overrides)
def test_overrides_hold_for_all_messages_and_nothing_else_changes(
    case: tuple[Sample, int], given_: dict[str, int | bool | None]
) -> None:
    sample, mask = case
    block = opened(Block(sample.data).pick(mask))
    found = block.with_overrides(**given_)  # type: ignore[arg-type]
    found.check()
    expected = chosen(sample.rows, mask)
    for field, name in (("expires", "ttl_ms"), ("deliver_at", "delay_ms")):
        span = given_.get(name)
        if span is not None:
            expected = [row._replace(**{field: given_["now_ms"] + span if span else 0}) for row in expected]  # type: ignore[arg-type, operator]
    if (priority := given_.get("priority")) is not None:
        expected = [row._replace(priority=priority) for row in expected]
    assert rows_of(found) == expected
    persistent = given_.get("persistent")
    assert found.persistent == (block.persistent if persistent is None else persistent)
    assert (found.producer, found.timestamp_ms) == (block.producer, block.timestamp_ms)


@given(picked(), st.data())
def test_other_headers_leave_everything_else_as_it_was(case: tuple[Sample, int], data: st.DataObject) -> None:
    sample, mask = case
    block = opened(Block(sample.data).pick(mask))
    headers = data.draw(st.lists(st.binary(max_size=9), min_size=block.count, max_size=block.count))
    found = block.with_headers(headers)
    found.check()
    expected = [row._replace(header=h) for row, h in zip(chosen(sample.rows, mask), headers, strict=True)]
    assert rows_of(found) == expected
    assert (found.header_offsets() is None) == (not any(headers))
    assert found.persistent == block.persistent


@given(samples(), st.data())
def test_a_part_is_the_block_of_those_messages(sample: Sample, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sample.rows) - 1))
    end = data.draw(st.integers(start + 1, len(sample.rows)))
    buffers = Block(sample.data).part(start, end)
    part = Block(b"".join(buffers))
    part.check()
    assert count_of(buffers[0]) == end - start
    assert rows_of(part) == sample.rows[start:end]
    expected = {**sample.head, "first_seq": sample.rows[start].seq}
    assert {name: getattr(part, name) for name in expected} == expected


@given(samples(), st.data())
def test_a_part_of_a_part_is_a_part(sample: Sample, data: st.DataObject) -> None:
    count = len(sample.rows)
    start = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(start + 1, count))
    outer = Block(b"".join(Block(sample.data).part(start, end)))
    low = data.draw(st.integers(0, end - start - 1))
    high = data.draw(st.integers(low + 1, end - start))
    inner = b"".join(outer.part(low, high))
    assert inner == b"".join(Block(sample.data).part(start + low, start + high))


def test_the_whole_block_is_its_own_part_without_a_copy() -> None:
    data = encode_block([b"a", b"b"], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
    (whole,) = Block(data).part(0, 2)
    assert isinstance(whole, memoryview)
    assert whole.obj is data


@given(samples(), st.data())
def test_a_block_that_is_cut_or_longer_than_it_says_is_refused(sample: Sample, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(sample.data) - 1))
    with pytest.raises(ProtocolError):
        Block(sample.data[:cut])
    with pytest.raises(ProtocolError):
        Block(sample.data + b"\0")


@given(samples(most=4), st.data())
def test_a_changed_byte_is_refused_or_every_accessor_still_answers(sample: Sample, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sample.data) - 1))
    changed = bytearray(sample.data)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        block = Block(bytes(changed))
        block.check()
    except ProtocolError:
        return
    assert len(rows_of(block)) == block.count
    assert len(b"".join(block.part(0, 1))) >= HEAD_BYTES
    every_second = sum(1 << i for i in range(0, block.count, 2))
    assert rows_of(opened(block.pick(every_second))) == rows_of(block)[::2]
    block.with_overrides(now_ms=1, ttl_ms=1).check()


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_every_accessor_still_answers(data: bytes) -> None:
    try:
        block = Block(data)
        block.check()
    except ProtocolError:
        return
    assert len(rows_of(block)) == block.count


def forged(
    *,
    version: int = 2,
    flags: int = 0,
    kind: int = 0,
    count: int = 1,
    headers_bytes: int = 0,
    bodies_bytes: int = 1,
    rest: bytes = b"\1\0\0\0x",
    priority: int = 4,
    first_seq: int = 1,
) -> bytes:
    """A block with a head of our choice; without arguments it is a right one."""
    return (
        struct.pack("<BBBBIQQQII", version, flags, kind, priority, count, 7, first_seq, 0, headers_bytes, bodies_bytes)
        + rest
    )


def test_the_forged_block_without_a_fault_is_right() -> None:
    block = Block(forged())
    block.check()
    assert rows_of(block) == [Row(1, 0, b"", b"x")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "shorter than its head"),
        (forged()[:35], "shorter than its head"),
        (forged(version=0), "version 0"),
        (forged(version=1), "version 1"),
        (forged(version=3), "version 3"),
        (forged(flags=0x80), "flags 0x80"),
        (forged(count=0, bodies_bytes=0, rest=b""), "0 messages"),
        (forged(count=BLOCK_MESSAGES_MAX + 1, bodies_bytes=0, rest=bytes(4 * (BLOCK_MESSAGES_MAX + 1))), "1025"),
        (forged(count=0xFFFF_FFFF), "4294967295 messages"),
        (forged(headers_bytes=1), "without a header column"),
        (forged(bodies_bytes=0xFFFF_FFFF), "declares"),
        (forged(bodies_bytes=2), "declares"),
        (forged(rest=b"\2\0\0\0x"), "add up to 2, not 1"),
        (forged(rest=b"\xff\xff\xff\xffx"), "add up to 4294967295"),
        (forged(priority=10), "priority 10"),
        (forged(flags=8, rest=b"\1\0\0\0" + b"\xff" + b"x"), "priority 255"),
        (forged(flags=16), "declares"),
        (forged(flags=32), "declares"),
        (forged(flags=64), "declares"),
        (forged(flags=64, rest=b"\1\0\0\0" + b"\1\0\0\0" + b"x"), "do not ascend"),
        (
            forged(flags=64, count=2, rest=b"\1\0\0\0" + bytes(4) + bytes(4) + bytes(4) + b"x"),
            "do not ascend",
        ),
        (
            forged(flags=64, count=2, first_seq=U64 - 3, rest=b"\1\0\0\0" + bytes(4) + bytes(4) + b"\3\0\0\0" + b"x"),
            "past 64 bits",
        ),
        (forged(first_seq=U64), "past 64 bits"),
        (forged(flags=2, rest=b"\1\0\0\0" + b"\1\0\0\0" + b"x"), "header lengths of a block add up to 1, not 0"),
    ],
)
def test_a_malformed_block_is_refused_with_its_reason(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        Block(data).check()


def test_a_block_holds_1024_messages_of_no_bytes() -> None:
    data = encode_block(
        [b""] * BLOCK_MESSAGES_MAX,
        producer=1,
        first_seq=1,
        timestamp_ms=0,
        persistent=False,
        kinds=1,
        headers=[b""] * BLOCK_MESSAGES_MAX,
    )
    block = Block(data)
    block.check()
    assert block.count == BLOCK_MESSAGES_MAX
    assert block.header(1023) is None
    assert [len(p) for p in block.part(1023, 1024)] == [HEAD_BYTES + 4 + 4, 0]


def test_columns_are_little_endian_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_IS_LITTLE", False)
    column = array("I", (1, 256))
    assert columns.little(column) == struct.pack("=II", 1 << 24, 1 << 16)
    assert columns.native(array("Q", bytes(7) + b"\1")) == array("Q", (1,))
    assert column == array("I", (1, 256)), "what was given is not changed"


@pytest.mark.parametrize("size", [0, 1, 70_000])
def test_a_message_alone_is_the_same_block_as_one_whose_columns_say_nothing(size: int) -> None:
    same: dict[str, Any] = {"producer": 7, "first_seq": 9, "timestamp_ms": 11, "persistent": bool(size), "priority": 3}
    body = bytes(range(256)) * (size // 256 + 1)
    for front in (False, True):
        alone = encode_block([body[:size]], kinds=5, front=front, **same)
        assert alone == encode_block([body[:size]], kinds=5, front=front, expires=array("Q", [0]), **same)
