"""Messages of one link that go to its client: written in batches, a large one alone, and settled if that was agreed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from raybroker.client.consumer.message import EncodedMessage, Message, drop_all, encoded
from raybroker.client.destinations import Destination
from raybroker.client.session.session import ACKNOWLEDGE, settle_many
from raybroker.model.errors import MessageFormatError
from raybroker.services.amqp.conditions import LOG
from raybroker.services.amqp.limits import BATCH_BYTES
from raybroker.services.amqp.messages import MessageWriter, inflated_bytes
from raybroker.services.amqp.output import AmqpOutput
from raybroker.services.gateways.answers import SMALL_BYTES
from raybroker.wire.amqp.links import SendingLink

REJECT: Final = "reject"
"""Outcome of a message that is dead at once."""


class LinkWriting:
    """``destination``: where the messages are from; ``now_ms()``: the clock of its broker; ``transfers``: counts what
    is sent; ``browses``: nothing is settled.

    unsettled  delivery → message, of those that the client has to settle
    large      a message that was taken, and is sent once there is room for it
    """

    def __init__(
        self,
        link: SendingLink,
        destination: Destination,
        output: AmqpOutput,
        now_ms: Callable[[], int],
        transfers: dict[str, int],
        *,
        browses: bool,
    ) -> None:
        self.unsettled: dict[int, Message] = {}
        self.large: Message | None = None
        self._output = output
        self._now_ms = now_ms
        self._transfers = transfers
        self._link = link
        self._browses = browses
        self._writer = MessageWriter(destination.name, destination.kind)
        self._keys = itertools.count()
        self._presettled: list[Message] = []
        """They are written, and settled once the kernel has taken them."""

    async def send_some(self, take: Callable[[], Message | None], most: Callable[[], int]) -> int:
        """Send what is here and may be sent, up to a batch; how many. A large message is a batch of its own, and waits
        until there is room for it."""
        output = self._output
        await self._written()
        count = self.send_small(take, most()) if self.large is None else 0
        if not count and self.large is not None:
            large = encoded(self.large)
            async with output.answers.room(output.user, inflated_bytes(large)):
                self._send(self.large, large, self._now_ms())
                self.large = None
                await self._written()
            count = 1
            self._transfers["out"] += 1
        elif count:
            await self._written()
        return count

    def send_small(self, take: Callable[[], Message | None], most: int) -> int:
        """Send what is here and may be sent, up to a batch or a large message; how many."""
        link = self._link
        count, size, now_ms = 0, 0, self._now_ms()
        # One delivery may wait for the window of the session: the engine tells when it has left.
        while count < most and size < BATCH_BYTES and not link.lane.waiting and (message := take()) is not None:
            kept = encoded(message)
            nbytes = inflated_bytes(kept)
            if nbytes > SMALL_BYTES:
                self.large = message
                break
            size += nbytes + 64
            count += 1
            self._send(message, kept, now_ms)
        self._transfers["out"] += count
        return count

    async def _written(self) -> None:
        """Everything that was sent has left. Raises ConnectionLostError."""
        self._output.flush()
        await self._output.flushed()
        self.settle_presettled()

    def settle_presettled(self) -> None:
        if self._presettled:
            presettled, self._presettled = self._presettled, []
            settle_many(presettled, ACKNOWLEDGE)

    def _send(self, message: Message, kept: EncodedMessage, now_ms: int) -> None:
        link = self._link
        try:
            parts = self._writer.sections(message, kept, now_ms)
        except MessageFormatError as error:
            LOG.warning("[B2226] %r cannot be sent to an AMQP client and is dead: %s", message, error)
            settle_many([message], REJECT, str(error))
            return
        settled = link.peer is not None and link.peer.snd_settle_mode == 1
        key = next(self._keys)
        if not self._browses:
            if settled:
                self._presettled.append(message)
            else:
                self.unsettled[key] = message
        link.send(parts, key, settled=settled)
        drop_all(message)
