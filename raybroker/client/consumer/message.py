"""A received message: a light view into the block it came in, decoded when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, Unpack

from raybroker.client.connection.shared_body import SharedBody
from raybroker.client.connection.whole_body import WholeBody
from raybroker.client.consumer import property_conversion
from raybroker.client.consumer.failure_causes import checked_cause
from raybroker.client.options import MessageOptions, with_options
from raybroker.client.producer.bodies import body_encoding
from raybroker.content.bodies import (
    AMQP,
    BODY_TYPES,
    BYTES,
    COMPRESSED,
    PICKLE,
    WORK,
    amqp,
    decode_body,
    encode_body,
    inflated,
    size_of,
    work_rows,
)
from raybroker.content.headers import Header, decode_header, header_of, message_id
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import Buffer
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.causes import outcome_of
from raybroker.model.errors import IllegalStateError, MessageFormatError, UnreadableError
from raybroker.model.failure import describe
from raybroker.model.naming.units import GROUP_PROPERTY
from raybroker.model.settings.setting import OVERRIDE_MS_MAX

__all__ = ["ReceivedDelivery", "Message", "message_id"]

_UNSET: Any = object()
_QUEUE = "queue:"
_DELIVERY_COUNT = "JMSXDeliveryCount"


Reply = Callable[["Message", Any, Mapping[str, Any] | None, MessageOptions], Any]
"""Sends an answer to a message: (message, body, properties, options)."""


def reason_text(reason: object) -> str:
    """A reason as text: an exception's type, text and traceback; raises MessageFormatError for another type."""
    if reason is None:
        return ""
    if isinstance(reason, str):
        return reason
    if isinstance(reason, BaseException):
        return describe(reason)
    raise MessageFormatError(f"a reason is text or an exception, not {type(reason).__name__}")


def check_delay_ms(delay_ms: object) -> None:
    """Raises MessageFormatError for a delay that is neither None nor a whole number from 0 to OVERRIDE_MS_MAX."""
    if delay_ms is None:
        return
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or not 0 <= delay_ms <= OVERRIDE_MS_MAX:
        raise MessageFormatError(
            f"delay_ms={delay_ms!r:.80}; it is a whole number of milliseconds, 0 to {OVERRIDE_MS_MAX}, or None"
        )


class MessageSession(Protocol):
    """The session that a message was received in: what the methods of the message call."""

    def acknowledge_by_policy(self, message: Message, /) -> Any: ...

    def acknowledge_one(self, message: Message, /) -> Any: ...

    def acknowledge_up_to(self, message: Message, /) -> Any: ...

    def settle_as(self, message: Message, outcome: str, delay_ms: int | None, reason: str, /) -> Any: ...

    def extend(self, message: Message, /) -> Any: ...

    def lease_to(self, message: Message, holder: object, /) -> Any: ...

    def checkpoint(self, message: Message, state: bytes, /) -> Any: ...

    @property
    def reply(self) -> Reply: ...


class Receiver(Protocol):
    """The consumer or browser that a message was received by. ``unpickles``: pickled bodies may be loaded."""

    name: str
    unpickles: bool
    message_bytes_max: int

    @property
    def session(self) -> MessageSession: ...

    def drain_left_s(self) -> float | None:
        """See Message.draining."""
        ...


class Part(NamedTuple):
    """One message of a unit of work."""

    id: str
    body: Any
    properties: dict[str, Any]
    correlation_id: str | None
    reply_to: str | None
    type: str | None


class ReceivedDelivery:
    """What the messages of one delivered block share: message i has the tag ``tag + i``."""

    __slots__ = ("attempt", "block", "consumer", "epoch", "fence", "kind", "offsets", "states", "tag", "view")
    fence: int
    """Its fencing number; there is none unless its consumer has asked for it."""
    states: dict[int, bytes]
    """Checkpoints of its messages by tag; absent when there are none."""

    def __init__(self, block: Block, consumer: Receiver, epoch: int, tag: int, attempt: int) -> None:
        self.block = block
        self.consumer = consumer
        self.epoch = epoch
        self.tag = tag
        self.attempt = attempt
        if type(block) is LargeBlock and isinstance(block.large, WholeBody):
            self.view = memoryview(block.large.data if type(block.large) is not SharedBody else b"")
            self.offsets = [0, block.large.nbytes]
            self.kind = -1
            return
        self.offsets = block.offsets()
        self.view = block.view
        self.kind = block.kind if block.uniform else -1


