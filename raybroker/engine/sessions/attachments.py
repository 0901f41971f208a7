"""Producers and consumers on connections, by the numbers that a host gives them."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from raybroker.core.delivery.consumers import Consumer
from raybroker.core.destination import Destination
from raybroker.core.outcome import Deliver, Drained, Ready
from raybroker.engine.measuring.destination_meter import ConsumerMeter, ProducerMeter
from raybroker.engine.ports import Peer

SEND_TIMEOUT_MS: Final = 10
"""WebLogic's SendTimeout, for producers that say none."""
ATTACHMENT_BITS = 40
"""Attachments of one life of a host; the bits above are its incarnation, so numbers are never used twice."""


class Attachment:
    """A producer or consumer on a connection. Its number is the *epoch* that deliveries and acknowledgements carry."""

    __slots__ = (
        "__weakref__",
        "answers",
        "broker",
        "consumer",
        "destination",
        "eager",
        "first_tag",
        "handle",
        "leased",
        "meter",
        "number",
        "obeys",
        "outbox",
        "peer",
        "pieces",
        "send_timeout_ms",
    )

    def __init__(
        self, number: int, destination: Destination, peer: Peer, handle: int, outbox: Outbox, *, eager: bool
    ) -> None:
        self.number = number
        self.destination = destination
        self.peer = peer
        self.handle = handle
        self.outbox = outbox
        self.first_tag = 1
        """Deliveries tagged below were decided before the consumer gave everything back: they are not its any more."""
        self.eager = eager
        """Deliveries leave with the release that decides them, since nothing holds their bytes afterwards."""
        self.consumer = ""
        """Id of a consumer, the same for its attachments on all brokers and after each reconnect; "": it told none."""
        self.broker = ""
        """Home broker of a consumer's connection; "" where there is one broker."""
        self.meter: ProducerMeter | ConsumerMeter | None = None
        self.answers = False
        """A producer that is told what becomes of messages that are not persistent too."""
        self.obeys = False
        """A producer that is to hear when its destination is over a threshold."""
        self.send_timeout_ms = SEND_TIMEOUT_MS
        """How long a producer's messages wait for room in a pool."""
        self.leased = False
        """Deliveries that wait for too long are taken back, and must not leave any more."""
        self.pieces = False
        """A consumer with little memory: it reads large bodies when it has room, those in our memory too."""

    def state(self) -> Consumer | None:
        """The consumer as its destination knows it; None for a producer, and for a consumer that has gone."""
        queue = self.destination.queue_of.get(self.number)
        return queue.consumers.by_attachment.get(self.number) if queue is not None else None

    def may_leave(self, effect: Deliver) -> bool:
        """False for messages that were taken back while they waited here: the consumer has none of them any more."""
        if not self.leased or self.eager:
            return True
        consumer = self.state()
        last = effect.tag + effect.mask.bit_count() - 1
        return consumer is not None and consumer.count_of([(effect.tag, last)]) > 0


class Outbox:
    """What is decided for one connection and not written yet, because the connection is full."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[Attachment, Deliver | Drained | Ready]] = []


class Attachments:
    """The attachments of a host; ``by_number``: those that have not ended. ``incarnation`` grows with every start over
    the same store."""

    def __init__(self, incarnation: int) -> None:
        self.by_number: dict[int, Attachment] = {}
        self._next = (incarnation << ATTACHMENT_BITS) + 1
        self._of_consumer: WeakValueDictionary[tuple[int, str], Attachment] = WeakValueDictionary()

    def attach(
        self, destination: Destination, peer: Peer, handle: int, outbox: Outbox, *, eager: bool = False
    ) -> Attachment:
        """A number for a new producer or consumer; who asks performs Attach… next and ends it if that raises."""
        attachment = Attachment(self._next, destination, peer, handle, outbox, eager=eager)
        self._next += 1
        self.by_number[attachment.number] = attachment
        return attachment

    def succeeds(self, attachment: Attachment) -> Attachment | None:
        """Note the attachment of a consumer; the one that it has at the same destination already, or None.

        There is one when the client has lost a connection, and come back, before its host has noticed.
        """
        if not attachment.consumer:
            return None
        key = attachment.destination.number, attachment.consumer
        before = self._of_consumer.get(key)
        self._of_consumer[key] = attachment
        return before if before is not None and before.number in self.by_number else None

    def end_attachments(self, destination: Destination) -> list[Attachment]:
        """End all of a destination; returns them."""
        ended = [attachment for attachment in self.by_number.values() if attachment.destination is destination]
        for attachment in ended:
            del self.by_number[attachment.number]
        return ended
