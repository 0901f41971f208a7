"""A broker with the service amqp, and its clients: the engine of wire/amqp behind a blocking socket."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import raybroker as rb
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import (
    ConnectionClosed,
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkDrained,
    ProtocolFailed,
)
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.links import ReceivingLink, SendingLink
from raybroker.wire.amqp.performatives import (
    ACCEPTED,
    AmqpError,
    AmqpHeader,
    AmqpProperties,
    AmqpSource,
    AmqpTarget,
    Coordinator,
    Declare,
    Discharge,
    SaslChallenge,
    SaslMechanisms,
    SaslOutcome,
    encode_composite,
)
from raybroker.wire.amqp.sections import (
    MESSAGE_ANNOTATIONS,
    MessageSections,
    annotations_section,
    application_properties_section,
    header_section,
    properties_section,
    value_section,
)
from raybroker.wire.amqp.sessions import SessionEndpoint
from raybroker.wire.amqp.types import Symbol
from raybroker.wire.scram import ScramClient
from tests.contracts.stomp_rig import RULES, VERIFIERS, WAIT_S

CREDIT = 100
VALUE = b"\0\x53\x77"


def symbols(*names: str) -> tuple[Symbol, ...]:
    return tuple(map(Symbol, names))


def message(body: Any = "x", *, durable: bool = True, annotations: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A message with a value as its body. ``more``: ``named`` are its application properties, ``priority`` and ``ttl``
    of its header, and the others its properties."""
    named = more.pop("named", {})
    header = {key: more.pop(key) for key in ("priority", "ttl") if key in more}
    return b"".join(
        (
            header_section(AmqpHeader(durable, **header)),
            annotations_section(
                MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in (annotations or {}).items()}
            ),
            properties_section(AmqpProperties(**more)) if more else b"",
            application_properties_section(named),
            value_section(body),
        )
    )


