"""Moved messages go and come in one batch, and only those count that still waited."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.engine.destinations.message_moves import MessageMoves, MovedMessages
from raybroker.engine.path.executor import DISK_FULL
from raybroker.engine.ports import Death
from raybroker.model.blocks.block import Block
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made


class Moving(Desk):
    def __init__(self, **of_target: object) -> None:
        super().__init__()
        self.destination, self.target = self.add("from"), self.add("to", **of_target)
        self.moves = MessageMoves(self.executor, self.registry, self.own, self.codec, self.clock, self.lines.append)

    def move(self, ordinal: int, mask: int) -> MovedMessages:
        block = self.executor.blocks[self.destination.number, ordinal]
        return self.moves.move(self.destination, ordinal, mask, self.target, Block(b"".join(block.pick(mask))))


def test_the_chosen_ones_leave_and_arrive_together() -> None:
    world = Moving()
    ordinal = world.put(world.destination, "a", "b", "c")
    assert world.move(ordinal, 0b101) == (2, "")
    assert (world.bodies(world.destination), world.bodies(world.target)) == (["b"], ["a", "c"])
    assert [type(one) for one in world.executor.batches[-1]] == [cmd.Send, cmd.SettleDeadLetters]


def test_those_that_a_consumer_has_taken_meanwhile_do_not_count() -> None:
    world = Moving()
    ordinal = world.put(world.destination, "a", "b", "c")
    world.executor.perform(world.destination, cmd.Remove({ordinal: 0b001}))
    assert world.move(ordinal, 0b011) == (1, "")
    assert world.bodies(world.target) == ["b"]
    world.executor.perform(world.destination, cmd.AttachConsumer(9, "prefetch", 10, False, held=False))
    assert world.move(ordinal, 0b100) == (0, ""), "a consumer has it"
    assert world.bodies(world.target) == ["b"]


def test_on_a_full_disk_everything_stays() -> None:
    world = Moving()
    ordinal = world.put(world.destination, "a", "b")
    world.executor.room = False
    assert world.move(ordinal, 0b11) == (0, DISK_FULL)
    assert (world.bodies(world.destination), world.bodies(world.target)) == (["a", "b"], [])


@pytest.mark.parametrize("behaviour", ["REJECT_NEWEST", "FLOW_CONTROL"])
@pytest.mark.parametrize("limit", [{"maxNumMsgs": 2}, {"maxTotalMsgBytes": 2}])
def test_the_target_is_filled_up_and_the_rest_stays(behaviour: str, limit: dict[str, int]) -> None:
    world = Moving(limitBehavior=behaviour, **limit)
    ordinal = world.put(world.destination, "a", "b", "c", "d")
    ((name, most),) = limit.items()
    moved, why = world.move(ordinal, 0b1110)
    assert moved == 2
    assert f"destination to holds its {name}={most}" in why
    assert world.move(ordinal, 0b1001) == (0, why)
    assert (world.bodies(world.destination), world.bodies(world.target)) == (["a", "d"], ["b", "c"])


def test_what_is_too_large_stays_and_the_others_go() -> None:
    world = Moving(maxBytesPerMsg=1)
    ordinal = world.put(world.destination, "a", "bb", "c")
    moved, why = world.move(ordinal, 0b111)
    assert (moved, "maxBytesPerMsg=1" in why) == (2, True)
    assert (world.bodies(world.destination), world.bodies(world.target)) == (["bb"], ["a", "c"])


def test_a_target_that_discards_takes_all() -> None:
    world = Moving(limitBehavior="REMOVE_OLDEST", maxNumMsgs=2)
    ordinal = world.put(world.destination, "a", "b", "c", "d")
    assert world.move(ordinal, 0b1111) == (4, "")
    assert world.bodies(world.destination) == []
    assert (world.target.counters.moved_in, world.target.counters.removed) == (4, 2)


def test_the_dead_go_back_to_where_they_died() -> None:
    world = Moving()
    block = Block(
        world.codec.dead_block(
            made("a", "b"),
            0b11,
            Death("ERROR", "", 1, ("queue", "to"), "b1"),
            producer=99,
            first_seq=world.own.take_seqs(2),
            now_ms=0,
            truncate=False,
        )
    )
    world.executor.perform(world.destination, world.own.send(world.destination, block)[0], block)
    (ordinal,) = world.destination.block_index.held
    assert world.moves.revive(world.destination, ordinal, 0b10, block) == (1, "")
    assert (world.bodies(world.destination), world.bodies(world.target)) == (["a"], ["b"])
    del world.registry.destinations["queue", "to"]
    assert world.moves.revive(world.destination, ordinal, 0b01, block) == (0, ""), "its destination is gone"
    assert world.bodies(world.destination) == ["a"]
