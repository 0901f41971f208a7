"""Requests of a connection about itself and its producers: identity, starting and stopping, opening and closing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.core import command as cmd
from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.memory_protection import MemoryProtection
from raybroker.engine.ports import Clock
from raybroker.engine.sessions.attachments import SEND_TIMEOUT_MS, Attachments
from raybroker.engine.sessions.consumer_requests import kind_of
from raybroker.engine.sessions.session import Arguments, Operation, Session
from raybroker.engine.sessions.sessions import Sessions
from raybroker.model.errors import BrokerError, InvalidClientIDError, ProtocolError
from raybroker.model.naming.names import require_no_metrics_topic
from raybroker.model.settings.setting import INT_MAX
from raybroker.model.settings.settings import DestinationAttributes

SKEW_MS_MAX: Final = 2_000
"""A client's clock that differs by more is written to the log."""


class ConnectionRequests:
    """``found``: called with the id of a connection that is open, perhaps repeatedly; ``pieces``: large bodies may come
    in pieces."""

    def __init__(
        self,
        sessions: Sessions,
        clock: Clock,
        found: Callable[[str], None],
        report: Callable[[str], None],
        *,
        incarnation: int,
        pieces: bool = False,
    ) -> None:
        self._pieces = pieces
        self._sessions = sessions
        self._clock = clock
        self._found = found
        self._report = report
        self._incarnation = incarnation

    def operations(self) -> Mapping[str, Operation]:
        return {"hello": self._hello, "start": _start, "stop": _stop}

    def _hello(self, session: Session, request: int, args: Arguments) -> None:
        client_id, connection = args.get("client_id"), str(args.get("connection", ""))
        unrestricted = bool(args.get("unrestricted"))
        if client_id and not unrestricted and self._sessions.has_client_id(client_id, besides=connection):
            raise InvalidClientIDError(
                f"client id {client_id!r} is in use by another connection; close that one, choose"
                " another id, or allow it with ClientIdPolicy=Unrestricted"
            )
        session.client.client_id, session.client.connection = client_id, connection
        self._sessions.share_client_id(session.client, unrestricted)
        skew_ms = int(args.get("now_ms", 0)) - self._clock.now_ms()
        if "now_ms" in args and abs(skew_ms) > SKEW_MS_MAX:
            self._report(
                f"[B2102] the clock of client {client_id or connection} differs from the broker's by {skew_ms} ms:"
                " its messages expire and are delivered at the wrong time; set the clocks"
            )
        session.start(bool(args.get("started", True)))
        if connection:
            self._found(connection)
        can = {"pieces": True} if self._pieces else {}
        session.peer.reply(request, {"incarnation": self._incarnation, **can})


class ProducerRequests:
    """``armed``: whether producers of a destination are to slow down."""

    def __init__(
        self,
        registry: DestinationRegistry,
        attachments: Attachments,
        memory: MemoryProtection,
        armed: Callable[[Destination], bool],
    ) -> None:
        self._registry = registry
        self._attachments = attachments
        self._memory = memory
        self._armed = armed

    def operations(self) -> Mapping[str, Operation]:
        return {"open_producer": self._open_producer, "close_producer": _close_producer}

    def _open_producer(self, session: Session, request: int, args: Arguments) -> None:
        handle, producer = session.new_handle(args), int(args["producer"])
        if not 0 <= producer < 1 << 64:
            raise ProtocolError(f"producer {producer} is not a number of 64 bits")
        generation = int(args.get("generation", 0))
        kind = kind_of(args)
        require_no_metrics_topic(kind, str(args["name"]))
        destination = self._registry.find(kind, args["name"])
        timeout_ms = int(args.get("send_timeout_ms", SEND_TIMEOUT_MS))
        if not 0 <= timeout_ms <= INT_MAX:
            raise ProtocolError(f"a send timeout of {timeout_ms} ms; it is 0 to {INT_MAX}")
        if not destination.admission.producers.knows(producer):
            self._memory.require(f"no producer for {kind} {destination.name} can be opened")
        attachment = self._attachments.attach(destination, session.peer, handle, session.outbox)
        attachment.send_timeout_ms = timeout_ms
        session.producers[handle] = attachment
        session.producer_ids[handle] = producer
        try:
            session.perform_attach(attachment, cmd.AttachProducer(attachment.number, producer, generation))
        except BrokerError:
            del session.producers[handle], session.producer_ids[handle]
            raise
        answer = {"epoch": attachment.number, **checks_of(destination.attributes)}
        attachment.obeys, attachment.answers = bool(args.get("obeys")), bool(args.get("answers"))
        if self._armed(destination):
            answer["armed"] = True
        self._memory.attached(attachment.number)
        session.peer.reply(request, answer)


def _close_producer(session: Session, request: int, args: Arguments) -> None:
    handle = int(args["handle"])
    attachment = session.producers.pop(handle, None)
    if attachment is not None:
        del session.producer_ids[handle]
        session.detach(attachment, cmd.DetachProducer(attachment.number, forget=True))
    session.peer.reply(request, None)


def _start(session: Session, request: int, args: Arguments) -> None:
    session.start(True)
    session.peer.reply(request, None)


def _stop(session: Session, request: int, args: Arguments) -> None:
    session.start(False)
    session.peer.reply(request, None)


def checks_of(attributes: DestinationAttributes) -> dict[str, Any]:
    """Attributes that a producer acts on, for the answer to its opening: what to check before it sends, its credit, and
    whether the destination uses deduplication ids."""
    found: dict[str, Any] = {"credit": producer_credit(attributes)} if producer_credit(attributes) else {}
    if attributes.duplicateWindowMs > 0:
        found["dedup"] = True
    if not attributes.validateXMLSchemaEnabled:
        return found
    schemas, reload = attributes.XMLSchemaURIList.split(), attributes.reloadXMLSchemaOnFailure
    return found | {"xml": {"schemas": schemas, "reload": reload}}
