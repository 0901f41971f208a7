"""A broker's metrics: the counts of its hosts and its own, collected at a scrape.

Scrapes within raybroker.metrics.cache_ms share one answer, and those that come while hosts are being asked wait for it,
so that many scrapers cost as much as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.engine.ports import Clock
from raybroker.hosting.host_port import HostPort, Row, Spares
from raybroker.metrics import totals
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import BrokerError
from raybroker.model.listing import DestinationCount, Listing
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.settings.setting_table import HOSTINGS
from raybroker.model.settings.settings import ConfigView
from raybroker.system.interpreter import PYTHON

OLDER_S: Final = 10.0
"""A host that is older than its broker by more than this has survived a restart of the broker."""
HOST_TIMEOUT_S: Final = 5.0
"""How long a host may take. Without its answer its counters stand as they were, and gauges that it is part of are left
out: a sum without it would look as if its messages were gone."""
IN_STORES: Final = frozenset(
    {
        "store_reserved_bytes",
        "store_used_bytes",
        "store_live_bytes",
        "store_segments",
        "transactions",
    }
)
"""Gauges of what hosts have stored, which is there also while they do not answer."""


class BrokerFigures(NamedTuple):
    """What the metrics of a broker say beside the counts of its hosts.

    cluster  its name; "": the broker is in none, and goes by its own
    facts    version numbers, see the catalogue's info
    rows     give more rows of the broker itself, for the aggregate tier
    of       gives more of one destination, (type, name), for its tier
    """

    cluster: str = ""
    facts: Mapping[str, str] = MappingProxyType({})
    rows: tuple[Callable[[], Row], ...] = ()
    of: Callable[[Key], Row] = lambda key: {}


NO_FIGURES: Final = BrokerFigures()


class Measuring:
    """See the module."""

    def __init__(
        self,
        config: ConfigView,
        registry: Registry,
        clock: Clock,
        figures: BrokerFigures = NO_FIGURES,
        *,
        broker: str,
        spares: Spares = list,
    ) -> None:
        self._spares = spares
        self._registry = registry
        self._clock = clock
        self._cache_ns = config["raybroker.metrics.cache_ms"] * 1_000_000
        self._most = config["raybroker.metrics.destinations_max"]
        self.cluster = figures.cluster or broker
        self.broker = broker
        self._figures = figures
        self._totals = totals.Totals()
        self._destination_totals = totals.DestinationTotals()
        self._start_ns = clock.monotonic_ns()
        self._start_ms = clock.now_ms()
        self._cached: dict[str | None, tuple[int, Snapshot]] = {}
        self._asking: dict[str | None, asyncio.Task[Snapshot]] = {}

    async def snapshot(self, names: str | None = None, *, oldest_s: float | None = None) -> Snapshot:
        """``names``: also the destinations whose name matches, * for any text; ``oldest_s``: how old it may be at most,
        by default raybroker.metrics.cache_ms."""
        oldest_ns = self._cache_ns if oldest_s is None else min(self._cache_ns, int(oldest_s * 1e9))
        known = self._cached.get(names)
        if known is not None and self._clock.monotonic_ns() - known[0] < oldest_ns:
            return known[1]
        task = self._asking.get(names)
        if task is None:
            task = self._asking[names] = asyncio.get_running_loop().create_task(self._collect(names))
            task.add_done_callback(lambda _: self._asking.pop(names, None))
        return await asyncio.shield(task)

    async def _collect(self, names: str | None) -> Snapshot:
        began_ns = self._clock.monotonic_ns()
        spares = self._spares()
        hosts = [*self._registry.hosts, *spares]
        answers = await asyncio.gather(*(self._query_host(host, names) for host in hosts))
        age_s = (self._clock.monotonic_ns() - self._start_ns) / 1e9
        for host, answer in zip(hosts, answers, strict=True):
            if answer is not None:
                older = answer["age_s"] > age_s + OLDER_S
                self._totals.take_rows(
                    host.key,
                    answer["incarnation"],
                    _parts(answer),
                    older=older,
                    recovered=answer.get("recovered"),
                    lasting=answer.get("lasting"),
                )
        self._totals.keep({host.key for host in hosts})
        found = [answer for answer in answers if answer is not None]
        silent = [host for host, answer in zip(hosts, answers, strict=True) if answer is None]
        rows = totals.plus(self._totals.counter_rows(), totals.gauges([_parts(answer) for answer in found]))
        unknown = self._kinds_of(silent)
        types = {
            kind: totals.without_gauges(rows.get(kind, {})) if kind in unknown else rows.get(kind, {})
            for kind in ("queue", "topic")
        }
        self._destination_totals.keep(self._registry.where.__contains__)
        destinations = [
            self._destination_totals.take_row(host.key, answer["incarnation"], row)
            for host, answer in zip(hosts, answers, strict=True)
            if answer is not None
            for row in answer["destinations"]
        ]
        destinations.sort(key=lambda row: (row["name"], row["type"]))
        own = self._own(rows.get("host", {}), hosts, spares, len(silent) + len(self._registry.unasked))
        now_ns = self._clock.monotonic_ns()
        own["collection_seconds"] = (now_ns - began_ns) / 1e9
        snapshot = Snapshot(
            self.cluster,
            self.broker,
            totals.shown(own),
            {kind: totals.shown(row) for kind, row in types.items()},
            [totals.shown({**row, **self._more_of(row)}) for row in destinations[: self._most]],
        )
        self._cached = {key: value for key, value in self._cached.items() if now_ns - value[0] < self._cache_ns}
        self._cached[names] = (now_ns, snapshot)
        return snapshot

    def _more_of(self, row: Row) -> Row:
        return self._figures.of((row["type"], row["name"]))

    async def _query_host(self, host: HostPort, names: str | None) -> Row | None:
        try:
            return await asyncio.wait_for(host.figures.metrics(names), HOST_TIMEOUT_S)
        except (BrokerError, TimeoutError):
            return None

    async def counts(self) -> list[DestinationCount]:
        """What destinations hold and have counted, of the hosts that answer."""

        async def of(host: HostPort) -> list[DestinationCount]:
            try:
                return await asyncio.wait_for(host.figures.counts(), HOST_TIMEOUT_S)
            except (BrokerError, TimeoutError):
                return []

        return [row for rows in await asyncio.gather(*map(of, self._registry.hosts)) for row in rows]

    def _kinds_of(self, silent: list[HostPort]) -> set[str]:
        """Types of destinations on hosts that do not answer: what they hold is not known, and so no sum is."""
        if self._registry.unasked:
            return {"queue", "topic"}
        return {key[0] for key, host in self._registry.where.items() if host in silent} if silent else set()

    def _own(self, of_hosts: Row, hosts: list[HostPort], spares: list[HostPort], silent: int) -> Row:
        """The broker's own rows with those of its hosts."""
        kinds = [kind for kind, name in self._registry.where if not is_metrics_topic(name)]
        row: Row = {
            **({key: value for key, value in of_hosts.items() if key not in IN_STORES} if silent else of_hosts),
            "info": {(self._figures.facts.get("version", ""), PYTHON, self._figures.facts.get("ray", "")): 1},
            "start_time_seconds": self._start_ms / 1000,
            "clock_seconds": self._clock.now_ms() / 1000,
            "destinations": {kind: kinds.count(kind) for kind in ("queue", "topic")},
            "hosts": {kind: sum(host.hosting == kind for host in self._registry.hosts) for kind in HOSTINGS}
            | ({"spare": len(spares)} if spares else {}),
            "unreachable_hosts": silent,
        }
        for more in self._figures.rows:
            for key, value in more().items():
                row[key] = totals.plus(row.get(key, 0), value) if isinstance(value, dict) else value
        return row

    # ---- as verbs

    async def metrics(self, names: str | None = None) -> Listing:
        """The snapshot as a dict, for administrators: a row for this broker, in a list as all brokers have theirs."""
        found = (await self.snapshot(names))._asdict()
        own = dict(found["own"])
        own["info"] = dict(zip(("version", "python", "ray"), next(iter(own["info"])), strict=True))
        return Listing([{**found, "own": own}])


def _parts(answer: Row) -> totals.Rows:
    return {"host": answer["host"], **answer["types"]}
