"""Broker properties that change while the broker runs, and hold after its next start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from raybroker.admin.verb_types import PropertyChange
from raybroker.broker.destinations.destination_registry import Registry
from raybroker.config.live import LiveConfig, Saved
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, BrokerGoneError, ConfigError
from raybroker.model.settings.setting_services import PORT_MAPPER
from raybroker.model.settings.settings import Value

if TYPE_CHECKING:
    from raybroker.broker.cluster.broker_calls import BrokerCalls
    from raybroker.broker.cluster.cluster_admin import Everywhere

TELL_TIMEOUT_S: Final = 5.0
"""How long a host may take for a change; then it is told again later."""

MovePortMapper = Callable[[int], AbstractAsyncContextManager[None]]
Keep = Callable[[Saved], Awaitable[None]]
"""Makes changes durable; raises StoreError."""

log = logging.getLogger("raybroker.broker")


async def keep_nothing(saved: Saved) -> None:
    """Keep nothing: such a broker starts anew each time."""


class Properties:
    """The properties of one broker and its hosts; ``port_mapper_at(port)`` moves its port mapper, when the block within
    has gone well."""

    def __init__(
        self, live: LiveConfig, registry: Registry, keep: Keep, port_mapper_at: MovePortMapper, *, broker: str
    ) -> None:
        self._live = live
        self._registry = registry
        self._keep = keep
        self._port_mapper_at = port_mapper_at
        self._broker = broker
        self._changing = asyncio.Lock()
        self._behind: set[str] = set()
        """Hosts that were not told yet what is changed."""

    async def update_broker(self, properties: Row, broker: str | None = None) -> PropertyChange:
        """Change properties, all or none: {"brokers": {name: {"changed", "unreached"}}, "down": []}.

        changed    everything that differs from the configuration now, property → value
        unreached  hosts that do not answer; they are told later, or read it when they start

        Raises ConfigError for what cannot change (see config.live), and for a port of the port mapper that is taken,
        StoreError when it cannot be written down; then nothing has changed.
        """
        if broker not in (None, self._broker):
            raise BrokerGoneError(f"broker {broker} cannot be asked here; this is {self._broker}")
        async with self._changing:
            changed = self._live.with_changes(properties)
            before = dict(self._live.changed)
            async with self._moved(before, changed):
                await self._keep(self._live.saved(changed))
            self._live.replace(changed)
            for name in properties:
                if before.get(name) != changed.get(name):
                    log.info("[B1082] broker %s: %s is now %s", self._broker, name, self._live[name])
            self._behind = {host.key for host in self._registry.hosts}
            await self.tell()
        row = {"changed": dict(changed), "unreached": sorted(self._behind)}
        return {"brokers": {self._broker: row}, "down": []}

    def _moved(self, before: Mapping[str, Value], changed: Mapping[str, Value]) -> AbstractAsyncContextManager[None]:
        """The port mapper moves, where its port changes."""
        base = self._live.base[PORT_MAPPER]
        port = changed.get(PORT_MAPPER, base)
        return nullcontext() if port == before.get(PORT_MAPPER, base) else self._port_mapper_at(int(port))

    async def tell(self) -> None:
        """Tell the hosts that do not know yet, for a bounded time."""
        hosts = [host for host in self._registry.hosts if host.key in self._behind]
        self._behind = {host.key for host in hosts}
        await asyncio.gather(*(self._tell(host) for host in hosts))

    async def greet(self, host: HostPort, new: bool) -> None:
        """The broker has a host from now on; one that is not ``new`` may know of changes that were undone since."""
        if self._live.changed or not new:
            self._behind.add(host.key)
            await self._tell(host)

    async def _tell(self, host: HostPort) -> None:
        told = self._live.changed
        try:
            await asyncio.wait_for(host.process.configure(dict(told)), TELL_TIMEOUT_S)
        except (BrokerError, TimeoutError) as error:
            log.warning("host %s was not told what is changed: %s; it will be", host.key, error)
            return
        if told == self._live.changed:
            self._behind.discard(host.key)

    def check(self, properties: Row) -> None:
        """Raises ConfigError for what cannot be changed to that; nothing changes."""
        self._live.with_changes(properties)

    def changed_properties(self) -> Row:
        """What differs from the configuration, property → value."""
        return dict(self._live.changed)


class ClusterProperties:
    """The properties of one broker of the cluster, or of all that are up; ``everywhere`` asks all for a verb."""

    def __init__(self, own: Properties, brokers: BrokerCalls, everywhere: Everywhere) -> None:
        self._own = own
        self._brokers = brokers
        self._everywhere = everywhere

    async def update_broker(self, properties: Row, broker: str | None = None) -> PropertyChange:
        """Do what Properties.update_broker does; without ``broker`` on all that are up, and "down" names the others.

        Raises BrokerGoneError when ``broker`` is not up, ConfigError also for a property that has to be the same on all
        brokers and ``broker``, and for one that cannot be the same and none.  When a broker is lost meanwhile, the
        others have changed.
        """
        from raybroker.cluster.compatibility import EQUAL

        up = self._brokers.live()
        self._own.check(properties)
        if broker is None:
            if properties.get(PORT_MAPPER) and len(up) > 1 and int(str(properties[PORT_MAPPER])):
                names = ", ".join(sorted(up))
                raise ConfigError(f"{PORT_MAPPER} is of one broker, and {names} are up: name the one that is to change")
            found: PropertyChange = {"brokers": {}, "down": [name for name in self._brokers.known() if name not in up]}
            for _, answer in await self._everywhere("update_broker", {"properties": properties}):
                found["brokers"] |= answer["brokers"]
            return found
        if broker not in up:
            raise BrokerGoneError(f"broker {broker} is not up; up are {', '.join(sorted(up))}")
        together = [name for name in EQUAL if name in properties]
        if together and len(up) > 1:
            raise ConfigError(f"{together[0]} has to be the same on all brokers: change it without naming one")
        args = {"properties": properties}
        of_one: PropertyChange = await self._brokers.verb_at(broker, "update_broker", args, TELL_TIMEOUT_S * 2)
        return of_one
