"""Skipping damaged blocks: finding them, and the record that takes their place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.destination import Destination
from raybroker.engine.dead_letters.death_records import DeathRecords
from raybroker.engine.memory.quarantine import Damaged, Quarantine
from raybroker.model.errors import ResourceAllocationError, StoreDamagedError, StoreError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import DMQ


class Skipping(Desk):
    """``damaged``: ordinals that cannot be read; ``away``: records for another host, with whom to tell."""

    def __init__(self, *, forwards: bool = False) -> None:
        super().__init__()
        self.damaged: dict[int, StoreError] = {}
        self.done: list[bool] = []
        self.away: list[tuple[str, str, Any]] = []
        cache: Any = SimpleNamespace(check=self._check)
        store: Any = SimpleNamespace(salvage=self._salvage)
        settings: Any = SimpleNamespace(message_bytes_max=0)
        self.quarantine = Quarantine(
            self.executor,
            self.registry,
            cache,
            store,
            self.own,
            DeathRecords(self.own, self.codec, self.clock, "b1"),
            settings,
            self._forward if forwards else None,
        )
        self.destination = self.add()

    def _check(self, number: int, ordinal: int) -> None:
        if ordinal in self.damaged:
            raise self.damaged[ordinal]

    def _salvage(self, number: int, ordinal: int) -> bytes:
        if ordinal not in self.damaged:
            raise KeyError(ordinal)
        return b"what is left"

    def _forward(self, kind: str, name: str, data: bytes, done: Any) -> None:
        self.away.append((kind, name, done))

    def skip(self, destination: Destination, ordinal: int) -> None:
        mask = destination.block_index.held[ordinal].everything if ordinal in destination.block_index.held else 1
        self.quarantine.skip(destination, Damaged(ordinal, mask, "checksum"), self.done.append)


def test_only_damaged_blocks_are_found_with_what_is_not_settled_of_them() -> None:
    world = Skipping()
    world.put(world.destination, "a")
    two = world.put(world.destination, "b", "c")
    world.damaged[two] = StoreDamagedError("checksum of block 2")
    assert list(world.quarantine.read_blocks(world.destination)) == [None, Damaged(two, 0b11, "checksum of block 2")]


def test_a_dead_store_ends_the_search() -> None:
    world = Skipping()
    world.damaged[world.put(world.destination, "a")] = StoreError("gone")
    with pytest.raises(StoreError, match="gone"):
        list(world.quarantine.read_blocks(world.destination))


def test_the_record_becomes_durable_with_the_end_of_the_block() -> None:
    world = Skipping()
    dmq = world.add(DMQ)
    ordinal = world.put(world.destination, "a", "b")
    before = len(world.executor.batches)
    world.skip(world.destination, ordinal)
    removal, together = world.executor.batches[before:]
    assert [type(command).__name__ for command in (*removal, *together)] == ["Remove", "Send", "SettleDeadLetters"]
    assert (world.done, world.destination.block_index.messages, dmq.block_index.messages) == ([True], 0, 1)


def test_without_a_dead_message_queue_the_block_just_goes() -> None:
    world = Skipping()
    world.skip(world.destination, world.put(world.destination, "a"))
    assert (world.done, world.destination.block_index.messages) == ([True], 0)


def test_a_dead_message_queue_without_room_is_named_and_nothing_goes() -> None:
    world = Skipping()
    world.add(DMQ)
    ordinal = world.put(world.destination, "a")
    world.executor.room = False
    with pytest.raises(ResourceAllocationError, match=f"{DMQ} does not take the record"):
        world.skip(world.destination, ordinal)
    assert (world.done, world.destination.block_index.messages) == ([], 1)


@pytest.mark.parametrize("stored", [True, False])
def test_with_the_dead_message_queue_elsewhere_the_block_goes_after_its_record(stored: bool) -> None:
    world = Skipping(forwards=True)
    ordinal = world.put(world.destination, "a")
    world.skip(world.destination, ordinal)
    ((kind, name, answer),) = world.away
    assert ((kind, name), world.done, list(world.destination.block_index.held)) == (("queue", DMQ), [], [ordinal])
    answer(stored)
    assert (world.done, list(world.destination.block_index.held)) == ([stored], [] if stored else [ordinal])
    assert world.destination.queues[0].dead_letters.masks == {}


def test_a_block_that_has_gone_meanwhile_is_done() -> None:
    world = Skipping()
    world.skip(world.destination, 99)
    assert world.done == [True]


def test_what_is_left_of_a_block_may_be_nothing() -> None:
    world = Skipping()
    world.damaged[1] = StoreDamagedError("checksum")
    assert world.quarantine.legible(world.destination, 1) == b"what is left"
    assert world.quarantine.legible(world.destination, 2) == b""


def test_a_destination_that_goes_on_is_forgotten() -> None:
    world = Skipping()
    world.registry.halted[world.destination.number] = StoreDamagedError("checksum")
    world.quarantine.known[world.destination.number] = [Damaged(1, 1, "checksum")]
    world.quarantine.forget_destination(world.destination)
    assert (world.quarantine.known, world.registry.halted) == ({}, {})
