"""Blocks for the dead message queue carry the host's numbers, the time, and the death."""

from __future__ import annotations

from raybroker.content.headers import content_of
from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.death_records import DeathRecords
from raybroker.model.blocks.block import Block
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made, text_of


def test_each_record_takes_sequence_numbers_of_the_host() -> None:
    desk = Desk()
    destination, death_records = desk.add(), DeathRecords(desk.own, desk.codec, desk.clock, "b1")
    block = made("a", "b", "c")
    first = Block(
        death_records.dead_block(destination, DeadLetter(0, 1, 0b101, 3, "ERROR", "why"), block, "", truncate=False)
    )
    second = Block(
        death_records.dead_block(destination, DeadLetter(0, 1, 0b010, 3, "ERROR", ""), block, "", truncate=True)
    )
    assert [text_of(first, index) for index in range(first.count)] == ["a", "c"]
    assert [text_of(second, index) for index in range(second.count)] == [""]
    assert [(one.producer, one.first_seq) for one in (first, second)] == [(99, 1), (99, 3)]
    properties = dict(content_of(first).properties(1))
    assert properties["JMS_SUN_DMQ_UNDELIVERED_COMMENT"] == "why"
    assert properties["JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP"] == desk.clock.ms
    assert properties["JMS_SUN_DMQ_DELIVERY_COUNT"] == 3


def test_the_record_of_a_damaged_block_says_where_it_was_and_what_is_wrong() -> None:
    desk = Desk()
    destination, death_records = desk.add("orders"), DeathRecords(desk.own, desk.codec, desk.clock, "b1")
    record = Block(death_records.quarantined(destination, b"\0\1", 0b11, "checksum", 1 << 20))
    assert (record.count, record.producer, record.first_seq) == (1, 99, 1)
    text = str(dict(content_of(record).properties(0)))
    assert "queue:orders" in text
    assert "checksum" in text
    assert desk.own.take_seqs(1) == 2
