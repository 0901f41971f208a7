"""A received message: a light view into the block it came in, decoded when asked (R-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raybroker.client import bodies
from raybroker.model.block import Block
from raybroker.wire.content import BYTES, PICKLE, Header, decode_body, decode_header

if TYPE_CHECKING:
    from raybroker.client.consumer import ConsumerCore

_UNSET: Any = object()


def message_id(producer: int, seq: int) -> str:
    """The id of a message: unique as long as producer numbers are."""
    return f"ID:{producer:016x}-{seq}"


class Delivery:
    """What the messages of one delivered block share: message i has the tag ``tag + i``."""

    __slots__ = ("attempt", "block", "consumer", "epoch", "kind", "offsets", "tag", "view")

    def __init__(self, block: Block, consumer: ConsumerCore, epoch: int, tag: int, attempt: int) -> None:
        self.block = block
        self.consumer = consumer
        self.epoch = epoch
        self.tag = tag
        self.attempt = attempt
        self.offsets = block.offsets()
        self.view = block.view
        self.kind = block.kind if block.uniform else -1


class Message:
    """What ``receive`` returns. Bodies and headers are read-only values of Python."""

    __slots__ = ("_body", "_delivery", "_header", "_index")

    def __init__(self, delivery: Delivery, index: int) -> None:
        self._delivery = delivery
        self._index = index
        self._body: Any = _UNSET
        self._header: Header | None = None

    @property
    def body(self) -> Any:
        """The body as it was sent: str, bytes, or what msgpack makes of dict, list, numbers and None.

        Raises MessageFormatError for a body that does not decode, or for a pickled one when the consumer did not ask
        for that with ``serializer="pickle"``.
        """
        if self._body is _UNSET:
            delivery, index = self._delivery, self._index
            offsets = delivery.offsets
            data = delivery.view[offsets[index] : offsets[index + 1]]
            kind = delivery.kind
            if kind < 0:
                kind = delivery.block.kind_of(index)
            if kind == BYTES:
                self._body = data.tobytes()
            elif kind == PICKLE:
                self._body = bodies.unpickle(data, allowed=delivery.consumer.unpickles)
            else:
                self._body = decode_body(kind, data)
        return self._body

    def _headers(self) -> Header:
        if self._header is None:
            self._header = decode_header(self._delivery.block.header(self._index))
        return self._header

    @property
    def id(self) -> str:
        return message_id(self._delivery.block.producer, self._delivery.block.first_seq + self._index)

    @property
    def properties(self) -> dict[str, Any]:
        return self._headers().properties

    @property
    def correlation_id(self) -> str | None:
        return self._headers().correlation_id

    @property
    def reply_to(self) -> str | None:
        return self._headers().reply_to

    @property
    def type(self) -> str | None:
        return self._headers().type

    @property
    def destination(self) -> str:
        return self._delivery.consumer.name

    @property
    def timestamp(self) -> int:
        """When its producer packed it, milliseconds since 1970."""
        return self._delivery.block.timestamp_ms

    @property
    def expiration(self) -> int:
        """Milliseconds since 1970; 0 never."""
        return 0

    @property
    def priority(self) -> int:
        return self._delivery.block.priority

    @property
    def persistent(self) -> bool:
        return self._delivery.block.persistent

    @property
    def tag(self) -> int:
        """Number of this delivery among those of its consumer."""
        return self._delivery.tag + self._index

    @property
    def redelivered(self) -> bool:
        """True when it was handed to some consumer before (R-11)."""
        return self._delivery.attempt > 1

    @property
    def delivery_count(self) -> int:
        """How often it was handed out, this time included."""
        return self._delivery.attempt

    @property
    def unit_of_order(self) -> str | None:
        return None

    def __len__(self) -> int:
        """Bytes of the body."""
        return self._delivery.block.body(self._index).nbytes

    def acknowledge(self) -> Any:
        """Acknowledge everything the session has consumed so far (R-08); ignored unless the session is "client".

        Returns when the broker has confirmed it, and raises ConnectionLostError when it cannot; with asyncio this and
        the other two are to be awaited.
        """
        return self._delivery.consumer.session.acknowledge(None)

    def acknowledge_this(self) -> Any:
        """Acknowledge this message alone (R-08)."""
        return self._delivery.consumer.session.acknowledge_one(self)

    def acknowledge_up_to(self) -> Any:
        """Acknowledge what the session consumed up to and including this message (R-08)."""
        return self._delivery.consumer.session.acknowledge(self)

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.destination}, {len(self)} bytes, attempt {self.delivery_count}>"
