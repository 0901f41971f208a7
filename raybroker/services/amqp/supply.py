"""The supply of a link: its consumer, asked for as many messages as its client may get, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.session.session import settle_many
from raybroker.services.amqp.conditions import LOG
from raybroker.services.amqp.limits import DRAIN_TIMEOUT_S

UNSEEN: Final = "unseen"


class LinkSupply:
    """``consumer``: brings the messages; ``arrived()``: called in whichever thread when there are some again."""

    def __init__(self, consumer: AnyConsumer, arrived: Callable[[], object]) -> None:
        self.consumer = consumer
        self._arrived = arrived
        self._asked = 0
        """Messages that were asked for and not sent: on their way, or waiting in the consumer's buffer."""
        self._arrival: Future[None] | None = None

    def ask_for(self, most: int) -> bool:
        """Ask for as many as are allowed; False when more were asked for, which :meth:`take_back` is for."""
        if most < self._asked:
            return False
        self._asked = most
        self.consumer.want(most)
        return True

    async def take_back(self, allowed: Callable[[], int]) -> None:
        """Ask for no more than are ``allowed()``: what was asked for credit that the client has taken back is for
        others."""
        consumer = self.consumer
        consumer.want(allowed())
        await self.come_to_rest()
        left = []
        while (message := consumer.take_one()) is not None:
            left.append(message)
        settle_many(left, UNSEEN)
        self._asked = allowed()
        consumer.want(self._asked)

    def sent(self, count: int) -> None:
        """Some that were asked for were sent, ``count`` in all."""
        self._asked -= count

    def nothing_asked(self) -> None:
        """Its buffer is empty, and nothing is on its way."""
        self._asked = 0

    async def come_to_rest(self) -> None:
        """Everything that the broker has for what was asked has come; nothing more does."""
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self.consumer.drain()
        except TimeoutError:
            LOG.warning("[B2225] the broker did not say in %g s whether there is more for a drain", DRAIN_TIMEOUT_S)

    def wait(self) -> None:
        """Have ``arrived()`` called, once."""
        if self._arrival is None or self._arrival.done():
            self._arrival = self.consumer.arrival_future()
            self._arrival.add_done_callback(lambda _: self._arrived())
