"""Health of a broker, of its services and of destinations: asks what there is to see, and has it graded.

Nothing here waits long: a host has ASK_TIMEOUT_S, a port CONNECT_TIMEOUT_S, all at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from raybroker.admin import checks, copy_checks
from raybroker.admin.checks import Grade, Limits
from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.listing import Listing

if TYPE_CHECKING:
    from raybroker.services.listening.listener import ServiceListener

ASK_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 3.0
COPIED_MAX: Final = 200
"""Destinations with copies that one check looks at."""
OLDEST: Final = "oldest_message_age_seconds"

Given = Mapping[str, object] | None
Ask = Callable[[str, Row], Awaitable[Any]]
"""Carries a verb out."""


class HealthChecks:
    """The checks of one broker. ``own``: what it says of itself; ``unasked``: why hosts have not answered since it was
    started; ``ask``: carries out its verbs. ``require_open`` raises while it takes no clients."""

    def __init__(
        self,
        own: Callable[[], Row],
        hosts: Callable[[], Iterable[HostPort]],
        unasked: Callable[[], Mapping[str, str]],
        services: ServiceAdministration,
        ask: Ask,
        require_open: Callable[[], None],
        *,
        broker: str,
    ) -> None:
        self._require_open = require_open
        self._own = own
        self._hosts = hosts
        self._unasked = unasked
        self._services = services
        self._ask = ask
        self._broker = broker

    # ---- as verbs

    async def check_broker(self, warn: Given = None, critical: Given = None) -> Listing:
        limits = Limits(checks.OF_BROKER, warn, critical)
        found = checks.of_broker(self._own(), await self._host_rows(), limits)
        found[1:1] = [self._opened(), *self._listening(), *await self._addresses()]
        return self._listing(found)

    async def check_services(self, service: str | None = None, warn: Given = None, critical: Given = None) -> Listing:
        limits = Limits(checks.OF_SERVICES, warn, critical)
        active = self._services.active()
        if service is not None and service not in active:
            raise ConfigError(
                f"service {service!r} is not active here; those that are: {', '.join(active) or 'none'}"
                " (imq.service.activelist)"
            )
        chosen = [name for name in active if service in (None, name)]
        rows = await asyncio.gather(*(self._service_row(name, active[name]) for name in chosen))
        states = [*self._listening(), *await self._addresses(), *self._rules()]
        return self._listing([*states, *checks.of_services(rows, limits)])

    async def check_destination(self, type: str, name: str, warn: Given = None, critical: Given = None) -> list[Row]:
        return await check_destination(self._ask, type, name, warn, critical)

    async def live(self) -> list[Row]:
        """The loop of the broker turns: that it answers is all that is asked."""
        return [checks.row("live", self._broker, Grade.OK, f"broker {self._broker} answers")]

    async def ready(self) -> list[Row]:
        """Return the checks that say whether clients can use the broker now."""
        return [row for row in await self.check_broker() if row["check"] in checks.READY]

    # ---- what is looked at

    def _listing(self, rows: Iterable[Row]) -> Listing:
        return Listing({"broker": self._broker, **row} for row in rows)

    def _opened(self) -> Row:
        try:
            self._require_open()
        except BrokerError as error:
            return checks.row("open", self._broker, Grade.CRITICAL, f"it takes no clients: {error}")
        return checks.row("open", self._broker, Grade.OK, "it takes clients")

    def _listening(self) -> list[Row]:
        """What the configuration asks for, and none is well too."""
        if self._services.failure:
            text = f"services that the configuration asks for do not listen: {self._services.failure}"
            return [checks.row("services", self._broker, Grade.CRITICAL, text)]
        names = ", ".join(self._services.active())
        text = f"{names} listen" if names else "none is asked for (imq.service.activelist)"
        return [checks.row("services", self._broker, Grade.OK, text)]

    async def _addresses(self) -> list[Row]:
        """Whether services listen where the other machines of the cluster reach them."""
        why = await self._services.unreached()
        return [checks.row("addresses", self._broker, Grade.WARNING, why)] if why else []

    def _rules(self) -> list[Row]:
        """Whether the services have access rules of their own."""
        if not self._services.active():
            return []
        missing = self._services.rules_missing()
        if not missing:
            return [checks.row("access rules", self._broker, Grade.OK, "those of the file hold, or none are wanted")]
        text = f"there is no file {missing}: every user may produce, consume, browse and create everywhere"
        return [checks.row("access rules", self._broker, Grade.WARNING, text)]

    async def _host_rows(self) -> list[Row]:
        rows = await asyncio.gather(*(self._host_row(host) for host in list(self._hosts())))
        silent = [{"host": key, "failure": why} for key, why in self._unasked().items()]
        return [*rows, *silent]

    async def _host_row(self, host: HostPort) -> Row:
        try:
            return {"host": host.key, **await asyncio.wait_for(host.process.state(), ASK_TIMEOUT_S)}
        except TimeoutError:
            return {"host": host.key, "failure": f"no answer in {ASK_TIMEOUT_S:g} s"}
        except BrokerError as error:
            return {"host": host.key, "failure": str(error)}

    async def _service_row(self, name: str, service: ServiceListener) -> Row:
        refusal = await self._refusal(service.address)
        return {**service.service_row(), "refusal": refusal, "certificate_days": self._services.certificate_days(name)}

    async def _refusal(self, address: tuple[str, int]) -> str:
        """Why a port accepts nothing; "" when it does."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(*address)
        except TimeoutError:
            return f"not in {CONNECT_TIMEOUT_S:g} s"
        except OSError as error:
            return str(error)
        host, port = writer.get_extra_info("sockname")[:2]
        self._services.probing(f"{host}:{port}")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return ""


