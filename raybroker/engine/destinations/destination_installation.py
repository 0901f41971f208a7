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
from raybroker.model.naming.names import is_reserved_name
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
            _, destination = dormant
            destination.reap_ms = self._reap_ms(definition)
            destination.policy.attributes = self.hold(definition)
            self._wakeups.cancel(destination.number)
        else:
            destination = KINDS[definition.kind](
                self._registry.next_number,
                definition.name,
                self.hold(definition),
                reap_ms=self._reap_ms(definition),
            )
            destination.counters.since_ms = self._time.wall_ms()
            self._registry.next_number += 1
        self._install(destination, definition)
        return destination

    def restore(self, found: Recovered) -> list[int]:
        """Rebuild what a store held; returns the numbers of empty auto-created destinations that are gone."""
        self._registry.next_number = found.next_number
        gone: list[int] = []
        now_ms, ahead_ms = self._time.read(), self._time.ahead_ms
        for number, recovery in sorted(found.recoveries.items()):
            definition = found.definitions.get(number)
            if definition is not None:
                destination = recovery.finish(
                    definition.name,
                    self.hold(definition),
                    kind=definition.kind,
                    reap_ms=self._reap_ms(definition),
                    now_ms=now_ms,
                    ahead_ms=ahead_ms,
                    decided=found.transactions.decided,
                )
                needed = (
                    destination.block_index.messages
                    or destination.has_durable_queues()
                    or found.schedules.needs(number)
                )
                if needed or not definition.auto_created:
                    self._install(destination, definition)
                    self._pause_again(destination, definition)
                elif destination.producers.taken:
                    self._registry.dormant[definition.key] = definition, destination
                    self._wakeups.wake(number, self._reap_at(destination))
                else:
                    gone.append(number)
            dead = found.dead(number)
            if dead:
                self._cache.retire(number, dead, stored=True)
        return gone

    def forget_dormant(self, number: int) -> bool:
        """The reap time of destination ``number`` is over; returns whether a dormant one was forgotten."""
        keys = [key for key, (_, destination) in self._registry.dormant.items() if destination.number == number]
        for key in keys:
            del self._registry.dormant[key]
        return bool(keys)

    def _install(self, destination: Destination, definition: Definition) -> None:
        self._settings.give(destination)
        destination.current.read_headers = partial(self._blocks.headers, destination)
        self._registry.destinations[definition.key] = destination
        self._registry.definitions[destination.number] = definition
        if destination.reap_ms is not None:
            destination.idle_since_ms = self._time.now_ms()
            self._wakeups.wake(destination.number, self._reap_at(destination))
        if destination.block_index.messages:  # The scan also finds messages that died before a restart.
            destination.expiry.next_scan_ms = self._time.now_ms()
            self._wakeups.wake(destination.number, destination.expiry.next_scan_ms)

    def _pause_again(self, destination: Destination, definition: Definition) -> None:
        """Pauses of an administrator outlast a restart, and there are pauses at every start."""
        wall_ms = self._time.wall_ms()
        for work, until_ms in definition.paused.items():
            if until_ms == 0 or until_ms > wall_ms:
                destination.paused[work] = until_ms
                if until_ms:
                    self._wakeups.wake(destination.number, self._time.measured(until_ms))
        destination.paused.update(dict.fromkeys(self.starts_paused(definition), 0))

    def starts_paused(self, definition: Definition) -> tuple[str, ...]:
        """The work of a destination that stops at each start, by its attributes or by the broker's properties."""
        if is_reserved_name(definition.name):
            return ()
        return pauses.starting(partial(getattr, definition.attributes), self._config.__getitem__)

    def _reap_at(self, destination: Destination) -> int:
        return self._time.now_ms() + (destination.reap_ms or 0)

    def _reap_ms(self, definition: Definition) -> int | None:
        return self._config["imq.autocreate.reaptime"] * 1000 if definition.auto_created else None
