"""The connection services of a broker actor: on its loop, with hosts that are other processes of its machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from raybroker.broker.cluster_broker import REDEEM
from raybroker.broker.remote_broker import RemotePeers
from raybroker.broker.services.auditing import security_directory
from raybroker.broker.services.opening_services import Opening, open_services
from raybroker.broker.services.outside import Asked, Outside, SocketHands
from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError
from raybroker.model.listing import DestinationCount, DestinationCounts
from raybroker.model.settings.setting_services import PORT_MAPPER, SERVICES, address_property
from raybroker.model.settings.settings import ConfigView
from raybroker.services.listening.arrivals import RUNNING
from raybroker.services.listening.connection_services import ALL_ADDRESSES, ConnectionServices
from raybroker.store.record import RecordFile
from raybroker.system.clock import SystemClock
from raybroker.wire.port_map import MAPPER

if TYPE_CHECKING:
    from raybroker.services.gateways.gateway import Near

FIRST_TRY_S: Final = 10.0
"""How long whoever asks waits until services have been opened for the first time, or could not be."""
ASK_TIMEOUT_S: Final = 2.0
"""How long another broker may take to say where its services are; clients learn of one that is slow with their next
login."""

BrokerDoors = dict[str, tuple[str, dict[str, int]]]
"""Broker → (address, service → port)."""
OwnDoors = tuple[str, str, dict[str, int], str]
"""(address for clients, address that the service SERVICE listens at, service → port, address of the node)."""
TAKING: Final = "taking"
"""What brokers ask each other: see ServicesOfBroker.taking."""
SERVICE: Final = "jms"
"""Gateways of other brokers come in by it, as clients from outside do."""
MADE: Final = "made-by-users"
"""The file of what users have made."""


PORTS: Final = frozenset({PORT_MAPPER, *(address_property(name, "port") for name in SERVICES)})


class FreePorts:
    """A configuration for a broker beside another one of its machine: its services, and its port mapper, take any free
    port, and clients learn of these from the other brokers."""

    def __init__(self, config: ConfigView) -> None:
        self._config = config

    def __getitem__(self, name: str, /) -> Any:
        return 0 if name in PORTS else self._config[name]


class Others(Protocol):
    """The other brokers that are up."""

    def live(self) -> list[str]: ...


class ServicesOfBroker:
    """``administration``: of the broker's services; ``near``: hosts in this process, on whose loop gateways work;
    ``node_ip()``: the address of this node; ``own``: the broker's own directory, in that of the cluster's stores."""

    def __init__(
        self,
        config: ConfigView,
        administration: ServiceAdministration,
        asked: Asked,
        peers: RemotePeers,
        others: Others,
        *,
        near: Near | None,
        node_ip: Callable[[], str],
        own: Path,
    ) -> None:
        self._config = config
        self._administration = administration
        self._near = near
        self._asked = asked
        self._peers = peers
        self._others = others
        self._node_ip = node_ip
        self._own = own
        self._beside = own.parent
        self._services: ConnectionServices | None = None
        self._opening = Opening(administration.broker, self._open, self._failed)

    async def run(self) -> None:
        """Open what the configuration asks for, see Opening."""
        self._administration.audit.record("start")
        if not self._config["imq.service.activelist"]:
            return
        await self._opening.run()

    async def _open(self) -> None:
        security = security_directory(self._config, self._beside)
        self._services = await open_services(
            self._config,
            self._administration,
            Outside(self._asked, SocketHands(security, self._asked.hosts), self._doors, self._vouched),
            self._beside,
            clock=SystemClock(),
            near=self._near,
            made=RecordFile(self._own / MADE),
            counts=self._counts,
        )

    def _failed(self, why: str) -> None:
        self._administration.failure = why

    async def failure(self) -> str:
        """Why the services that the configuration asks for do not listen, once that is known; "" when they do."""
        if self._config["imq.service.activelist"]:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opening.tried.wait(), FIRST_TRY_S)
        return self._administration.failure

    def consoles(self) -> list[str]:
        """Return where browsers find the console of this broker."""
        return [] if self._services is None else list(self._services.consoles().values())

    def own(self) -> OwnDoors:
        """Return where this broker's services and port mapper are; without ports where it has none."""
        if self._services is None:
            return "", "", {}, self._node_ip()
        ports = {name: listener.port for name, listener in self._services.listeners.items()}
        ports[MAPPER] = self._services.port
        return self._advertised(), self._listens_at(address_property(SERVICE, "hostname")), ports, self._node_ip()

    def taking(self) -> tuple[str, dict[str, int]]:
        """Return the address of this broker's services for clients outside, and the ports of those that take new ones
        now."""
        listeners = self._services.listeners if self._services is not None else {}
        return self._advertised(), {name: one.port for name, one in listeners.items() if one.state == RUNNING}

    def _advertised(self) -> str:
        return self._config["raybroker.service.advertised"] or self._listens_at("imq.portmapper.hostname")

    def _listens_at(self, own: str) -> str:
        """Return the address by the property of one service, or by that of all of them: all addresses of a machine have
        one in the Ray cluster."""
        named = self._config[own] or self._config["imq.hostname"]
        return self._node_ip() if named in ALL_ADDRESSES else named

    async def _told(self, method: str = "doors") -> dict[str, Any]:
        """Return what the other brokers say that answer in time; by default an OwnDoors of each."""
        others = [name for name in self._others.live() if name != self._administration.broker]
        answers = await asyncio.gather(
            *(self._peers.call_broker(name, method, {}, timeout_s=ASK_TIMEOUT_S) for name in others),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, BrokerError):
                raise answer
        return {
            name: answer for name, answer in zip(others, answers, strict=True) if not isinstance(answer, BaseException)
        }

    async def _vouched(self, broker: str, args: Row) -> str:
        return str(await self._peers.call_broker(broker, REDEEM, args, timeout_s=ASK_TIMEOUT_S))

    async def _counts(self) -> DestinationCounts:
        return {self._administration.broker: await self._asked.counts(), **await self._told("counts")}

    async def elsewhere(self) -> dict[str, str]:
        """The other brokers that run on other machines → the address of that."""
        own = self._node_ip()
        return {name: node for name, (_, _, _, node) in (await self._told()).items() if node != own}

    async def _doors(self, *, inside: bool, taking: bool = False) -> BrokerDoors:
        if taking:
            return {name: (address, ports) for name, (address, ports) in (await self._told(TAKING)).items() if ports}
        found: BrokerDoors = {}
        for name, (advertised, listens_at, ports, _) in (await self._told()).items():
            if inside and SERVICE in ports:
                found[name] = listens_at, {SERVICE: ports[SERVICE]}
            elif ports and not inside:
                found[name] = advertised, ports
        return found

    def close(self) -> None:
        if self._services is not None:
            self._services.close()
        self._administration.audit.record("stop")
        self._administration.audit.close()


class AskedActor:
    """A broker actor, as its own services ask it, see ``Asked``."""

    def __init__(
        self,
        actor: Any,
        *,
        exists: Callable[[str, str], bool],
        hosts: Callable[[], Iterable[HostPort]],
        given: Callable[[], Row],
        whole: Callable[[], bool],
        counts: Callable[[], Coroutine[Any, Any, list[DestinationCount]]],
    ) -> None:
        self._actor = actor
        self.exists = exists
        self.hosts = hosts
        self.given = given
        self.whole = whole
        self.counts = counts

    async def placed(self, kind: str, name: str, create: bool, guest: bool) -> tuple[Any, str, Row]:
        found: tuple[Any, str, Row] = await self._actor.placed(kind, name, create, guest)
        return found

    async def answer_service(self, method: str, args: list[Any]) -> Any:
        return await getattr(self._actor, method)(*args)

    async def admin(self, verb: str, args: Row) -> Any:
        return await self._actor.carry_out(verb, args)
