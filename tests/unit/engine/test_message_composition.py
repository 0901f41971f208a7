"""A complete unit of work becomes one message in one step; without room it is tried again."""

from __future__ import annotations

from typing import Any

from raybroker.core.outcome import Compose, DeadLetter
from raybroker.engine.destinations.message_composition import MessageComposition
from raybroker.engine.path.overrides import columns_of, parts_in
from raybroker.engine.path.wakeups import AGAIN_MS, Durations, WakeupRetries, Wakeups
from raybroker.model.errors import MessageTooLargeError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import text_of
from tests.unit.engine.test_works import SINGLE, block_of


class Composing(Desk):
    """``dead``: what could not be composed."""

    def __init__(self) -> None:
        super().__init__()
        self.destination = self.add(**SINGLE)
        self.dead: list[DeadLetter] = []
        self.full: WakeupRetries[Any] = WakeupRetries(Durations(Wakeups(), self.time))
        self.composition = self.part(self.codec)

    def part(self, codec: Any) -> MessageComposition:
        return MessageComposition(
            self.executor,
            self.registry,
            self.executor,
            self.own,
            codec,
            self.full,
            lambda destination, effect: self.dead.append(effect),
        )

    def complete(self) -> Compose:
        """The parts of a unit come, and the core says that it is complete."""
        block = block_of([("u", 1, False), ("u", 2, True)], 99)
        command, block = self.own.send(self.destination, block)
        columns = columns_of(self.codec, block, parts_in(self.codec, block, self.clock.now_ms()))
        self.executor.perform(self.destination, command._replace(columns=columns), block)
        (effect,) = [one for one in self.executor.effects if isinstance(one, Compose)]
        return effect

    def waiting(self) -> list[str]:
        rows = [(state, run) for queue in self.destination.queues.values() for state, run in queue.contents()]
        found = [run for state, run in rows if state == "waiting"]
        return [text_of(self.executor.blocks[self.destination.number, run.ordinal], 0) for run in found]


def test_the_parts_give_way_to_their_message() -> None:
    world = Composing()
    effect = world.complete()
    world.composition.completed(world.destination, effect)
    assert world.destination.block_index.messages == 1
    assert world.waiting() == ["[u1+u2]"]


def test_without_room_it_is_tried_again() -> None:
    world = Composing()
    effect = world.complete()
    world.executor.room = False
    world.composition.completed(world.destination, effect)
    assert world.waiting() == []
    world.executor.room = True
    world.clock.ms += AGAIN_MS - 1
    world.composition.try_again()
    assert world.waiting() == []
    world.clock.ms += AGAIN_MS
    world.composition.try_again()
    assert world.waiting() == ["[u1+u2]"]


def test_parts_that_make_too_large_a_message_are_dead() -> None:
    world = Composing()
    effect = world.complete()

    class TooLarge:
        def composed(self, *args: Any, **more: Any) -> bytes:
            raise MessageTooLargeError("100 MiB")

    world.part(TooLarge()).completed(world.destination, effect)
    assert [(one.reason, one.comment) for one in world.dead] == [("ERROR", "100 MiB")] * len(effect.parts)
    assert sorted((one.ordinal, one.mask) for one in world.dead) == sorted(effect.parts)


def test_a_unit_of_a_destroyed_queue_is_left_alone() -> None:
    world = Composing()
    effect = world.complete()
    del world.registry.destinations["queue", "q"]
    before = len(world.executor.batches)
    world.composition.completed(world.destination, effect)
    assert len(world.executor.batches) == before
