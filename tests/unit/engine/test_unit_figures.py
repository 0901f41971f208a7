"""Which units of order have messages, visible or not."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.engine.measuring.unit_figures import live_units, unit_figures
from raybroker.model.blocks.block import Block
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made


class Units(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.destination = self.add()

    def send(self, unit: str, **more: int) -> int:
        block: Block = self.codec.in_unit(
            made("m", producer=99, first_seq=self.own.take_seqs(1), now_ms=self.clock.ms, **more), unit
        )
        command, block = self.own.send(self.destination, block)
        self.executor.perform(self.destination, command, block)
        return max(self.destination.block_index.held)


def test_a_unit_lives_as_long_as_it_has_a_message() -> None:
    world = Units()
    ordinal = world.send("a")
    world.send("b", delay=1000)
    assert live_units(world.destination, ["c", "b", "a", "b"]) == ["a", "b"]
    assert live_units(world.destination, ["b"]) == ["b"]
    world.executor.perform(world.destination, cmd.Remove({ordinal: 1}))
    assert live_units(world.destination, ["a", "b"]) == ["b"]


def test_a_unit_is_known_when_a_consumer_looked_and_is_not_ready_while_a_session_has_it() -> None:
    world = Units()
    world.send("a")
    world.send("b", delay=1000)
    assert unit_figures(world.destination) == {"units": 0, "units_ready": 0, "units_blocked": 0}
    world.executor.perform(world.destination, cmd.AttachConsumer(9, "credit", 1, False, held=False))
    assert unit_figures(world.destination) == {"units": 1, "units_ready": 0, "units_blocked": 0}