class MessageRun:
    """Messages that follow each other in the block in which they came: those with indexes ``start`` to ``end`` - 1.

    Many messages can be held as a few runs: what is not looked at one by one needs no object each.
    """

    __slots__ = ("delivery", "end", "start")

    def __init__(self, delivery: ReceivedDelivery, start: int, end: int) -> None:
        self.delivery = delivery
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def block(self) -> Block:
        return self.delivery.block

    @property
    def nbytes(self) -> int:
        """Bytes of the bodies."""
        offsets = self.block.offsets()
        return offsets[self.end] - offsets[self.start]

    def message(self, place: int) -> Message:
        """One of the messages; the first has the place 0."""
        return Message(self.delivery, self.start + place)

    def messages(self) -> list[Message]:
        """All of the messages."""
        return [Message(self.delivery, index) for index in range(self.start, self.end)]

    def after(self, count: int) -> MessageRun:
        """The run without its first messages."""
        return MessageRun(self.delivery, self.start + count, self.end)


def runs_of(messages: Iterable[Message]) -> list[MessageRun]:
    """All messages in their order, as runs."""
    found: list[MessageRun] = []
    run, delivery, end = None, None, 0
    for message in messages:
        if run is not None and message._delivery is delivery and message._index == end:
            end += 1
            run.end = end
            continue
        delivery, end = message._delivery, message._index + 1
        run = MessageRun(delivery, end - 1, end)
        found.append(run)
    return found


