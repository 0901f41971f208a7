"""The session of a STOMP client that has logged in: its frames are handled on the gateway's loop, one after another.

A frame is answered by RECEIPT when it asks for one, once it is done: a SEND when its message is stored, or in a
transaction handed over; an ACK when the broker has confirmed it.  SEND and ACK frames are not waited for before the
next frame is handled, and all others are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations
from raybroker.client.consumer.subscriptions import make_temporary, unsubscribe
from raybroker.client.destinations import Destination, Queue, Topic
from raybroker.client.options import MessageOptions
from raybroker.client.producer.at_once import HandleWaiter
from raybroker.client.producer.members.unnamed import AnyProducer, UnnamedProducer
from raybroker.client.producer.send_options import CommonOptions
from raybroker.client.session import opening
from raybroker.client.session.joint_transaction import JointTransactions
from raybroker.client.session.session import TRANSACTED, SessionCore
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    NotSupportedError,
    ProtocolError,
    ResourceAllocationError,
)
from raybroker.model.naming.names import is_temporary_name
from raybroker.model.settings.setting_listeners import PREFETCH_BYTES_MAX
from raybroker.services.gateways.prefetch_room import PrefetchRoom
from raybroker.services.stomp.destinations import StompTarget, Temporaries, target
from raybroker.services.stomp.headers import body_of, number, send_options, truth
from raybroker.services.stomp.limits import (
    PREFETCH_DEFAULT,
    PREFETCH_MAX,
    SENDS_MAX,
    SUBSCRIPTIONS_MAX,
    TRANSACTIONS_MAX,
)
from raybroker.services.stomp.output import StompOutput
from raybroker.services.stomp.subscription import AUTO, MODES, Settling, StompSubscription
from raybroker.services.stomp.transaction import StompTransaction
from raybroker.system import entropy
from raybroker.wire.stomp.frame import StompFrame, Version

LOG: Final = logging.getLogger("raybroker.services")
DURABLE: Final = ("activemq.subscriptionName", "durable-subscription-name")
SHARED: Final = "shared-subscription-name"
PREFETCH: Final = ("activemq.prefetchSize", "prefetch-count")
NO_LOCAL: Final = ("no-local", "activemq.noLocal")
HARMLESS: Final = frozenset({*DURABLE, *PREFETCH, *NO_LOCAL, "activemq.dispatchAsync"})
REFUSED: Final = ("browser", "activemq.", "sub-dest")
"""Of SUBSCRIBE: what would make it something else, by the beginning of the header."""
IDLE_TRANSACTIONS_MAX: Final = 4
"""Sessions of ended transactions that the next ones use."""
CLOSE_TIMEOUT_S: Final = 5.0
KEY_BYTES: Final = 6
"""Of what makes the header ack one of this connection: an ACK that comes late, on the next connection of its client,
must not be taken for one of another message."""
SERIAL_CHARS_MAX: Final = 20
"""Of the number at the end of it."""


SHARES: Final = 16
"""A subscription has one part in so many, at most, of the room for what comes ahead of its client."""
PLAIN_KNOWN_MAX: Final = 1024
PLAIN_CHARS_MAX: Final = 300
"""So many destinations are known, as frames of SEND write them, of at most so many characters."""
MakeSession = Callable[[str], SessionCore]


@lru_cache(PLAIN_KNOWN_MAX)
def plain(text: str) -> Destination | None:
    """The destination that a header names; None for a temporary one. Raises InvalidDestinationError."""
    named = target(text)
    if named.own or is_temporary_name(named.name):
        return None
    return (Queue if named.kind == "queue" else Topic).checked(named.name)


class Unopened(Exception):  # noqa: N818 - nothing is wrong
    """A destination has to be made, or a producer opened, before a message can go to it."""


class _Delivering(NamedTuple):
    """A subscription at work: who writes its messages, and its ``share`` of the room for what comes ahead of the
    client."""

    task: asyncio.Task[None]
    share: int


class StompSession:
    """``core``: the connection to the broker, which is started, and of which ``session(mode)`` makes sessions;
    ``client``: the other side; ``prefetch_bytes``: what all subscriptions have that is not written to it."""

    def __init__(
        self,
        core: ConnectionCore,
        session: MakeSession,
        client: StompOutput,
        version: Version,
        prefetch_bytes: int = PREFETCH_BYTES_MAX,
    ) -> None:
        self._core = core
        self._make_session = session
        self._client = client
        self._version = version
        self._temporaries = Temporaries()
        self._coming, self._share_max = PrefetchRoom(prefetch_bytes), prefetch_bytes // SHARES
        self._subscriptions: dict[str, StompSubscription] = {}
        self._by_key: dict[str, StompSubscription] = {}
        self._keys = (f"{entropy.token(KEY_BYTES).hex()}-{number}" for number in itertools.count(1))
        self._delivering: dict[str, _Delivering] = {}
        self._transactions: dict[str, StompTransaction] = {}
        self._idle: list[StompTransaction] = []
        self._plain = self._session()
        """What belongs to no subscription and no transaction."""
        self._producing: UnnamedProducer | None = None
        self._options = CommonOptions()
        self._unsettled = 0
        """Messages sent and not stored yet, and acknowledgements that are not confirmed and that somebody waits for."""
        self._settled = asyncio.Event()
        self._commands: Final[Mapping[str, Callable[[StompFrame], Any]]] = {
            "SEND": self._send,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
            "ACK": self._ack,
            "NACK": self._nack,
            "BEGIN": self._begin_transaction,
            "COMMIT": self._commit,
            "ABORT": self._abort,
        }

    async def handle(self, frame: StompFrame) -> None:
        """One frame but CONNECT and DISCONNECT; raises what it is answered by ERROR with."""
        command = self._commands.get(frame.command)
        if command is None:
            raise ProtocolError(f"{frame.command} is no command for a client: it sends {', '.join(self._commands)}")
        if await command(frame):
            self._client.receipt(frame)

    def _session(self, mode: str = "client") -> SessionCore:
        made = self._make_session(mode)
        self._core.begin_session()
        return made

    # ---- SEND --------------------------------------------------------------------------------------------------------

    def send_at_once(self, frame: StompFrame) -> bool:
        """Hand over the message of a SEND that has to wait for nothing; False: nothing has happened, and the frame is
        one for :meth:`handle`, which also says what is wrong with it."""
        if frame.command != "SEND" or self._unsettled >= SENDS_MAX:
            return False
        try:
            return self._hand_over(frame) is None
        except (BrokerError, Unopened):
            return False

    async def _send(self, frame: StompFrame) -> bool:
        await self._settled_but(SENDS_MAX - 1)
        while True:
            try:
                full = self._hand_over(frame)
            except Unopened:
                await self._open(frame)
                continue
            if full is None:
                return False
            await asyncio.wrap_future(full.room_future())

    def _hand_over(self, frame: StompFrame) -> AnyProducer | None:
        """Returns None when it is done, or the producer that has no room for the message, which may be tried again.
        Raises Unopened when :meth:`_open` has to come first."""
        headers = frame.headers
        text = headers.get("destination", "")
        found = plain(text) if len(text) <= PLAIN_CHARS_MAX else None
        if found is None:
            found = self._made(target(text))
        properties, options = send_options(headers, self._core.clock.now_ms())
        reply_to = headers.get("reply-to")
        if reply_to is not None:
            options = {**options, "reply_to": self._made(target(reply_to, "reply-to"))}
        body = body_of(headers, frame.body)
        transaction = self._transaction_of(frame)
        producer = transaction.producer if transaction is not None else self._producing
        opened = None if producer is None else producer.known(found)
        if producer is None or opened is None:
            raise Unopened
        header, shared = self._options.find(producer.shared, properties, cast("MessageOptions", options))
        if transaction is not None:
            transaction.require_room()
            if opened.put(body, header, shared, None, urgent=False, block=False) is None:
                return opened
            transaction.enter()
            self._client.receipt(frame)
            return None
        self._unsettled += 1  # It may be settled before this has ended.
        try:
            taken = opened.put(
                body, header, shared, HandleWaiter(partial(self._stored, frame)), urgent=True, block=False
            )
        except BaseException:
            self._settle()
            raise
        if taken is None:
            self._settle()
            return opened
        return None

    async def _open(self, frame: StompFrame) -> None:
        """What the message of a SEND goes to and through."""
        headers = frame.headers
        found = await self._destination(target(headers.get("destination")))
        reply_to = headers.get("reply-to")
        if reply_to is not None:
            await self._destination(target(reply_to, "reply-to"))
        transaction = self._transaction_of(frame)
        producer = transaction.producer if transaction is not None else await self._producer()
        await producer.find(found)

    def _stored(self, frame: StompFrame, message_id: str, error: BaseException | None) -> None:
        self._settle()
        if error is not None:
            self._client.fail(error, frame)
        else:
            self._client.receipt(frame)

    def _settle(self) -> None:
        self._unsettled -= 1
        self._settled.set()

    async def _settled_but(self, most: int) -> None:
        """Wait until at most so many are unsettled."""
        while self._unsettled > most:
            self._settled.clear()
            await self._settled.wait()

    async def _producer(self) -> UnnamedProducer:
        if self._producing is None:
            self._producing = await self._new_producer(self._plain)
        return self._producing

    async def _new_producer(self, session: SessionCore) -> UnnamedProducer:
        producer = await opening.producer(session, None, {})
        assert isinstance(producer, UnnamedProducer)
        return producer

    def _made(self, named: StompTarget) -> Destination:
        """Raises Unopened for a temporary one of this connection that is not there."""
        kind = Queue if named.kind == "queue" else Topic
        if not named.own:
            return kind(named.name) if is_temporary_name(named.name) else kind.checked(named.name)
        real = self._temporaries.real(named.kind, named.name)
        if real is None:
            raise Unopened
        return kind(real)

    async def _destination(self, named: StompTarget) -> Destination:
        """A temporary one of this connection is made when it is not there."""
        try:
            return self._made(named)
        except Unopened:
            self._temporaries.require_room()
        kind = Queue if named.kind == "queue" else Topic
        real = await make_temporary(self._plain, kind)
        self._temporaries.add(named.kind, named.name, real)
        return kind(real)

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    async def _subscribe(self, frame: StompFrame) -> bool:
        headers = frame.headers
        name = headers.get("id")
        if name is None:
            if self._version != "1.0":
                raise ProtocolError("SUBSCRIBE has no header id")
            name = headers.get("destination", "")
        if name in self._subscriptions:
            raise ProtocolError(f"there is a subscription {name!r:.80} already; UNSUBSCRIBE it or take another id")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise ResourceAllocationError(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        for header in headers:
            if header not in HARMLESS and header.startswith(REFUSED) and headers[header] != "false":
                raise NotSupportedError(f"the header {header:.80} of SUBSCRIBE is not supported; leave it out")
        ack = headers.get("ack", AUTO)
        if ack not in MODES:
            raise ProtocolError(f"ack:{ack:.40} is no mode: it is {', '.join(MODES)}")
        prefetch = next((found for key in PREFETCH if (found := number(headers, key)) is not None), PREFETCH_DEFAULT)
        if not 1 <= prefetch <= PREFETCH_MAX:
            raise ProtocolError(f"a prefetch of {prefetch} is none: it is 1 to {PREFETCH_MAX}")
        no_local = any(truth(headers, key) for key in NO_LOCAL)
        durable, shared = _first(headers, DURABLE), headers.get(SHARED)
        if durable is not None and shared is not None and durable != shared:
            raise ProtocolError(f"{SHARED} and the name of the durable subscription differ: there is one name")
        destination = await self._destination(target(headers.get("destination")))
        session = self._session()
        share = self._coming.take_share(self._share_max)
        try:
            consumer = await opening.consumer(
                session,
                destination,
                {"selector": headers.get("selector"), "prefetch": prefetch, "no_local": no_local},
                name=durable or shared,
                durable=durable is not None,
                shared=shared is not None,
                recalls=False,
                buffer_bytes=share,
            )
        except BaseException:
            self._coming.give_back(share)
            raise
        key = next(self._keys)
        made = StompSubscription(
            name,
            key,
            ack,
            session,
            consumer,
            version=self._version,
            text_of=self._temporaries.text_of,
            kind=destination.kind,
        )
        self._subscriptions[name] = self._by_key[key] = made
        self._client.receipt(frame)  # Before the first message.
        task = asyncio.get_running_loop().create_task(made.deliver(self._client))
        self._delivering[key] = _Delivering(task, share)
        task.add_done_callback(self._delivered)
        return False

    def _delivered(self, task: asyncio.Task[None]) -> None:
        """A consumer has ended; of one that was closed nobody has to be told."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.fail(error, None)

    async def _unsubscribe(self, frame: StompFrame) -> bool:
        headers = frame.headers
        name = headers.get("id", headers.get("destination") if self._version == "1.0" else None)
        durable = _first(headers, DURABLE)
        subscription = self._subscriptions.pop(name, None) if name is not None else None
        if subscription is None and durable is None:
            raise ProtocolError(f"there is no subscription {name!r:.80}" if name else "UNSUBSCRIBE has no header id")
        if subscription is not None:
            await self._end_subscription(subscription)
        if durable is not None:
            await unsubscribe(self._plain, durable)
        return True

    async def _end_subscription(self, subscription: StompSubscription) -> None:
        del self._by_key[subscription.key]
        task, share = self._delivering.pop(subscription.key)
        task.cancel()
        await asyncio.wait([task])
        if subscription.ack == AUTO:
            subscription.session.flush_lazily()
        await subscription.close()
        self._coming.give_back(share)

    # ---- ACK and NACK ------------------------------------------------------------------------------------------------

    def _messages_of(self, frame: StompFrame) -> tuple[StompSubscription, int]:
        """The subscription and serial that an ACK or NACK is about."""
        headers = frame.headers
        if self._version == "1.2":
            text = headers.get("id", "")
            key, _, digits = text.rpartition("-")
            subscription = self._by_key.get(key)
            if subscription is not None and digits.isascii() and digits.isdecimal() and len(digits) <= SERIAL_CHARS_MAX:
                return subscription, int(digits)
            raise ProtocolError(
                f"{frame.command} has no header id of a message that came on this connection: {text!r:.80}; what was"
                " not acknowledged on another one comes again, with another id"
            )
        message_id = headers.get("message-id", "")
        name = headers.get("subscription")
        if name is None and self._version != "1.0":
            raise ProtocolError(f"{frame.command} has no header subscription")
        for subscription in self._subscriptions.values():
            if name is None or subscription.name == name:
                serial = subscription.serial_of(message_id)
                if serial is not None:
                    return subscription, serial
        raise ProtocolError(f"no message {message_id!r:.120} waits for an acknowledgement")

    async def _ack(self, frame: StompFrame) -> bool:
        subscription, serial = self._messages_of(frame)
        transaction = self._transaction_of(frame)
        messages = subscription.take_unacknowledged(serial)
        if transaction is not None:
            transaction.enter()
            transaction.acknowledge(subscription, messages)
            return True
        return self._await(frame, subscription.acknowledge(messages))

    async def _nack(self, frame: StompFrame) -> bool:
        if self._version == "1.0":
            raise ProtocolError("NACK is a command of STOMP 1.1 and later")
        subscription, serial = self._messages_of(frame)
        transaction = self._transaction_of(frame)
        dead = truth(frame.headers, "requeue") is False
        messages = subscription.take_unacknowledged(serial)
        if transaction is not None:
            transaction.enter()
            transaction.refuse(subscription, messages, dead=dead)
            return True
        return self._await(frame, subscription.refuse(messages, dead=dead))

    def _await(self, frame: StompFrame, answers: Settling) -> bool:
        """Answer once all are confirmed."""
        confirmations, lost = answers
        waiting = len(confirmations)
        if not waiting:
            return self._settled_as_asked(frame, lost)

        def confirmed(_: Future[int]) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting:
                return
            self._settle()
            faults = [fault for one in confirmations if (fault := one.verdict()) is not None]
            faults.sort(key=lambda fault: isinstance(fault, ConnectionLostError))
            try:
                if self._settled_as_asked(frame, next(iter(faults), lost)):
                    self._client.receipt(frame)
            except BrokerError as error:
                self._client.fail(error, frame)

        self._unsettled += 1
        for one in confirmations:
            one.add_done_callback(confirmed)
        return False

    def _settled_as_asked(self, frame: StompFrame, fault: BrokerError | None) -> bool:
        """True when there is no fault; raises one that the client has to know. A message whose broker was lost comes
        again, flagged, as to every client: that ends the connection of one alone who waits for a RECEIPT, because
        STOMP has no other word for it than ERROR."""
        if fault is None:
            return True
        if not isinstance(fault, ConnectionLostError) or "receipt" in frame.headers:
            raise fault
        LOG.info("[B1092] %s of a STOMP client: %s", frame.command, fault)
        return False

    # ---- transactions ------------------------------------------------------------------------------------------------

    def _transaction_of(self, frame: StompFrame) -> StompTransaction | None:
        name = frame.headers.get("transaction")
        if name is None:
            return None
        found = self._transactions.get(name)
        if found is None:
            raise ProtocolError(f"there is no transaction {name!r:.80}; BEGIN it first")
        return found

    def _named(self, frame: StompFrame) -> str:
        name = frame.headers.get("transaction")
        if not name:
            raise ProtocolError(f"{frame.command} has no header transaction")
        return name

    async def _begin_transaction(self, frame: StompFrame) -> bool:
        name = self._named(frame)
        if name in self._transactions:
            raise ProtocolError(f"transaction {name!r:.80} has begun already")
        if len(self._transactions) >= TRANSACTIONS_MAX:
            raise ResourceAllocationError(f"a connection has at most {TRANSACTIONS_MAX} open transactions")
        if self._idle:
            found = self._idle.pop()
            found.name = name
        else:
            session = self._session(TRANSACTED)
            transactions = session.transactions
            assert isinstance(transactions, JointTransactions)
            found = StompTransaction(name, transactions, await self._new_producer(session))
        self._transactions[name] = found
        return True

    async def _commit(self, frame: StompFrame) -> bool:
        transaction = self._ended(frame)
        answers = await transaction.commit()
        self._reuse(transaction)
        return self._await(frame, answers)

    async def _abort(self, frame: StompFrame) -> bool:
        transaction = self._ended(frame)
        await transaction.abort()
        self._reuse(transaction)
        return True

    def _ended(self, frame: StompFrame) -> StompTransaction:
        name = self._named(frame)
        if name not in self._transactions:
            raise ProtocolError(f"there is no transaction {name!r:.80}; BEGIN it first")
        return self._transactions.pop(name)

    def _reuse(self, transaction: StompTransaction) -> None:
        if len(self._idle) < IDLE_TRANSACTIONS_MAX:
            self._idle.append(transaction)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def settle_all(self) -> None:
        """Everything that was sent is stored, or has failed: before DISCONNECT is answered."""
        await self._settled_but(0)

    async def close(self) -> None:
        """End it: open transactions are aborted, and what is not acknowledged goes back."""
        tasks = [one.task for one in self._delivering.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for subscription in list(self._subscriptions.values()):
                    with contextlib.suppress(BrokerError):
                        await subscription.close()
        with contextlib.suppress(BrokerError):
            await self._core.close()


def session_maker(core: ConnectionCore) -> MakeSession:
    """Makes sessions of a connection; who waits for their confirmations does so with callbacks."""

    def make(mode: str) -> SessionCore:
        return SessionCore(core, mode, _all, transactions=JointTransactions)

    return make


def _all(confirmations: Confirmations) -> Confirmations:
    return confirmations


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((headers[name] for name in names if name in headers), None)
