"""Brokers that are started in place of lost ones, on the node of the broker that takes them over."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.hosts.host import DestinationHost
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.actors.standby.processes import Standby, StandbyProcesses
from raybroker.actors.stores.shared_stores import hand_over
from raybroker.actors.stores.store_tables import shared_brokers
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerError, RequestTimeoutError
from raybroker.model.settings.setting_table import IN_BROKER
from raybroker.model.settings.settings import ConfigView
from raybroker.store.catalogue import Catalogue
from raybroker.system import entropy
from raybroker.system.supervision import Supervisor
from raybroker.transport.daemon_calls import in_daemon_thread
from raybroker.wire.native.connection import TOKEN_BYTES

LOOK_S: Final = 0.05
"""How often a broker that starts is asked whether it takes clients."""
HOSTS_MAX: Final = 8
"""Hosts that are started beside their broker; it starts the others itself, some at a time."""
KEPT: Final = 2
"""Directories of earlier tenures that stay on a node, with their logs."""

log = logging.getLogger("raybroker.cluster")


class RaySuccessors:
    """``actor``: the class of brokers; ``spec``: of the broker that takes over, whose configuration others get;
    ``standbys``: processes that it has ready."""

    def __init__(
        self, actor: type[Any], spec: BrokerSpec, node: str, config: ConfigView, standbys: StandbyProcesses
    ) -> None:
        self.node = node
        self._actor = actor
        self._spec = spec
        self._directory = Path(spec.directory).parent
        self._wait_s: int = config["imq.cluster.ha.takeoverWaitTimeout"]
        self._standbys = standbys
        self._loops = Supervisor(f"what broker {spec.broker} takes over")

    async def hand_over(self, broker: str, tenure: int) -> None:
        spec = self._spec
        await in_daemon_thread(hand_over, spec.config, self._directory / broker, spec.cluster, broker, tenure)

    def standing_by(self) -> Row:
        return {f"standby_{kind}s": count for kind, count in self._standbys.ready().items()}

    async def start(self, broker: str, tenure: int, after: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        actor = await self._begin_broker(broker, tenure, after)
        why = "it does not answer"
        while loop.time() < until_s:
            try:
                row = await runtime.call(actor.ready, timeout_s=max(until_s - loop.time(), LOOK_S))
                if row["operating"]:
                    return
                why = str(row["refusal"] or row["state"])
            except BrokerError as error:
                why = str(error)
            await asyncio.sleep(LOOK_S)
        raise RequestTimeoutError(
            f"it takes no clients {self._wait_s} s after its start (imq.cluster.ha.takeoverWaitTimeout): {why}"
        )

    async def _begin_broker(self, broker: str, tenure: int, after: int) -> Any:
        """The actor of the broker, with its hosts beside it: standby processes, as far as there are any."""
        spec, hosts = await in_daemon_thread(self._prepare, broker, tenure, after)
        for host in hosts:
            standby = await self._standbys.take_host(host)
            self._loops.once(f"the start of host {host.key}", self._begin_host(host, standby))
        actor = await self._standbys.become_broker(spec)
        if actor is None:
            name = runtime.broker_name(spec.cluster, broker, tenure)
            actor = await in_daemon_thread(partial(runtime.create_actor, self._actor, spec, name=name, node=self.node))
        return actor

    def _prepare(self, broker: str, tenure: int, after: int) -> tuple[BrokerSpec, list[HostSpec]]:
        """Say what is started: the broker, and the hosts beside it, which it finds then.  What there was is ended: it
        would only find that its time is over."""
        spec = self._spec
        runtime.end_older(spec.cluster, broker, tenure)
        self._tidy(broker, tenure)
        directory = self._directory / f"{broker}@{tenure}"
        successor = replace(spec, broker=broker, directory=str(directory), tenure=tenure, after=after, moved=True)
        kept = shared_brokers(spec.config, self._directory, spec.cluster).kept(broker)
        if not kept:
            return successor, []
        catalogue = Catalogue.kept_elsewhere(entropy.token(TOKEN_BYTES), kept)
        catalogue.save(directory)
        processes = [host for host, hosting in catalogue.hosts.items() if hosting != IN_BROKER][:HOSTS_MAX]
        return successor, [successor.of_host(host, catalogue.hosts[host], catalogue.token) for host in processes]

    async def _begin_host(self, host: HostSpec, standby: Standby | None) -> None:
        if standby is None or not await self._standbys.become_host(standby, host):
            name = runtime.host_name(host.cluster, host.broker, host.host, host.tenure)
            make = partial(runtime.create_actor, DestinationHost, host, name=name, node=self.node)
            await in_daemon_thread(make)

    def _tidy(self, broker: str, tenure: int) -> None:
        """Remove what tenures long ago have left on this node: logs, and copies of what the database has."""
        numbered = {path: path.name.partition("@")[2] for path in self._directory.glob(f"{broker}@*")}
        old = sorted((int(number), path) for path, number in numbered.items() if number.isdigit())
        for path in [path for number, path in old if number < tenure][:-KEPT]:
            shutil.rmtree(path, onerror=partial(_stays, path))


def _stays(path: Path, *_: object) -> None:
    log.warning("not all of %s, which an earlier tenure has left, could be removed", path)