class Message:
    """What ``receive`` returns. Bodies and headers are read-only values of Python."""

    __slots__ = ("_body", "_delivery", "_header", "_index")

    def __init__(self, delivery: ReceivedDelivery, index: int) -> None:
        self._delivery = delivery
        self._index = index
        self._body: Any = _UNSET
        self._header: Header | None = None

    @property
    def body(self) -> Any:
        """The body as it was sent: str, bytes, number, None, tuple, datetime, date, time, timedelta, UUID, Decimal, an
        array or scalar of numpy, or a dict, list or dataclass of these; see :mod:`raybroker.content.msgpack_types`.

        A dataclass comes back as its class where this process has imported the module that defines it, with the same
        fields; it is made without ``__init__``, ``__post_init__`` and setters.  Elsewhere it is a dict of its fields.
        A subclass of str, int, float, dict, list or tuple comes back as that type.  An array is a view into the
        message, which cannot be written to.

        A body that was compressed is decompressed here, at the first access, and not before.

        Raises UnreadableError, a MessageFormatError, for a body that does not decode, for a compressed one that is
        larger than ``imq.message.max_size`` or whose codec is not installed here, or for a pickled one when the
        consumer did not ask for that with ``serializer="pickle"``.
        """
        if self._body is _UNSET:
            delivery, index = self._delivery, self._index
            offsets = delivery.offsets
            data = delivery.view[offsets[index] : offsets[index + 1]]
            kind = delivery.kind
            if kind < 0:
                if type(delivery.block) is LargeBlock and type(delivery.block.large) is SharedBody:
                    self._body = delivery.block.large.value
                    return self._body
                kind = delivery.block.kind_of(index)
                if kind == BYTES and type(delivery.block) is LargeBlock:
                    self._body = delivery.view.obj  # All of it, and no copy.
                    return self._body
            try:
                self._body = data.tobytes() if kind == BYTES else self._decoded(kind, data)
            except MessageFormatError as error:
                unreadable = UnreadableError(*error.args)
                unreadable.damaged = not kind & COMPRESSED and kind not in (PICKLE, WORK)
                raise unreadable from error
        return self._body

    def inflated_bytes(self, most: int) -> int:
        """Bytes of the body as they are when it is decompressed; some more than ``most`` stands for all that are more.

        Nothing is kept of it: whoever has little memory knows before it reads ``body``.  Raises MessageFormatError as
        that does.
        """
        delivery, index = self._delivery, self._index
        kind = delivery.kind
        if kind < 0:
            kind = delivery.block.kind_of(index)
        start, end = delivery.offsets[index], delivery.offsets[index + 1]
        if not kind & COMPRESSED and kind != WORK:
            return end - start
        return size_of(kind, delivery.view[start:end], most)

    def drop_content(self) -> None:
        """Keep what settles it, its id and its count: nothing else is in memory, or can be asked for, any more."""
        self._delivery, self._header, self._body = _Forgotten(self), _NOTHING, _UNSET

    def _decoded(self, kind: int, data: Buffer) -> Any:
        consumer = self._delivery.consumer
        if kind & COMPRESSED:
            kind, data = inflated(kind, data, consumer.message_bytes_max)
        if kind == WORK:
            return [self._decoded(row.kind, row.body) for row in work_rows(data)]
        return body_encoding.unpickle(data, allowed=consumer.unpickles) if kind == PICKLE else decode_body(kind, data)

    @property
    def parts(self) -> list[Part]:
        """The messages of a unit of work in their order; empty for any other message."""
        block, index = self._delivery.block, self._index
        if block.kind_of(index) != WORK:
            return []
        rows = zip(work_rows(block.body(index)), self.body, strict=True)
        return [Part(row.id, body, *decode_header(row.header)[:4]) for row, body in rows]

    @property
    def body_type(self) -> str:
        """What JMS calls a message with such a body: "bytes", "text", "map", "stream" or "object"."""
        kind = self._delivery.block.kind_of(self._index) & ~COMPRESSED
        if kind == AMQP:
            found: str = amqp().amqp_body_type(self._delivery.block.body(self._index))
            return found
        return BODY_TYPES.get(kind, "object")

    def _headers(self) -> Header:
        if self._header is None:
            self._header = header_of(self._delivery.block, self._index)
        return self._header

    @property
    def id(self) -> str:
        """Unique among all messages; "" when its producer asked for none. Of a message of AMQP the message-id that its
        sender has given it, if there is one."""
        if type(self._delivery) is _Forgotten:
            return self._delivery.id
        header = self._headers()
        if header.no_id:
            return ""
        return header.id or message_id(self._delivery.block.producer, self._delivery.block.seq_of(self._index))

    @property
    def properties(self) -> dict[str, Any]:
        return self._headers().properties

    @property
    def property_names(self) -> list[str]:
        """Names of its properties, of JMSXDeliveryCount, which every received message has, and of JMSXGroupID when it
        has a unit of order: that is what ``get_string("JMSXGroupID")`` gives then."""
        names = [name for name in self.properties if name != _DELIVERY_COUNT]
        if GROUP_PROPERTY not in names and self.unit_of_order is not None:
            names.append(GROUP_PROPERTY)
        return [*names, _DELIVERY_COUNT]

    def _property(self, name: str) -> object:
        if name == _DELIVERY_COUNT:
            return self.delivery_count
        found = self.properties.get(name)
        return self.unit_of_order if found is None and name == GROUP_PROPERTY else found

    def get_boolean(self, name: str) -> bool:
        """A property as a boolean; this and its like raise MessageFormatError for one that is none."""
        return property_conversion.to_boolean(name, self._property(name))

    def get_byte(self, name: str) -> int:
        """A property as a whole number of 8 bits."""
        return property_conversion.to_whole(name, self._property(name), "byte")

    def get_short(self, name: str) -> int:
        """A property as a whole number of 16 bits."""
        return property_conversion.to_whole(name, self._property(name), "short")

    def get_int(self, name: str) -> int:
        """A property as a whole number of 32 bits."""
        return property_conversion.to_whole(name, self._property(name), "int")

    def get_long(self, name: str) -> int:
        """A property as a whole number of 64 bits."""
        return property_conversion.to_whole(name, self._property(name), "long")

    def get_float(self, name: str) -> float:
        """A property as a number of single precision."""
        return property_conversion.to_float(name, self._property(name))

    def get_double(self, name: str) -> float:
        """A property as a number of double precision."""
        return property_conversion.to_double(name, self._property(name))

    def get_string(self, name: str) -> str | None:
        """A property as text; None when the message does not have it."""
        return property_conversion.to_string(name, self._property(name))

    @property
    def correlation_id(self) -> str | None:
        return self._headers().correlation_id

    @property
    def reply_to(self) -> str | None:
        """The destination that an answer should go to: the name of a queue, or "topic:name"; ``session.producer`` takes
        both."""
        text = self._headers().reply_to
        return text[len(_QUEUE) :] if text is not None and text.startswith(_QUEUE) else text

    @property
    def dedup_id(self) -> str | None:
        """The name by which its sender made it unique."""
        return self._headers().dedup_id

    @property
    def type(self) -> str | None:
        return self._headers().type

    @property
    def destination(self) -> str:
        return self._delivery.consumer.name

    @property
    def timestamp(self) -> int:
        """The time when its producer packed it, milliseconds since 1970; 0 when its producer asked for none."""
        block = self._delivery.block
        said = self._headers().timestamp_ms if block.kind_of(self._index) == AMQP else None
        return block.timestamp_ms if said is None else said

    @property
    def expiration(self) -> int:
        """The time when it expires, milliseconds since 1970; 0 never."""
        return self._delivery.block.expires_of(self._index)

    @property
    def delivery_time(self) -> int:
        """The earliest time at which it could be delivered, milliseconds since 1970."""
        return self._delivery.block.deliver_at_of(self._index) or self.timestamp

    @property
    def priority(self) -> int:
        return self._delivery.block.priority_of(self._index)

    @property
    def persistent(self) -> bool:
        return self._delivery.block.persistent

    @property
    def tag(self) -> int:
        """Number of this delivery among those of its consumer."""
        return self._delivery.tag + self._index

    @property
    def redelivered(self) -> bool:
        """True when it was, or may have been, delivered to some application before."""
        return self.delivery_count > 1

    @property
    def delivery_count(self) -> int:
        """How often it was delivered to an application, this time included.

        What a consumer only had in its buffer when it recovered, rolled back or was closed does not count. When its
        connection was lost, or its broker restarted, nobody knows what it had handed out, and all of it counts.
        """
        delivery = self._delivery
        if self._header is not None:
            return delivery.attempt + self._header.doubtful
        beside = delivery.block.header(self._index)  # It is never among the headers that a message of AMQP has itself.
        return delivery.attempt + (decode_header(beside).doubtful if beside else 0)

    @property
    def fence(self) -> int | None:
        """The fencing number of this delivery: larger than that of every delivery before of this message, and of any
        other of its queue or subscription, also by another consumer and before a restart of the broker.

        Whatever the application writes to notes the largest number that it has seen, for the message or its unit of
        order, and refuses smaller ones: they are of somebody who has lost the message and does not know yet.

        None unless the consumer was opened with ``fenced=True``. Numbers of destinations, and of the brokers of a
        distributed destination, cannot be compared.
        """
        return getattr(self._delivery, "fence", 0) or None

    @property
    def checkpoint_state(self) -> Any:
        """What :meth:`checkpoint` was given last before this delivery; None when there was nothing."""
        state = getattr(self._delivery, "states", {}).get(self.tag)
        return decode_body(state[0], memoryview(state)[1:]) if state else None

    @property
    def draining(self) -> float | None:
        """Seconds until the Ray node of this program is taken away, ``inf`` where nobody has said when; None: it is not
        drained.  A handler that works for long looks at it now and then, and keeps a :meth:`checkpoint`."""
        return self._delivery.consumer.drain_left_s()

    @property
    def unit_of_order(self) -> str | None:
        """The unit of order that it belongs to."""
        return self._headers().unit

    def __bool__(self) -> bool:
        """True, also with an empty body: ``while m := consumer.receive(2)`` must not end at one."""
        return True

    def __len__(self) -> int:
        """Bytes of the body."""
        return self._delivery.block.body(self._index).nbytes

    def acknowledge(self) -> Any:
        """Acknowledge everything the session has consumed so far, or with acknowledgePolicy=Previous up to this one;
        ignored unless the session is "client".

        Returns when the broker has confirmed it; with asyncio this and the others are to be awaited. A message that is
        acknowledged already is no error. This and the others raise, and change nothing, when the message went back:
        ConnectionLostError when the connection to its broker was lost, and IllegalStateError after ``recover``, after
        the ack deadline, and when its consumer, session or connection is closed.

        Of messages that it covers some may have gone back, since their ack deadline has passed, their connection was
        lost or their consumer was closed: the others are acknowledged, and the same errors name those, once.
        """
        return self._delivery.consumer.session.acknowledge_by_policy(self)

    def acknowledge_this(self) -> Any:
        """Acknowledge this message alone."""
        return self._delivery.consumer.session.acknowledge_one(self)

    def acknowledge_up_to(self) -> Any:
        """Acknowledge what the session consumed up to and including this message; raises as :meth:`acknowledge` for
        what went back of that."""
        return self._delivery.consumer.session.acknowledge_up_to(self)

    def reject(self, reason: str | BaseException | None = None) -> Any:
        """It can never be processed: it is dead at once, and not delivered again.

        reason  text for whoever looks at the dead message, or an exception, whose type, text and traceback are taken.
                Raises MessageFormatError for anything else.
        """
        return self._delivery.consumer.session.settle_as(self, "reject", None, reason_text(reason))

    def release(self) -> Any:
        """Give it back unprocessed, for anybody; that does not count as a failure."""
        return self._delivery.consumer.session.settle_as(self, "release", None, "")

    def fail(
        self,
        delay_ms: int | None = None,
        reason: str | BaseException | None = None,
        *,
        cause: str | None = None,
    ) -> Any:
        """Processing failed: it comes again after ``delay_ms`` milliseconds, or is dead when it failed too often.

        None: the redelivery delay of the session or its destination. Raises MessageFormatError for a delay that is no
        whole number from 0 to 3,660 days. ``reason``: as for :meth:`reject`, written on the message when it is dead.

        cause  "error" (of the application), "oom", "lost" (who worked on it has died), "preempted", "timeout" or
               "poison": each is counted for itself and has a limit of its own, redeliveryLimitByCause of the
               destination. None: what the exception in ``reason`` tells, one of Ray's included; else "error".
        """
        check_delay_ms(delay_ms)
        outcome = outcome_of(checked_cause(cause, reason))
        return self._delivery.consumer.session.settle_as(self, outcome, delay_ms, reason_text(reason))

    @with_options(MessageOptions)
    def reply(
        self, body: Any, *, properties: Mapping[str, Any] | None = None, **options: Unpack[MessageOptions]
    ) -> Any:
        """Send an answer to its ``reply_to`` and return the answer's id; ``properties`` and ``options`` as for
        :meth:`Producer.send`.

        Its correlation id is that of this message, or without one this message's id. In a transacted session it is
        sent with the commit. Raises IllegalStateError when this message has no reply_to, InvalidDestinationError when
        the queue for the answer is gone; with asyncio it is to be awaited.
        """
        return self._delivery.consumer.session.reply(self, body, properties, options)

    def extend(self) -> Any:
        """Start its ack deadline again: it is still being worked on."""
        return self._delivery.consumer.session.extend(self)

    def checkpoint(self, state: Any) -> Any:
        """Keep how far the work on this message is: whoever gets it next, after a failure, has it in
        ``checkpoint_state``.

        state  whatever a body may be that needs no pickle, of at most maxCheckpointBytes of the destination

        Returns when it is as durable as the message is. It goes with the message when that is settled. Raises
        IllegalStateError for a message that is settled or went back, so that who has lost it cannot overwrite the work
        of who has it now; MessageFormatError for too much. For sessions with ``ack="client"`` and listeners; with
        asyncio it is to be awaited.

        In a transacted session it counts with the commit, together with what the session has sent and consumed. The
        commit does not acknowledge this message then: it stays in hand, and a later commit without a checkpoint of it
        does. After a rollback the state from before holds. ``commit`` raises what the checkpoint is refused for, and
        rolls back. The messages of one transaction that have checkpoints are of one host.
        """
        kind, data = encode_body(state)
        return self._delivery.consumer.session.checkpoint(self, bytes((kind,)) + bytes(data))

    def lease_to(self, holder: Any) -> Any:
        """Tie this delivery to the life of whoever works on it now: once that has ended, the message goes back at once.

        holder  the handle of an actor of Ray; or a process of this machine: its number, or what has a ``pid``.
                Raises ConfigError for anything else, and for a process that has ended.

        As long as the holder lives the ack deadline is extended, where the consumer has one; it is the bound for the
        case that this process stands still. The holder is looked at ten times a second, and an actor that Ray restarts
        has died; tie a message before you hand it on.

        For sessions with ``ack="client"``. Raises IllegalStateError for a message that is settled, and as
        :meth:`acknowledge` for one that went back.
        """
        return self._delivery.consumer.session.lease_to(self, holder)

    def __reduce__(self) -> Any:
        """A copy in another process has its content, without the others of its block, and cannot be acknowledged."""
        delivery = self._delivery
        data = b"".join(delivery.block.pick(1 << self._index))
        consumer = delivery.consumer
        fence = getattr(delivery, "fence", 0)
        state = getattr(delivery, "states", {}).get(self.tag)
        return _copy, (data, consumer.name, consumer.unpickles, delivery.attempt, self.tag, fence, state)

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.destination}, {len(self)} bytes, attempt {self.delivery_count}>"


