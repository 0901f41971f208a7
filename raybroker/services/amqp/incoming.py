"""Links on which clients send: to one destination, to whatever a message names, or to the coordinator of transactions.

A message is accepted when it is stored, or in a transaction when it is handed over; what cannot be is rejected with the
reason.  Messages that come in one read with the same options go to their producer as one run.  A link has credit for
PRODUCER_CREDIT messages that are not stored yet; it is topped up at half, and not while the destination has no room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from raybroker.client.destinations import Destination
from raybroker.client.producer.at_once import HandleWaiter
from raybroker.client.producer.members.unnamed import AnyProducer
from raybroker.client.producer.producer_state import Refusal, Shared
from raybroker.client.producer.send_options import CommonOptions
from raybroker.content.bodies import AMQP, AmqpBytes
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.services.amqp.addresses import destination_at
from raybroker.services.amqp.client import AmqpClient
from raybroker.services.amqp.conditions import told
from raybroker.services.amqp.limits import PRODUCER_CREDIT
from raybroker.services.amqp.messages import IncomingMessage, MessageReader, fields_header
from raybroker.services.amqp.transaction import AmqpTransaction
from raybroker.wire.amqp.conditions import AmqpViolation
from raybroker.wire.amqp.events import DeliveryReceived
from raybroker.wire.amqp.links import ReceivingLink
from raybroker.wire.amqp.performatives import ACCEPTED, AmqpError, AmqpRejected, TransactionalState

HALF: Final = PRODUCER_CREDIT // 2


class _WaitingMessage(NamedTuple):
    """A message that waits for room at its destination, or for a producer to be opened."""

    event: DeliveryReceived
    message: IncomingMessage
    transaction: AmqpTransaction | None


class _LatestOptions(NamedTuple):
    """What came of the options of the last message: the next one has the same, nearly always. ``of``: its producer."""

    of: Shared
    options: dict[str, Any]
    header: bytes
    shared: Shared


class _IncomingRun:
    """Messages with the same options that came one after the other, and go to one producer together."""

    __slots__ = ("events", "messages", "options", "producer")

    def __init__(self, options: _LatestOptions, producer: AnyProducer) -> None:
        self.options = options
        self.producer = producer
        self.events: list[DeliveryReceived] = []
        self.messages: list[IncomingMessage] = []


class IncomingLink:
    """``destination``: where all its messages go, None: each names its own; ``producer``: opened for it; ``temporary``:
    the destination lives as long as the link."""

    def __init__(
        self,
        client: AmqpClient,
        link: ReceivingLink,
        destination: Destination | None,
        producer: AnyProducer | None,
        *,
        temporary: bool = False,
    ) -> None:
        self.link = link
        self.destination = destination
        self.temporary = temporary
        self._client = client
        self._producer = producer
        self._reader = MessageReader(client.now_ms, client.output.user, addressed=destination is None)
        self._options = CommonOptions()
        self._latest: _LatestOptions | None = None
        self._run: _IncomingRun | None = None
        self._unstored = 0
        self._waiting: deque[_WaitingMessage] = deque()
        self._working: asyncio.Task[Any] | None = None
        self._stored_ids: list[int] = []

    def activate(self) -> None:
        """The link is attached: let messages come."""
        self._client.counts.links["in"].add(self)
        self.link.grant(PRODUCER_CREDIT)

    @property
    def credit(self) -> int:
        return self.link.credit

    @property
    def unsettled(self) -> int:
        """Messages that came and are not stored yet."""
        return self._unstored + len(self._waiting)

    @property
    def blocked(self) -> bool:
        """Its destination has no room."""
        return bool(self._waiting)

    # ---- messages ----------------------------------------------------------------------------------------------------

    def received(self, event: DeliveryReceived) -> None:
        """A message has come: :meth:`hand_over` is called behind it and those that follow it at once."""
        client, transaction = self._client, None
        client.counts.transfers["in"] += 1
        try:
            message = self._reader.read(event.payload)
            if self._collect(event, message):
                return
            if isinstance(event.state, TransactionalState):
                transaction = client.transactions.find(event.state.txn_id)
                transaction.require_room()
        except Exception as error:  # noqa: BLE001 - the client is told, and it is logged when it is no fault of its own
            self._rejected(event, error, transaction)
        else:
            self._hand_over_run()
            self._give(event, message, transaction)

    def hand_over(self) -> None:
        """Give what is collected to the producer, and see to the credit."""
        self._hand_over_run()
        # Once between two grants: where nothing is granted now, what is stored tops it up.
        if self.link.credit == HALF or not self.link.credit:
            self._top_up()

    def _collect(self, event: DeliveryReceived, message: IncomingMessage) -> bool:
        """Take a message into the run that is to be handed over; False for one that goes by itself. Raises
        BrokerError."""
        if self._waiting or event.settled or event.state is not None or message.fields is not None:
            return False
        producer = self._producer or self._known(message, None)
        if producer is None:
            return False
        known, run = self._known_options(message, self._client.shared), self._run
        if run is None or run.options is not known or run.producer is not producer:
            self._hand_over_run()
            run = self._run = _IncomingRun(known, producer)
        run.events.append(event)
        run.messages.append(message)
        self._unstored += 1
        return True

    def _hand_over_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        _, _, header, shared = run.options
        ids = [event.delivery_id for event in run.events]
        bodies = [message.body for message in run.messages]
        if run.producer.put_run(AMQP, bodies, header, shared, partial(self._settled, ids)):
            return
        self._unstored -= len(ids)
        for event, message in zip(run.events, run.messages, strict=True):
            self._give(event, message, None)

    def _give(self, event: DeliveryReceived, message: IncomingMessage, transaction: AmqpTransaction | None) -> None:
        """Hand over one message, or have it wait; its client is told when that cannot be."""
        message = message._replace(body=AmqpBytes(message.body))
        try:
            if self._waiting or not self._hand_over(event, message, transaction):
                self._wait(_WaitingMessage(event, message, transaction))
        except Exception as error:  # noqa: BLE001 - the client is told, and it is logged when it is no fault of its own
            self._rejected(event, error, transaction)

    def _known_options(self, message: IncomingMessage, common: Shared) -> _LatestOptions:
        """What the options of a message come to. Raises BrokerError."""
        known, options = self._latest, message.options
        if known is not None and known.of is common and (known.options is options or known.options == options):
            return known
        found = self._options.find(common, None, cast(Any, options))
        known = self._latest = _LatestOptions(common, options, *found)
        return known

    def _hand_over(
        self, event: DeliveryReceived, message: IncomingMessage, transaction: AmqpTransaction | None
    ) -> bool:
        """Give the message to its producer; False: it has to wait for one, or for room. Raises BrokerError."""
        producer = self._producer if transaction is None else None
        if producer is None:
            producer = self._known(message, transaction)
        if producer is None:
            return False
        common = self._client.shared if transaction is None else transaction.producer.shared
        _, _, header, shared = self._known_options(message, common)
        if message.fields is not None:
            header = fields_header(message.fields)
        if transaction is not None:
            if producer.put(message.body, header, shared, None, urgent=False, block=False) is None:
                return False
            if not event.settled:
                self.link.settle_deliveries(
                    [event.delivery_id], TransactionalState(cast(Any, event.state).txn_id, ACCEPTED)
                )
            return True
        if event.settled:
            return producer.put(message.body, header, shared, None, urgent=False, block=False) is not None
        self._unstored += 1  # It may be stored before this has ended.
        try:
            taken = producer.put(
                message.body,
                header,
                shared,
                HandleWaiter(partial(self._stored, event.delivery_id)),
                urgent=True,
                block=False,
            )
        except BaseException:
            self._unstored -= 1
            raise
        if taken is None:
            self._unstored -= 1
        return taken is not None

    def _target(self, message: IncomingMessage) -> Destination:
        if self.destination is not None:
            return self.destination
        if not message.to:
            raise InvalidDestinationError("the message has no address in its property to, and its link has none either")
        return destination_at(message.to, message.kind)

    def _known(self, message: IncomingMessage, transaction: AmqpTransaction | None) -> AnyProducer | None:
        """The producer of a message, if it is open."""
        if transaction is not None:
            return transaction.producer.known(self._target(message))
        return self._producer or self._client.known_producer(self._target(message))

    def _stored(self, delivery_id: int, message_id: str, error: BaseException | None) -> None:
        self._settled([delivery_id], 0, 1, () if error is None else ((0, 1, error),))

    def _settled(self, ids: list[int], start: int, end: int, refusals: Sequence[Refusal]) -> None:
        """Some of the deliveries with these ids are stored, or those of the refusals refused."""
        self._unstored -= end - start
        stored = ids if end - start == len(ids) else ids[start:end]
        if refusals:
            refused: set[int] = set()
            for first, last, error in refusals:
                refused.update(ids[first:last])
                self.link.settle_deliveries(ids[first:last], AmqpRejected(self._told(error, last - first)))
            stored = [number for number in stored if number not in refused]
            self._top_up()
            self._client.output.flush_soon()
        if not stored:
            return
        first_of_all = not self._stored_ids
        self._stored_ids += stored
        if not self._unstored:  # Nothing is on its way whose confirmation could go along.
            self._tell_stored()
            self._client.output.flush()
        elif first_of_all:
            self._client.output.flush_soon(self._tell_stored)

    def _tell_stored(self) -> None:
        stored, self._stored_ids = self._stored_ids, []
        self.link.settle_deliveries(sorted(stored), ACCEPTED)
        if self.link.credit <= HALF:
            self._top_up()

    def _rejected(self, event: DeliveryReceived, error: BaseException, transaction: AmqpTransaction | None) -> None:
        if transaction is not None and transaction.refusal is None:
            transaction.refusal = error
        found = self._told(error)
        if not event.settled:
            self.link.settle_deliveries([event.delivery_id], AmqpRejected(found))

    def _told(self, error: BaseException, count: int = 1) -> AmqpError:
        """What the client is told of messages that were refused, which count."""
        found = told(error, "a transfer")
        self._client.counts.count_rejected(found.condition, count)
        return found

    def _top_up(self) -> None:
        """Grant credit for as many as may be unstored; not while there is no room."""
        if self._working is not None:
            return
        if self._producer is not None and not self._producer.has_room():
            self._begin_work()
            return
        room = PRODUCER_CREDIT - self._unstored
        if room > self.link.credit:
            self.link.grant(room)

    # ---- waiting for room --------------------------------------------------------------------------------------------

    def _wait(self, waiting: _WaitingMessage) -> None:
        if waiting.transaction is not None:
            waiting.transaction.waiting += 1
        self._waiting.append(waiting)
        self._client.pend(len(waiting.message.body))
        self._begin_work()

    def _begin_work(self) -> None:
        if self._working is None:
            self._working = self._client.loops.once("messages wait for room", self._work())

    async def _work(self) -> None:
        """Hand over what waits, in its order, and wait until there is room for more."""
        try:
            if not self._waiting and self._producer is not None:
                await asyncio.wrap_future(self._producer.room_future())
            while self._waiting:
                waiting = self._waiting[0]
                try:
                    if not self._hand_over(*waiting):
                        await self._ready(waiting)
                        continue
                except (BrokerError, AmqpViolation) as error:
                    self._rejected(waiting.event, error, waiting.transaction)
                self._drop_first()
                self._client.output.flush_soon()
        finally:
            self._working = None
        self._top_up()
        self._client.output.flush_soon()

    def _drop_first(self) -> None:
        waiting = self._waiting.popleft()
        if waiting.transaction is not None:
            waiting.transaction.has_room_again()
        self._client.pend(-len(waiting.message.body))

    async def _ready(self, waiting: _WaitingMessage) -> None:
        """Open the producer of a message, or wait until it has room. Raises BrokerError."""
        _, message, transaction = waiting
        producer = self._known(message, transaction)
        if producer is not None:
            await asyncio.wrap_future(producer.room_future())
        elif transaction is not None:
            await transaction.producer.find(self._target(message))
        else:
            await (await self._client.producer()).find(self._target(message))

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def end_link(self, *, clean: bool) -> None:
        """The link has ended. Raises IllegalStateError for a temporary destination that still has consumers."""
        self._client.counts.links["in"].discard(self)
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])
        while self._waiting:
            self._drop_first()
        if self._producer is not None and clean:
            self._client.loops.once("a producer closes", self._client.let_go(self._producer))
        if self.temporary and clean and self.destination is not None:
            await self._client.end_temporary(self.destination)
