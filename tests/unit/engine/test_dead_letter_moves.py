"""The way of dead messages: into a queue of this host in one batch, to another host first, or one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.dead_letter_moves import DeadLetterMoves
from raybroker.engine.dead_letters.death_records import DeathRecords
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import DMQ


class Moves(Desk):
    """``away``: what was forwarded; ``refused``: masks and reasons."""

    def __init__(self, *, forwards: bool = False) -> None:
        super().__init__()
        self.destination = self.add()
        self.away: list[tuple[str, str, Callable[[bool], None]]] = []
        self.refused: list[tuple[int, str]] = []
        death_records = DeathRecords(self.own, self.codec, self.clock, "b1")
        forward = self._forward if forwards else None
        self.moves = DeadLetterMoves(self.executor, self.registry, self.own, death_records, forward)

    def _forward(self, kind: str, name: str, data: bytes, done: Callable[[bool], None]) -> None:
        self.away.append((kind, name, done))

    def send(self, name: str, *bodies: str) -> None:
        """Messages die and are sent to a queue."""
        ordinal = self.put(self.destination, *bodies)
        mask = (1 << len(bodies)) - 1
        self.kill(self.destination, ordinal, mask)
        effect = DeadLetter(0, ordinal, mask, 1, "ERROR", "no")
        block = self.executor.blocks[self.destination.number, ordinal]
        self.moves.send(
            self.destination,
            effect,
            block,
            name,
            lambda part, why: self.refused.append((part.mask, why)),
            truncate=False,
        )

    def held(self, destination: Destination | None = None) -> list[str]:
        return self.bodies(destination or self.destination)


def test_on_the_same_host_leaving_and_arriving_are_one_batch() -> None:
    world = Moves()
    target = world.add("errors")
    world.send("errors", "a", "b")
    assert (world.held(target), world.held()) == (["a", "b"], [])
    assert [type(one) for one in world.executor.batches[-1]] == [cmd.Send, cmd.SettleDeadLetters]


def test_where_not_all_fit_they_are_offered_one_by_one() -> None:
    world = Moves()
    target = world.add("errors", maxNumMsgs=2)
    world.send("errors", "a", "b", "c")
    assert (world.held(target), world.held()) == (["a", "b"], ["c"])
    assert world.refused == [(0b100, "queue errors does not take it now")]


def test_a_full_disk_keeps_them() -> None:
    world = Moves()
    world.add("errors")
    ordinal = world.put(world.destination, "x")
    world.executor.room = False
    world.send("errors", "a")
    assert world.held() == ["x", "a"]
    assert ordinal in world.destination.block_index.held
    assert world.refused == [(1, "queue errors does not take it now")]


@pytest.mark.parametrize("stored", [True, False])
def test_to_another_host_they_are_settled_when_they_are_stored_there(stored: bool) -> None:
    world = Moves(forwards=True)
    world.send("errors", "a")
    ((kind, name, done),) = world.away
    assert (kind, name, world.held()) == ("queue", "errors", ["a"])
    done(stored)
    assert world.held() == ([] if stored else ["a"])
    assert world.refused == ([] if stored else [(1, "errors was not reached")])


def test_without_another_host_only_the_dead_message_queue_may_be_missing() -> None:
    world = Moves()
    world.send(DMQ, "a")
    assert (world.held(), world.refused) == ([], [])
    world.send("errors", "b")
    assert (world.held(), world.refused) == (["b"], [(1, "queue errors does not exist")])


def test_what_died_in_a_destination_that_is_gone_is_not_settled() -> None:
    world = Moves()
    del world.registry.destinations["queue", "q"]
    before = list(world.executor.batches)
    world.moves.settle_moved(world.destination, DeadLetter(0, 1, 1, 1, "ERROR", ""))
    assert world.executor.batches == before


def test_a_failure_names_its_queue_as_its_origin() -> None:
    world = Moves()
    target = world.add("errors")
    world.send("errors", "a")
    properties: Any = dict(world.executor.headers(target, 1).properties(0))
    assert properties["RAYBROKER_ORIGIN"] == "queue:q"
    assert properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "ERROR"
    assert properties["JMS_SUN_DMQ_DEAD_BROKER"] == "b1"
