"""The broker actor: a shell around services.broker, with hosts that are actors.

Survives a crash: the list of hosts and the cluster's token, from the catalogue; what each host serves is asked of the
host.  Hosts are detached actors, so messages flow on while a broker restarts.  A failed call means that the change may
or may not have been made; all calls may be repeated.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybroker.actors import runtime
from raybroker.actors.host import DestinationHost, HostSpec
from raybroker.config import Config
from raybroker.model.errors import BrokerError
from raybroker.services.broker import Broker, HostPort
from raybroker.store.catalogue import Catalogue
from raybroker.system import entropy
from raybroker.wire.native import TOKEN_BYTES


@dataclass(frozen=True)
class BrokerSpec:
    """What a broker needs to start again."""

    cluster: str
    broker: str
    directory: str
    config: Config


class RemoteHost:
    """A host actor, as services.broker sees it."""

    def __init__(self, actor: Any, spec: HostSpec) -> None:
        self.actor = actor
        self.spec = spec

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def hosting(self) -> str:
        return self.spec.hosting

    async def where(self) -> tuple[str, int, int]:
        found: tuple[str, int, int] = await runtime.call(self.actor.where)
        return found

    async def create(self, name: str, attributes: dict[str, Any], auto_created: bool) -> None:
        await runtime.call(self.actor.create, name, attributes, auto_created)

    async def update(self, name: str, changes: dict[str, Any]) -> None:
        await runtime.call(self.actor.update, name, changes)

    async def destroy(self, name: str) -> None:
        await runtime.call(self.actor.destroy, name)

    async def purge(self, name: str) -> None:
        await runtime.call(self.actor.purge, name)

    async def query(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await runtime.call(self.actor.query, name)
        return found

    async def names(self) -> dict[str, bool]:
        found: dict[str, bool] = await runtime.call(self.actor.names)
        return found

    async def consumers(self, name: str | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await runtime.call(self.actor.consumers, name)
        return found

    async def state(self) -> dict[str, Any]:
        found: dict[str, Any] = await runtime.call(self.actor.state)
        return found


class BrokerActor:
    """See the module."""

    def __init__(self, spec: BrokerSpec) -> None:
        self._spec = spec
        self._directory = Path(spec.directory)
        saved = Catalogue.load(self._directory)
        if saved is None:
            saved = Catalogue(entropy.token(TOKEN_BYTES))
            saved.save(self._directory)
        self._catalogue = saved
        self._node = runtime.node_id()
        self._broker = Broker(spec.config, make_host=self._make_host, drop_host=self._drop_host)
        self._adopted = False
        self._adopting = asyncio.Lock()

    async def _ready(self) -> Broker:
        """Adopt the hosts that the catalogue names, once; those that cannot be reached now are tried again."""
        if self._adopted and not self._broker.unasked:
            return self._broker
        async with self._adopting:
            if not self._adopted:
                self._broker.unasked = dict(self._catalogue.hosts)
            for host, hosting in list(self._broker.unasked.items()):
                try:
                    await self._broker.adopt(self._host(host, hosting))
                except BrokerError:
                    continue
                del self._broker.unasked[host]
            self._adopted = True
        return self._broker

    def _host(self, host: str, hosting: str) -> RemoteHost:
        spec = self._spec
        host_spec = HostSpec(
            spec.cluster, spec.broker, host, hosting, str(self._directory / "hosts" / host), self._catalogue.token,
            spec.config,
        )  # fmt: skip
        name = runtime.host_name(spec.cluster, spec.broker, host)
        return RemoteHost(runtime.create_actor(DestinationHost, host_spec, name=name, node=self._node), host_spec)

    async def _make_host(self, hosting: str) -> HostPort:
        host = f"h{self._catalogue.next_id}"
        self._catalogue.next_id += 1
        self._catalogue.hosts[host] = hosting
        await asyncio.to_thread(self._catalogue.save, self._directory)
        made = await asyncio.to_thread(self._host, host, hosting)
        await made.where()
        return made

    async def _drop_host(self, host: HostPort) -> None:
        assert isinstance(host, RemoteHost)
        await runtime.call(host.actor.stop)
        await asyncio.to_thread(runtime.kill, host.actor)
        self._catalogue.hosts.pop(host.spec.host, None)
        await asyncio.to_thread(self._catalogue.save, self._directory)
        await asyncio.to_thread(shutil.rmtree, host.spec.directory, ignore_errors=True)

    # ---- what clients ask ------------------------------------------------------------------------------------------

    async def locate(self, kind: str, name: str, create: bool) -> tuple[str, str, int, bytes]:
        """(key, ip, port, token) of the host that serves a destination."""
        broker = await self._ready()
        host = await broker.locate(kind, name, create)
        assert isinstance(host, RemoteHost)
        ip, port, _ = await host.where()
        return host.key, ip, port, self._catalogue.token

    async def settings(self) -> dict[str, Any]:
        """What was configured for clients of this cluster."""
        return {name: value for name, value, _ in self._spec.config.given}

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        broker = await self._ready()
        return await broker.admin(verb, args)

    async def explain(self) -> list[tuple[str, Any, str]]:
        """Each property with its value and where it came from."""
        return [(str(name), value, str(origin)) for name, value, origin in self._spec.config.explain()]

    async def forget(self, name: str) -> None:
        self._broker.forget(name)

    async def ready(self) -> dict[str, Any]:
        """Wait until every host that can be reached serves; then who we are."""
        await self._ready()
        return {"broker": self._spec.broker, "cluster": self._spec.cluster, "pid": os.getpid()}

    async def pids(self) -> dict[str, int]:
        """Process ids of the broker and its hosts, for tests and operators."""
        found = {"broker": os.getpid()}
        for host, hosting in self._catalogue.hosts.items():
            remote = self._host(host, hosting)
            found[host] = (await remote.where())[2]
        return found

    async def stop(self) -> None:
        """Stop every host cleanly; the caller then ends this actor."""
        for host, hosting in list(self._catalogue.hosts.items()):
            remote = self._host(host, hosting)
            try:
                await runtime.call(remote.actor.stop)
            except BrokerError:
                continue
            finally:
                await asyncio.to_thread(runtime.kill, remote.actor)