async def check_destination(ask: Ask, kind: str, name: str, warn: Given, critical: Given) -> list[Row]:
    """``ask``: carries verbs out, of one broker or of all."""
    limits = Limits(checks.OF_DESTINATION, warn, critical)
    found = await ask("query_destination", {"type": kind, "name": name})
    return checks.of_destination(found, await _oldest_s(ask, found["type"], name), limits)


async def _oldest_s(ask: Ask, kind: str, name: str) -> float | None:
    """Return the age in seconds of the oldest over all brokers that are asked; None where no host can tell."""
    ages = [
        float(row[OLDEST])
        for broker in await ask("metrics", {"names": name})
        for row in broker["destinations"]
        if (row["type"], row["name"]) == (kind, name) and OLDEST in row
    ]
    return round(max(ages), 1) if ages else None


class ClusterHealth:
    """Checks that concern all brokers. ``ask``: carries out verbs of the cluster; ``copied``: the destinations whose
    logs have copies."""

    def __init__(self, ask: Ask, copied: Callable[[], Iterable[tuple[str, ...]]] = tuple) -> None:
        self._ask = ask
        self._copied = copied

    async def check_cluster(self) -> list[Row]:
        found = checks.of_cluster(await self._ask("query_cluster", {}))
        keys = sorted(self._copied())
        for kind, name in keys[:COPIED_MAX]:
            found += copy_checks.of_copies(f"{kind} {name}", await self.replication(kind, name))
        if len(keys) > COPIED_MAX:
            text = f"{len(keys) - COPIED_MAX} more destinations have copies, and were not looked at"
            found.append(checks.row("copies", "others", Grade.UNKNOWN, text))
        return found

    async def replication(self, kind: str, name: str) -> Row:
        """Return what is shown of the copies of a destination's log; nothing where none can be asked."""
        if (kind, name) not in set(self._copied()):
            return {}
        try:
            found = await self._ask("query_destination", {"type": kind, "name": name})
        except BrokerError as error:
            return {"leader": "", "why": str(error), "copies": []}
        copies, moving = found.get("replication", {}), found.get("moving", ())
        return {**copies, "changing": [*copies.get("changing", ()), *moving]} if copies else {}

    async def check_destination(self, type: str, name: str, warn: Given = None, critical: Given = None) -> list[Row]:
        return await check_destination(self._ask, type, name, warn, critical)
