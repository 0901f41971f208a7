"""Requests of a connection as a consumer: opening and closing, giving everything back, browsing a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.core import command as cmd
from raybroker.core.delivery.sharing import may_give
from raybroker.core.delivery.window import CREDIT_MAX
from raybroker.core.destination import Destination
from raybroker.core.selector import normalised
from raybroker.core.subscription import Subscription
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.measuring.unit_figures import live_units
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.path.overrides import effective_limit
from raybroker.engine.ports import Clock, Codec
from raybroker.engine.sessions.attachments import Attachments
from raybroker.engine.sessions.drained_nodes import NodeDrains
from raybroker.engine.sessions.session import Arguments, Operation, Session
from raybroker.model.affinity import check_labels
from raybroker.model.batch import Batch
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.errors import ConfigError, IllegalStateError, InvalidDestinationError, ProtocolError
from raybroker.model.failure import REASON_CHARS_MAX
from raybroker.model.settings.settings import DestinationAttributes

BROWSE_MESSAGES_MAX: Final = 10_000
"""Messages that a browser gets at a time."""
BROWSE_BYTES_MAX: Final = 8 << 20
"""Bodies that it gets at a time, unless one message alone has more: the next request brings the others."""
UNITS_MAX: Final = 10_000
"""Units of order that can be asked about at a time."""
NAME_CHARS_MAX: Final = 255
"""Longest name of a session, a broker or a consumer that a client tells."""


def kind_of(args: Arguments) -> str:
    kind = args.get("type", "queue")
    if kind not in ("queue", "topic"):
        raise ProtocolError(f"destination type {kind!r} is not understood")
    return str(kind)


def selector_of(args: Arguments) -> str | None:
    text = args.get("selector")
    if text is not None and not isinstance(text, str):
        raise ProtocolError(f"a selector is text, not {type(text).__name__}")
    return normalised(text)


def _name(args: Arguments, key: str) -> str:
    """A name that the client tells, "" when it tells none."""
    text = args.get(key) or ""
    if not isinstance(text, str) or len(text) > NAME_CHARS_MAX:
        raise ProtocolError(f"{key} is text of at most {NAME_CHARS_MAX} characters")
    return text


def _batch(args: Arguments) -> Batch | None:
    """The batches that a consumer asks for; None: it takes messages."""
    said = args.get("batch")
    if said is None:
        return None
    if not isinstance(said, dict):
        raise ProtocolError("a batch is a mapping of its parameters")
    return Batch.from_arguments(said)


def _labels(args: Arguments) -> tuple[str, ...]:
    said = args.get("labels") or ()
    if not isinstance(said, list | tuple) or not all(isinstance(label, str) for label in said):
        raise ProtocolError("labels are texts")
    return check_labels(said)


class ConsumerRequests:
    """Requests of consumers and browsers. ``broker``: the name of the host's own."""

    def __init__(
        self,
        registry: DestinationRegistry,
        attachments: Attachments,
        blocks: BlockReader,
        meters: Meters,
        codec: Codec,
        clock: Clock,
        drained: NodeDrains,
        *,
        broker: str,
    ) -> None:
        self._registry = registry
        self._attachments = attachments
        self._blocks = blocks
        self._meters = meters
        self._codec = codec
        self._now_ms = clock.now_ms
        self._drained = drained
        self._broker = broker

    def operations(self) -> Mapping[str, Operation]:
        return {
            "open_consumer": self._open_consumer,
            "close_consumer": _close_consumer,
            "release": _release,
            "checkpoint": _checkpoint,
            "tune_consumer": _tune,
            "units": self._units,
            "open_browser": self._open_browser,
            "browse": _browse,
            "close_browser": _close_browser,
        }

    def _open_consumer(self, session: Session, request: int, args: Arguments) -> None:
        handle = session.new_handle(args)
        flow, limit, no_ack = args["flow"], int(args["limit"]), bool(args["no_ack"])
        if flow not in ("credit", "prefetch") or not -1 <= limit <= CREDIT_MAX:
            raise ProtocolError(f"flow {flow!r} with limit {limit} is not understood")
        limit_max = int(args.get("limit_max") or 0)
        if limit_max and not (flow == "credit" and 1 <= limit <= limit_max <= CREDIT_MAX):
            raise ProtocolError(f"flow {flow!r} with limit {limit} of at most {limit_max} is not understood")
        lease_ms = int(args.get("lease_ms") or 0)
        if not 0 <= lease_ms <= CREDIT_MAX:
            raise ProtocolError(f"an ack deadline of {lease_ms} ms; it is 0 (none) to {CREDIT_MAX}")
        buffer_bytes = int(args.get("buffer_bytes") or 0)
        if not 0 <= buffer_bytes <= CREDIT_MAX:
            raise ProtocolError(f"a buffer of {buffer_bytes} bytes; it is 0 (no bound) to {CREDIT_MAX}")
        buffer_cost = int(args.get("buffer_cost") or 0)
        if not 0 <= buffer_cost <= CREDIT_MAX:
            raise ProtocolError(f"a buffer for a cost of {buffer_cost}; it is 0 (no bound) to {CREDIT_MAX}")
        batch = _batch(args)
        if batch is not None and no_ack:
            raise ConfigError("batches are leased: a consumer without acknowledgements has none")
        owner, broker, consumer = _name(args, "owner"), _name(args, "home"), _name(args, "consumer")

        destination = self._registry.find(kind_of(args), args["name"])
        self._require_own(session, destination, "consume")
        subscription = _subscription(session, destination, args)
        shared = subscription is not None and subscription.shared
        attributes = destination.attributes
        most = attributes.shared_consumer_flow_limit if shared else attributes.consumer_flow_limit
        effective = effective_limit(flow, limit, most)
        selector = None if subscription is not None else selector_of(args)
        attachment = self._attachments.attach(destination, session.peer, handle, session.outbox, eager=no_ack)
        attachment.leased = lease_ms > 0
        attachment.pieces = buffer_bytes > 0 and not no_ack
        attachment.consumer, attachment.broker = consumer, broker
        command = cmd.AttachConsumer(
            attachment.number,
            flow,
            effective,
            no_ack,
            held=True,
            selector=selector,
            subscription=subscription,
            lease_ms=lease_ms,
            drain=bool(args.get("drain")),
            owner=owner,
            remote=broker not in ("", self._broker),
            recalls=bool(args.get("recalls")),
            shares=bool(args.get("shares")) and most == _unset(shared=shared),
            buffer_bytes=buffer_bytes,
            buffer_cost=buffer_cost,
            fenced=bool(args.get("fenced")),
            tunes=limit_max > 0,
            batch=batch,
            labels=_labels(args),
        )
        if (before := self._attachments.succeeds(attachment)) is not None:
            session.detach(before, cmd.DetachConsumer(before.number, lost=True))  # What it had comes first, in order.
        session.perform_attach(attachment, command)
        session.consumers[handle] = attachment
        self._meters.attached(attachment, broker)
        queue = destination.queue_of[attachment.number]
        answer = {
            "epoch": attachment.number,
            "limit": effective,
            "limit_max": effective_limit(flow, limit_max, most) if limit_max else 0,
            "active": queue.consumers.by_attachment[attachment.number].active,
            "broker": self._broker,
            "may_get": may_give(queue),
        }
        session.peer.reply(request, answer)
        self._drained.look_at(attachment)
        if session.delivering:
            session.perform(attachment, cmd.Proceed(attachment.number))

    def _units(self, session: Session, request: int, args: Arguments) -> None:
        """Which of some units of order have messages, for a path service."""
        names = args["names"]
        if not isinstance(names, list) or len(names) > UNITS_MAX or not all(isinstance(name, str) for name in names):
            raise ProtocolError(f"names is a list of at most {UNITS_MAX} texts")
        destination = self._registry.find(kind_of(args), args["name"])
        session.peer.reply(request, {"live": live_units(destination, names)})

    def _open_browser(self, session: Session, request: int, args: Arguments) -> None:
        from raybroker.engine.destinations.browsing import Browsing

        handle = session.new_handle(args)
        if kind_of(args) != "queue":
            raise InvalidDestinationError("topics cannot be browsed")
        destination = self._registry.named("queue", args["name"])
        self._require_own(session, destination, "browse")
        browser = session.browsers[handle] = Browsing(
            destination, selector_of(args), ("waiting",), self._registry, self._blocks, self._codec, self._now_ms
        )
        session.peer.reply(request, {"messages": browser.messages})

    def _require_own(self, session: Session, destination: Destination, what: str) -> None:
        """Raises InvalidDestinationError for a temporary destination that another connection has made."""
        temporary = self._registry.definition(destination).owner
        if temporary is not None and temporary != session.client.connection:
            raise InvalidDestinationError(
                f"{destination.name} is temporary: only the connection that made it may {what}"
            )


