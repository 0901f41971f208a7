"""The brokers of a cluster for a program outside of it: asked through their connection services.

One control connection for each broker that is asked, opened when it is needed; it logs in once. Sockets to hosts go to
the port of the same service, where their preamble says which host they are for.

Where the services of the other brokers are is told with each login. A broker that was restarted may be elsewhere then,
and one that came later was not named: when a broker cannot be reached where it was, the others are asked again.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from raybroker.client.cluster.directory import LED_BY, DestinationPlace
from raybroker.client.connection.channel import Channel, Observer
from raybroker.client.ways.logging_in import Credentials, VouchedFor
from raybroker.client.ways.service_address import ServiceAddress
from raybroker.client.ways.sockets import Connect, direct
from raybroker.client.ways.target import CONNECT_TIMEOUT_S, Target
from raybroker.model.errors import (
    BrokerError,
    BrokerGoneError,
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    InvalidClientIDError,
    NoClusterError,
    NotSupportedError,
    ProtocolError,
    RequestTimeoutError,
    ResourceAllocationError,
    SecurityError,
    ServiceClosedError,
)
from raybroker.model.listing import listed
from raybroker.system.entropy import token as random_bytes
from raybroker.system.interpreter import PLATFORM
from raybroker.transport.direct import DirectSockets
from raybroker.transport.link import Link
from raybroker.wire.native.connection import TOKEN_BYTES, preface
from raybroker.wire.native.long_answers import PIECE, whole
from raybroker.wire.native.preamble import preamble
from raybroker.wire.port_map import MAPPER

LOGIN_TIMEOUT_S: Final = 30.0
"""The proof of a password takes some tenths of a second, and more on a busy machine."""
INSTANCE_BYTES: Final = 8
CALL_TIMEOUT_S: Final = 90.0
"""Longer than the broker waits for anything."""
TOLD_TIMEOUT_S: Final = 5.0
"""A broker asks the others before it tells where their services are, and waits for each of them for two seconds."""


DialKey = Callable[[str, Callable[[], Link]], Awaitable[object]]
"""Connects the link that the factory makes to the host with this key, or to the control side for ""."""


class ServiceWay(NamedTuple):
    """How a service is reached. ``shown``: where it is, for messages; ``hint``: why it may end a connection at once."""

    shown: str
    dial: DialKey
    hint: str = ""


Reach = Callable[[ServiceAddress], Awaitable[ServiceWay]]
"""Finds the way to a service; raises OSError, TimeoutError and BrokerError."""


class _Control:
    """A control connection that has logged in. ``way``: to its service, where sockets to hosts go too."""

    def __init__(self, channel: Channel, way: ServiceWay, told: dict[str, Any]) -> None:
        self.channel = channel
        self.way = way
        self.told = told


class ServiceCalls:
    """``addresses``: those to try, in this order. On the IO loop, but for the constructor.

    reach     the way to a service
    observer  is told how control connections end; ``first`` is the one that has logged in first
    client    what the client is, for listings of connections; None: a program of this Python
    unrestricted  other connections may have its client id (ClientIdPolicy)
    elsewhere  of a gateway's client: a service that takes no new clients lets it in, to be told where else it is taken
    """

    outside = True

    def __init__(
        self,
        addresses: Sequence[ServiceAddress],
        credentials: Credentials,
        *,
        client_id: str | None = None,
        reach: Reach | None = None,
        observer: Observer | None = None,
        client: str | None = None,
        unrestricted: bool = False,
        elsewhere: bool = False,
    ) -> None:
        self.addresses = tuple(addresses)
        self._credentials = credentials
        self._reach = reach or way_to
        self._observer = observer
        self.first: Channel | None = None
        self._home = ""
        self._client = {"platform": client or PLATFORM, **({"elsewhere": "true"} if elsewhere else {})}
        if client_id:  # It logs in again after an end, with the same instance.
            self._client |= {"client_id": client_id, "instance": random_bytes(INSTANCE_BYTES).hex()}
            self._client |= {"unrestricted": "true"} if unrestricted else {}
        self._controls: dict[str, _Control] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One a broker: who asks one that answers does not wait for another one."""
        self._doors: dict[str, ServiceAddress] = {}
        """Broker → where it is asked for its service: a broker that was restarted may have other ports."""
        self._named: set[str] = set()
        """Brokers that are where the application has said: it may know a better way than the brokers do."""
        self._service = addresses[0].service
        self._sockets: DirectSockets | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"ServiceCalls({', '.join(map(str, self.addresses))})"

    @property
    def client_id(self) -> str | None:
        """What brokers are told where it logs in."""
        return self._client.get("client_id")

    def serve_directly(self, sockets: DirectSockets) -> None:
        """Allow threads that wait to serve control connections."""
        self._sockets = sockets
        for control in self._controls.values():
            control.channel.link.serve_directly(sockets)

    async def log_in(self) -> str:
        """Log in at the first address that answers; the name of the broker there.

        Raises NoClusterError when none answers, what one has said that takes no clients now, RequestTimeoutError when
        one was too slow, and SecurityError or ConfigError at once: with the next broker it would be the same.
        """
        faults: list[str] = []
        refused: BrokerError | None = None
        slow = False
        for address in self.addresses:
            try:
                control = await self._open(await self._reach(address))
            except (SecurityError, ConfigError, InvalidClientIDError):
                raise
            except (OSError, TimeoutError, BrokerError) as error:
                if isinstance(error, IllegalStateError | ResourceAllocationError | NotSupportedError):
                    refused = error
                slow = slow or isinstance(error, RequestTimeoutError)
                faults.append(f"{address}: {str(error) or 'no answer in time'}")
                continue
            broker = str(control.told["broker"])
            self._doors[broker] = address
            self._named.add(broker)
            self.first, self._home = control.channel, broker
            self._keep(broker, control)
            return broker
        if refused is not None:
            raise refused
        if slow:
            raise RequestTimeoutError(
                f"a connection service was too slow, or this machine is ({'; '.join(faults)}); try again"
            )
        raise NoClusterError(f"no connection service answers ({'; '.join(faults)}); is it in imq.service.activelist?")

    def _keep(self, broker: str, control: _Control) -> None:
        before = self._controls.get(broker)
        if before is not None:
            before.channel.close()
        self._controls[broker] = control
        if self._sockets is not None:
            control.channel.link.serve_directly(self._sockets)
        for other, address in self._addresses(control.told["doors"]).items():
            if other not in self._named:
                self._doors[other] = address

    def _addresses(self, doors: Any) -> dict[str, ServiceAddress]:
        """Broker → where its service is, as a broker tells: by its port mapper, or without one by its own port."""
        return {
            str(broker): ServiceAddress(
                str(host), int(ports.get(MAPPER) or ports[self._service]), self._service, MAPPER in ports
            )
            for broker, (host, ports) in dict(doors).items()
            if self._service in ports
        }

    async def _open(self, way: ServiceWay) -> _Control:
        """Connect and log in."""
        place = DestinationPlace(f"of the broker at {way.shown}", bytes(TOKEN_BYTES), partial(way.dial, ""))
        channel = Channel(place)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await place.dial(lambda: channel.link)
            channel.link.write(preface(place.token))
            told = await self._log_in(channel)
        except ConnectionLostError as error:
            if isinstance(channel.reason, RequestTimeoutError):  # The service itself has said that it took too long.
                raise channel.reason from None
            if channel.reason is None and way.hint:
                raise ConnectionLostError(f"{error} ({way.hint})") from None
            raise
        except BaseException:
            channel.link.abort()
            raise
        channel.observer = self._observer
        return _Control(channel, way, told)

    async def _log_in(self, channel: Channel) -> dict[str, Any]:
        """Raises RequestTimeoutError when it takes too long."""
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                credentials = self._credentials
                if credentials.once and self._home:
                    home = self._controls.get(self._home)
                    if home is None or home.channel.lost:
                        raise SecurityError("the broker that the client has logged in to is gone; log in again")
                    credentials = VouchedFor(await self.call(self._home, "vouch"))
                return await credentials.log_in(channel, self._client)
        except TimeoutError:
            raise RequestTimeoutError(f"the login was not over in {LOGIN_TIMEOUT_S:g} s") from None

    async def _control(self, broker: str) -> _Control:
        known = self._controls.get(broker)
        if known is not None and not known.channel.lost:
            return known
        if known is not None and isinstance(known.channel.reason, SecurityError):
            raise known.channel.reason  # An administrator has closed the connection: it stays so.
        async with self._opening[broker]:
            self._require_open()
            known = self._controls.get(broker)
            if known is not None and not known.channel.lost:
                return known
            made = await self._reopen(broker)
            if self._closed:
                made.channel.close()
            self._require_open()
            self._keep(broker, made)
            return made

    async def _reopen(self, broker: str) -> _Control:
        """Raises BrokerGoneError when it is neither where it was, nor where the others say that it is now."""
        address = self._doors.get(broker)
        fault = BrokerGoneError(f"broker {broker} has no service {self._service} that is known here")
        if address is not None:
            try:
                return await self._open_at(broker, address)
            except BrokerGoneError as error:
                fault = error
        told = await self._told_of(broker)
        if told is None or told == address:
            raise fault
        made = await self._open_at(broker, told)
        self._doors[broker] = told
        self._named.discard(broker)
        return made

    async def _open_at(self, broker: str, address: ServiceAddress) -> _Control:
        """Raises BrokerGoneError when that broker is not there."""
        try:
            made = await self._open(await self._reach(address))
        except (
            OSError,
            TimeoutError,
            ConnectionLostError,
            NoClusterError,
            ProtocolError,
            RequestTimeoutError,
            ServiceClosedError,
        ) as error:
            raise BrokerGoneError(f"broker {broker} does not answer: {str(error) or 'no answer in time'}") from None
        found = str(made.told["broker"])
        if found != broker:  # Ports and addresses go to others when a broker has ended.
            made.channel.close()
            raise BrokerGoneError(f"broker {broker} is not at {address}, where broker {found} answers")
        return made

    async def _told_of(self, broker: str) -> ServiceAddress | None:
        """Return where its service is now, by the first of the other brokers that knows it; None: nobody does."""
        for other, control in list(self._controls.items()):
            if other == broker or control.channel.lost:
                continue
            try:
                async with asyncio.timeout(TOLD_TIMEOUT_S):
                    doors = await control.channel.call("ask", {"method": "doors", "args": []})
            except (BrokerError, TimeoutError):
                continue
            if (found := self._addresses(doors).get(broker)) is not None:
                return found
        return None

    def _require_open(self) -> None:
        """A call may be under way when the connection is closed: it must not open it again."""
        if self._closed:
            raise IllegalStateError("the connection is closed")

    async def call(self, broker: str, method: str, *args: Any) -> Any:
        """See ClusterDirectory's Calls."""
        control = await self._control(broker)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                told = await control.channel.call("ask", {"method": method, "args": list(args)})
                answer = await whole(told, lambda number: control.channel.call(PIECE, {"number": number}))
                return listed(answer) if method == "admin" else answer
        except TimeoutError:
            control.channel.link.abort()
            raise BrokerGoneError(f"broker {broker} has not answered {method} in {CALL_TIMEOUT_S:g} s") from None
        except ConnectionLostError as error:
            if not control.channel.lost:
                raise
            raise BrokerGoneError(f"broker {broker}: {error}") from None

    async def identify(self, broker: str, client_id: str, instance: str) -> None:
        """See ClusterDirectory's Calls; nothing is to be done where the login has said it."""
        if self.client_id == client_id:
            return
        before = self._client
        self._client = {**before, "client_id": client_id, "instance": instance}
        try:
            await self.call(broker, "identify", client_id, instance)
        except InvalidClientIDError:
            self._client = before
            raise

    def closed(self, broker: str) -> str:
        """Why a broker has let this client in only to say where else it is taken; "": it may stay."""
        return str(self._controls[broker].told.get("closed", ""))

    async def others_outside(self, broker: str, service: str) -> list[tuple[str, int]]:
        """(address, port) of a service of the other brokers that takes new clients, as clients outside reach it."""
        doors = await self.call(broker, "taking")
        return [
            (str(host), int(ports[service]))
            for other, (host, ports) in sorted(dict(doors).items())
            if other != broker and service in ports
        ]

    async def share_client_id(self, broker: str, client_id: str) -> None:
        """Say after the login what client id the client has, which other connections may have as well."""
        instance = random_bytes(INSTANCE_BYTES).hex()
        self._client = {**self._client, "client_id": client_id, "instance": instance, "unrestricted": "true"}
        await self.call(broker, "identify", client_id, instance, True)

    async def names(self) -> list[str]:
        return list(self._doors)

    def led_by(self, found: Sequence[Any]) -> str:
        return str(found[2].get(LED_BY, ""))  # The way to a host leads through the service of its own broker.

    def place(self, found: Sequence[Any]) -> DestinationPlace:
        key, broker, traits, secret = found
        way = self._controls[broker].way
        return DestinationPlace(f"{key}@{way.shown}", bytes(secret), partial(way.dial, key), broker, traits)

    def close(self) -> None:
        """End the control connections: the broker learns that the client has gone."""
        self._closed = True
        for control in self._controls.values():
            control.channel.close()
        self._controls.clear()


def _admission(told: Any) -> dict[str, Any]:
    """What a client is told that was let in; raises ProtocolError for anything else."""
    if not isinstance(told, dict) or not {"signature", "broker", "doors", "settings"} <= told.keys():
        raise ProtocolError("the service's answer to the login is malformed")
    return told


async def way_to(address: ServiceAddress, connect: Connect = direct) -> ServiceWay:
    """The way over TCP."""
    target = await Target.resolve(address, connect)
    return ServiceWay(str(target), partial(_dial, target))


async def _dial(target: Target, key: str, factory: Callable[[], Link]) -> object:
    link, sock = factory(), await target.socket()
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    except BaseException:
        sock.close()
        raise
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.write(preamble(key))
    return link
