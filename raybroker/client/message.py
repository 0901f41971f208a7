"""A received message: a light view into the block it came in, decoded when asked (R-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raybroker.client import bodies
from raybroker.model.block import Block
from raybroker.wire.content import PICKLE, Header, decode_body, decode_header

if TYPE_CHECKING:
    from raybroker.client.consumer import ConsumerCore

_UNSET: Any = object()


def message_id(producer: int, seq: int) -> str:
    """The id of a message: unique as long as producer numbers are."""
    return f"ID:{producer:016x}-{seq}"


class Message:
    """What ``receive`` returns. Bodies and headers are read-only values of Python."""

    __slots__ = ("_block", "_body", "_consumer", "_header", "_index", "attempt", "epoch", "serial", "tag")

    def __init__(self, block: Block, index: int, consumer: ConsumerCore, epoch: int, tag: int, attempt: int) -> None:
        self._block = block
        self._index = index
        self._consumer = consumer
        self._body: Any = _UNSET
        self._header: Header | None = None
        self.epoch = epoch
        self.tag = tag
        self.attempt = attempt
        self.serial = 0

    @property
    def body(self) -> Any:
        """The body as it was sent: str, bytes, or what msgpack makes of dict, list, numbers and None.

        Raises MessageFormatError for a body that does not decode, or for a pickled one when the consumer did not ask
        for that with ``serializer="pickle"``.
        """
        if self._body is _UNSET:
            kind, data = self._block.kind_of(self._index), self._block.body(self._index)
            if kind == PICKLE:
                self._body = bodies.unpickle(data, allowed=self._consumer.unpickles)
            else:
                self._body = decode_body(kind, data)
        return self._body

    def _headers(self) -> Header:
        if self._header is None:
            self._header = decode_header(self._block.header(self._index))
        return self._header

    @property
    def id(self) -> str:
        return message_id(self._block.producer, self._block.first_seq + self._index)

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
        return self._consumer.name

    @property
    def timestamp(self) -> int:
        """When its producer packed it, milliseconds since 1970."""
        return self._block.timestamp_ms

    @property
    def expiration(self) -> int:
        """Milliseconds since 1970; 0 never."""
        return 0

    @property
    def priority(self) -> int:
        return self._block.priority

    @property
    def persistent(self) -> bool:
        return self._block.persistent

    @property
    def redelivered(self) -> bool:
        """True when it was handed to some consumer before (R-11)."""
        return self.attempt > 1

    @property
    def delivery_count(self) -> int:
        """How often it was handed out, this time included."""
        return self.attempt

    @property
    def unit_of_order(self) -> str | None:
        return None

    def __len__(self) -> int:
        """Bytes of the body."""
        return self._block.body(self._index).nbytes

    def acknowledge(self) -> None:
        """Acknowledge everything the session has consumed so far (R-08); ignored unless the session is "client"."""
        self._consumer.session.acknowledge(None)

    def acknowledge_this(self) -> None:
        """Acknowledge this message alone (R-08)."""
        self._consumer.session.acknowledge_one(self)

    def acknowledge_up_to(self) -> None:
        """Acknowledge what the session consumed up to and including this message (R-08)."""
        self._consumer.session.acknowledge(self)

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.destination}, {len(self)} bytes, attempt {self.attempt}>"