def _unset(*, shared: bool) -> int | None:
    """The limit of a consumer where nobody has set another one."""
    usual = DestinationAttributes()
    return usual.shared_consumer_flow_limit if shared else usual.consumer_flow_limit


def _subscription(session: Session, destination: Destination, args: Arguments) -> Subscription | None:
    """What the consumer of a topic subscribes to; None for a queue."""
    wanted = args.get("subscription")
    if destination.kind == "queue" and wanted is None:
        return None
    wanted = wanted or {"name": "", "durable": False, "shared": False}
    durable, shared = bool(wanted["durable"]), bool(wanted["shared"])
    client = session.client
    origin = (client.client_id or "") if durable else client.connection
    scope = "" if shared and wanted.get("everyones") else client.client_id or ""
    return Subscription(
        scope if wanted["name"] else "",
        str(wanted["name"]),
        durable,
        shared,
        selector_of(args),
        bool(args.get("no_local")),
        origin if args.get("no_local") else "",
    )


def _close_consumer(session: Session, request: int, args: Arguments) -> None:
    attachment = session.consumers.pop(int(args["handle"]), None)
    if attachment is not None:
        session.detach(attachment, cmd.DetachConsumer(attachment.number, seen=max(int(args.get("seen", -1)), -1)))
    session.peer.reply(request, None)