_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python: there is one for each message."""


class EncodedMessage(NamedTuple):
    """A message as it is kept, and what differs from delivery to delivery."""

    kind: int
    data: memoryview
    persistent: bool
    priority: int
    expiration: int
    delivery_count: int


def encoded(message: Message) -> EncodedMessage:
    """The message as it is kept, for whoever sends it on in another protocol."""
    delivery, index = message._delivery, message._index
    block = delivery.block
    offsets = delivery.offsets
    return _new(
        EncodedMessage,
        (
            delivery.kind if delivery.kind >= 0 else block.kind_of(index),
            delivery.view[offsets[index] : offsets[index + 1]],
            block.persistent,
            block.priority_of(index),
            block.expires_of(index),
            message.delivery_count,
        ),
    )


class MessageContent(NamedTuple):
    """A message as its receiver reads it."""

    id: str
    body: Any
    properties: dict[str, Any]
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    timestamp: int
    unit: str | None


def content(message: Message) -> MessageContent:
    """Raises UnreadableError for a body that cannot be read."""
    header, body = message._headers(), message.body
    texts = header.correlation_id, message.reply_to, header.type
    return MessageContent(message.id, body, header.properties, *texts, message.timestamp, header.unit)


def drop_all(message: Message) -> None:
    """Keep what settles it, and nothing else: not even its id can be asked for any more."""
    message._delivery, message._index = _Settled(message._delivery, message.tag), 0
    message._header, message._body = _NOTHING, _UNSET


class _Settled(ReceivedDelivery):
    """What settles a message, and nothing else of its delivery."""

    __slots__ = ()

    def __init__(self, delivery: ReceivedDelivery, tag: int) -> None:
        self.consumer, self.epoch, self.tag, self.attempt = delivery.consumer, delivery.epoch, tag, delivery.attempt


class _Forgotten(ReceivedDelivery):
    """What a message keeps of its delivery when it is forgotten."""

    __slots__ = ("id",)

    def __init__(self, message: Message) -> None:
        delivery = message._delivery
        self.consumer, self.epoch, self.tag = delivery.consumer, delivery.epoch, delivery.tag
        self.attempt = message.delivery_count
        self.id = message.id


_NOTHING: Final = decode_header(None)


class _ElsewhereSession:
    """The session of a copy: the message was received in another process."""

    def __getattr__(self, name: str) -> Any:
        raise IllegalStateError(
            f"{name}() of a copy of a message: it is settled and answered where it was received; this is its content"
        )


class _Elsewhere:
    """The consumer of a copy."""

    message_bytes_max = MESSAGE_BYTES_MAX

    def __init__(self, name: str, unpickles: bool) -> None:
        self.name = name
        self.unpickles = unpickles
        self.session: Any = _ElsewhereSession()

    def drain_left_s(self) -> float | None:
        """Nobody is told here of its node."""
        return None


def _copy(
    data: bytes, name: str, unpickles: bool, attempt: int, tag: int, fence: int = 0, state: bytes | None = None
) -> Message:
    delivery = ReceivedDelivery(Block(data), _Elsewhere(name, unpickles), 0, tag, attempt)
    delivery.fence = fence
    if state is not None:
        delivery.states = {tag: state}
    return Message(delivery, 0)
