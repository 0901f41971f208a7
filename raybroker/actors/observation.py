"""Observation of a broker from outside: the endpoint for Prometheus, and figures that only the actor knows."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from raybroker.actors import runtime
from raybroker.actors.broker_peers import RayPaths
from raybroker.broker.broker import Broker
from raybroker.broker.cluster_broker import ClusterBroker
from raybroker.broker.remote_broker import RemotePeers
from raybroker.broker.services.auditing import security_directory
from raybroker.hosting.host_memory import memory_limit
from raybroker.logs.channels import Log, directory_of
from raybroker.metrics import process
from raybroker.metrics.discovery import target_groups
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import BrokerError
from raybroker.security.tls import ServerTls
from raybroker.services.metrics.metrics_access import metrics_access
from raybroker.services.metrics.metrics_http import MetricsEndpoint
from raybroker.system.clock import SystemClock

LEARN_S: Final = 5.0
"""How often a broker asks where the endpoints of the others are, and the path service for its units."""
COLLECT_TURNS: Final = 3
"""Turns of that after which hosts are asked although nobody scrapes: what a host counted that then dies is not lost."""
LOOK_TIMEOUT_S: Final = 8.0
"""How long checks of health may take: longer than the bounds of each."""
ASK_TIMEOUT_S: Final = 10.0
"""How long a scrape waits for the broker; Prometheus gives up after 10 s by default."""

log = logging.getLogger("raybroker.metrics")


class Observing:
    """Made with the broker actor, on its loop."""

    def __init__(
        self,
        cluster: str,
        directory: Path,
        local: Broker,
        clustered: ClusterBroker,
        peers: RemotePeers,
        paths: RayPaths,
    ) -> None:
        self._directory = directory
        self._local = local
        self._clustered = clustered
        self._peers = peers
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._others: dict[str, str] = {}
        self._path_units: dict[str, int] = {}
        self._endpoint = MetricsEndpoint(self._take_snapshot, self.targets, look=self._run_probe)
        get = local.config.__getitem__
        where = directory_of(get, directory, local.name)
        self.log = Log(get, where, {"cluster": cluster, "broker": local.name})
        self.cluster = cluster

    def start(self) -> None:
        """Log and listen; a broker whose endpoint cannot listen works without and says so."""
        self.log.start()
        config = self._local.config
        log.info("broker %s of cluster %s starts", self._local.name, self.cluster)
        if not config["raybroker.metrics.enabled"]:
            return
        try:
            clock = SystemClock()
            directory = security_directory(config, self._directory.parent)
            self._endpoint.bound(config)
            self._endpoint.admit(metrics_access(config, directory, lambda: clock.monotonic_ns() / 1e9))
            ip = config["raybroker.metrics.address"] or runtime.node_ip()
            tls = ServerTls.from_config(config, directory, clients=False) if config["raybroker.metrics.tls"] else None
            url = self._endpoint.start(ip, config["raybroker.metrics.ports"], None if tls is None else tls.context)
            self._local.publishing.address = ip, urlsplit(url).port or 0
        except (BrokerError, OSError) as error:
            log.error("broker %s has no metrics endpoint: %s", self._local.name, error)

    @property
    def url(self) -> str:
        """The URL of /metrics; "" without an endpoint."""
        return self._endpoint.url

    def stop(self) -> None:
        log.info("broker %s of cluster %s stops", self._local.name, self.cluster)
        self._endpoint.stop()

    def log_of(self, host: str) -> Path:
        """The file that a host of this broker writes its log to."""
        get = self._local.config.__getitem__
        return directory_of(get, self._directory, self._local.name, host) / str(get("imq.log.file.filename"))

    def dropped(self, host: str) -> None:
        """A host is gone with its last destination, and its log with it; blocks."""
        shutil.rmtree(self.log.directory / host, ignore_errors=True)

    # ---- what others tell

    async def learn(self) -> None:
        """Keep what is asked of others; runs as long as the broker."""
        turn = 0
        while True:
            try:
                if turn % COLLECT_TURNS == 0:
                    await self._local.measuring.snapshot()
                turn += 1
                await self._learn_once()
            except BrokerError as error:
                log.info("not all brokers could be asked for their endpoints: %s", error)
            await asyncio.sleep(LEARN_S)

    async def _learn_once(self) -> None:
        """Return the addresses of those that answer now; one that is down keeps its last address, so that its scrapes
        fail and are seen."""
        clustered = self._clustered
        if clustered.coordinator == clustered.name:
            row = await self._paths.row_if_running()
            self._path_units = dict(row.get("members", {}))
        else:
            self._path_units = {}
        for name in clustered.live():
            if name != clustered.name:
                self._others[name] = str(await self._peers.call_broker(name, "metrics_url", {}, timeout_s=LEARN_S))
        known = set(clustered.clustering.member.membership)
        self._others = {name: url for name, url in self._others.items() if name in known}

    def targets(self) -> list[dict[str, Any]]:
        """Return the targets for Prometheus' service discovery: one group a broker that has an endpoint."""
        return target_groups(self.cluster, {self._local.name: self.url, **self._others})

    # ---- what is told

    def _take_snapshot(self, names: str | None) -> Snapshot:
        """Take a snapshot, for a thread of the endpoint."""
        work = asyncio.run_coroutine_threadsafe(self._local.measuring.snapshot(names), self._loop)
        try:
            return work.result(ASK_TIMEOUT_S)
        except TimeoutError:
            work.cancel()
            raise

    def _run_probe(self, name: str) -> list[dict[str, Any]]:
        """Run a probe, for a thread of the endpoint."""
        health, clustered = self._local.health, self._clustered
        looks: dict[str, Callable[[], Coroutine[Any, Any, list[dict[str, Any]]]]] = {
            "live": health.live,
            "ready": health.ready,
            "broker": health.check_broker,
            "services": health.check_services,
            "cluster": clustered.health.check_cluster,
        }
        work = asyncio.run_coroutine_threadsafe(looks[name](), self._loop)
        try:
            return work.result(LOOK_TIMEOUT_S)
        except TimeoutError:
            work.cancel()
            raise

    def broker_row(self) -> dict[str, Any]:
        """What the broker's process and its place in the cluster add to its metrics."""
        member = self._clustered.clustering.member
        states = {"UP": 0, "SUSPECT": 0, "DOWN": 0}
        for row in member.membership.broker_rows():
            if row.state != "LEFT":
                states[row.state if row.state in states else "DOWN"] += 1
        return {
            **process.row("broker", memory_limit(self._local.config)),
            "brokers": states,
            "log_records_total": dict(self.log.counts),
            "master": int(member.is_master),
            "seat": int(self._clustered.coordinator == self._clustered.name),
            "operating": int(bool(member.opened)),
            "record_entries_total": member.record.number,
            "path_units": self._path_units,
            "path_requests_total": self._paths.requests,
        }
