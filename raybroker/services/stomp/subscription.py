"""One subscription: messages of a consumer become MESSAGE frames, and ACK and NACK find them again.

Messages are written in batches, each once the connection has nothing unsent, so that a slow reader stops its own
deliveries: the consumer's prefetch limit is then what waits for it here.  With ack:auto a batch is acknowledged when
the kernel has it; until then it comes again, to somebody else, when the connection ends.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.session.session import SessionCore
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import ConnectionLostError, MessageFormatError, ProtocolError
from raybroker.services.gateways.answers import SMALL_BYTES
from raybroker.services.stomp.headers import CONTENT_TYPE, MessageFacts, body_bytes, message_headers, property_name
from raybroker.services.stomp.limits import BATCH_BYTES
from raybroker.services.stomp.output import StompOutput
from raybroker.wire.stomp.frame import StompFrame, Version, encode

LOG: Final = logging.getLogger("raybroker.services")
AUTO: Final = "auto"
CLIENT: Final = "client"
INDIVIDUAL: Final = "client-individual"
MODES: Final = (AUTO, CLIENT, INDIVIDUAL)
_TYPE_PROPERTY: Final = property_name(CONTENT_TYPE)


class Settling(NamedTuple):
    """What the broker says to an ACK or NACK. ``waiting``: what it has not said yet; ``lost``: of a message that went
    back when its broker was lost."""

    waiting: Confirmations
    lost: ConnectionLostError | None = None


class StompSubscription:
    """``name``: the header subscription; ``key``: names it to ACK frames, and no other subscription of any connection;
    ``text_of``: destinations as the client writes them; ``kind``: queue or topic."""

    def __init__(
        self,
        name: str,
        key: str,
        ack: str,
        session: SessionCore,
        consumer: AnyConsumer,
        *,
        version: Version,
        text_of: Callable[[str, str], str],
        kind: str,
    ) -> None:
        self.name = name
        self.key = key
        self.ack = ack
        self.lent = 0
        """Messages that open transactions acknowledge."""
        self.session = session
        self.consumer = consumer
        self._kind = kind
        self._version = version
        self._text_of = text_of
        self._serials = itertools.count(1)
        self._unacknowledged: dict[int, Message] = {}
        self._by_id: dict[str, int] = {}
        """message-id → serial; before 1.2 messages are acknowledged by it."""

    async def deliver(self, out: StompOutput) -> None:
        """Write messages until the consumer is closed; raises what ends it otherwise."""
        consumer = self.consumer
        while not consumer.closed:
            async with out.turn:  # Whoever waits for the turn has taken nothing yet.
                message = consumer.take_one()
                if message is not None:
                    await self._write_batch(message, out)
            if message is None:
                await asyncio.wrap_future(consumer.arrival_future())

    async def _write_batch(self, message: Message | None, out: StompOutput) -> None:
        """A large message is a batch of its own, and waits until there is room for it."""
        frames: list[bytes] = []
        size = 0
        while message is not None:
            nbytes = inflated_bytes(message)
            if nbytes > SMALL_BYTES:
                if frames:
                    out.write(b"".join(frames))
                    await out.flushed()
                    frames.clear()
                await self._write_large(message, nbytes, out)
                break
            data = self._frame(message)
            if data:
                frames.append(data)
                size += len(data)
            message = self.consumer.take_one() if size < BATCH_BYTES else None
        if frames:
            out.write(b"".join(frames))
            await out.flushed()
        if self.ack == AUTO:
            self.session.flush_lazily()

    async def _write_large(self, message: Message, nbytes: int, out: StompOutput) -> None:
        async with out.answers.room(out.user, nbytes):
            out.write(self._frame(message))
            await out.flushed()

    def _frame(self, message: Message) -> bytes:
        """Its MESSAGE frame; empty for one that cannot be written, which is dead."""
        kind = self._kind
        properties = message.properties
        try:
            content_type = properties.get(_TYPE_PROPERTY)
            body, content_type = body_bytes(message.body, None if content_type is None else str(content_type))
        except MessageFormatError as error:
            LOG.warning("[B2100] message %s cannot be sent to a STOMP client and is dead: %s", message.id, error)
            self.session.settle_as(message, "reject", None, str(error))
            return b""
        serial = next(self._serials)
        reply_to = message.reply_to
        facts = MessageFacts(
            message.id,
            self._text_of(kind, message.destination),
            properties,
            message.correlation_id,
            None if reply_to is None else self._reply_text(reply_to),
            message.type,
            message.timestamp,
            message.expiration,
            message.priority,
            message.persistent,
            message.delivery_count,
            message.unit_of_order,
        )
        headers = message_headers(
            facts, self.name, f"{self.key}-{serial}", with_ack=self.ack != AUTO and self._version == "1.2"
        )
        headers.setdefault(CONTENT_TYPE, content_type)
        frame = encode(StompFrame("MESSAGE", headers, body), self._version)
        if self.ack != AUTO:
            message.drop_content()
            self._unacknowledged[serial] = message
            self._by_id[headers["message-id"]] = serial
        return frame

    def _reply_text(self, reply_to: str) -> str:
        kind, _, name = reply_to.rpartition(":")
        return self._text_of(kind or "queue", name)

    # ---- acknowledgement ---------------------------------------------------------------------------------------------

    def serial_of(self, message_id: str) -> int | None:
        """Return the serial of an unacknowledged message, by its message-id."""
        return self._by_id.get(message_id)

    def take_unacknowledged(self, serial: int) -> dict[int, Message]:
        """What an ACK or NACK of that serial is about, which is not unacknowledged any more: with ack:client all
        messages up to it. Raises ProtocolError when there is none."""
        if serial not in self._unacknowledged:
            raise ProtocolError(
                f"no message {self.key}-{serial} of subscription {self.name!r:.80} waits for an acknowledgement"
            )
        serials = [serial]
        if self.ack == CLIENT:
            serials = sorted(one for one in self._unacknowledged if one <= serial)
        found = {one: self._unacknowledged.pop(one) for one in serials}
        for one, message in found.items():
            known = message.id or f"{self.key}-{one}"
            if self._by_id.get(known) == one:
                del self._by_id[known]
        return found

    def restore(self, messages: dict[int, Message]) -> None:
        """Their transaction was aborted: they are unacknowledged as before."""
        self.lent -= len(messages)
        for serial, message in messages.items():
            self._unacknowledged[serial] = message
            self._by_id[message.id or f"{self.key}-{serial}"] = serial

    def acknowledge(self, messages: dict[int, Message]) -> Settling:
        """Raises for a message that went back otherwise than with its connection."""
        if self.ack == CLIENT and not self.lent:
            try:
                return Settling(self.session.acknowledge(messages[max(messages)]))
            except ConnectionLostError:
                pass  # The last of them is lost; those before it may be of other brokers, and are settled one by one.
        return self._each(messages, self.session.acknowledge_one)

    def refuse(self, messages: dict[int, Message], *, dead: bool) -> Settling:
        """NACK: they come again, and are dead when they came too often, or at once."""
        outcome = "reject" if dead else "fail"
        return self._each(
            messages, lambda message: self.session.settle_as(message, outcome, None, "NACK of a STOMP client")
        )

    def _each(self, messages: dict[int, Message], settle: Callable[[Message], Confirmations]) -> Settling:
        found = Settling([])
        for message in messages.values():
            try:
                found.waiting.extend(settle(message))
            except ConnectionLostError as error:
                found = found._replace(lost=error)
        return found

    async def close(self) -> None:
        """What is not acknowledged goes back."""
        self.consumer.shut()
        await self.consumer.close()
        await self.session.close_the_rest()
        self._unacknowledged.clear()
        self._by_id.clear()


def inflated_bytes(message: Message) -> int:
    """Return the size of its body when it is decompressed; 0 for one that cannot be read, which is found out later."""
    try:
        return message.inflated_bytes(MESSAGE_BYTES_MAX)
    except MessageFormatError:
        return 0
