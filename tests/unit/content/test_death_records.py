"""What is written on dead messages, what they keep, and how they go back to where they came from."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content import death_records
from raybroker.content.bodies import COMPRESS, DEFLATED, PICKLE, decode_body, deflated, encode_body
from raybroker.content.death_records import dead_block, dead_wish, deaths_in, deaths_of, revive_block
from raybroker.content.headers import Header, decode_header, encode_header, message_id, pack_fields
from raybroker.model.blocks.block import BLOCK_BYTES_MAX, Block, encode_block
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.failure import describe
from raybroker.model.naming.units import default_unit

NOW = 5_000


class Killed(NamedTuple):
    reason: str = "UNDELIVERABLE"
    comment: str = "tried too often"
    attempts: int = 21
    origin: tuple[str, str] = ("queue", "orders")
    broker: str = "b1"
    failure: str = ""
    subscription: str = ""
    cause: str = ""


def block_of(headers: list[bytes], bodies: list[Any] | None = None, **columns: Any) -> Block:
    encoded = [encode_body(body) for body in bodies or ["body"] * len(headers)]
    return Block(
        encode_block(
            [data for _, data in encoded],
            producer=7,
            first_seq=10,
            timestamp_ms=1_000,
            persistent=True,
            kinds=bytes(kind for kind, _ in encoded),
            headers=headers,
            **columns,
        )
    )


def buried(
    block: Block, mask: int = 1, death: Killed | None = None, *, truncate: bool = False, now: int = NOW
) -> Block:
    data = dead_block(block, mask, death or Killed(), producer=99, first_seq=500, now_ms=now, truncate=truncate)
    found = Block(data)
    found.check()
    return found


def header_of(block: Block, index: int = 0) -> Header:
    return decode_header(block.header(index))


def body_of(block: Block, index: int = 0) -> Any:
    return decode_body(block.kind_of(index), block.body(index))


def test_a_dead_message_says_where_when_and_why_it_died() -> None:
    (row,) = [header_of(buried(block_of([b""]))).properties]
    (death,) = deaths_of(row)
    del row[death_records.DEATHS]
    assert row == {
        "JMS_SUN_DMQ_UNDELIVERED_REASON": "UNDELIVERABLE",
        "JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP": NOW,
        "JMS_SUN_DMQ_UNDELIVERED_COMMENT": "tried too often",
        "JMS_SUN_DMQ_DELIVERY_COUNT": 21,
        "JMS_SUN_DMQ_PRODUCING_BROKER": "b1",
        "JMS_SUN_DMQ_DEAD_BROKER": "b1",
        "JMS_SUN_DMQ_BODY_TRUNCATED": False,
        "RAYBROKER_ORIGIN": "queue:orders",
        "RAYBROKER_ORIGINAL_ID": message_id(7, 10),
    }
    assert death == {
        "queue": "orders",
        "type": "queue",
        "reason": "UNDELIVERABLE",
        "count": 1,
        "first_ms": NOW,
        "last_ms": NOW,
        "comment": "tried too often",
    }


def test_deaths_in_a_queue_are_counted_over_reasons_and_a_full_history_is_as_many_as_can_be() -> None:
    block = block_of([b""])
    for reason, name in (("EXPIRED", "a"), ("ERROR", "b"), ("ERROR", "a"), ("ERROR", "a")):
        block = buried(block, death=Killed(reason, origin=("queue", name)))
    block = buried(block, death=Killed(origin=("topic", "a")))
    assert [deaths_in(block, 0, name) for name in ("a", "b", "c")] == [3, 1, 0]
    for number in range(death_records.DEATHS_MAX):
        assert deaths_in(block, 0, "c") == 0 or number > 20
        block = buried(block, death=Killed(origin=("queue", f"q{number}")))
    assert deaths_in(block, 0, "c") > 1000


@pytest.mark.parametrize("reason", ["OLDEST", "LOW_PRIORITY", "EXPIRED", "UNDELIVERABLE", "ERROR"])
def test_the_exception_is_named_for_errors_alone(reason: str) -> None:
    properties = header_of(buried(block_of([b""]), death=Killed(reason, "boom"))).properties
    assert properties[death_records.REASON] == reason
    assert properties.get(death_records.EXCEPTION) == ("boom" if reason == "ERROR" else None)
    assert death_records.COMMENT not in header_of(buried(block_of([b""]), death=Killed(reason, ""))).properties


def failure_of(text: str) -> str:
    try:
        raise ValueError(text)
    except ValueError as error:
        return describe(error)


def test_the_exception_of_the_last_attempt_is_written_on_a_dead_message_with_its_traceback() -> None:
    killed = Killed("UNDELIVERABLE", "failed 21 times, 20 are allowed", failure=failure_of("no such\ncustomer"))
    properties = header_of(buried(block_of([b""]), death=killed)).properties
    assert properties[death_records.EXCEPTION] == "ValueError: no such customer"
    assert properties[death_records.COMMENT] == "failed 21 times, 20 are allowed"
    assert properties[death_records.TRACEBACK].startswith("Traceback (most recent call last):\n")
    assert "in failure_of\n    raise ValueError(text)\n" in properties[death_records.TRACEBACK]
    assert deaths_of(properties)[0]["comment"] == "failed 21 times, 20 are allowed"


def test_a_traceback_is_the_first_to_go_when_headers_have_no_room_and_goes_when_a_message_is_sent_back() -> None:
    killed = Killed(failure=failure_of("x" * 9_000))
    full = block_of([encode_header({"own": "o" * (MESSAGE_HEADERS_BYTES_MAX - 2_500)}, None, None, None)])
    properties = header_of(buried(full, death=killed)).properties
    assert death_records.TRACEBACK not in properties
    assert properties[death_records.EXCEPTION].startswith("ValueError: xxx")
    assert len(properties[death_records.EXCEPTION]) <= death_records.COMMENT_CHARS_MAX
    ((_, _, _, _, data),) = revive_block(buried(block_of([b""]), death=killed), 1, producer=1, first_seq=1, now_ms=NOW)
    assert header_of(Block(data)).properties.keys() == {death_records.DEATHS, death_records.ORIGINAL_ID}


properties_ = st.dictionaries(
    st.sampled_from(("a", "b", "JMSXGroupID")),
    st.integers(0, 9) | st.text(max_size=4) | st.none(),
)
text = st.none() | st.text(max_size=4)
messages = st.tuples(properties_, text, text, text)


@given(st.lists(st.tuples(messages, st.text(max_size=9), st.integers(0, 9)), min_size=1, max_size=6), st.data())
def test_what_is_not_about_death_stays_as_it_was_but_expiry_and_delay(
    rows: list[tuple[tuple[Any, ...], str, int]], data: st.DataObject
) -> None:
    count = len(rows)
    mask = data.draw(st.integers(1, (1 << count) - 1))
    block = block_of(
        [encode_header(*row[0]) for row in rows],
        [row[1] for row in rows],
        priorities=bytes(row[2] for row in rows),
        expires=array("Q", range(1, count + 1)),
        deliver_at=array("Q", range(1, count + 1)),
    )
    found = buried(block, mask)
    assert (found.producer, found.first_seq, found.timestamp_ms, found.persistent) == (99, 500, 1_000, True)
    assert (found.expires(), found.deliver_at(), found.gaps) == (None, None, False)
    chosen = [(index, row) for index, row in enumerate(rows) if mask >> index & 1]
    assert found.count == len(chosen)
    for at, (index, ((properties, *others), body, priority)) in enumerate(chosen):
        header = header_of(found, at)
        assert header.properties.items() >= properties.items()
        assert header.properties[death_records.ORIGINAL_ID] == message_id(7, 10 + index)
        assert list(header[1:4]) == others
        assert (body_of(found, at), found.priority_of(at)) == (body, priority)


def test_ids_of_messages_with_gaps_are_their_own() -> None:
    picked = Block(b"".join(block_of([b""] * 5).pick(0b10101)))
    found = buried(picked, 0b110)
    ids = [header_of(found, index).properties[death_records.ORIGINAL_ID] for index in range(2)]
    assert ids == [message_id(7, 12), message_id(7, 14)]


def test_a_deduplication_id_does_not_outlive_its_message() -> None:
    assert header_of(buried(block_of([encode_header(None, None, None, None, "once")]))).dedup_id is None


# ---- history ---------------------------------------------------------------------------------------------------------


def test_deaths_are_counted_for_each_destination_and_reason() -> None:
    block, now = block_of([b""]), NOW
    for death in (
        Killed(),
        Killed(comment="again"),
        Killed("EXPIRED", ""),
        Killed(origin=("topic", "orders")),
        Killed(comment="x"),
    ):
        block, now = buried(block, death=death, now=now), now + 1
    rows = deaths_of(header_of(block).properties)
    assert [(r["type"], r["reason"], r["count"], r["first_ms"], r["last_ms"], r["comment"]) for r in rows] == [
        ("queue", "EXPIRED", 1, NOW + 2, NOW + 2, ""),
        ("topic", "UNDELIVERABLE", 1, NOW + 3, NOW + 3, "tried too often"),
        ("queue", "UNDELIVERABLE", 3, NOW, NOW + 4, "x"),
    ]
    assert header_of(block).properties[death_records.ORIGINAL_ID] == message_id(7, 10), "that of the first message"


def test_a_history_keeps_its_latest_entries() -> None:
    block = block_of([b""])
    for number in range(death_records.DEATHS_MAX + 3):
        block = buried(block, death=Killed(origin=("queue", f"q{number}")))
    names = [row["queue"] for row in deaths_of(header_of(block).properties)]
    assert names == [f"q{number}" for number in range(3, death_records.DEATHS_MAX + 3)]


@pytest.mark.parametrize(
    "history",
    [
        1,
        "",
        "x",
        "{}",
        "[1]",
        '[{"queue": "q"}]',
        "[" * 5_000,
        b"[]",
        None,
        "[" + "9" * 5_000 + "]",
        '[{"queue":"q","type":"queue","reason":"EXPIRED","count":true,"first_ms":1,"last_ms":1,"comment":""}]',
    ],
)
def test_a_history_that_cannot_be_read_begins_anew(history: Any) -> None:
    properties = header_of(buried(block_of([pack_fields({"p": {death_records.DEATHS: history}})]))).properties
    assert [row["count"] for row in deaths_of(properties)] == [1]


@pytest.mark.parametrize(
    ("room", "kept"),
    [(2_000, {death_records.DEATHS, death_records.COMMENT}), (600, {death_records.COMMENT}), (350, set()), (0, set())],
)
def test_headers_without_room_lose_the_history_then_the_comment_and_nothing_of_their_own(
    room: int, kept: set[str]
) -> None:
    own = {"bulk": "x" * (MESSAGE_HEADERS_BYTES_MAX - room - 20)}
    block = block_of([encode_header(own, None, None, None)])
    found = header_of(buried(block, death=Killed(comment="y" * 100))).properties
    assert found["bulk"] == own["bulk"]
    assert found[death_records.REASON] == "UNDELIVERABLE"
    assert found.keys() & {death_records.DEATHS, death_records.COMMENT} == kept


@pytest.mark.parametrize("header", [b"\xc1", b"\x81\xa1p\x01", msgpack.packb({"p": {"a": {"b": 1}, b"c": 1}, "t": 5})])
def test_damaged_headers_do_not_keep_a_message_from_being_buried(header: bytes) -> None:
    found = header_of(buried(block_of([header])))
    assert found.properties[death_records.REASON] == "UNDELIVERABLE"
    assert not found.properties.keys() & {"a", b"c"}
    assert found.type is None


def test_a_comment_of_a_stranger_is_cut_and_made_text() -> None:
    comment = header_of(buried(block_of([b""]), death=Killed(comment="\ud800" + "x" * 5_000))).properties[
        death_records.COMMENT
    ]
    assert comment == "?" + "x" * (death_records.COMMENT_CHARS_MAX - 1)


# ---- what a message wishes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "meant"),
    [(True, True), (False, False), ("TRUE", True), ("false", False), (1, None), (None, None), ("x", None)],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_message_may_say_what_is_done_with_it(value: Any, meant: bool | None, at: int) -> None:
    name = (death_records.PRESERVE, death_records.LOG, death_records.TRUNCATE)[at]
    expected: list[bool | None] = [None, None, None]
    expected[at] = meant
    assert dead_wish(block_of([b"", encode_header({name: value}, None, None, None)]), 1) == tuple(expected)


def test_a_message_that_says_nothing_wishes_nothing() -> None:
    assert dead_wish(block_of([b""]), 0) == (None, None, None)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("wish", [True, False, None])
def test_the_wish_of_a_message_wins_over_what_the_broker_does_with_bodies(truncate: bool, wish: bool | None) -> None:
    own = {} if wish is None else {death_records.TRUNCATE: wish}
    found = buried(block_of([encode_header(own, None, None, None)], ["body"]), truncate=truncate)
    cut = truncate if wish is None else wish
    assert body_of(found) == ("" if cut else "body")
    assert header_of(found).properties[death_records.BODY_TRUNCATED] is cut


@pytest.mark.parametrize(("body", "left"), [(b"x", b""), ("x", ""), ({"a": 1}, {}), ([1], []), (5, None), (None, None)])
def test_a_body_that_is_cut_is_empty_and_can_be_read(body: Any, left: Any) -> None:
    assert body_of(buried(block_of([b""], [body]), truncate=True)) == left


def test_a_pickled_body_that_is_cut_needs_no_trust() -> None:
    block = Block(encode_block([b"x"], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=PICKLE))
    assert body_of(buried(block, truncate=True)) is None


@pytest.mark.parametrize("truncate", [True, False])
def test_a_compressed_body_is_cut_with_what_says_that_it_is_compressed(truncate: bool) -> None:
    kind, data, properties = deflated(*encode_body("long" * 99), {COMPRESS: True, "a": 1})
    header = encode_header(properties, None, None, None)
    block = Block(
        encode_block([data], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=kind, headers=[header])
    )
    found = buried(block, truncate=truncate)
    assert body_of(found) == ("" if truncate else "long" * 99)
    assert bool(found.kind & DEFLATED) is not truncate
    assert (COMPRESS in header_of(found).properties) is not truncate
    assert header_of(found).properties["a"] == 1


def test_a_block_that_would_become_too_large_loses_its_bodies() -> None:
    header = encode_header({"a": 1, death_records.TRUNCATE: False}, None, None, None)
    fits, count = bytes(BLOCK_BYTES_MAX // 8 - 1_000), 8
    large = Block(
        encode_block(
            [fits] * count, producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0, headers=[header] * count
        )
    )
    found = buried(large, death=Killed(comment="y" * 1_000), mask=(1 << count) - 1)
    assert found.view.nbytes < 100_000
    assert {header_of(found, index).properties[death_records.BODY_TRUNCATED] for index in range(count)} == {True}
    assert len(body_of(buried(large, death=Killed(), mask=0b11))) == len(fits)


# ---- back again ------------------------------------------------------------------------------------------------------


def test_revived_messages_are_what_they_were_and_keep_their_history() -> None:
    sent = encode_header({"a": 1}, "c", "queue:answers", "t")
    ((type_, name, subscription, mask, data),) = revive_block(
        buried(block_of([sent], ["x"], priorities=b"\7")), 1, producer=3, first_seq=40, now_ms=9_000
    )
    block = Block(data)
    block.check()
    assert (type_, name, subscription, mask) == ("queue", "orders", "", 1)
    assert (block.producer, block.first_seq, block.timestamp_ms, block.priority_of(0)) == (3, 40, 9_000, 7)
    assert body_of(block) == "x"
    header = header_of(block)
    assert [row["count"] for row in deaths_of(header.properties)] == [1]
    left = {name: value for name, value in header.properties.items() if name != death_records.DEATHS}
    assert left == {"a": 1, death_records.ORIGINAL_ID: message_id(7, 10)}
    assert header[1:4] == ("c", "queue:answers", "t")


def test_revived_messages_say_that_their_body_is_gone() -> None:
    ((_, _, _, _, data),) = revive_block(buried(block_of([b""]), truncate=True), 1, producer=3, first_seq=1, now_ms=1)
    assert header_of(Block(data)).properties[death_records.BODY_TRUNCATED] is True


def test_revived_messages_are_grouped_by_where_they_came_from_with_numbers_of_their_own() -> None:
    origins = ["queue:a", "topic:a", None, "queue:a", "queue:", "nowhere:x", "topic:a", "queue:b", 5]
    headers = [encode_header({death_records.ORIGIN: origin}, None, None, None) for origin in origins]
    found = revive_block(block_of(headers, list(range(9))), 0b1_1111_1111 & ~1, producer=3, first_seq=40, now_ms=1)
    blocks = [Block(row[4]) for row in found]
    assert [(*row[:2], row[3]) for row in found] == [
        ("topic", "a", 0b100_0010),
        ("queue", "a", 0b1000),
        ("queue", "b", 0b1000_0000),
    ]
    assert [[body_of(block, i) for i in range(block.count)] for block in blocks] == [[1, 6], [3], [7]]
    assert [(block.first_seq, block.count) for block in blocks] == [(40, 2), (42, 1), (43, 1)]


def test_a_message_that_dies_again_after_it_was_revived_goes_on_counting() -> None:
    first = buried(block_of([b""]))
    ((_, _, _, _, data),) = revive_block(first, 1, producer=3, first_seq=1, now_ms=NOW + 1)
    again = header_of(buried(Block(data), death=Killed(attempts=2), now=NOW + 2)).properties
    assert [(row["count"], row["first_ms"], row["last_ms"]) for row in deaths_of(again)] == [(2, NOW, NOW + 2)]
    assert (again[death_records.ORIGINAL_ID], again[death_records.DELIVERY_COUNT]) == (message_id(7, 10), 23)


# ---- where it died, how often it was delivered, its unit ------------------------------------------------------------


def revived(block: Block) -> list[tuple[str, str, str, Header]]:
    found = revive_block(block, (1 << block.count) - 1, producer=3, first_seq=1, now_ms=NOW)
    return [(*row[:3], header_of(Block(row[4]), at)) for row in found for at in range(Block(row[4]).count)]


def test_a_message_of_a_topic_is_sent_back_to_the_subscription_where_it_died() -> None:
    killed = Killed(origin=("topic", "t"), subscription="one")
    ((type_, name, subscription, header),) = revived(buried(block_of([b""]), death=killed))
    assert (type_, name, subscription) == ("topic", "t", "one")
    assert death_records.SUBSCRIPTION not in header.properties
    again = buried(block_of([encode_header(header.properties, None, None, None)]), death=Killed())
    assert revived(again)[0][:3] == ("queue", "orders", ""), "it died elsewhere the next time"


@pytest.mark.parametrize(("before", "attempts", "after"), [(0, 0, 0), (0, 1, 1), (2, 3, 5), (1, 0, 1)])
def test_deliveries_are_counted_on(before: int, attempts: int, after: int) -> None:
    block = buried(block_of([encode_header(None, None, None, None, doubtful=before)]), death=Killed(attempts=attempts))
    assert header_of(block).properties[death_records.DELIVERY_COUNT] == after
    assert header_of(block).doubtful == 0, "where the dead are, deliveries count for themselves"
    ((*_, header),) = revived(block)
    assert header.doubtful == after


@pytest.mark.parametrize(("unit", "kept"), [("u", "u"), (default_unit("queue", "orders"), None), (None, None)])
def test_a_dead_message_has_no_unit_and_has_it_again_when_it_is_sent_back(unit: str | None, kept: str | None) -> None:
    """That of a destination is the destination's to give."""
    block = buried(block_of([encode_header({"n": 1}, None, None, None, unit=unit)]))
    assert header_of(block).unit is None
    assert header_of(block).properties.get(death_records.UNIT_OF_ORDER) == kept
    ((*_, header),) = revived(block)
    assert header.unit == kept
    assert header.properties.keys() == {"n", death_records.DEATHS, death_records.ORIGINAL_ID}


def test_what_died_with_its_unit_in_its_headers_has_it_again() -> None:
    """So it is on disks of earlier versions; a queue for errors may have given it one of its own."""
    for unit, kept in (("u", "u"), (default_unit("queue", "errors"), None)):
        stored = encode_header({death_records.ORIGIN: "queue:orders"}, None, None, None, unit=unit)
        ((*_, header),) = revived(block_of([stored]))
        assert header.unit == kept
