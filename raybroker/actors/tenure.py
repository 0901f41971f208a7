"""The tenure of a broker that another one may take over: what it has in the database, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.hosts.host import DestinationHost
from raybroker.actors.standby.processes import StandbyProcesses
from raybroker.actors.stores.store_tables import shared_brokers
from raybroker.actors.successors import RaySuccessors
from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.broker.cluster.takeovers import StoreWatch
from raybroker.broker.ending import RESTARTING, RUNNING, Ending
from raybroker.engine.ports import Clock
from raybroker.model.errors import StoreError
from raybroker.model.settings.settings import ConfigView
from raybroker.model.shared_store import StoreState
from raybroker.store.catalogue import Catalogue
from raybroker.transport.daemon_calls import in_daemon_thread

EXIT_SUPERSEDED: Final = 5
"""Exit status of a broker whose messages are served elsewhere."""

log = logging.getLogger("raybroker.broker")


def no_takeovers() -> dict[str, Any]:
    """Return what metrics say where brokers share no store: counters are there from the start."""
    return {"takeovers_total": 0, "failed_takeovers_total": 0}


class Tenure:
    """One tenure of the broker with that specification.  Raises StoreError while the database cannot be reached; where
    the tenure is over, the process ends."""

    watch: StoreWatch
    standbys: StandbyProcesses

    def __init__(self, spec: BrokerSpec) -> None:
        self._spec = spec
        self._shared = shared_brokers(spec.config, Path(spec.directory).parent, spec.cluster)
        self._keeping = asyncio.Lock()
        """Held while the catalogue is written: a later one is not overtaken by an earlier."""
        self._ending: Callable[[], Ending]
        if self._shared.beat(spec.broker, spec.tenure) is None:
            self._end_process("its tenure was over before it started", ())

    # ---- the catalogue

    def catalogue(self, saved: Catalogue | None, made: Callable[[], Catalogue], token: bytes) -> Catalogue:
        """What the database has is right: another node may have changed it since this one ``saved`` it; ``made``: by
        the first tenure.  ``token``: for a directory that has none."""
        kept = self._shared.kept(self._spec.broker)
        if kept:
            return Catalogue.kept_elsewhere(saved.token if saved is not None else token, kept)
        found = saved if saved is not None else made()
        self._shared.keep(self._spec.broker, self._spec.tenure, found.kept())
        return found

    async def keep(self, catalogue: Catalogue) -> None:
        """Write it, for this node's successor.  Raises StoreError."""
        async with self._keeping:
            kept = await in_daemon_thread(self._shared.keep, self._spec.broker, self._spec.tenure, catalogue.kept())
        if not kept:
            raise StoreError(f"broker {self._spec.broker} was taken over, and changes nothing any more")

    # ---- life

    def begin(
        self,
        clustering: Clustering,
        config: ConfigView,
        clock: Clock,
        *,
        actor: type[Any],
        node: str,
        ending: Callable[[], Ending],
        hosts: Callable[[], Iterable[str]],
        whole: Callable[[], bool],
    ) -> None:
        """``actor``: the class of brokers; ``hosts``: names of those that are processes; ``whole``: all hosts serve."""
        self._ending = ending

        def state() -> StoreState | None:
            now = ending()
            if now.state == RUNNING:
                return StoreState.OPERATING if clustering.member.opened else None
            return StoreState.QUIESCE_COMPLETE if now.finishing else StoreState.QUIESCE_STARTED

        self.standbys = StandbyProcesses(
            self._spec,
            node,
            config,
            broker=actor,
            host=DestinationHost,
            serving=lambda: bool(clustering.member.opened) and whole() and ending().state == RUNNING,
        )
        self.watch = StoreWatch(
            clustering,
            self._shared,
            self._spec.tenure,
            config,
            clock,
            successors=RaySuccessors(actor, self._spec, node, config, self.standbys),
            state=state,
            superseded=lambda why: self._end_process(why, hosts()),
        )

    def figures(self) -> dict[str, Any]:
        """What metrics say of it."""
        counts = self.watch.counts
        return {
            "takeovers_total": counts.completed,
            "failed_takeovers_total": counts.failed,
            "shared_store_brokers": self.watch.states(),
            "standby_processes": self.standbys.ready(),
        }

    async def stopping(self) -> None:
        """The broker stops in order; one that is to be started again at once goes on to count as one that runs."""
        self.watch.close()
        await in_daemon_thread(self.standbys.end_all)
        if self._ending().state != RESTARTING:
            await self.watch.leave(StoreState.SHUTDOWN_STARTED)

    async def stopped(self) -> None:
        if self._ending().state != RESTARTING:
            await self.watch.leave(StoreState.BROKER_DOWN)

    def _end_process(self, why: str, hosts: Iterable[str]) -> None:
        """End the process and those of its hosts, which Ray does not start again."""
        spec = self._spec
        log.critical("[B3191] broker %s ends: %s", spec.broker, why)
        with contextlib.suppress(Exception):  # As below.
            self.standbys.end_all()
        names = [runtime.host_name(spec.cluster, spec.broker, host, spec.tenure) for host in hosts]
        for name in [*names, runtime.broker_name(spec.cluster, spec.broker, spec.tenure)]:
            with contextlib.suppress(Exception):  # Whatever Ray says to it, nothing is done here any more.
                runtime.kill(runtime.find_actor(name))
        os._exit(EXIT_SUPERSEDED)
