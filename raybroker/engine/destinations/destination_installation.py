"""Destinations put into a host's registry: new ones, dormant ones wanted again, and those that a store held."""

from __future__ import annotations

from functools import partial

from raybroker.core.destination import Destination
from raybroker.core.durable.recovery import KINDS
from raybroker.engine.checkpoint import Definition, Recovered
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.destinations.policies import Hold, own_attributes
from raybroker.engine.live_settings import LiveSettings
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.path.wakeups import Wakeups
from raybroker.model.definitions import pauses
from raybroker.model.settings.settings import ConfigView


class DestinationInstallation:
    """Gives a destination its settings, its way to read blocks and its first wake-up; ``hold``: the attributes that
    hold for it."""

    def __init__(
        self,
        registry: DestinationRegistry,
        cache: BlockCache,
        blocks: BlockReader,
        wakeups: Wakeups,
        time: MeasuredTime,
        config: ConfigView,
        settings: LiveSettings,
        hold: Hold = own_attributes,
    ) -> None:
        self._registry = registry
        self._cache = cache
        self._blocks = blocks
        self._wakeups = wakeups
        self._time = time
        self._config = config
        self._settings = settings
        self.hold = hold

    def make(self, definition: Definition) -> Destination:
        """A destination that is not there: the dormant one of that name, or an empty one."""
        dormant = self._registry.dormant.pop(definition.key, None)
        if dormant is not None:
            _, home = dormant
            home.reap_ms = self._reap_ms(definition)
            home.policy.attributes = self.hold(definition)
            self._wakeups.forget(home.number)
        else:
            home = KINDS[definition.kind](
                self._registry.next_number,
                definition.name,
                self.hold(definition),
                reap_ms=self._reap_ms(definition),
            )
            home.counters.since_ms = self._time.wall_ms()
            self._registry.next_number += 1
        self._install(home, definition)
        return home

    def restore(self, found: Recovered) -> list[int]:
        """Rebuild what a store held; returns the numbers of empty auto-created destinations that are gone."""
        self._registry.next_number = found.next_number
        gone: list[int] = []
        now_ms, ahead_ms = self._time.look(), self._time.ahead_ms
        for number, recovery in sorted(found.recoveries.items()):
            definition = found.definitions.get(number)
            if definition is not None:
                home = recovery.finish(
                    definition.name,
                    self.hold(definition),
                    kind=definition.kind,
                    reap_ms=self._reap_ms(definition),
                    now_ms=now_ms,
                    ahead_ms=ahead_ms,
                    decided=found.transactions.decided,
                )
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

    def forget_dormant(self, number: int) -> bool:
        """The reap time of destination ``number`` is over; returns whether a dormant one was forgotten."""
        keys = [key for key, (_, home) in self._registry.dormant.items() if home.number == number]
        for key in keys:
            del self._registry.dormant[key]
        return bool(keys)

    def _install(self, home: Destination, definition: Definition) -> None:
        self._settings.give(home)
        home.current.read_headers = partial(self._blocks.headers, home)
        self._registry.destinations[definition.key] = home
        self._registry.definitions[home.number] = definition
        if home.reap_ms is not None:
            home.idle_since_ms = self._time.now_ms()
            self._wakeups.wake(home.number, self._reap_at(home))
        if home.block_index.messages:  # The scan also finds messages that died before a restart.
            home.expiry.next_scan_ms = self._time.now_ms()
            self._wakeups.wake(home.number, home.expiry.next_scan_ms)

    def _pause_again(self, home: Destination, definition: Definition) -> None:
        """Pauses of an administrator outlast a restart, and attributes may ask for a pause at every start."""
        wall_ms = self._time.wall_ms()
        for work, until_ms in definition.paused.items():
            if until_ms == 0 or until_ms > wall_ms:
                home.paused[work] = until_ms
                if until_ms:
                    self._wakeups.wake(home.number, self._time.measured(until_ms))
        for work in pauses.WORK.values():
            if getattr(definition.attributes, pauses.at_startup(work)):
                home.paused[work] = 0

    def _reap_at(self, home: Destination) -> int:
        return self._time.now_ms() + (home.reap_ms or 0)

    def _reap_ms(self, definition: Definition) -> int | None:
        return self._config["imq.autocreate.reaptime"] * 1000 if definition.auto_created else None
