"""How the destinations of a host come, change and go, and come back after a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from raybroker.core import command as cmd
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.durable.recovery import KINDS
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.engine.attachments import Attachments
from raybroker.engine.block_cache import BlockCache
from raybroker.engine.block_reader import BlockReader
from raybroker.engine.browsing import look
from raybroker.engine.checkpoint import Definition, Recovered
from raybroker.engine.destination_registry import DMQ, DestinationRegistry
from raybroker.engine.executor import Done, Executor, unawaited
from raybroker.engine.live_settings import LiveSettings
from raybroker.engine.meters import Meters
from raybroker.engine.ports import Clock
from raybroker.engine.quarantine import Quarantine
from raybroker.engine.schedules import Schedules
from raybroker.engine.transactions import Transactions
from raybroker.engine.wakeups import Wakeups
from raybroker.model.errors import IllegalStateError, InvalidDestinationError
from raybroker.model.record import NOTE, Entry
from raybroker.model.settings import ConfigView, DestinationAttributes, updated_attributes

ORPHAN_MS: Final = 10_000
"""A temporary destination waits so long for its connection to come back."""
PAUSES: Final = {
    "producers": ("production",),
    "consumers": ("consumption",),
    "all": ("production", "consumption"),
    "insertion": ("insertion",),
}
"""What an administrator may pause, as what the core pauses."""


class DestinationAdministration:
    """Creates, changes and destroys the destinations of a registry.

    meters     hear of new attributes; ``destroyed``: called with a destination that is gone, for other counters
    idle       called with (type, name) of a destination that is over: auto-created and unused, or temporary and left
    """

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        attachments: Attachments,
        cache: BlockCache,
        blocks: BlockReader,
        wakeups: Wakeups,
        clock: Clock,
        config: ConfigView,
        settings: LiveSettings,
        transactions: Transactions,
        schedules: Schedules,
        quarantine: Quarantine,
        meters: Meters,
        *,
        destroyed: Callable[[Destination], None],
        idle: Callable[[str, str], None] | None,
        report: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._attachments = attachments
        self._cache = cache
        self._blocks = blocks
        self._wakeups = wakeups
        self._clock = clock
        self._config = config
        self._settings = settings
        self._transactions = transactions
        self._schedules = schedules
        self._quarantine = quarantine
        self._meters = meters
        self._destroyed = destroyed
        self._idle = idle
        self._report = report
        self._orphans: dict[str, int] = {}
        """Connections that were lost and own temporary destinations → when those go, milliseconds."""

    # ---- restart ---------------------------------------------------------------------------------------------------

    def restore(self, found: Recovered) -> list[int]:
        """Rebuild what a store held; returns the numbers of empty auto-created destinations that are gone."""
        self._registry.next_number = found.next_number
        gone: list[int] = []
        for number, recovery in sorted(found.recoveries.items()):
            definition = found.definitions.get(number)
            if definition is not None:
                home = recovery.finish(
                    definition.name, definition.attributes, kind=definition.kind, reap_ms=self._reap_ms(definition),
                    now_ms=self._clock.now_ms(), decided=found.transactions.decided,
                )  # fmt: skip
                needed = home.block_index.messages or home.has_durable_queues() or found.schedules.needs(number)
                if needed or not definition.auto_created:
                    self._install(home, definition)
                    self._pause_again(home, definition)
                elif home.producers.taken:
                    self._registry.dormant[definition.key] = definition, home
                    self._wakeups.wake(number, self._reap_at(home))
                else:
                    gone.append(number)
            dead = found.dead(number)
            if dead:
                self._cache.retire(number, dead, stored=True)
        return gone

    def _pause_again(self, home: Destination, definition: Definition) -> None:
        """What an administrator has paused stays so, and what its attributes say is paused at each start."""
        now_ms = self._clock.now_ms()
        for part, until_ms in definition.paused.items():
            if until_ms == 0 or until_ms > now_ms:
                home.paused[part] = until_ms
                if until_ms:
                    self._wakeups.wake(home.number, until_ms)
        for part in ("production", "insertion", "consumption"):
            if getattr(definition.attributes, f"{part}PausedAtStartup"):
                home.paused[part] = 0

    def forget_dormant(self, number: int) -> None:
        """The reap time of a dormant destination is over."""
        for key in [key for key, (_, home) in self._registry.dormant.items() if home.number == number]:
            del self._registry.dormant[key]
            self._executor.note(number, records.encode(records.GONE, 0), unawaited)

    # ---- changes ---------------------------------------------------------------------------------------------------

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
        if definition.key in self._registry.dormant:
            _, home = self._registry.dormant.pop(definition.key)
            home.policy.attributes, home.reap_ms = attributes, self._reap_ms(definition)
            self._wakeups.forget(home.number)
        else:
            home = KINDS[kind](self._registry.next_number, name, attributes, reap_ms=self._reap_ms(definition))
            self._registry.next_number += 1
        self._install(home, definition)
        if owner is not None:
            self._executor.append([], done)
        else:
            self._executor.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=definition.encode()), done)

    def _keep(self, home: Destination, wanted: Definition, done: Done) -> None:
        """It is there already; one that was auto-created becomes the administrator's with what it holds."""
        known = self._registry.definitions[home.number]
        if wanted.auto_created or wanted.owner is not None or not known.auto_created:
            self._executor.append([], done)
            return
        wanted = replace(wanted, paused=known.paused)
        self._registry.definitions[home.number] = wanted
        home.reap_ms = None
        self._executor.perform(home, cmd.Update(wanted.attributes))
        self._meters.thresholds.take(home)
        self._executor.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=wanted.encode()), done)

    def update(self, name: str, changes: dict[str, object], done: Done, kind: str = "queue") -> None:
        """Change attributes, all or none; raises ConfigError."""
        self._executor.require_running()
        home = self._registry.named(kind, name)
        old = self._registry.definitions[home.number]
        attributes = updated_attributes(old.attributes, changes, home.kind, name=name)
        new = replace(old, attributes=attributes)
        self._registry.definitions[home.number] = new
        self._executor.perform(home, cmd.Update(new.attributes))
        credit = producer_credit(new.attributes)
        if credit != producer_credit(old.attributes):
            for number in home.producers.attached:
                if attachment := self._attachments.by_number.get(number):
                    attachment.peer.event("credit", {"handle": attachment.handle, "credit": credit})
        self._meters.thresholds.take(home)
        self._executor.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=new.encode()), done)

    def destroy(self, name: str, done: Done, kind: str = "queue") -> None:
        """Remove a destination and its messages; its producers and consumers are told."""
        self._executor.require_running()
        home = self._registry.named(kind, name)
        self._transactions.without(home)
        del self._registry.destinations[kind, name]
        self._quarantine.forget(home)
        definition = self._registry.definitions.pop(home.number)
        self._destroyed(home)
        self._wakeups.forget(home.number)
        for attachment in self._attachments.end(home):
            attachment.peer.event("destroyed", {"handle": attachment.handle, "name": name})
        stored = [ordinal for ordinal, block in home.block_index.held.items() if block.stored]
        ordinals, (ended, schedules) = list(home.block_index.held), self._schedules.without(home)

        def gone() -> None:
            self._cache.retire(home.number, stored, stored=True)
            self._cache.retire(home.number, ordinals, stored=False)
            self._schedules.freed(schedules)
            done()

        if definition.owner is not None:
            self._executor.append([], gone)
        else:
            self._executor.append([Entry(NOTE, home.number, 0, records.encode(records.GONE, 0)), *ended], gone)

    def purge(self, name: str, done: Done, kind: str = "queue") -> None:
        """Discard the messages that wait; those with consumers stay theirs."""
        self._executor.require_running()
        home = self._registry.named(kind, name)
        if self._meters.life.wanted(home):
            for seen in look(home, ("waiting", "delayed")):
                self._meters.life.removed(home, seen.ordinal, seen.mask)
        self._executor.perform(home, cmd.Purge())
        self._quarantine.forget(home)
        self._executor.append([], done)

    def pause(self, name: str, which: str, until_ms: int, kind: str = "queue", done: Done = unawaited) -> None:
        """Stop producers, consumers, all or insertion; it stays so over a restart.

        Raises IllegalStateError for the dead message queue. A pause whose end has passed ends at once.
        """
        if name == DMQ:
            raise IllegalStateError(f"{DMQ} cannot be paused")
        self._each(name, PAUSES.get(which), which, kind, lambda home, part: cmd.Pause(part, until_ms), done)
        self._report(f"{kind} {name} paused: {which}")

    def resume(self, name: str, which: str, kind: str = "queue", done: Done = unawaited) -> None:
        parts = ("production", "consumption", "insertion") if which == "all" else PAUSES.get(which)
        self._each(name, parts, which, kind, lambda home, part: cmd.Resume(part), done)
        self._report(f"{kind} {name} resumed: {which}")

    def _each(
        self, name: str, parts: Sequence[str] | None, which: str, kind: str,
        make: Callable[[Destination, str], cmd.Pause | cmd.Resume], done: Done,
    ) -> None:  # fmt: skip
        self._executor.require_running()
        if parts is None:
            raise IllegalStateError(f"{which!r} cannot be paused; choose one of {', '.join(PAUSES)}")
        home = self._registry.named(kind, name)
        for part in parts:
            self._executor.perform(home, make(home, part))
        old = self._registry.definitions[home.number]
        new = self._registry.definitions[home.number] = replace(old, paused=dict(home.paused))
        if new.paused == old.paused or new.owner is not None:
            self._executor.append([], done)
        else:
            self._executor.note(home.number, records.encode(records.ATTRIBUTES, 0, rest=new.encode()), done)

    # ---- subscriptions and temporary destinations ------------------------------------------------------------------

    def subscribe(self, topic: str, wanted: Subscription, done: Done) -> None:
        """Make a durable subscription unless it is there; raises IllegalStateError as core.command.Subscribe."""
        self._executor.require_running()
        self._executor.perform(self._registry.named("topic", topic), cmd.Subscribe(wanted))
        self._executor.append([], done)

    def unsubscribe(self, topic: str, client_id: str, name: str, done: Done) -> None:
        """End a named subscription; raises IllegalStateError while it is in use."""
        self._executor.require_running()
        self._executor.perform(self._registry.named("topic", topic), cmd.Unsubscribe(client_id, name))
        self._executor.append([], done)

    def purge_subscription(self, topic: str, client_id: str, name: str, done: Done) -> None:
        """Discard what waits in a subscription: in the durable one of that name, or else the shared one."""
        self._executor.require_running()
        home, queue = self._registry.named("topic", topic), None
        if isinstance(home, Topic):
            queue = home.find(client_id, name) or home.find(client_id, name, durable=False)
        if queue is None:
            raise InvalidDestinationError(f"topic {topic} has no subscription {name!r} of client {client_id!r}")
        self._executor.perform(home, cmd.Purge(queue.number))
        self._executor.append([], done)

    def lost(self, connection: str) -> None:
        """A connection is gone; the temporary destinations that it owns wait a while for it."""
        if any(d.owner == connection for d in self._registry.definitions.values()):
            self._orphans[connection] = self._clock.now_ms() + ORPHAN_MS
            self._wakeups.wake(0, self._orphans[connection])

    def found(self, connection: str) -> None:
        self._orphans.pop(connection, None)

    def end_orphans(self, now_ms: int) -> None:
        for connection in [c for c, at_ms in self._orphans.items() if at_ms <= now_ms]:
            del self._orphans[connection]
            for definition in [d for d in self._registry.definitions.values() if d.owner == connection]:
                if self._transactions.prepared_in(self._registry.destinations[definition.key]) is not None:
                    self._orphans[connection] = now_ms + ORPHAN_MS
                elif self._idle is not None:
                    self._idle(definition.kind, definition.name)
                else:
                    self.destroy(definition.name, unawaited, definition.kind)
        if self._orphans:
            self._wakeups.wake(0, min(self._orphans.values()))

    # ---- internals -------------------------------------------------------------------------------------------------

    def _install(self, home: Destination, definition: Definition) -> None:
        self._settings.give(home)
        home.current.read_headers = partial(self._blocks.headers, home)
        self._registry.destinations[definition.key] = home
        self._registry.definitions[home.number] = definition
        if home.reap_ms is not None:
            home.idle_since_ms = self._clock.now_ms()
            self._wakeups.wake(home.number, self._reap_at(home))
        if home.block_index.messages:  # Also for what died before a restart.
            home.expiry.next_scan_ms = self._clock.now_ms()
            self._wakeups.wake(home.number, home.expiry.next_scan_ms)

    def _reap_at(self, home: Destination) -> int:
        return self._clock.now_ms() + (home.reap_ms or 0)

    def _reap_ms(self, definition: Definition) -> int | None:
        return self._config["imq.autocreate.reaptime"] * 1000 if definition.auto_created else None
