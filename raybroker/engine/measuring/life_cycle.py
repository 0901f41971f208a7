"""The log of messages' lives: what happens to each message of the destinations that want it.

It costs a line a message and an event, so it is off unless a destination has messageLoggingEnabled; then an event is
told as a row of plain values to ``sink``, in the order of what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter, Outcome, SendAnswered
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.ports import Clock, Codec
from raybroker.engine.sessions.attachments import Attachment
from raybroker.engine.sessions.sessions import Sessions
from raybroker.model.blocks.block import Block
from raybroker.model.errors import StoreError

PRODUCED: Final = "Produced"
CONSUMED: Final = "Consumed"
REMOVED: Final = "Removed"
EXPIRED: Final = "Expired"
RETRY_EXCEEDED: Final = "Retry exceeded"
CONSUMER_CREATED: Final = "Consumer created"
CONSUMER_DESTROYED: Final = "Consumer destroyed"
_DEATHS: Final = {"EXPIRED": EXPIRED, "UNDELIVERABLE": RETRY_EXCEEDED, "ERROR": RETRY_EXCEEDED}

ROLLED_BACK: Final = "ROLLED_BACK"

Event = dict[str, Any]


class LifeCycle:
    """``sink``: takes a row for each event; without one nothing is told."""

    def __init__(
        self,
        cache: BlockCache,
        codec: Codec,
        clock: Clock,
        sessions: Sessions,
        sink: Callable[[Event], None] | None,
    ) -> None:
        self._cache = cache
        self._codec = codec
        self._clock = clock
        self._sessions = sessions
        self.sink = sink

    def wanted(self, destination: Destination) -> bool:
        return self.sink is not None and destination.attributes.messageLoggingEnabled

    def produced(self, destination: Destination, outcome: Outcome, block: Block) -> None:
        """All that was not refused; consumers may have had it already."""
        mask = (1 << block.count) - 1
        for effect in (*outcome.immediate, *outcome.after_durable):
            for row in effect.refused if isinstance(effect, SendAnswered) else ():
                mask &= ~((1 << row.end) - (1 << row.start))
        self._tell(destination, PRODUCED, block, mask, {"transaction": _transaction_of(destination, outcome.accepted)})

    def consumed(self, attachment: Attachment, ranges: Sequence[tuple[int, int]], txn: int = 0) -> None:
        """It is about to acknowledge deliveries."""
        destination = attachment.destination
        consumer = attachment.state()
        if consumer is None:
            return
        who = {**self._who(attachment), "transaction": txn or None}
        for delivery in list(consumer.unsettled):
            last = delivery.tag + delivery.count - 1
            tags = [t for first, end in ranges for t in range(max(first, delivery.tag), min(end, last) + 1)]
            if tags:
                places = list(pk.indexes(delivery.run.mask))
                mask = pk.of_indexes(places[tag - delivery.tag] for tag in tags)
                self.tell_held(destination, CONSUMED, delivery.run.ordinal, mask, who)

    def handed(self, attachment: Attachment, ordinal: int, mask: int) -> None:
        """A consumer without acknowledgements has consumed what it gets."""
        self.tell_held(attachment.destination, CONSUMED, ordinal, mask, self._who(attachment))

    def died(self, destination: Destination, effect: DeadLetter, block: Block) -> None:
        event = _DEATHS.get(effect.reason, REMOVED)
        self._tell(destination, event, block, effect.mask, {"reason": effect.reason})

    def rolled_back(self, destination: Destination, number: int) -> None:
        """A transaction is about to be rolled back: what was produced in it is not there after all."""
        staged = destination.staged.get(number)
        for block in staged.blocks if staged is not None and self.wanted(destination) else ():
            self.tell_held(
                destination, REMOVED, block.ordinal, block.mask, {"reason": ROLLED_BACK, "transaction": number}
            )

    def removed(self, destination: Destination, ordinal: int, mask: int) -> None:
        """Tell that an administrator has removed the messages."""
        self.tell_held(destination, REMOVED, ordinal, mask, {})

    def consumer(self, attachment: Attachment, event: str) -> None:
        """CONSUMER_CREATED or CONSUMER_DESTROYED."""
        if self.wanted(attachment.destination):
            self._put(attachment.destination, event, self._who(attachment))

    # ---- internals

    def tell_held(self, destination: Destination, event: str, ordinal: int, mask: int, more: Event) -> None:
        """Tell an event of messages of a held block; one that the store cannot give back has nothing to tell."""
        try:
            block = self._cache.get(destination.number, ordinal)
        except StoreError:
            return
        self._tell(destination, event, block, mask, more)

    def _tell(self, destination: Destination, event: str, block: Block, mask: int, more: Event) -> None:
        for index in pk.indexes(mask):
            fields = self._codec.life(block, index, destination.attributes.messageLoggingFormat)
            self._put(destination, event, {**fields, **more})

    def _put(self, destination: Destination, event: str, fields: Event) -> None:
        assert self.sink is not None
        self.sink(
            {
                "event": event,
                "type": destination.kind,
                "destination": destination.name,
                "ms": self._clock.now_ms(),
                "ns": self._clock.monotonic_ns(),
                **fields,
            }
        )

    def _who(self, attachment: Attachment) -> Event:
        """The consumer, and the connection that it is on."""
        destination = attachment.destination
        queue, consumer = destination.queue_of.get(attachment.number), attachment.state()
        session = self._sessions.session_of(attachment.peer)
        own = queue.subscription if queue is not None else None
        selector = own.selector if own is not None else None
        if selector is None and queue is not None and consumer is not None:
            chosen = queue.plain.selector_index.selectors.get(consumer.selector)
            selector = chosen.text if chosen is not None else None
        return {
            "consumer": attachment.consumer or str(attachment.number),
            "subscription": own.name if own else None,
            "selector": selector,
            "client_id": session.client_id if session is not None else None,
            "connection": session.connection if session is not None else None,
        }


def _transaction_of(destination: Destination, ordinal: int | None) -> int | None:
    """The number of the open transaction in which a block was just sent; list txn shows it as ``id``."""
    for number, staged in destination.staged.items():
        if ordinal is not None and staged.blocks and staged.blocks[-1].ordinal == ordinal:
            return number
    return None
