"""Every composite type of AMQP 1.0 as one table: performatives, SASL frames, delivery states, termini, sections.

A class of the table is a tuple of the fields that the specification names, in its order. The annotation of a field is
its type, with which it is read and written; a field that has no default is mandatory, and a default is the value that
a null, or a missing last field, stands for. ``COMPOSITES`` has what was made of that: a reader and an encoder for each
class, by descriptor.

    data = encode_composite(AmqpOpen("a", channel_max=7))
    value, end = decode_composite(data)

A class is made known by the decorator ``composite``. Names that mean something else in the package begin with Amqp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from raybroker.model.errors import MessageFormatError
from raybroker.wire.amqp.field_readers import reader_of
from raybroker.wire.amqp.types import (
    MALFORMED,
    NESTING_MAX,
    READERS,
    AmqpArray,
    Buffer,
    Packer,
    Reader,
    Symbol,
    encode,
    encode_binary,
    encode_boolean,
    encode_fields,
    encode_items,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbols,
    encode_uint,
    encode_ulong,
    explained,
    malformed,
    read_descriptor,
    readers_of,
)

U32: Final = 0xFFFFFFFF


class FieldType:
    """A type of fields: ``readers`` are the constructors that it may have, ``encode`` writes it with one."""

    __slots__ = ("encode", "name", "readers")

    def __init__(self, name: str, readers: Mapping[int, Reader], encode: Packer) -> None:
        self.name = name
        self.readers = readers
        self.encode = encode


def _plain(kind: str, encoder: Packer) -> FieldType:
    return FieldType(kind, readers_of(kind), encoder)


def _ranged(kind: str, layout: str, code: int) -> FieldType:
    pack = struct.Struct(layout).pack
    front = bytes((code,))
    return FieldType(kind, readers_of(kind), lambda value: front + pack(value))


def _read_symbols(reader: Reader) -> Reader:
    """A field of several symbols may be one symbol, or an array of them."""

    def read(buffer: Any, at: int, levels: int) -> tuple[tuple[Symbol, ...], int]:
        value, end = reader(buffer, at, levels)
        items = value.items if type(value) is AmqpArray else (value,)
        if any(type(item) is not Symbol for item in items):
            raise malformed("an array of symbols has something else in it")
        return items, end

    return read


def _read_fields(reader: Reader) -> Reader:
    """A map whose keys are symbols; annotations may have ulongs."""

    def read(buffer: Any, at: int, levels: int) -> tuple[dict[Any, Any], int]:
        value, end = reader(buffer, at, levels)
        for key in value:
            if type(key) is not Symbol and type(key) is not int:
                raise malformed(f"a key of a map of fields or annotations is a {type(key).__name__}, no symbol")
        return value, end

    return read


def _read_composite(buffer: Any, at: int, levels: int) -> tuple[Any, int]:
    """A described value: of the table, or as it is."""
    if buffer[at] == _SMALL_ULONG:
        descriptor, start = buffer[at + 1], at + 2
        if buffer[start] == _LIST0 and descriptor in _EMPTY:
            return _EMPTY[descriptor], start + 1
    else:
        descriptor, start = read_descriptor(buffer, at)
    known = COMPOSITES.get(descriptor)
    if known is None or levels < 1:
        return READERS[0](buffer, at, levels)
    return known.read_fields(buffer, start, levels - 1)


def _read_one_of(*names: str) -> Reader:
    """A described value of some classes of the table."""

    def read(buffer: Any, at: int, levels: int) -> tuple[Any, int]:
        value, end = _read_composite(buffer, at, levels)
        if type(value).__name__ not in names:
            raise malformed(f"a described value is none of {', '.join(names)}")
        return value, end

    return read


def _wrapped(kinds: tuple[str, ...], around: Callable[[Reader], Reader]) -> Mapping[int, Reader]:
    return {code: around(reader) for code, reader in readers_of(*kinds).items()}


_SMALL_ULONG: Final = 0x53
_LIST0: Final = 0x45
_EMPTY: Final[dict[int, Any]] = {}
"""Descriptor → the value without fields, of those that have one and come often: outcomes."""
_BY_DESCRIPTOR: Final[dict[Any, Composite]] = {}
_BY_KIND: Final[dict[type[Any], Composite]] = {}
COMPOSITES: Final[Mapping[Any, Composite]] = MappingProxyType(_BY_DESCRIPTOR)
"""Descriptor, the number and the symbol, → what reads and writes that class."""


def encode_composite(value: Any) -> bytes:
    """A value of the table, or one that is Described. Raises MessageFormatError."""
    known = _BY_KIND.get(type(value))
    if known is None:
        return encode(value)
    try:
        return known.encode_fields(value)
    except (struct.error, ValueError, AttributeError, TypeError, OverflowError) as error:
        raise MessageFormatError(f"a field of {known.symbol} cannot be written: {error}") from None


_ANY: Final = readers_of()
Boolean = Annotated[bool, _plain("boolean", encode_boolean)]
UbyteField = Annotated[int, _ranged("ubyte", ">B", 0x50)]
UshortField = Annotated[int, _ranged("ushort", ">H", 0x60)]
UintField = Annotated[int, _plain("uint", encode_uint)]
UlongField = Annotated[int, _plain("ulong", encode_ulong)]
TimestampField = Annotated[int, _ranged("timestamp", ">q", 0x83)]
Binary = Annotated[bytes, _plain("binary", encode_binary)]
String = Annotated[str, _plain("string", encode_string)]
SymbolField = Annotated[str, _plain("symbol", encode_symbol)]
Symbols = Annotated[tuple[str, ...], FieldType("symbols", _wrapped(("symbol", "array"), _read_symbols), encode_symbols)]
Fields = Annotated[dict[Any, Any], FieldType("fields", _wrapped(("map",), _read_fields), encode_fields)]
MapField = Annotated[dict[Any, Any], FieldType("map", readers_of("map"), encode_map)]
Anything = Annotated[Any, FieldType("any", _ANY, encode)]
State = Annotated[Any, FieldType("state", {0: _read_composite}, encode_composite)]
"""A delivery state; what is not in the table is Described."""
MessageId = Annotated[
    Any,
    FieldType(
        "message-id",
        readers_of("string", "ulong", "uuid", "binary"),
        lambda value: encode_ulong(value) if isinstance(value, int) else encode(value),
    ),
]


def _one_of(*names: str) -> FieldType:
    return FieldType(names[0], {0: _read_one_of(*names)}, encode_composite)


SourceField = Annotated[Any, _one_of("AmqpSource")]
TargetField = Annotated[Any, _one_of("AmqpTarget", "Coordinator")]
ErrorField = Annotated[Any, _one_of("AmqpError")]


class Composite:
    """Reads and writes one class of the table."""

    def __init__(self, kind: type[Any], symbol: str, descriptor: int) -> None:
        hints = get_type_hints(kind, include_extras=True)
        fields: Sequence[str] = kind.__dict__["_fields"]
        defaults: Mapping[str, Any] = kind.__dict__["_field_defaults"]
        self.kind = kind
        self.symbol = Symbol(symbol)
        self.descriptor = descriptor
        self.fields = fields
        self.types = [_type_of(hints[name]) for name in fields]
        self._front = b"\0" + encode_ulong(descriptor)
        self._defaults = [defaults.get(name) for name in fields]
        mandatory = [
            index
            for index, name in enumerate(fields)
            if name not in defaults and type(None) not in get_args(hints[name])
        ]
        types = [(one.name, one.readers) for one in self.types]
        self.read_fields = reader_of(kind, symbol, fields, types, self._defaults, mandatory)
        """Reads the list that begins there with its constructor."""

    def encode_fields(self, value: Any) -> bytes:
        """The described list; fields that are defaults are null, and left out at the end."""
        last, defaults, types = len(value), self._defaults, self.types
        while last and value[last - 1] == defaults[last - 1]:
            last -= 1
        if not last:
            return self._front + b"\x45"
        parts = []
        for index in range(last):
            item = value[index]
            parts.append(b"\x40" if item is None or item == defaults[index] else types[index].encode(item))
        return self._front + encode_items(parts, 0xC0, 0xD0)


def _type_of(hint: Any) -> FieldType:
    """The type in an annotation, which may be optional."""
    for one in (hint, *get_args(hint)):
        for extra in getattr(one, "__metadata__", ()):
            if isinstance(extra, FieldType):
                return extra
    raise TypeError(f"{hint} names no type of AMQP")


T = TypeVar("T")


def composite(symbol: str, descriptor: int) -> Callable[[type[T]], type[T]]:
    """Take a class into the table."""

    def known(kind: type[T]) -> type[T]:
        made = Composite(kind, symbol, descriptor)
        _BY_DESCRIPTOR[descriptor] = _BY_DESCRIPTOR[made.symbol] = _BY_KIND[kind] = made
        return kind

    return known


def composite_of(kind: type[Any]) -> Composite:
    """What reads and writes a class of the table."""
    return _BY_KIND[kind]


def decode_composite(buffer: Buffer, at: int = 0) -> tuple[Any, int]:
    """The described value that begins there, of the table or Described, and where it ends. Raises AmqpViolation."""
    try:
        if buffer[at]:
            raise malformed("a described value is expected, and something else came")
        known = _BY_DESCRIPTOR.get(buffer[at + 2]) if buffer[at + 1] == _SMALL_ULONG else None
        if known is not None:
            value, end = known.read_fields(buffer, at + 3, NESTING_MAX)
        else:
            value, end = _read_composite(buffer, at + 1, NESTING_MAX)
    except MALFORMED as error:
        raise explained(error) from None
    if end > len(buffer):
        raise malformed("a value goes on behind the end")
    return value, end


# ---- performatives -------------------------------------------------------------------------------------------------


@composite("amqp:open:list", 0x10)
class AmqpOpen(NamedTuple):
    container_id: String
    hostname: String | None = None
    max_frame_size: UintField = U32
    channel_max: UshortField = 65535
    idle_time_out: UintField | None = None
    outgoing_locales: Symbols | None = None
    incoming_locales: Symbols | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Fields | None = None


@composite("amqp:begin:list", 0x11)
class AmqpBegin(NamedTuple):
    remote_channel: UshortField | None
    next_outgoing_id: UintField
    incoming_window: UintField
    outgoing_window: UintField
    handle_max: UintField = U32
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Fields | None = None


@composite("amqp:attach:list", 0x12)
class AmqpAttach(NamedTuple):
    """``role``: True is a receiver."""

    name: String
    handle: UintField
    role: Boolean
    snd_settle_mode: UbyteField = 2
    rcv_settle_mode: UbyteField = 0
    source: SourceField | None = None
    target: TargetField | None = None
    unsettled: MapField | None = None
    incomplete_unsettled: Boolean = False
    initial_delivery_count: UintField | None = None
    max_message_size: UlongField | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: Fields | None = None


@composite("amqp:flow:list", 0x13)
class AmqpFlow(NamedTuple):
    next_incoming_id: UintField | None
    incoming_window: UintField
    next_outgoing_id: UintField
    outgoing_window: UintField
    handle: UintField | None = None
    delivery_count: UintField | None = None
    link_credit: UintField | None = None
    available: UintField | None = None
    drain: Boolean = False
    echo: Boolean = False
    properties: Fields | None = None


@composite("amqp:transfer:list", 0x14)
class AmqpTransfer(NamedTuple):
    handle: UintField
    delivery_id: UintField | None = None
    delivery_tag: Binary | None = None
    message_format: UintField | None = None
    settled: Boolean | None = None
    more: Boolean = False
    rcv_settle_mode: UbyteField | None = None
    state: State | None = None
    resume: Boolean = False
    aborted: Boolean = False
    batchable: Boolean = False


@composite("amqp:disposition:list", 0x15)
class AmqpDisposition(NamedTuple):
    """``role``: True comes from the receiver of the deliveries."""

    role: Boolean
    first: UintField
    last: UintField | None = None
    settled: Boolean = False
    state: State | None = None
    batchable: Boolean = False


@composite("amqp:detach:list", 0x16)
class AmqpDetach(NamedTuple):
    handle: UintField
    closed: Boolean = False
    error: ErrorField | None = None


@composite("amqp:end:list", 0x17)
class AmqpEnd(NamedTuple):
    error: ErrorField | None = None


@composite("amqp:close:list", 0x18)
class AmqpClose(NamedTuple):
    error: ErrorField | None = None


@composite("amqp:error:list", 0x1D)
class AmqpError(NamedTuple):
    condition: SymbolField
    description: String | None = None
    info: Fields | None = None


# ---- SASL ----------------------------------------------------------------------------------------------------------


@composite("amqp:sasl-mechanisms:list", 0x40)
class SaslMechanisms(NamedTuple):
    sasl_server_mechanisms: Symbols


@composite("amqp:sasl-init:list", 0x41)
class SaslInit(NamedTuple):
    mechanism: SymbolField
    initial_response: Binary | None = None
    hostname: String | None = None


@composite("amqp:sasl-challenge:list", 0x42)
class SaslChallenge(NamedTuple):
    challenge: Binary


@composite("amqp:sasl-response:list", 0x43)
class SaslResponse(NamedTuple):
    response: Binary


@composite("amqp:sasl-outcome:list", 0x44)
class SaslOutcome(NamedTuple):
    """``code``: 0 ok, 1 auth, 2 sys, 3 sys-perm, 4 sys-temp."""

    code: UbyteField
    additional_data: Binary | None = None


# ---- delivery states -----------------------------------------------------------------------------------------------


@composite("amqp:received:list", 0x23)
class AmqpReceived(NamedTuple):
    section_number: UintField
    section_offset: UlongField


@composite("amqp:accepted:list", 0x24)
class AmqpAccepted(NamedTuple):
    pass


@composite("amqp:rejected:list", 0x25)
class AmqpRejected(NamedTuple):
    error: ErrorField | None = None


@composite("amqp:released:list", 0x26)
class AmqpReleased(NamedTuple):
    pass


@composite("amqp:modified:list", 0x27)
class AmqpModified(NamedTuple):
    delivery_failed: Boolean | None = None
    undeliverable_here: Boolean | None = None
    message_annotations: Fields | None = None


ACCEPTED: Final = AmqpAccepted()
RELEASED: Final = AmqpReleased()
_EMPTY.update({0x24: ACCEPTED, 0x26: RELEASED})


# ---- termini -------------------------------------------------------------------------------------------------------


@composite("amqp:source:list", 0x28)
class AmqpSource(NamedTuple):
    """``durable``: 0 none, 1 configuration, 2 unsettled-state."""

    address: String | None = None
    durable: UintField = 0
    expiry_policy: SymbolField = "session-end"
    timeout: UintField = 0
    dynamic: Boolean = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: SymbolField | None = None
    filter: Fields | None = None
    default_outcome: State | None = None
    outcomes: Symbols | None = None
    capabilities: Symbols | None = None


@composite("amqp:target:list", 0x29)
class AmqpTarget(NamedTuple):
    address: String | None = None
    durable: UintField = 0
    expiry_policy: SymbolField = "session-end"
    timeout: UintField = 0
    dynamic: Boolean = False
    dynamic_node_properties: Fields | None = None
    capabilities: Symbols | None = None


@composite("amqp:delete-on-close:list", 0x2B)
class DeleteOnClose(NamedTuple):
    """A lifetime policy of dynamic nodes."""


# ---- transactions --------------------------------------------------------------------------------------------------


@composite("amqp:coordinator:list", 0x30)
class Coordinator(NamedTuple):
    capabilities: Symbols | None = None


@composite("amqp:declare:list", 0x31)
class Declare(NamedTuple):
    global_id: Anything | None = None


@composite("amqp:discharge:list", 0x32)
class Discharge(NamedTuple):
    txn_id: Binary
    fail: Boolean | None = None


@composite("amqp:declared:list", 0x33)
class Declared(NamedTuple):
    txn_id: Binary


@composite("amqp:transactional-state:list", 0x34)
class TransactionalState(NamedTuple):
    txn_id: Binary
    outcome: State | None = None


# ---- sections of a message -----------------------------------------------------------------------------------------


@composite("amqp:header:list", 0x70)
class AmqpHeader(NamedTuple):
    durable: Boolean = False
    priority: UbyteField = 4
    ttl: UintField | None = None
    first_acquirer: Boolean = False
    delivery_count: UintField = 0


@composite("amqp:properties:list", 0x73)
class AmqpProperties(NamedTuple):
    message_id: MessageId | None = None
    user_id: Binary | None = None
    to: String | None = None
    subject: String | None = None
    reply_to: String | None = None
    correlation_id: MessageId | None = None
    content_type: SymbolField | None = None
    content_encoding: SymbolField | None = None
    absolute_expiry: TimestampField | None = None
    creation_time: TimestampField | None = None
    group_id: String | None = None
    group_sequence: UintField | None = None
    reply_to_group_id: String | None = None
