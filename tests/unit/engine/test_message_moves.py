"""Moved messages go and come in one batch, and only those count that still waited."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.engine.message_moves import MessageMoves
from raybroker.engine.ports import Death
from raybroker.model.block import Block
from raybroker.model.errors import ResourceAllocationError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made


class Moving(Desk):
    def __init__(self, **of_target: int) -> None:
        super().__init__()
        self.home, self.target = self.add("from"), self.add("to", **of_target)
        self.moves = MessageMoves(
            self.executor, self.registry, self.own, self.codec, self.clock, self.lines.append
        )  # fmt: skip

    def move(self, ordinal: int, mask: int) -> int:
        block = self.executor.blocks[self.home.number, ordinal]
        return self.moves.move(self.home, ordinal, mask, self.target, Block(b"".join(block.pick(mask))))


def test_the_chosen_ones_leave_and_arrive_together() -> None:
    world = Moving()
    ordinal = world.put(world.home, "a", "b", "c")
    assert world.move(ordinal, 0b101) == 2
    assert (world.bodies(world.home), world.bodies(world.target)) == (["b"], ["a", "c"])
    assert [type(one) for one in world.executor.batches[-1]] == [cmd.Send, cmd.SettleDeadLetters]


def test_those_that_a_consumer_has_taken_meanwhile_do_not_count() -> None:
    world = Moving()
    ordinal = world.put(world.home, "a", "b", "c")
    world.executor.perform(world.home, cmd.Remove({ordinal: 0b001}))
    assert world.move(ordinal, 0b011) == 1
    assert world.bodies(world.target) == ["b"]
    world.executor.perform(world.home, cmd.AttachConsumer(9, "prefetch", 10, False, held=False))
    assert world.move(ordinal, 0b100) == 0, "a consumer has it"
    assert world.bodies(world.target) == ["b"]


@pytest.mark.parametrize("full", ["target", "disk"])
def test_without_room_everything_stays(full: str) -> None:
    world = Moving(maxNumMsgs=1)
    ordinal = world.put(world.home, "a", "b")
    world.executor.room = full != "disk"
    with pytest.raises(ResourceAllocationError, match="the rest was not moved"):
        world.move(ordinal, 0b11 if full == "target" else 0b01)
    assert (world.bodies(world.home), world.bodies(world.target)) == (["a", "b"], [])


def test_the_dead_go_back_to_where_they_died() -> None:
    world = Moving()
    block = Block(world.codec.dead_block(
        made("a", "b"), 0b11, Death("ERROR", "", 1, ("queue", "to"), "b1"), producer=99,
        first_seq=world.own.take_seqs(2), now_ms=0, truncate=False,
    ))  # fmt: skip
    world.executor.perform(world.home, world.own.send(world.home, block)[0], block)
    (ordinal,) = world.home.block_index.held
    assert world.moves.revive(world.home, ordinal, 0b10, block) == 1
    assert (world.bodies(world.home), world.bodies(world.target)) == (["a"], ["b"])
    del world.registry.destinations["queue", "to"]
    assert world.moves.revive(world.home, ordinal, 0b01, block) == 0, "its destination is gone"
    assert world.bodies(world.home) == ["a"]
