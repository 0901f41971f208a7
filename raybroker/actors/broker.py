"""The broker actor: a shell around services.broker, with hosts that are actors.

Survives a crash: the list of hosts, the cluster's token and the templates, from the catalogue; what each host serves
is asked of the host.  Hosts are detached actors, so messages flow on while a broker restarts.  A failed call means that
the change may or may not have been made; all calls may be repeated, but an import of messages then makes duplicates.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.host import DestinationHost, HostSpec
from raybroker.actors.remote import RemoteHost
from raybroker.config import Config
from raybroker.model.errors import BrokerError
from raybroker.services.broker import Broker, HostPort
from raybroker.store.catalogue import Catalogue
from raybroker.system import entropy
from raybroker.wire.native import TOKEN_BYTES

SWEEP_S: Final = 2.0
"""How often the broker looks for transactions that dead clients left open."""

log = logging.getLogger("raybroker.broker")


@dataclass(frozen=True)
class BrokerSpec:
    """What a broker needs to start again."""

    cluster: str
    broker: str
    directory: str
    config: Config


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
        self._broker = Broker(
            spec.config,
            make_host=self._make_host,
            drop_host=self._drop_host,
            templates=saved.templates,
            save_templates=self._save_templates,
        )
        self._adopted = False
        self._adopting = asyncio.Lock()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

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
            try:
                await self._broker.ready()
            except BrokerError as error:
                log.warning("broker %s has no mq.sys.dmq yet: %s", self._spec.broker, error)
        return self._broker

    async def _sweep(self) -> None:
        """Settle what dead clients left open, for as long as the broker lives, also when nobody calls it."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                broker = await self._ready()
                await broker.ready()
                await broker.resolve()
            except Exception:  # the next sweep may fare better, and without sweeps nothing is settled
                log.exception("broker %s could not look for open transactions", self._spec.broker)

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

    async def _save_templates(self, templates: dict[str, dict[str, Any]]) -> None:
        before, self._catalogue.templates = self._catalogue.templates, templates
        try:
            await asyncio.to_thread(self._catalogue.save, self._directory)
        except BrokerError:
            self._catalogue.templates = before
            raise

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

    async def create_temporary(self, kind: str, owner: str) -> str:
        """The name of a new destination that lives as long as the client connection ``owner`` (D-23)."""
        return await (await self._ready()).create_temporary(kind, owner)

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        await (await self._ready()).destroy_temporary(kind, name, owner)

    async def subscribe(self, args: dict[str, Any]) -> None:
        """Before a subscription is opened; see services.subscriptions (D-27)."""
        await (await self._ready()).subscribe(**args)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        await (await self._ready()).unsubscribe(client_id, name)

    async def matching(self, pattern: str) -> tuple[int, list[str]]:
        """Version and names of the topics that match (D-05)."""
        return await (await self._ready()).matching(pattern)

    async def changed(self, version: int, timeout_s: float) -> int:
        """Wait for another version, for a bounded time (D-05)."""
        return await (await self._ready()).changed(version, timeout_s)

    async def settings(self) -> dict[str, Any]:
        """What was configured for clients of this cluster."""
        return {name: value for name, value, _ in self._spec.config.given}

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        broker = await self._ready()
        return await broker.admin(verb, args)

    async def explain(self) -> list[tuple[str, Any, str]]:
        """Each property with its value and where it came from."""
        return [(str(name), value, str(origin)) for name, value, origin in self._spec.config.explain()]

    async def forget(self, type: str, name: str) -> None:  # noqa: A002 - as everywhere
        """A host has removed a destination by itself."""
        self._broker.forget(type, name)

    async def forward(self, type: str, name: str, block: bytes) -> None:  # noqa: A002
        """A host's messages for a destination of another host; raises unless they are stored there."""
        await (await self._ready()).forward(type, name, block)

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
        self._sweeper.cancel()
        for host, hosting in list(self._catalogue.hosts.items()):
            remote = self._host(host, hosting)
            try:
                await runtime.call(remote.actor.stop)
            except BrokerError:
                continue
            finally:
                await asyncio.to_thread(runtime.kill, remote.actor)
