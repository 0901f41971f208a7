"""Dead letters are held, and counted as such, until they are taken."""

from __future__ import annotations

from raybroker.core.delivery.dead_letters import DeadLetterRules
from raybroker.core.delivery.run import Run
from tests.unit.core.parts import Parts


def test_dead_letters_come_back_as_they_were_and_the_block_index_counts_them() -> None:
    parts = Parts()
    ordinal = parts.block(4)
    dead = DeadLetterRules(parts.index)
    first, second = Run(1, ordinal, 0b0011, 1, 1, 4), Run(1, ordinal, 0b1000, 2, 0, 4)
    dead.add(first)
    dead.add(second)
    assert (dead.masks, parts.index.dead, parts.index.dead_bytes) == ({ordinal: 0b1011}, 3, 12)
    assert dead.take_dead(ordinal, 0b1001) == [first._replace(mask=0b0001), second]
    assert dead.runs() == [first._replace(mask=0b0010)]
    assert (parts.index.dead, parts.index.dead_bytes) == (1, 4)


def test_what_is_no_dead_letter_is_not_taken() -> None:
    parts = Parts()
    ordinal = parts.block(2)
    dead = DeadLetterRules(parts.index)
    dead.add(Run(1, ordinal, 0b01, 0, 0, 4))
    assert dead.take_dead(ordinal, 0b10) == dead.take_dead(ordinal + 1, 0b1) == []
    assert dead.take_dead(ordinal, 0b11) == [Run(1, ordinal, 0b01, 0, 0, 4)]
    assert (dead.masks, dead.runs(), parts.index.dead) == ({}, [], 0)
