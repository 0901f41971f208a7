"""Links on which clients receive: messages of a consumer become deliveries, and dispositions settle them.

The link's credit is what the consumer asks of the broker, up to LINK_MESSAGES_MAX at a time: nothing waits here that
the client has not asked for, so that others may have it.  A drain asks the broker whether there is more, and is
answered when there is not.  Messages are written in batches, each once the connection has nothing unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations
from raybroker.client.consumer.browser import BrowserCore
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.destinations import Destination
from raybroker.client.session.session import ACKNOWLEDGE, settle_many
from raybroker.model.errors import BrokerError
from raybroker.services.amqp.client import AmqpClient
from raybroker.services.amqp.limits import LINK_MESSAGES_MAX
from raybroker.services.amqp.link_writing import REJECT, LinkWriting
from raybroker.services.amqp.supply import UNSEEN, LinkSupply
from raybroker.transport.loops import running_loop
from raybroker.wire.amqp.events import DispositionReceived
from raybroker.wire.amqp.links import SendingLink
from raybroker.wire.amqp.performatives import (
    AmqpAccepted,
    AmqpModified,
    AmqpRejected,
    AmqpReleased,
    TransactionalState,
)

FAIL: Final = "fail"


def outcome_of(state: Any, default: Any) -> tuple[str, str] | None:
    """(outcome, reason) of a delivery state; None for one that ends nothing. ``default``: where none was told."""
    if state is None:
        state = default or AmqpReleased()
    if isinstance(state, AmqpAccepted):
        return ACKNOWLEDGE, ""
    if isinstance(state, AmqpRejected):
        error = state.error
        return REJECT, (error.description or error.condition) if error is not None else "rejected by an AMQP client"
    if isinstance(state, AmqpModified):
        if state.undeliverable_here:
            return REJECT, "undeliverable, says an AMQP client"
        return (FAIL, "failed, says an AMQP client") if state.delivery_failed else (UNSEEN, "")
    return (UNSEEN, "") if isinstance(state, AmqpReleased) else None


class AmqpBrowser:
    """What a browser finds, as messages of a consumer: it ends, and settles nothing."""

    def __init__(self, browser: BrowserCore) -> None:
        self._browser = browser
        self._found: list[Message] = []

    async def more(self) -> bool:
        """Look for more, unless there is something; False at the end."""
        if not self._found:
            self._found = (await self._browser.fetch())[::-1]
        return bool(self._found)

    def take_one(self) -> Message | None:
        return self._found.pop() if self._found else None

    async def end_browsing(self) -> None:
        await self._browser.close()


class OutgoingLink:
    """``consumer``: what it brings, in a session that ``close_session()`` ends; ``share``: of the room for what comes
    ahead of the client; ``temporary``: the destination lives as long as the link."""

    def __init__(
        self,
        client: AmqpClient,
        link: SendingLink,
        destination: Destination,
        consumer: AnyConsumer | AmqpBrowser,
        close_session: Callable[[], Awaitable[None]],
        *,
        share: int = 0,
        temporary: bool = False,
    ) -> None:
        self.link = link
        self.destination = destination
        self.lent = 0
        self._client = client
        self._consumer = consumer
        self._close_session = close_session
        self._share = share
        self._temporary = temporary
        browses = isinstance(consumer, AmqpBrowser)
        transfers = client.counts.transfers
        self._writing = LinkWriting(link, destination, client.output, client.now_ms, transfers, browses=browses)
        self._wake = asyncio.Event()
        self._rests = False
        """The task waits for messages, which may be sent without it."""
        self._supply = None if isinstance(consumer, AmqpBrowser) else LinkSupply(consumer, self._arrived)
        self._delivering: asyncio.Task[Any] | None = None
        self._ended: Callable[[BaseException], object] = lambda error: None

    def activate(self, ended: Callable[[BaseException], object]) -> None:
        """The link is attached: deliver. ``ended(error)``: told when the consumer has ended by itself."""
        self._ended = ended
        self._client.counts.links["out"].add(self)
        self._delivering = self._client.loops.once(f"deliveries of {self.destination.name}", self._deliver())

    def wake(self) -> None:
        """There is credit, room in the session's window, or less that is unsettled."""
        self._wake.set()

    @property
    def credit(self) -> int:
        return self.link.credit

    @property
    def unsettled(self) -> int:
        return len(self._writing.unsettled) + self.lent

    # ---- deliveries --------------------------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        try:
            consumer, supply = self._consumer, self._supply
            if isinstance(consumer, AmqpBrowser):
                await self._deliver_browsed(consumer)
            elif supply is not None:
                await self._deliver_all(consumer, supply)
        except BrokerError as error:
            self._ended(error)

    def _most(self) -> int:
        """Messages that the client may get now."""
        return min(self.link.credit, LINK_MESSAGES_MAX, max(self._client.limits.unsettled_max - self.unsettled, 0))

    async def _deliver_all(self, consumer: AnyConsumer, supply: LinkSupply) -> None:
        link, output = self.link, self._client.output
        while not consumer.closed:
            self._wake.clear()
            if not supply.ask_for(self._most()):
                await supply.take_back(self._most)
            async with output.turn:
                sent = await self._writing.send_some(consumer.take_one, self._most)
            supply.sent(sent)
            if sent:
                continue
            if link.draining and link.credit and not link.lane.waiting:
                await self._drain(consumer, supply)
                continue
            if not link.lane.waiting and self._most():
                self._rests = True
                supply.wait()
            await self._wake.wait()
            self._rests = False

    async def _drain(self, consumer: AnyConsumer, supply: LinkSupply) -> None:
        """Answer a drain: what the broker has for it is sent before."""
        await supply.come_to_rest()
        link, output = self.link, self._client.output
        async with output.turn:
            sent = await self._writing.send_some(consumer.take_one, self._most)
        supply.sent(sent)
        if not sent and link.draining and not link.lane.waiting:
            supply.nothing_asked()
            link.drained()
            output.flush()

    def _arrived(self) -> None:
        """Messages have come, or it is over: in whichever thread, with the lock of the consumer held."""
        loop = self._client.output.loop
        if running_loop() is loop:
            loop.call_soon(self._send_at_once)
        else:
            loop.call_soon_threadsafe(self._wake.set)

    def _send_at_once(self) -> None:
        """Send what has come without a turn of the task, where nobody else writes and nothing is unsent."""
        link, output, supply = self.link, self._client.output, self._supply
        if supply is None or not self._rests or link.draining or output.turn.locked() or not output.drained.is_set():
            self._wake.set()
            return
        try:
            supply.sent(self._writing.send_small(supply.consumer.take_one, self._most()))
        except BrokerError:
            self._wake.set()  # The task finds it as well, and tells the client.
            return
        output.flush()
        if self._writing.large is None and output.drained.is_set() and not output.lost:
            self._writing.settle_presettled()
            most = self._most()
            if most and not link.lane.waiting and supply.ask_for(most):
                supply.wait()
                return
        self._wake.set()

    async def _deliver_browsed(self, browsed: AmqpBrowser) -> None:
        link, output = self.link, self._client.output
        while True:
            self._wake.clear()
            more = bool(link.credit) and await browsed.more()
            async with output.turn:
                sent = await self._writing.send_some(browsed.take_one, self._most)
            if sent:
                continue
            if link.credit and not more and link.draining and not link.lane.waiting:
                link.drained()
                output.flush()
            await self._wake.wait()

    # ---- dispositions ------------------------------------------------------------------------------------------------

    def disposed(self, event: DispositionReceived) -> None:
        """The client tells a state of deliveries. Raises AmqpViolation for an unknown transaction, and
        ResourceAllocationError for one that is too large."""
        state, settled = event.state, event.settled
        keys = [one.context for one in event.deliveries]
        if isinstance(state, TransactionalState):
            self._dispose_in_transaction(state, keys, settled)
            return
        outcome = outcome_of(state, self._default) if state is not None or settled else None
        if outcome is None:
            return
        messages = [message for key in keys if (message := self._writing.unsettled.pop(key, None)) is not None]
        answers = settle_many(messages, *outcome, confirmed=not settled)
        if not settled:
            self._when_confirmed(answers, [one.delivery_id for one in event.deliveries], state)
        if self.link.draining or self.unsettled + 1 >= self._client.limits.unsettled_max // 2:
            self._wake.set()

    @property
    def _default(self) -> Any:
        peer = self.link.peer
        return None if peer is None or peer.source is None else peer.source.default_outcome

    def _dispose_in_transaction(self, state: TransactionalState, keys: list[int], settled: bool) -> None:
        """Those that the client has not ``settled`` it settles itself when the transaction has ended."""
        transaction = self._client.transactions.find(state.txn_id)
        outcome = outcome_of(state.outcome, self._default)
        if outcome is None:
            return
        messages = {key: self._writing.unsettled.pop(key) for key in keys if key in self._writing.unsettled}
        self.lent += len(messages)
        if outcome[0] == ACKNOWLEDGE:
            transaction.accept(self._returned, messages, settled=settled)
        else:
            transaction.refuse(self._returned, messages, *outcome, settled=settled)

    def _returned(self, messages: dict[int, Message], again: bool) -> None:
        """A transaction that settles them has ended; with ``again`` they are unsettled as before."""
        self.lent -= len(messages)
        if again:
            self._writing.unsettled |= messages
        self._wake.set()

    def _when_confirmed(self, confirmations: Confirmations, numbers: list[int], state: Any) -> None:
        """Settle deliveries on this side once the broker has said so."""
        waiting = len(confirmations)

        def confirmed(_: object = None) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                self.link.settle_deliveries(numbers, state)
                self._client.output.flush_soon()

        if not confirmations:
            confirmed()
        for one in confirmations:
            one.add_done_callback(confirmed)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def end_link(self, *, clean: bool) -> None:
        """The link has ended. ``clean``: its client has said so, and what it has and has not settled goes back as if it
        had never come; else that counts as a delivery, since nobody knows what the client has seen."""
        self._client.counts.links["out"].discard(self)
        self._rests = False
        if self._delivering is not None:
            self._delivering.cancel()
            await asyncio.wait([self._delivering])
        unsettled, self._writing.unsettled = list(self._writing.unsettled.values()), {}
        if self._writing.large is not None:
            unsettled.append(self._writing.large)
        if clean and unsettled:
            answers = [asyncio.wrap_future(one) for one in settle_many(unsettled, UNSEEN, confirmed=True)]
            if answers:
                await asyncio.wait(answers)
        if clean and self.lent:  # What an open transaction settles stays with it.
            self._client.loops.once("a link whose transaction is open", self._close_later())
        else:
            await self._close_now(clean=clean)

    async def _close_later(self) -> None:
        while self.lent:
            self._wake.clear()
            await self._wake.wait()
        await self._close_now(clean=True)

    async def _close_now(self, *, clean: bool) -> None:
        if isinstance(self._consumer, AmqpBrowser):
            await self._consumer.end_browsing()
        else:
            self._consumer.shut()
            await self._consumer.close()
        await self._close_session()
        if self._share:
            self._client.room.give_back(self._share)
        if self._temporary and clean:
            await self._client.end_temporary(self.destination)
