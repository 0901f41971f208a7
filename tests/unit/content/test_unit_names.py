"""The unit of order of each message is read from its header, whoever wrote it, and stays with it (W-76, W-79, U17)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content import unit_names
from raybroker.content.death_records import dead_block, revive_block
from raybroker.content.headers import BlockContent, decode_header, encode_header, pack_fields
from raybroker.content.unit_names import HEADERS_KNOWN_MAX, in_unit, units_of
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import MessageFormatError
from raybroker.model.naming.units import UNIT_CHARS_MAX, default_unit
from tests.unit.content.test_death_records import Killed


def block_of(headers: list[bytes] | None, count: int = 0) -> Block:
    bodies = [b"x"] * (count or len(headers or ()))
    data = encode_block(bodies, producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=0, headers=headers)
    return Block(data)


def header(unit: str | None, **properties: object) -> bytes:
    return encode_header(properties or None, None, None, None, unit=unit)


names = st.text(min_size=1, max_size=9)


@given(st.lists(st.tuples(st.none() | names, st.none() | st.integers(0, 3)), min_size=1, max_size=20))
def test_names_are_read_in_the_order_of_the_messages(rows: list[tuple[str | None, int | None]]) -> None:
    headers = [header(unit, **({} if n is None else {"n": n})) for unit, n in rows]
    expected = tuple(unit for unit, _ in rows)
    assert units_of(block_of(headers)) == (expected if any(expected) else None)


def test_a_block_without_headers_or_units_has_none() -> None:
    assert units_of(block_of(None, 3)) is None
    assert units_of(block_of([b"", header(None, n=1)])) is None
    assert units_of(block_of([header(None, text="\xa1u looks like it")])) is None


@pytest.mark.parametrize(
    "damaged", [b"\xa1u", b"\x81\xa1u\x01", pack_fields({"u": ""}), pack_fields({"u": "x" * 256}), b"\xc1\xa1u"]
)
def test_a_header_that_is_none_has_no_unit_and_harms_no_other(damaged: bytes) -> None:
    assert units_of(block_of([damaged, header("a")])) == (None, "a")


def test_equal_names_are_one_object() -> None:
    first, second, third = units_of(block_of([header("abc"), header("abc", n=1), header("abc", n=2)])) or ()
    assert first is second is third


def test_many_units_do_not_fill_the_memory() -> None:
    for start in range(0, 2 * HEADERS_KNOWN_MAX + 1000, 1000):
        expected = tuple(f"unit {start + i}" for i in range(1000))
        assert units_of(block_of([header(name) for name in expected])) == expected
        assert len(unit_names._known) <= HEADERS_KNOWN_MAX
        assert len(unit_names._names) <= HEADERS_KNOWN_MAX


@pytest.mark.parametrize("name", ["", "x" * (UNIT_CHARS_MAX + 1), 1, b"a"])
def test_what_is_no_name_is_refused_when_it_is_sent(name: object) -> None:
    with pytest.raises(MessageFormatError, match="unit_of_order"):
        header(name)  # type: ignore[arg-type]


def test_selectors_see_it_as_a_header() -> None:
    content = BlockContent(block_of([header("a", n=1), header(None, n=2)]))
    assert [content.header(i, "JMS_BEA_UnitOfOrder") for i in (0, 1)] == ["a", None]


# ---- W-79 ------------------------------------------------------------------------------------------------------------


def test_messages_without_a_unit_get_one_and_keep_everything_else() -> None:
    block = in_unit(block_of([header("own", n=1), header(None, n=2), b""]), "default")
    assert units_of(block) == ("own", "default", "default")
    assert [decode_header(block.header(i)).properties for i in range(3)] == [{"n": 1}, {"n": 2}, {}]
    assert units_of(in_unit(block_of(None, 2), "default")) == ("default", "default")
    assert [bytes(block.body(i)) for i in range(3)] == [b"x"] * 3


def test_the_unit_of_a_destination_follows_from_its_name() -> None:
    assert default_unit("queue", "q") == default_unit("queue", "q")
    assert len({default_unit(kind, name) for kind in ("queue", "topic") for name in ("q", "r")}) == 4


# ---- U17 -------------------------------------------------------------------------------------------------------------


def test_a_message_keeps_its_unit_when_it_dies_and_comes_back() -> None:
    block = block_of([header("a", n=1), header("b")])
    dead = Block(dead_block(block, 0b11, Killed(), producer=2, first_seq=9, now_ms=5, truncate=False))
    assert units_of(dead) is None, "nothing waits for another in the dead message queue"
    ((_, _, _, _, data),) = revive_block(dead, 0b11, producer=3, first_seq=1, now_ms=6)
    assert units_of(Block(data)) == ("a", "b")


def test_parts_of_a_block_keep_their_units() -> None:
    block = block_of([header(name) for name in "abcd"])
    assert units_of(Block(b"".join(block.pick(0b1010)))) == ("b", "d")
