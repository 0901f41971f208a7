"""Destroying frees the store when it is durable, and tells everybody who has to do with the destination."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.durable import records
from raybroker.engine.destinations.destination_removal import DestinationRemoval
from raybroker.engine.path.wakeups import Wakeups
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.model.blocks.record import NOTE, LogEntry
from raybroker.model.errors import IllegalStateError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer

ENDED = LogEntry(NOTE, 0, 0, b"the end of a schedule")


class Removing(Desk):
    """``written``: what waits for the disk; ``told``: in order, who heard what."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.written: list[tuple[list[LogEntry], Callable[[], None]]] = []
        self.executor.append = lambda entries, done: self.written.append((list(entries), done))
        self.attachments = Attachments(1)
        self.wakeups = Wakeups()
        cache: Any = SimpleNamespace(
            retire=lambda number, ordinals, stored: self.told.append(("retired", list(ordinals), stored))
        )
        schedules: Any = SimpleNamespace(
            without=lambda destination: ([ENDED], [5]), freed=lambda blocks: self.told.append(("schedules", blocks))
        )
        self.leaving: list[Callable[[Any], None]] = [
            lambda destination: self.told.append(("leaving", destination.name))
        ]
        self.removal = DestinationRemoval(
            self.executor, self.registry, self.attachments, cache, self.wakeups, schedules, self.leaving
        )


def test_what_was_stored_is_freed_when_its_end_is_durable() -> None:
    world = Removing()
    destination = world.add()
    stored, volatile = world.put(destination, "a"), world.put(destination, "b", persistent=False)
    world.wakeups.wake(destination.number, 5)
    world.removal.destroy("q", lambda: world.told.append("done"))
    assert world.told == [("leaving", "q")]
    ((entries, durable),) = world.written
    assert entries == [LogEntry(NOTE, destination.number, 0, records.encode(records.GONE, 0)), ENDED]
    assert (world.registry.destinations, world.registry.definitions, world.wakeups.due(9)) == ({}, {}, [])
    durable()
    assert world.told[1:] == [
        ("retired", [stored], True),
        ("retired", [stored, volatile], False),
        ("schedules", [5]),
        "done",
    ]


def test_a_temporary_one_leaves_no_note() -> None:
    world = Removing()
    world.add(owner="me")
    world.removal.destroy("q", lambda: None)
    assert [entries for entries, _ in world.written] == [[]]


def test_its_producers_and_consumers_are_told() -> None:
    world, peer = Removing(), RecordingPeer()
    destination = world.add()
    other = world.add("other")
    world.attachments.attach(destination, peer, 3, Outbox())
    stays = world.attachments.attach(other, peer, 4, Outbox())
    world.removal.destroy("q", lambda: None)
    assert peer.told == [("event", "destroyed", {"handle": 3, "name": "q"})]
    assert list(world.attachments.by_number) == [stays.number]


def test_a_part_that_needs_it_refuses_and_nothing_has_changed() -> None:
    world = Removing()
    destination = world.add()

    def refuse(_: Any) -> None:
        raise IllegalStateError("a prepared transaction needs it")

    world.leaving.insert(0, refuse)
    with pytest.raises(IllegalStateError):
        world.removal.destroy("q", lambda: None)
    assert world.registry.has(destination)
    assert (world.told, world.written) == ([], [])
