"""Administration of a host's destinations: each is created, changed, purged, paused and resumed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from raybroker.core import command as cmd
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.snapshot import counted
from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.destination_installation import DestinationInstallation
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.memory.quarantine import Quarantine
from raybroker.engine.path.executor import Done, Executor, unawaited
from raybroker.engine.sessions.attachments import Attachments
from raybroker.model import refusals
from raybroker.model.blocks.record import NOTE, LogEntry
from raybroker.model.definitions import pauses
from raybroker.model.errors import IllegalStateError
from raybroker.model.refusals import refuse
from raybroker.model.settings.settings import DestinationAttributes, updated_attributes


class DestinationAdministration:
    """Creates, changes, purges and pauses the destinations of a registry; ``installation`` knows which
    attributes hold for one, ``report`` takes a line for the log."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        installation: DestinationInstallation,
        attachments: Attachments,
        quarantine: Quarantine,
        meters: Meters,
        report: Callable[[str], None],
        charge: Callable[[Destination], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._installation = installation
        self._attachments = attachments
        self._quarantine = quarantine
        self._meters = meters
        self._report = report
        self._charge = charge

    def create(
        self,
        name: str,
        attributes: DestinationAttributes,
        *,
        auto_created: bool,
        done: Done,
        kind: str = "queue",
        owner: str | None = None,
    ) -> None:
        """Create a destination unless it is there; ``done`` when it is durable."""
        self._executor.require_running()
        definition = Definition(name, auto_created, attributes, kind, owner)
        if definition.key in self._registry.destinations:
            self._keep(self._registry.destinations[definition.key], definition, done)
            return
        destination = self._installation.make(definition)
        self._write(destination, definition, done, counted(destination))

    def _keep(self, destination: Destination, wanted: Definition, done: Done) -> None:
        """It is there already; one that was auto-created becomes the administrator's with what it holds."""
        known = self._registry.definitions[destination.number]
        if wanted.auto_created or wanted.owner is not None or not known.auto_created:
            self._executor.append([], done)
            return
        wanted = replace(wanted, paused=known.paused)
        self._registry.definitions[destination.number] = wanted
        destination.reap_ms = destination.policy.auto_created_bytes = None
        self._apply_definition(destination, wanted)
        self._write(destination, wanted, done)

    def update(self, name: str, changes: dict[str, object], done: Done, kind: str = "queue") -> None:
        """Change attributes, all or none; raises ConfigError."""
        self._executor.require_running()
        destination = self._registry.named(kind, name)
        old = self._registry.definitions[destination.number]
        attributes = updated_attributes(old.attributes, changes, destination.kind, name=name)
        new = replace(old, attributes=attributes)
        self._registry.definitions[destination.number] = new
        self._apply_definition(destination, new)
        self._write(destination, new, done)

    def follow_policies(self, kind: str, name: str) -> None:
        """The policies have changed: what holds for a destination now holds at once; nothing happens for one that is
        gone."""
        self._executor.require_running()
        destination = self._registry.destinations.get((kind, name))
        if destination is not None:
            definition = self._registry.definitions[destination.number]
            if self._installation.hold(definition) != destination.attributes:
                self._apply_definition(destination, definition)

    def _apply_definition(self, destination: Destination, definition: Definition) -> None:
        """Have what holds for a definition hold for its destination and its clients."""
        before, after = producer_credit(destination.attributes), self._installation.hold(definition)
        self._executor.perform(destination, cmd.Update(after))
        credit = producer_credit(after)
        if credit != before:
            for number in destination.producers.attached:
                if attachment := self._attachments.by_number.get(number):
                    attachment.peer.event("credit", {"handle": attachment.handle, "credit": credit})
        self._meters.thresholds.apply_attributes(destination)
        self._charge(destination)

    def forget_dormant(self, number: int) -> None:
        """The reap time of a dormant destination is over."""
        if self._installation.forget_dormant(number):
            self._executor.note(number, records.encode(records.GONE, 0), unawaited)

    def purge(self, name: str, done: Done, kind: str = "queue") -> None:
        """Discard the messages that wait; those with consumers stay theirs."""
        from raybroker.engine.destinations.browsing import look

        self._executor.require_running()
        destination = self._registry.named(kind, name)
        if self._meters.life.wanted(destination):
            for seen in look(destination, ("waiting", "delayed")):
                self._meters.life.removed(destination, seen.ordinal, seen.mask)
        self._executor.perform(destination, cmd.Purge())
        self._quarantine.forget_destination(destination)
        self._executor.append([], done)

    def publish_version(self, name: str, version: int, done: Done, kind: str = "queue", *, back: bool = False) -> None:
        """Say the current version of a queue with versionKey; see command.PublishVersion."""
        self._executor.require_running()
        self._executor.perform(self._registry.named(kind, name), cmd.PublishVersion(version, back))
        self._executor.append([], done)

    def pause(self, name: str, which: str, until_ms: int, kind: str = "queue", done: Done = unawaited) -> None:
        """Stop producers, consumers, all or insertion; it stays so over a restart.

        Raises IllegalStateError for the dead message queue. A pause whose end has passed ends at once.
        """
        refuse(refusals.of_dead_letters(kind, name, "paused"))
        self._each(name, pauses.paused_by(which), which, kind, lambda work: cmd.Pause(work, until_ms), done)
        self._report(f"{kind} {name} paused: {which}")

    def starts_paused(self, definition: Definition) -> list[str]:
        """The work of a destination that stops at each start of the host."""
        return list(self._installation.starts_paused(definition))

    def resume(self, name: str, which: str, kind: str = "queue", done: Done = unawaited) -> None:
        self._each(name, pauses.resumed_by(which), which, kind, cmd.Resume, done)
        self._report(f"{kind} {name} resumed: {which}")

    def _each(
        self,
        name: str,
        words: Sequence[str],
        which: str,
        kind: str,
        make: Callable[[str], cmd.Pause | cmd.Resume],
        done: Done,
    ) -> None:
        self._executor.require_running()
        if which not in pauses.WORDS:
            raise IllegalStateError(f"{which!r} cannot be paused; choose one of {', '.join(pauses.WORDS)}")
        destination = self._registry.named(kind, name)
        for word in words:
            self._executor.perform(destination, make(pauses.WORK[word]))
        old = self._registry.definitions[destination.number]
        new = self._registry.definitions[destination.number] = replace(old, paused=dict(destination.paused))
        if new.paused == old.paused:
            self._executor.append([], done)
        else:
            self._write(destination, new, done)

    def _write(self, destination: Destination, definition: Definition, done: Done, *more: bytes) -> None:
        """A temporary destination ends with its connection, so nothing of it is written. ``more``: records."""
        if definition.owner is not None:
            self._executor.append([], done)
            return
        attributes = records.encode(records.ATTRIBUTES, 0, rest=definition.encode())
        self._executor.append([LogEntry(NOTE, destination.number, 0, meta) for meta in (attributes, *more)], done)
