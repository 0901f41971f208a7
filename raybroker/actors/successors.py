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
from raybroker.actors.stores.shared_stores import hand_over
from raybroker.actors.stores.store_tables import shared_brokers
from raybroker.model.errors import BrokerError, RequestTimeoutError
from raybroker.model.settings.setting_table import IN_BROKER
from raybroker.model.settings.settings import ConfigView
from raybroker.store.catalogue import Catalogue
from raybroker.system import entropy
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
    """``actor``: the class of brokers; ``spec``: of the broker that takes over: others get its configuration."""

    def __init__(self, actor: type[Any], spec: BrokerSpec, node: str, config: ConfigView) -> None:
        self.node = node
        self._actor = actor
        self._spec = spec
        self._directory = Path(spec.directory).parent
        self._wait_s: int = config["imq.cluster.ha.takeoverWaitTimeout"]

    async def hand_over(self, broker: str, tenure: int) -> None:
        spec = self._spec
        await in_daemon_thread(hand_over, spec.config, self._directory / broker, spec.cluster, broker, tenure)

    async def start(self, broker: str, tenure: int, after: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        actor = await in_daemon_thread(self._start, broker, tenure, after)
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

    def _start(self, broker: str, tenure: int, after: int) -> Any:
        """Ray starts nothing again of what there was: it would only find that its time is over."""
        spec = self._spec
        for old in runtime.older_actors(spec.cluster, broker, tenure):
            runtime.kill(old)
        self._tidy(broker, tenure)
        directory = self._directory / f"{broker}@{tenure}"
        successor = replace(spec, broker=broker, directory=str(directory), tenure=tenure, after=after)
        kept = shared_brokers(spec.config, self._directory, spec.cluster).kept(broker)
        catalogue = Catalogue.kept_elsewhere(entropy.token(TOKEN_BYTES), kept) if kept else None
        if catalogue is not None:
            catalogue.save(directory)
        name = runtime.broker_name(spec.cluster, broker, tenure)
        actor = runtime.create_actor(self._actor, successor, name=name, node=self.node)
        if catalogue is not None:
            self._start_hosts(successor, catalogue)
        return actor

    def _start_hosts(self, spec: BrokerSpec, catalogue: Catalogue) -> None:
        """Start its hosts beside the broker, which finds them then: each process takes its time to start."""
        processes = [host for host, hosting in catalogue.hosts.items() if hosting != IN_BROKER]
        for host in processes[:HOSTS_MAX]:
            made = spec.of_host(host, catalogue.hosts[host], catalogue.token)
            name = runtime.host_name(spec.cluster, spec.broker, host, spec.tenure)
            runtime.create_actor(DestinationHost, made, name=name, node=self.node)

    def _tidy(self, broker: str, tenure: int) -> None:
        """Remove what tenures long ago have left on this node: logs, and copies of what the database has."""
        numbered = {path: path.name.partition("@")[2] for path in self._directory.glob(f"{broker}@*")}
        old = sorted((int(number), path) for path, number in numbered.items() if number.isdigit())
        for path in [path for number, path in old if number < tenure][:-KEPT]:
            shutil.rmtree(path, onerror=partial(_stays, path))


def _stays(path: Path, *_: object) -> None:
    log.warning("not all of %s, which an earlier tenure has left, could be removed", path)