def _release(session: Session, request: int, args: Arguments) -> None:
    attachment = session.consumer(int(args["handle"]), args["epoch"])
    if attachment is None:
        raise InvalidDestinationError("the consumer is not attached any more")
    credit = int(args["credit"])
    if not -1 <= credit <= CREDIT_MAX:
        raise ProtocolError(f"a credit of {credit}; it is -1 to {CREDIT_MAX}")
    consumed, delay_ms = int(args.get("consumed", 0)), max(int(args.get("delay_ms", 0)), 0)
    reason = str(args.get("reason", ""))[:REASON_CHARS_MAX]
    seen = max(int(args.get("seen", -1)), -1)
    session.perform(attachment, cmd.Release(attachment.number, credit, request, consumed, delay_ms, reason, seen))


def _tune(session: Session, request: int, args: Arguments) -> None:
    """A consumer tells which limit it has chosen by itself."""
    attachment, limit = session.consumer(int(args["handle"]), args["epoch"]), int(args["limit"])
    if not 1 <= limit <= CREDIT_MAX:
        raise ProtocolError(f"a limit of {limit} that a consumer has chosen; it is 1 to {CREDIT_MAX}")
    if attachment is not None:
        session.perform(attachment, cmd.Tuned(attachment.number, limit))
    session.peer.reply(request, None)


def _checkpoint(session: Session, request: int, args: Arguments) -> None:
    attachment, tag, state = session.consumer(int(args["handle"]), args["epoch"]), int(args["tag"]), args["state"]
    if not isinstance(state, bytes):
        raise ProtocolError(f"a checkpoint is bytes, not {type(state).__name__}")
    if attachment is None:
        raise IllegalStateError("the checkpoint was not kept: the consumer is not attached any more")
    session.perform(attachment, cmd.Checkpoint(attachment.number, tag, request, state))


def _browse(session: Session, request: int, args: Arguments) -> None:
    browser = session.browsers.get(int(args["handle"]))
    if browser is None:
        raise IllegalStateError("the browser is closed")
    tag, size = 1, 0
    for seen, block in browser.next(min(max(int(args["max"]), 1), BROWSE_MESSAGES_MAX)):
        handle = int(args["handle"])
        if type(block) is LargeBlock:
            session.peer.deliver_large(handle, 0, tag, seen.attempts, seen.ordinal, block.front)
        else:
            session.peer.deliver(handle, 0, tag, seen.attempts, block.pick(seen.mask))
        tag += seen.mask.bit_count()
        size += sum(block.lengths)
        if size >= BROWSE_BYTES_MAX:
            break
    session.peer.reply(request, {"more": browser.more})


def _close_browser(session: Session, request: int, args: Arguments) -> None:
    session.browsers.pop(int(args["handle"]), None)
    session.peer.reply(request, None)
