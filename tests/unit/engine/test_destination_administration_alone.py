"""Verbs of administrators on destinations: what is written, who is told, and what stays as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.durable import records
from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.destination_administration import DestinationAdministration
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.model.blocks.record import Entry
from raybroker.model.errors import ConfigError, IllegalStateError
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import DMQ, RecordingPeer

GONE = records.encode(records.GONE, 0)


class Administered(Desk):
    """``told``: what other parts heard; ``done``: how often something was said to be durable."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.done = 0
        self.attachments = Attachments(1)
        self.dormant: set[int] = set()
        installation: Any = SimpleNamespace(make=self._make, forget_dormant=lambda number: number in self.dormant)
        meters: Any = SimpleNamespace(
            thresholds=SimpleNamespace(take=lambda home: self.told.append("thresholds")),
            life=SimpleNamespace(
                wanted=lambda home: True, removed=lambda home, ordinal, mask: self.told.append(f"removed {mask:b}")
            ),
        )
        quarantine: Any = SimpleNamespace(forget=lambda home: self.told.append("quarantine"))
        self.verbs = DestinationAdministration(
            self.executor,
            self.registry,
            installation,
            self.attachments,
            quarantine,
            meters,
            self.lines.append,
            lambda home: self.told.append("pool"),
        )

    def _make(self, definition: Definition) -> Any:
        return self.add(
            definition.name,
            definition.kind,
            owner=definition.owner,
            auto_created=definition.auto_created,
            maxNumMsgs=definition.attributes.maxNumMsgs,
        )

    def durable(self) -> None:
        self.done += 1

    def create(self, name: str = "q", *, auto_created: bool = False, owner: str | None = None, **more: Any) -> Any:
        attributes = destination_attributes(more, type="queue")
        self.verbs.create(name, attributes, auto_created=auto_created, done=self.durable, owner=owner)
        return self.registry.named("queue", name)

    def written(self) -> list[Entry]:
        return [one for batch in self.executor.batches for one in batch if isinstance(one, Entry)]


def test_a_new_destination_is_written_and_a_temporary_one_is_not() -> None:
    world = Administered()
    home = world.create(maxNumMsgs=5)
    entry, totals = world.written()
    assert entry.destination == totals.destination == home.number
    assert world.registry.definition(home).encode() in entry.meta
    assert records.decode_counts(records.decode(totals.meta).rest).since_ms == home.counters.since_ms
    world.create("tmp", owner="me")
    assert len(world.written()) == 2
    assert world.done == 2


def test_what_an_administrator_creates_again_keeps_its_attributes() -> None:
    world = Administered()
    home = world.create(maxNumMsgs=5)
    assert world.create(maxNumMsgs=9) is home
    assert (home.attributes.maxNumMsgs, len(world.written()), world.done) == (5, 2, 2)


def test_an_auto_created_one_becomes_the_administrators() -> None:
    world = Administered()
    home = world.create(auto_created=True)
    home.reap_ms = 1000
    world.create(maxNumMsgs=9)
    assert (home.attributes.maxNumMsgs, home.reap_ms) == (9, None)
    assert not world.registry.definition(home).auto_created
    assert world.told == ["thresholds", "pool"]


def test_an_update_is_all_or_nothing_and_producers_hear_of_new_credit() -> None:
    world = Administered()
    home = world.create()
    peer = RecordingPeer()
    number = world.attachments.attach(home, peer, 3, Outbox()).number
    world.executor.perform(home, cmd.AttachProducer(number, 7))
    before = world.registry.definition(home)
    with pytest.raises(ConfigError):
        world.verbs.update("q", {"maxNumMsgs": 9, "isLocalOnly": True}, world.durable)
    assert world.registry.definition(home) is before
    world.verbs.update("q", {"maxNumMsgs": 9}, world.durable)
    assert (home.attributes.maxNumMsgs, peer.told) == (9, [])
    world.verbs.update("q", {"limitBehavior": "FLOW_CONTROL"}, world.durable)
    ((_, name, data),) = peer.told
    assert (name, data["handle"]) == ("credit", 3)


def test_a_purge_discards_what_waits_and_ends_a_quarantine() -> None:
    world = Administered()
    home = world.create()
    world.put(home, "a", "b")
    world.verbs.purge("q", world.durable)
    assert home.block_index.messages == 0
    assert world.told == ["removed 11", "quarantine"]


def test_a_pause_is_written_once_and_ends_with_a_resume() -> None:
    world = Administered()
    home = world.create()
    world.verbs.pause("q", "all", 0, done=world.durable)
    assert set(home.paused) == {"production", "consumption"}
    assert world.registry.definition(home).paused == home.paused
    written = len(world.written())
    world.verbs.pause("q", "producers", 0, done=world.durable)
    assert len(world.written()) == written, "nothing has changed"
    world.verbs.resume("q", "all", done=world.durable)
    assert (home.paused, len(world.written()), world.done) == ({}, written + 1, 4)
    assert world.lines == ["queue q paused: all", "queue q paused: producers", "queue q resumed: all"]


def test_what_cannot_be_paused_is_refused() -> None:
    world = Administered()
    world.create()
    with pytest.raises(IllegalStateError, match="cannot be paused; choose one of"):
        world.verbs.pause("q", "everything", 0)
    with pytest.raises(IllegalStateError, match="cannot be paused"):
        world.verbs.pause(DMQ, "all", 0)
    assert world.lines == []


def test_the_end_of_a_dormant_one_is_written_if_there_was_one() -> None:
    world = Administered()
    world.dormant = {4}
    world.verbs.forget_dormant(3)
    world.verbs.forget_dormant(4)
    assert [(entry.destination, entry.meta) for entry in world.written()] == [(4, GONE)]
