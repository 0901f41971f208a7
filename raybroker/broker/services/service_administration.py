"""Administration of a broker's connection services, which may not be running."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from raybroker.hosting.host_port import Row
from raybroker.logs.audit import Audit
from raybroker.model.errors import ConfigError, InvalidDestinationError
from raybroker.model.listing import Listing
from raybroker.model.naming.names import check_destination_name, check_destination_type
from raybroker.model.settings.setting_services import INSIDE, SERVICE_KINDS
from raybroker.services.clients.client_ids import ClientIds, Others, nobody_else
from raybroker.services.clients.client_rows import Wanted, ended_because, is_inside

if TYPE_CHECKING:  # A broker whose services do not listen has no use for what these import.
    from raybroker.security.access_rules import AccessRequest
    from raybroker.security.user_file import UserFile
    from raybroker.services.listening.connection_services import ConnectionServices
    from raybroker.services.listening.listener import ServiceListener


class Inside(Protocol):
    """See broker.clients.clients_inside."""

    async def client_rows(self) -> tuple[list[Row], dict[str, str]]: ...

    async def end_clients(self, ids: list[str], why: str) -> tuple[list[str], dict[str, str]]: ...

    async def held(self, client_id: str) -> set[str]: ...


class NobodyInside:
    """The clients inside where there are no hosts: none."""

    async def client_rows(self) -> tuple[list[Row], dict[str, str]]:
        return [], {}

    async def end_clients(self, ids: list[str], why: str) -> tuple[list[str], dict[str, str]]:
        return [], {}

    async def held(self, client_id: str) -> set[str]:
        return set()


Elsewhere = Callable[[], Awaitable[Mapping[str, str]]]
"""Gives the other brokers of the cluster that run on other machines → the address of that."""


async def no_other_machine() -> Mapping[str, str]:
    """Return nothing: there is one broker."""
    return {}


class ServiceAdministration:
    """``broker``: its name; ``inside``: clients inside the Ray cluster; ``others``: who has a client id at the
    other brokers; ``elsewhere``: those of them that run on other machines → the address of that; ``audit``: what is
    written down. ``services`` and ``users`` are given once they are there."""

    def __init__(
        self,
        broker: str,
        inside: Inside | None = None,
        others: Others = nobody_else,
        elsewhere: Elsewhere = no_other_machine,
        *,
        audit: Audit | None = None,
    ) -> None:
        self.broker = broker
        self._inside = inside or NobodyInside()
        self.client_ids = ClientIds(broker, self._held, others)
        self.services: ConnectionServices | None = None
        self.users: UserFile | None = None
        self.audit = audit or Audit.silent()
        self._elsewhere = elsewhere
        self.failure = ""
        """Why services that the configuration asks for do not listen."""

    async def _held(self, client_id: str) -> set[str]:
        """Connections that have a client id for themselves, outside and inside."""
        inside = await self._inside.held(client_id)
        return inside | self.services.held(client_id) if self.services is not None else inside

    async def redeem(self, voucher: str, challenge: str, proof: str) -> str:
        """The user of a voucher that this broker has given out, for another one; raises SecurityError."""
        return self._running().security.vouchers.redeem(voucher, challenge, proof)

    def _running(self) -> ConnectionServices:
        if self.services is None:
            raise ConfigError(f"broker {self.broker} has no connection services: {self.why_none()}")
        return self.services

    def why_none(self) -> str:
        """Why there are no services, if there are none."""
        return self.failure or "imq.service.activelist is empty"

    def take_nobody_new(self) -> None:
        """The services that carry messages take no new clients, those of administration do."""
        if self.services is not None:
            for name, listener in self.services.listeners.items():
                if listener.kind != "ADMIN":
                    self.services.quiesce(name)

    async def list_services(self) -> Listing:
        if self.services is None:
            missing = {f"services of broker {self.broker}": self.failure} if self.failure else {}
            return Listing([], missing)
        return Listing([{**row, "broker": self.broker} for row in await self.services.counted_rows()], {})

    async def pause_service(self, name: str) -> None:
        await self._running().pause(name)

    async def quiesce_service(self, name: str) -> None:
        self._running().quiesce(name)

    async def resume_service(self, name: str) -> None:
        await self._running().resume(name)

    async def update_service(self, name: str, changes: Row, broker: str | None = None) -> None:
        if broker not in (None, self.broker):
            raise InvalidDestinationError(f"no broker {broker!r} is up; raybroker list bkr shows those there are")
        try:
            await self._running().update(name, changes)
        except ConfigError as error:
            raise ConfigError(f"broker {self.broker}: {error}") from None

    def port_mapper_at(self, port: int) -> AbstractAsyncContextManager[None]:
        """See ConnectionServices.port_mapper_at; services that do not listen have the port when they do."""
        return nullcontext() if self.services is None else self.services.port_mapper_at(port)

    async def connections(self, wanted: Wanted) -> Listing:
        """Clients that are wanted, outside and inside; ``missing``: hosts whose clients inside are not known."""
        found: list[Row] = []
        missing: dict[str, str] = {}
        if wanted.service != INSIDE and self.services is not None:
            outside = await self.services.connections(wanted)
            found = [{**row, "broker": self.broker} for row in outside]
        if wanted.service in (None, INSIDE):
            inside, missing = await self._inside.client_rows()
            found += [row for row in inside if wanted.fits(row)]
        return Listing(found, missing)

    async def end_connections(self, ids: Sequence[str], reason: str | None) -> tuple[list[str], dict[str, str]]:
        """End the connections of clients, outside and inside: those that were there, and the hosts that could not be
        asked for clients inside."""
        why = ended_because(reason)
        ended = await self.services.end_all(ids, why) if self.services is not None else []
        inside: list[str] = []
        missing: dict[str, str] = {}
        if left := [client for client in ids if is_inside(client)]:
            inside, missing = await self._inside.end_clients(left, why)
        for client in inside:
            self.audit.record("closed", service=INSIDE, connection=client, reason=why)
        return [*ended, *inside], missing

    # ---- what health is made of

    def active(self) -> dict[str, ServiceListener]:
        """The services that listen."""
        return dict(self.services.listeners) if self.services is not None else {}

    async def unreached(self) -> str:
        """Why brokers on other machines, and clients of theirs, do not reach the services; "" when they may."""
        names = self.services.loopback_only() if self.services is not None else []
        elsewhere = await self._elsewhere() if names else {}
        if not elsewhere:
            return ""
        shown = ", ".join(f"{broker} ({node})" for broker, node in sorted(elsewhere.items()))
        return (
            f"{', '.join(names)}: services listen for this machine alone, and brokers run on others: {shown}; their"
            " gateways and clients do not get here. Set it to an address of this machine that others reach, or leave"
            " it empty"
        )

    def rules_missing(self) -> str:
        """The path of the access rules where there is no such file."""
        return self.services.rules_missing() if self.services is not None else ""

    def certificate_days(self, service: str) -> int | None:
        return self.services.certificate_days(service) if self.services is not None else None

    def probing(self, address: str) -> None:
        if self.services is not None:
            self.services.probing(address)

    async def why_denied(
        self, user: str, operation: str, destination: str | None = None, type: str = "queue", service: str = "jms"
    ) -> Row:
        from raybroker.security.access_rules import AccessRequest, User

        services = self._running()
        if operation == "connect" and destination is not None:
            service = _of_kind(destination)
        entry = self.users.users().get(user) if self.users is not None else None
        if entry is None:
            raise ConfigError(f"there is no user {user!r}; raybroker usermgr list shows those there are")
        kind = SERVICE_KINDS.get(service)
        if kind is None:
            raise ConfigError(f"there is no service {service!r}; there are {', '.join(SERVICE_KINDS)}")
        connect = AccessRequest("connection", kind, "")
        wanted = connect if operation == "connect" else _request(operation, destination, type)
        if wanted is not connect and kind == "ADMIN":
            raise ConfigError(f"service {service} carries administration alone, no messages; name another one")
        access, known = services.security.access(service), User(user, frozenset({entry.group}))
        decided = [(request, access.decide(known, request)) for request in _needed(services, connect, wanted)]
        request, decision = next((one for one in decided if not one[1].allowed), decided[-1])
        return {
            "user": user,
            "request": str(request),
            "active": entry.active,
            "allowed": decision.allowed and entry.active,
            "rule": decision.rule or "no rule speaks of the user",
        }


def _of_kind(name: str) -> str:
    """A service that connecting means: one of that name, or of that kind; raises ConfigError."""
    found = next((service for service, kind in SERVICE_KINDS.items() if name in (service, kind)), None)
    if found is None:
        kinds = ", ".join(dict.fromkeys(SERVICE_KINDS.values()))
        raise ConfigError(f"connect {name!r:.80}: it is {kinds}, or a service: {', '.join(SERVICE_KINDS)}")
    return found


def _request(operation: str, destination: str | None, type: str) -> AccessRequest:
    """What the arguments mean; raises ConfigError."""
    from raybroker.security.access_rules import OPERATIONS, AccessRequest

    kind = check_destination_type(type)
    if operation == "create":
        return AccessRequest(kind, "", "create")
    if operation not in OPERATIONS[kind]:
        operations = ", ".join((*OPERATIONS[kind], "create", "connect"))
        raise ConfigError(f"operation {operation!r}; it is one of {operations}")
    if destination is None:
        raise ConfigError(f"operation {operation!r} is with a destination; name one")
    return AccessRequest(kind, check_destination_name(destination, allow_reserved=True), operation)


def _needed(services: ConnectionServices, connect: AccessRequest, wanted: AccessRequest) -> list[AccessRequest]:
    """The rights that a request takes, in the order in which they are asked for; what is wanted is the last."""
    from raybroker.security.access_rules import AccessRequest

    found = [connect]
    if wanted.operation not in ("", "create") and services.would_create(wanted.resource, wanted.variant):
        found.append(AccessRequest(wanted.resource, "", "create"))
    return found if wanted is connect else [*found, wanted]
