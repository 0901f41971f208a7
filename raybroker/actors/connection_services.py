"""The connection services of a broker actor: on its loop, with hosts that are other processes of its machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

from raybroker.actors import runtime
from raybroker.actors.host_in_broker import HostsInBroker
from raybroker.broker.auditing import audit_of, security_directory
from raybroker.broker.opening_services import open_services
from raybroker.broker.outside import Asked, Hands
from raybroker.broker.remote_broker import Peers
from raybroker.broker.service_administration import ServiceAdministration
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.settings import ConfigView
from raybroker.services.connection_services import ConnectionServices
from raybroker.system.clock import SystemClock
from raybroker.wire.port_map import MAPPER

PATIENCE_S: Final = 30.0
"""How long a port may be taken: the broker's predecessor may not have ended yet."""
RETRY_S: Final = 1.0
ASK_TIMEOUT_S: Final = 2.0
"""How long another broker may take to say where its services are; clients learn of one that is slow with their next
login."""

log = logging.getLogger("raybroker.services")

BrokerDoors = dict[str, tuple[str, dict[str, int]]]
"""Broker → (address, service → port)."""


class Others(Protocol):
    """The other brokers that are up."""

    def live(self) -> list[str]: ...


class ServicesOfBroker:
    """``administration``: of the broker's services; ``hosts``: of the broker; ``beside``: the directory of the
    cluster's stores; ``given``: properties that the configuration sets; ``near``: hosts in this process."""

    def __init__(
        self, config: ConfigView, administration: ServiceAdministration, asked: Asked, peers: Peers, others: Others,
        *, hosts: Callable[[], Iterable[HostPort]], beside: Path, given: Callable[[], Row], near: HostsInBroker,
    ) -> None:  # fmt: skip
        self._config = config
        self._administration = administration
        self._hosts = hosts
        self._near = near
        self._asked = asked
        self._peers = peers
        self._others = others
        self._beside = beside
        self._given = given
        self._services: ConnectionServices | None = None

    async def run(self) -> None:
        """Open what the configuration asks for; a broker whose services cannot listen works without and says so."""
        clock = SystemClock()
        administration = self._administration
        administration.audit = audit_of(
            self._config, self._beside, administration.broker, lambda: clock.now_ms() / 1e3
        )
        administration.audit.record("start")
        if not self._config["imq.service.activelist"]:
            return
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                security = security_directory(self._config, self._beside)
                self._services = await open_services(
                    self._config, self._administration, self._asked, self._hosts, self._beside, given=self._given,
                    hand=Hands(security), doors=self._doors, clock=clock, near=self._near,
                )  # fmt: skip
                return
            except ConfigError as error:
                self._administration.failure = str(error)
                if asyncio.get_running_loop().time() > until_s or "no free port" not in str(error):
                    log.error("[B3004] broker %s has no connection services: %s", self._administration.broker, error)
                    return
            await asyncio.sleep(RETRY_S)

    def own(self) -> tuple[str, dict[str, int]]:
        """Where this broker's services and port mapper are."""
        if self._services is None:
            return "", {}
        address = self._config["raybroker.service.advertised"] or runtime.node_ip()
        ports = {name: listener.port for name, listener in self._services.listeners.items()}
        return address, {**ports, MAPPER: self._services.port}

    async def _doors(self) -> BrokerDoors:
        """Of all brokers that answer in time."""
        others = [name for name in self._others.live() if name != self._administration.broker]
        answers = await asyncio.gather(
            *(self._peers.ask(name, "doors", {}, timeout_s=ASK_TIMEOUT_S) for name in others), return_exceptions=True
        )
        found: BrokerDoors = {}
        for name, answer in zip(others, answers, strict=True):
            if isinstance(answer, BrokerError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            if answer[1]:
                found[name] = answer
        return found

    def close(self) -> None:
        if self._services is not None:
            self._services.close()
        self._administration.audit.record("stop")
        self._administration.audit.close()


class AskedActor:
    """A broker actor, as its own services ask it."""

    def __init__(self, actor: Any, exists: Callable[[str, str], bool]) -> None:
        self._actor = actor
        self.exists = exists

    async def placed(self, kind: str, name: str, create: bool, guest: bool) -> tuple[Any, str, Row]:
        found: tuple[Any, str, Row] = await self._actor.placed(kind, name, create, guest)
        return found

    async def ask(self, method: str, args: list[Any]) -> Any:
        return await getattr(self._actor, method)(*args)

    async def admin(self, verb: str, args: Row) -> Any:
        return await self._actor.carry_out(verb, args)
