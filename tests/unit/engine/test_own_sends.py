"""What the host itself sends has its numbers, waits for nobody, and is as durable as its target."""

from __future__ import annotations

from raybroker.model.naming.units import default_unit
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made


def test_sequence_numbers_are_never_given_twice() -> None:
    own = Desk().own
    assert [own.take_seqs(3), own.take_seqs(1), own.take_seqs(2)] == [1, 4, 5]


def test_a_command_of_the_host_is_unconfirmed_and_moved() -> None:
    desk = Desk()
    command, block = desk.own.send(desk.add(), made("a", "bb"))
    assert (command.attachment, list(command.sizes), command.persistent) == (0, [1, 2], True)
    assert (command.confirm, command.moved, command.only) == (False, True, None)
    assert block.count == 2
    assert not desk.own.send(desk.registry.named("queue", "q"), made("a"), moved=False)[0].moved


def test_nothing_is_persistent_in_a_temporary_destination() -> None:
    desk = Desk()
    assert not desk.own.send(desk.add("tmp", owner="me"), made("a"))[0].persistent
    assert not desk.own.send(desk.add("q"), made("a", persistent=False))[0].persistent


def test_a_target_with_a_unit_of_order_gives_it_to_messages_without_one() -> None:
    desk = Desk()
    command, block = desk.own.send(desk.add("ordered", unitOfOrder=True), made("a"))
    assert command.columns.units == (default_unit("queue", "ordered"),)
    assert desk.codec.units(block) == command.columns.units
    assert desk.own.send(desk.add("q"), made("a"))[0].columns.units is None
