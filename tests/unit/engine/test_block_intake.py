"""The command that a block of a client becomes, by what its destination forces on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.path.block_intake import BlockIntake
from raybroker.model.blocks.block import Block
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made


class Intake(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.used_up: list[int] = []
        self.memory: Any = SimpleNamespace(left=10, left_bytes=1000, barred="", used_up=self.used_up.append)
        self.intake = BlockIntake(self.executor, self.registry, self.codec, self.time, self.memory)

    def command(self, destination: Destination, block: Block, txn: int = 0) -> tuple[cmd.Send, Block]:
        return self.intake.command(
            destination, 5, block, floor=3, origin=("connection", "client"), txn=txn, confirm=block.persistent
        )


def test_a_plain_queue_takes_a_block_as_it_is_and_reads_no_headers() -> None:
    world, block = Intake(), made("a", "bb", producer=7, first_seq=4)
    command, taken = world.command(world.add(), block)
    assert taken is block
    assert (command.attachment, command.producer, command.first_seq, command.floor) == (5, 7, 4, 3)
    assert (list(command.sizes), command.persistent, command.room, command.confirm) == ([1, 2], True, True, True)
    assert (command.origin, command.txn) == (("connection", "client"), 0)
    assert (command.content, command.dedup_ids) == (None, None)


def test_headers_are_measured_only_for_a_destination_that_limits_them_and_as_they_came() -> None:  # W-54
    world, block = Intake(), made("a", "bb")
    assert world.command(world.add(), block)[0].heads is None
    limited = world.add(name="limited", maximumMessageSize=100, unitOfOrder=True)
    assert world.command(limited, block)[0].heads == [0, 0], "the unit that the destination gives does not count"


def test_what_a_destination_wants_is_its_own_whoever_got_the_block_before() -> None:
    world, block = Intake(), made("a")
    plain, limited = world.add(), world.add(name="limited", maximumMessageSize=100)
    heads = [
        world.command(destination, block)[0].heads for destination in (plain, limited, plain, limited, limited, plain)
    ]
    assert heads == [None, [0], None, [0], [0], None]
    limited.policy.update(plain.policy.attributes)
    assert world.command(limited, block)[0].heads is None, "and it may change"


def test_messages_of_a_temporary_destination_are_not_stored() -> None:
    world = Intake()
    assert world.command(world.add(owner="me"), made("a"))[0].persistent is False


def test_only_messages_that_are_stored_need_room_in_the_store() -> None:
    world = Intake()
    destination = world.add()
    world.executor.room = False
    assert world.command(destination, made("a"))[0].room is False
    assert world.command(destination, made("a", persistent=False))[0].room is True


def test_blocks_count_for_the_next_look_at_the_memory() -> None:
    world = Intake()
    destination = world.add()
    for _ in range(10):
        world.command(destination, made("a"))
    assert (world.memory.left, world.used_up) == (0, [])
    world.command(destination, made("a", "b"))
    assert (world.memory.left, world.used_up) == (-2, [5])
    world.memory.left = 10
    world.command(destination, made("a" * 1000))
    assert world.used_up == [5, 5], "few large ones are as many"


def test_while_memory_is_out_the_destination_is_told_so() -> None:
    world = Intake()
    world.memory.barred = "no memory"
    assert world.command(world.add(), made("a"))[0].barred == "no memory"


@pytest.mark.parametrize(("kind", "txn", "reads"), [("queue", 0, False), ("queue", 8, True), ("topic", 0, True)])
def test_headers_are_there_where_somebody_may_select(kind: str, txn: int, reads: bool) -> None:
    world = Intake()
    command, _ = world.command(world.add("d", kind), made("a", properties={"n": 1}), txn)
    assert (command.content is not None) is reads
    if command.content is not None:
        assert command.content.properties(0) == {"n": 1}


def test_deduplication_ids_are_read_where_duplicates_are_looked_for() -> None:
    world = Intake()
    block = made("x", dedup=True)
    assert world.command(world.add(), block)[0].dedup_ids is None
    ids = world.command(world.add("d", duplicateWindowMs=1000), block)[0].dedup_ids
    assert list(ids or ()) == ["x"]


def test_a_destination_gives_its_unit_of_order_to_messages_without_one() -> None:
    world = Intake()
    command, taken = world.command(world.add(unitOfOrder=True), made("a", "b"))
    units: Any = command.columns.units
    assert len(set(units)) == 1
    assert world.codec.units(taken) == units


def test_overridden_properties_are_those_of_the_destination() -> None:
    world = Intake()
    command, _ = world.command(world.add(priorityOverride=9), made("a", priority=1))
    assert command.columns.priority == 9