class RefusedError(Exception):
    """The broker has ended a link, a session or the connection. ``error``: what it has told."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class AmqpPeer:
    """A client with one session. ``open``: whether it logs in and opens its connection at once; ``tls``: it comes with
    TLS."""

    def __init__(self, port: int, user: str = "ann", *, container: str = "client", open: bool = True, **more: Any):
        made = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        tls: ssl.SSLContext | None = more.pop("tls", None)
        self.socket = made if tls is None else tls.wrap_socket(made, server_hostname="127.0.0.1")
        self.engine = ConnectionEndpoint.connecting(more.pop("limits", AmqpLimits()))
        self.user = user
        self.mechanism = more.pop("mechanism", "PLAIN")
        self._password = more.pop("password", "secret")
        self.offered: tuple[str, ...] = ()
        self.outcome: int | None = None
        self.events: list[Any] = []
        self.deliveries: list[DeliveryReceived] = []
        self.states: dict[Any, Any] = {}
        """What was sent → the state that was told of it."""
        self.error: AmqpError | None = None
        self._scram: ScramClient | None = None
        self._numbers = 0
        self.session: SessionEndpoint
        if open:
            self.open(container, **more)

    def open(self, container: str, **more: Any) -> None:
        self.until(lambda: self.outcome is not None)
        if self.outcome:
            raise RefusedError(f"the login was refused with {self.outcome}")
        self.engine.send_open(container, **more)
        self.until(lambda: self.engine.peer is not None)
        told = self.engine.peer
        if told is not None and (told.properties or {}).get("amqp:connection-establishment-failed"):
            self.until(lambda: self.error is not None)
            raise RefusedError(self.error)
        self.session = self.begin()

    def begin(self) -> SessionEndpoint:
        made = self.engine.begin_session()
        self.until(lambda: made.peer is not None)
        return made

    # ---- bytes and events --------------------------------------------------------------------------------------------

    def flush(self) -> None:
        data = self.engine.data_to_send()
        if data:
            self.socket.sendall(data)

    def pump(self, timeout_s: float = WAIT_S) -> bool:
        """Take what comes next; False when nothing does in time. Raises RefusedError at the end."""
        self.flush()
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return False
        if not data:
            raise RefusedError(self.error or "the connection was cut")
        self.take(data)
        return True

    def take(self, data: bytes) -> None:
        for event in self.engine.receive_data(data):
            self.events.append(event)
            self._on(event)
        self.flush()

    def _on(self, event: Any) -> None:
        match event:
            case SaslMechanisms():
                self.offered = tuple(event.sasl_server_mechanisms)
                self.engine.begin_login(self.mechanism, self._first())
                self.take(b"")
            case SaslChallenge():
                assert self._scram is not None
                self.engine.respond(self._scram.final(event.challenge.decode()).encode())
                self.take(b"")
            case SaslOutcome():
                self.outcome = event.code
                if self._scram is not None and event.additional_data is not None:
                    self._scram.check(event.additional_data.decode())
            case DeliveryReceived():
                self.deliveries.append(event)
            case DispositionReceived():
                self.states.update((one.context, event.state) for one in event.deliveries)
            case ConnectionClosed():
                self.error = event.error
                self.engine.send_close()
            case ProtocolFailed():
                raise AssertionError(event.error)

    def _first(self) -> bytes | None:
        if self.mechanism.startswith("SCRAM-"):
            self._scram = ScramClient(self.user, self._password, "nonce", self.mechanism.removeprefix("SCRAM-"))
            return self._scram.first().encode()
        return f"\0{self.user}\0{self._password}".encode() if self.mechanism == "PLAIN" else None

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, "it has not happened"
            assert self.pump(), "nothing comes"

    def seen(self, kind: type[Any], link: Any) -> Any:
        return next((one for one in self.events if isinstance(one, kind) and getattr(one, "link", None) is link), None)

    # ---- links -------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self._numbers += 1
        return f"link{self._numbers}"

    def sender(self, address: str | None, *capabilities: str, name: str = "", **more: Any) -> SendingLink:
        """A link to send on that has credit; raises RefusedError."""
        session = more.pop("session", None) or self.session
        target = AmqpTarget(address, capabilities=symbols(*capabilities) or None, **more.pop("target", {}))
        link = session.attach_sender(name or self.name(), AmqpSource("here"), target, **more)
        self._attached(link)
        self.until(lambda: link.credit)
        return link

    def receiver(
        self, address: str | None, *capabilities: str, name: str = "", credit: int = CREDIT, **more: Any
    ) -> ReceivingLink:
        """A link to receive on; raises RefusedError."""
        session = more.pop("session", None) or self.session
        source = AmqpSource(address, capabilities=symbols(*capabilities) or None, **more.pop("source", {}))
        link = session.attach_receiver(name or self.name(), source, AmqpTarget("here"), **more)
        self._attached(link)
        if credit:
            link.grant(credit)
            self.flush()
        return link

    def _attached(self, link: Any) -> None:
        self.until(lambda: link.peer is not None)
        if (link.peer.source if link.role else link.peer.target) is None:
            self.until(lambda: self.seen(LinkDetached, link))
            raise RefusedError(self.seen(LinkDetached, link).error)

    def close(self, link: Any, *, closed: bool = True) -> Any:
        """Detach a link; what the broker has answered."""
        link.send_detach(closed=closed)
        self.until(lambda: self.seen(LinkDetached, link))
        return self.seen(LinkDetached, link).error

    def send(self, link: SendingLink, *payloads: bytes, **more: Any) -> list[Any]:
        """Send messages, and return the states that the broker tells of them."""
        keys = []
        for payload in payloads:
            self.until(lambda: link.sendable)
            keys.append(object())
            link.send([payload], keys[-1], **more)
        if more.get("settled"):
            self.flush()
            return []
        self.until(lambda: all(key in self.states for key in keys))
        return [self.states[key] for key in keys]

    def receive(self, count: int = 1) -> list[DeliveryReceived]:
        self.until(lambda: len(self.deliveries) >= count)
        found, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        return found

    def nothing(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes within that time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.deliveries:
            self.pump(left)
        return not self.deliveries

    def settle(self, deliveries: list[DeliveryReceived], state: Any = ACCEPTED, *, settled: bool = True) -> None:
        for one in deliveries:
            one.link.settle_deliveries([one.delivery_id], state, settled=settled)
        self.flush()

    def drain(self, link: ReceivingLink, credit: int) -> list[DeliveryReceived]:
        """What a drain of so much credit brings."""
        self.events = [one for one in self.events if not isinstance(one, LinkDrained)]
        link.grant(credit, drain=True)
        self.until(lambda: self.seen(LinkDrained, link) or not link.credit)
        found, self.deliveries = self.deliveries, []
        return found

    # ---- transactions ------------------------------------------------------------------------------------------------

    def coordinator(self) -> SendingLink:
        link = self.session.attach_sender(self.name(), AmqpSource("here"), Coordinator())
        self._attached(link)
        self.until(lambda: link.credit)
        return link

    def declare(self, coordinator: SendingLink) -> bytes:
        (state,) = self.send(coordinator, VALUE + encode_composite(Declare()))
        number: bytes = state.txn_id
        return number

    def discharge(self, coordinator: SendingLink, number: bytes, *, fail: bool = False) -> Any:
        (state,) = self.send(coordinator, VALUE + encode_composite(Discharge(number, fail)))
        return state

    def end(self) -> None:
        self.socket.close()


def body(delivery: DeliveryReceived) -> Any:
    return MessageSections(delivery.payload).body


def bodies(deliveries: list[DeliveryReceived]) -> list[Any]:
    return [body(one) for one in deliveries]


class AmqpRig:
    """A loopback broker with users ann, bob, mute (who may do nothing) and stranger (who may not connect)."""

    def __init__(self, folder: Path, opened: ExitStack, **properties: Any) -> None:
        users = UserFile(folder / "passwd")
        for name in ("ann", "bob", "mute", "stranger"):
            users.add(name, UserEntry(VERIFIERS, "user"))
        (folder / "accesscontrol.properties").write_text(f"{RULES}queue.*.browse.allow.user=*\n")
        self._opened = opened
        self._destinations = 0
        self.inside = rb.loopback(
            properties={
                "imq.service.activelist": "amqp,stomp",
                "imq.hostname": "127.0.0.1",
                "imq.portmapper.port": 0,
                "raybroker.security.dir": str(folder),
                "raybroker.handshake.timeout_ms": 2000,
                **properties,
            }
        )
        opened.callback(self.inside.close)
        self.inside.start()
        self.admin = self.inside.admin()
        self.ports = {row["service"]: row["port"] for row in self.admin.list_services()}

    def peer(self, user: str = "ann", **more: Any) -> AmqpPeer:
        made = AmqpPeer(self.ports["amqp"], user, **more)
        self._opened.callback(made.end)
        return made

    def name(self) -> str:
        self._destinations += 1
        return f"d{self._destinations}"

    def state(self, name: str, type: str = "queue") -> dict[str, Any]:
        return next(row for row in self.admin.list_destinations() if (row["type"], row["name"]) == (type, name))
