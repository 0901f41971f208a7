"""Which destinations a host has: created, changed and destroyed, found again after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from raybroker.core import command as cmd
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.recovery import KINDS
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.engine import live_settings, metrics
from raybroker.engine.browsing import look
from raybroker.engine.checkpoint import Definition, Recovered
from raybroker.model.errors import IllegalStateError, InvalidDestinationError
from raybroker.model.record import NOTE, Entry
from raybroker.model.settings import DestinationAttributes, updated_attributes

if TYPE_CHECKING:
    from raybroker.engine.host import Host

ORPHAN_MS: Final = 10_000
"""A temporary destination waits so long for its connection to come back."""
DMQ: Final = "mq.sys.dmq"
PAUSES: Final = {
    "producers": ("production",),
    "consumers": ("consumption",),
    "all": ("production", "consumption"),
    "insertion": ("insertion",),
}
"""What an administrator may pause, as what the core pauses."""


def _nobody() -> None:
    """Nobody waits for it."""


class Catalogue:
    """``destinations``: (type, name) → state; ``definitions``: number → what it is."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.destinations: dict[tuple[str, str], Destination] = {}
        self.definitions: dict[int, Definition] = {}
        self.dormant: dict[tuple[str, str], tuple[Definition, Destination]] = {}
        """Auto-created destinations that a restart found empty: not there, but not forgotten before their reap
        time. A producer that has not heard what became of its sends opens them again, and must not be stored twice."""
        self.orphans: dict[str, int] = {}
        """Connections that were lost and own temporary destinations → when those go, milliseconds."""
        self.next_number = 1

    def by_number(self, number: int) -> Destination | None:
        definition = self.definitions.get(number)
        return self.destinations.get(definition.key) if definition is not None else None

    def rows(self) -> Iterator[tuple[Definition, Destination]]:
        """Everything that a checkpoint has to hold."""
        for home in self.destinations.values():
            definition = self.definitions[home.number]
            if definition.owner is None:
                yield definition, home
        yield from self.dormant.values()

    # ---- restart ---------------------------------------------------------------------------------------------------

    def restore(self, found: Recovered) -> list[int]:
        """Rebuild what a store held; returns the numbers of empty auto-created destinations that are gone."""
        self.next_number = found.next_number
        gone: list[int] = []
        for number, recovery in sorted(found.recoveries.items()):
            definition = found.definitions.get(number)
            if definition is not None:
                home = recovery.finish(
                    definition.name, definition.attributes, kind=definition.kind, reap_ms=self._reap_ms(definition),
                    now_ms=self._host.clock.now_ms(), decided=found.transactions.decided,
                )  # fmt: skip
                needed = home.block_index.messages or home.has_durable_queues() or found.schedules.needs(number)
                if needed or not definition.auto_created:
                    self._install(home, definition)
                    self._pause_again(home, definition)
                elif home.producers.taken:
                    self.dormant[definition.key] = definition, home
                    self._host.wake(number, self._reap_at(home))
                else:
                    gone.append(number)
            dead = found.dead(number)
            if dead:
                self._host.store.free(number, dead)
        return gone

    def _pause_again(self, home: Destination, definition: Definition) -> None:
        """What an administrator has paused stays so, and what its attributes say is paused at each start."""
        now_ms = self._host.clock.now_ms()
        for part, until_ms in definition.paused.items():
            if until_ms == 0 or until_ms > now_ms:
                home.paused[part] = until_ms
                if until_ms:
                    self._host.wake(home.number, until_ms)
        for part in ("production", "insertion", "consumption"):
            if getattr(definition.attributes, f"{part}PausedAtStartup"):
                home.paused[part] = 0

    def forget_dormant(self, number: int) -> None:
        """The reap time of a dormant destination is over."""
        for key in [key for key, (_, home) in self.dormant.items() if home.number == number]:
            del self.dormant[key]
            self._host.note(number, records.encode(records.GONE, 0), _nobody)

    # ---- changes ---------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        attributes: DestinationAttributes,
        *,
        auto_created: bool,
        done: Callable[[], None],
        kind: str = "queue",
        owner: str | None = None,
    ) -> None:
        """Create a destination unless it is there; ``done`` when it is durable."""
        self._host.require_running()
        definition = Definition(name, auto_created, attributes, kind, owner)
        if definition.key in self.destinations:
            self._keep(self.destinations[definition.key], definition, done)
            return
        if definition.key in self.dormant:
            _, home = self.dormant.pop(definition.key)
            home.policy.attributes, home.reap_ms = attributes, self._reap_ms(definition)
            self._host.unwake(home.number)
        else:
            home = KINDS[kind](self.next_number, name, attributes, reap_ms=self._reap_ms(definition))
            self.next_number += 1
        self._install(home, definition)
        if owner is not None:
            self._host.append([], done)
        else:
            self._host.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=definition.encode()), done)

    def _keep(self, home: Destination, wanted: Definition, done: Callable[[], None]) -> None:
        """It is there already; one that was auto-created becomes the administrator's with what it holds."""
        known = self.definitions[home.number]
        if wanted.auto_created or wanted.owner is not None or not known.auto_created:
            self._host.append([], done)
            return
        wanted = replace(wanted, paused=known.paused)
        self.definitions[home.number] = wanted
        home.reap_ms = None
        self._host.perform(home, cmd.Update(wanted.attributes))
        self._host.meters.thresholds.take(home)
        self._host.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=wanted.encode()), done)

    def update(self, name: str, changes: dict[str, object], done: Callable[[], None], kind: str = "queue") -> None:
        """Change attributes, all or none; raises ConfigError."""
        self._host.require_running()
        home = self._host.named(kind, name)
        old = self.definitions[home.number]
        attributes = updated_attributes(old.attributes, changes, home.kind, name=name)
        new = replace(old, attributes=attributes)
        self.definitions[home.number] = new
        self._host.perform(home, cmd.Update(new.attributes))
        credit = producer_credit(new.attributes)
        if credit != producer_credit(old.attributes):
            for number in home.producers.attached:
                if attachment := self._host.attachments.get(number):
                    attachment.peer.event("credit", {"handle": attachment.handle, "credit": credit})
        self._host.meters.thresholds.take(home)
        self._host.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=new.encode()), done)

    def destroy(self, name: str, done: Callable[[], None], kind: str = "queue") -> None:
        """Remove a destination and its messages; its producers and consumers are told."""
        host = self._host
        host.require_running()
        home = host.named(kind, name)
        host.transactions.without(home)
        del self.destinations[kind, name]
        host.quarantine.forget(home.number)
        definition = self.definitions.pop(home.number)
        metrics.keep_totals(host, home)
        host.unwake(home.number)
        for attachment in [a for a in host.attachments.values() if a.home is home]:
            del host.attachments[attachment.number]
            attachment.peer.event("destroyed", {"handle": attachment.handle, "name": name})
        stored = [ordinal for ordinal, block in home.block_index.held.items() if block.stored]
        ordinals, (ended, schedules) = list(home.block_index.held), host.schedules.without(home)

        def gone() -> None:
            host.store.free(home.number, stored)
            for ordinal in ordinals:
                host.payloads.drop(home.number, ordinal)
            host.schedules.freed(schedules)
            done()

        if definition.owner is not None:
            host.append([], gone)
        else:
            host.append([Entry(NOTE, home.number, 0, records.encode(records.GONE, 0)), *ended], gone)

    def purge(self, name: str, done: Callable[[], None], kind: str = "queue") -> None:
        """Discard the messages that wait; those with consumers stay theirs."""
        self._host.require_running()
        home = self._host.named(kind, name)
        if self._host.meters.life.wanted(home):
            for seen in look(home, ("waiting", "delayed")):
                self._host.meters.life.removed(home, seen.ordinal, seen.mask)
        self._host.perform(home, cmd.Purge())
        self._host.quarantine.forget(home.number)
        self._host.append([], done)

    def pause(
        self, name: str, which: str, until_ms: int, kind: str = "queue", done: Callable[[], None] = _nobody
    ) -> None:
        """Stop producers, consumers, all or insertion; it stays so over a restart.

        Raises IllegalStateError for the dead message queue. A pause whose end has passed ends at once.
        """
        if name == DMQ:
            raise IllegalStateError(f"{DMQ} cannot be paused")
        self._each(name, PAUSES.get(which), which, kind, lambda home, part: cmd.Pause(part, until_ms), done)
        self._host.report(f"{kind} {name} paused: {which}")

    def resume(self, name: str, which: str, kind: str = "queue", done: Callable[[], None] = _nobody) -> None:
        parts = ("production", "consumption", "insertion") if which == "all" else PAUSES.get(which)
        self._each(name, parts, which, kind, lambda home, part: cmd.Resume(part), done)
        self._host.report(f"{kind} {name} resumed: {which}")

    def _each(
        self, name: str, parts: Sequence[str] | None, which: str, kind: str,
        make: Callable[[Destination, str], cmd.Pause | cmd.Resume], done: Callable[[], None],
    ) -> None:  # fmt: skip
        self._host.require_running()
        if parts is None:
            raise IllegalStateError(f"{which!r} cannot be paused; choose one of {', '.join(PAUSES)}")
        home = self._host.named(kind, name)
        for part in parts:
            self._host.perform(home, make(home, part))
        old = self.definitions[home.number]
        new = self.definitions[home.number] = replace(old, paused=dict(home.paused))
        if new.paused == old.paused or new.owner is not None:
            self._host.append([], done)
        else:
            self._host.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=new.encode()), done)

    # ---- subscriptions and temporary destinations ------------------------------------------------------------------

    def subscribe(self, topic: str, wanted: Subscription, done: Callable[[], None]) -> None:
        """Make a durable subscription unless it is there; raises IllegalStateError as core.command.Subscribe."""
        self._host.require_running()
        self._host.perform(self._host.named("topic", topic), cmd.Subscribe(wanted))
        self._host.append([], done)

    def unsubscribe(self, topic: str, client_id: str, name: str, done: Callable[[], None]) -> None:
        """End a named subscription; raises IllegalStateError while it is in use."""
        self._host.require_running()
        self._host.perform(self._host.named("topic", topic), cmd.Unsubscribe(client_id, name))
        self._host.append([], done)

    def purge_subscription(self, topic: str, client_id: str, name: str, done: Callable[[], None]) -> None:
        """Discard what waits in a subscription: in the durable one of that name, or else the shared one."""
        self._host.require_running()
        home, queue = self._host.named("topic", topic), None
        if isinstance(home, Topic):
            queue = home.find(client_id, name) or home.find(client_id, name, durable=False)
        if queue is None:
            raise InvalidDestinationError(f"topic {topic} has no subscription {name!r} of client {client_id!r}")
        self._host.perform(home, cmd.Purge(queue.number))
        self._host.append([], done)

    def lost(self, connection: str) -> None:
        """A connection is gone; the temporary destinations that it owns wait a while for it."""
        if any(d.owner == connection for d in self.definitions.values()):
            self.orphans[connection] = self._host.clock.now_ms() + ORPHAN_MS
            self._host.wake(0, self.orphans[connection])

    def found(self, connection: str) -> None:
        self.orphans.pop(connection, None)

    def end_orphans(self, now_ms: int) -> None:
        for connection in [c for c, at_ms in self.orphans.items() if at_ms <= now_ms]:
            del self.orphans[connection]
            for definition in [d for d in self.definitions.values() if d.owner == connection]:
                if self._host.transactions.prepared_in(self.destinations[definition.key]) is not None:
                    self.orphans[connection] = now_ms + ORPHAN_MS
                elif self._host.idle is not None:
                    self._host.idle(definition.kind, definition.name)
                else:
                    self.destroy(definition.name, _nobody, definition.kind)
        if self.orphans:
            self._host.wake(0, min(self.orphans.values()))

    # ---- internals -------------------------------------------------------------------------------------------------

    def _install(self, home: Destination, definition: Definition) -> None:
        host = self._host
        live_settings.give(host, home)
        home.current.read_headers = lambda ordinal: host.read_headers(home, ordinal)
        self.destinations[definition.key] = home
        self.definitions[home.number] = definition
        if home.reap_ms is not None:
            home.idle_since_ms = host.clock.now_ms()
            host.wake(home.number, self._reap_at(home))
        if home.block_index.messages:  # Also for what died before a restart.
            home.expiry.next_scan_ms = host.clock.now_ms()
            host.wake(home.number, home.expiry.next_scan_ms)

    def _reap_at(self, home: Destination) -> int:
        return self._host.clock.now_ms() + (home.reap_ms or 0)

    def _reap_ms(self, definition: Definition) -> int | None:
        return self._host.config["imq.autocreate.reaptime"] * 1000 if definition.auto_created else None
