"""The session behind every face: one acknowledgement mode, and the consumers that share it.

auto        what was received is acknowledged, and confirmed, when the application comes back for more, closes, or
            its listener returns: after a failure at most the last message (or ``receive_many``) comes again;
            with an ``ack_window`` of N messages up to N are confirmed later, and may come again
client      the application acknowledges: all, this one, or up to this one
dups_ok     acknowledged without confirmation every DUPS_OK_MESSAGES messages or DUPS_OK_S seconds
none        the broker counts a message as acknowledged when it hands it to the connection
transacted  acknowledged by commit(), together with what was sent (``transaction.py``)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from raybroker.client.arguments import check_arguments
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmation, Confirmations, Faulty, Keeping
from raybroker.client.consumer.acknowledging.acknowledgement_window import AcknowledgementWindow
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.consumer.acknowledging.life_ties import LifeTies
from raybroker.client.consumer.acknowledging.returned_deliveries import not_settled
from raybroker.client.consumer.acknowledging.unacknowledged_ranges import size
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.message import Message, Reply
from raybroker.client.listener.in_call import is_in_call
from raybroker.client.options import MessageOptions
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.session.current_transaction import CurrentTransaction
from raybroker.client.session.transaction import KEPT_BEYOND, SessionTransactions
from raybroker.model.causes import FAILS, LOST, outcome_of
from raybroker.model.errors import BrokerError, ConfigError, ConnectionLostError, IllegalStateError
from raybroker.model.settings.setting import INT_MAX
from raybroker.system.entropy import token

Ack = Literal["auto", "client", "dups_ok", "none"]
MODES: Final[tuple[Ack, ...]] = ("auto", "client", "dups_ok", "none")
MULTICAST: Final = ("multicast", "multicastnoacknowledge", "multicastnoack")
"""Modes of sessions for multicast topics, without underscores."""
TRANSACTED: Final = "transacted"
DUPS_OK_MESSAGES: Final = 10
DUPS_OK_S: Final = 7.0
RECEIVED_FIRST_S: Final = 0.05
"""A transaction that has received something and is open for so long is reported to its hosts."""
RECEIVED_AGAIN_S: Final = 1.0
"""What it receives after that is reported so often."""
OWNER_BYTES: Final = 4
OUTCOMES: Final = ("reject", "release", "unseen", *FAILS)
GIVEN_BACK: Final = ("release", *FAILS)
"""Outcomes after which a message comes again, and the later ones of its unit of order too."""


def session_mode(ack: str, transacted: bool, ack_window: int = 1) -> str:
    """The mode of a session; raises ConfigError for an unknown one, and for a window where there is none."""
    check_arguments(ack=ack, transacted=transacted, ack_window=ack_window)
    if ack.lower().replace("_", "") in MULTICAST:
        raise ConfigError(
            f"ack={ack!r} is not supported: messages go over connections, and none is lost on the way or overtakes"
            ' another; use ack="none" and a topic, whose broker forgets a message once it is handed out'
        )
    if ack not in MODES:
        raise ConfigError(f"ack={ack!r} is unknown; choose one of {', '.join(MODES)}")
    mode = TRANSACTED if transacted else ack
    if ack_window != 1 and mode != "auto":
        what = "a transacted session" if transacted else f"ack={ack!r}"
        raise ConfigError(f'ack_window={ack_window} is for sessions with ack="auto"; leave it out for {what}')
    return mode


log = logging.getLogger("raybroker.client")


def no_reply(message: Message, body: Any, properties: Mapping[str, Any] | None, options: MessageOptions) -> Any:
    """Refuse a reply in a session that only looks."""
    raise IllegalStateError("a message that was only looked at cannot be replied to; receive it")


def _receiver(message: Message) -> ConsumerCore:
    """The consumer that a message was received by; a browser's session settles nothing."""
    consumer = message._delivery.consumer
    assert isinstance(consumer, ConsumerCore)
    return consumer


class SessionCore:
    """One session.

    finish        how this face waits for confirmations: blocking, or by returning something to await
    transactions  the class of those of a transacted session
    reply         how this face sends a reply to a message
    tells_in_hand  see :class:`HandedOut`
    """

    def __init__(
        self,
        connection: ConnectionCore,
        mode: str,
        finish: Callable[[Confirmations], Any],
        *,
        redelivery_delay_ms: int | None = None,
        transactions: type[SessionTransactions] = SessionTransactions,
        reply: Reply = no_reply,
        tells_in_hand: bool = False,
    ) -> None:
        self.connection = connection
        self.owner = f"{connection.identity}.{token(OWNER_BYTES).hex()}"
        """Names the session to all hosts: a unit of order is with one session at a time."""
        self.mode = mode
        self.finish = finish
        self.ending = False
        """Its closing has begun: no listener is called any more."""
        self.closed = False
        self.consumers: list[ConsumerCore] = []
        if redelivery_delay_ms is not None:
            check_arguments(redelivery_delay_ms=redelivery_delay_ms)
        else:
            redelivery_delay_ms = connection.attributes["defaultRedeliveryDelay"]
        self.handed = HandedOut(
            keeps_track=mode != "none", tells_in_hand=tells_in_hand, redelivery_delay_ms=redelivery_delay_ms
        )
        self.transactions = transactions(connection, self.handed, self.give_back) if mode == TRANSACTED else None
        self.comes_back = mode == "auto" or (self.transactions is not None and not self.transactions.always_open)
        """Something happens when the application comes back for more (:meth:`before_more`)."""
        self._wake: Callable[[], None] | None = None
        self.reply = reply
        self._to_previous: bool = connection.attributes["acknowledgePolicy"] == "Previous"

    @property
    def redelivery_delay_ms(self) -> int:
        """Pause before what recover() and rollback() give back comes again; the destination's own wins."""
        return self.handed.redelivery_delay_ms

    @redelivery_delay_ms.setter
    def redelivery_delay_ms(self, value: int) -> None:
        if value is None:
            raise ConfigError(f"redelivery_delay_ms=None; it is 0 to {INT_MAX}")
        check_arguments(redelivery_delay_ms=value)
        self.handed.redelivery_delay_ms = value

    @property
    def current(self) -> CurrentTransaction[ProducerCore] | None:
        """The open transaction; None in a session that is not transacted."""
        return self.transactions.current if self.transactions is not None else None

    def handed_out(self, count: int) -> int:
        """``count`` messages leave a buffer; returns the serial of the first, in the order of the whole session."""
        handed = self.handed
        serial = handed.serial + 1
        handed.serial += count
        handed.unsettled += count
        if self.mode == "dups_ok":
            if handed.done is not None and not handed.in_batch:
                handed.done = serial - 1
            if handed.unsettled >= DUPS_OK_MESSAGES:
                self.connection.io.post(self.flush_lazily)
            elif not handed.armed:
                handed.armed = True
                self.connection.io.post(self._arm)
        elif self.transactions is not None and not handed.armed:
            handed.armed = True
            self.connection.io.post(self._report_received, RECEIVED_FIRST_S)
        return serial

    def _report_received(self, delay_s: float) -> None:
        """Report to its hosts what an open transaction has received, so that they can list it and end it."""

        def over() -> None:
            if self.transactions is not None and not self.connection.closed and self.transactions.report_received():
                self._report_received(RECEIVED_AGAIN_S)
            else:
                self.handed.armed = False

        self.connection.io.loop.call_later(delay_s, over)

    def _arm(self) -> None:
        def over() -> None:
            self.handed.armed = False
            self.flush_lazily()

        self.connection.io.loop.call_later(DUPS_OK_S, over)

    def waits(self) -> None:
        """The application waits for more, and nothing is here: it is done with what it has."""
        if self.handed.done is not None and self.mode == "dups_ok" and not self.handed.abandoned:
            self.handed.done = self.handed.serial

    def leave_in_hand(self) -> None:
        """The application failed: what it received and did not acknowledge itself is given back when it closes."""
        if self.mode in ("auto", "dups_ok"):
            self.comes_back = False
            self.handed.abandoned = True

    def flush_lazily(self) -> None:
        """Acknowledge without asking for a confirmation; not what the application has in hand."""
        self.handed.unsettled = 0
        for consumer in list(self.handed.owing) if not self.handed.abandoned else ():
            epoch, ranges = consumer.settle_consumed(self.handed.done)
            if ranges:
                consumer.acknowledge(epoch, ranges, None)
        if self.handed.done is not None and self.handed.done < self.handed.serial and not self.handed.armed:
            self.handed.armed = True
            self._arm()

    def listen(self, wake: Callable[[], None]) -> None:
        """Let messages go to listeners from now on, one at a time; ``wake`` is called when one may have come."""
        self.hear(wake)
        self.connection.io.count_resident(1)

    def hear(self, wake: Callable[[], None]) -> None:
        """:meth:`listen` for those who take messages on the IO loop, whichever thread serves it."""
        self._wake = wake
        self.handed.done = self.handed.serial

    def wake_listeners(self) -> None:
        """Something has come for a listener; with the lock of its buffer held."""
        if self._wake is not None:
            self._wake()

    @property
    def has_listeners(self) -> bool:
        """Messages go to listeners."""
        return self._wake is not None

    def acknowledge_consumed(self, up_to: int | None = None) -> Confirmations:
        """Acknowledge what was consumed, up to a serial if one is given; returns what to wait for."""
        self.handed.unsettled = 0
        return self._settle(up_to)

    def settle_done(self) -> Confirmations:
        """Acknowledge, in a session with listeners, what was received before there were any; what a call has in hand is
        its own."""
        return (
            self._settle(self.handed.done)
            if self.mode == "auto" and self.has_listeners and not self.handed.abandoned
            else []
        )

    def _settle(self, up_to: int | None) -> Confirmations:
        confirmations: Confirmations = []
        for consumer in list(self.handed.owing):
            epoch, ranges = consumer.settle_consumed(up_to)
            if ranges:
                confirmed = Confirmation(consumer, epoch, ranges)
                consumer.acknowledge(epoch, ranges, confirmed)
                confirmations.append(confirmed)
        return confirmations

    def before_more(self) -> Confirmations:
        """The application comes back for more: what "auto" handed out before is acknowledged.

        Raises IllegalStateError in an XA session outside of its branches.
        """
        if self.mode == "auto":
            return self.acknowledge_consumed()
        elif self.mode == "dups_ok":
            self.waits()
        elif self.transactions is not None:
            self.transactions.require_open()
        return []

    def acknowledge_in_window(self, window: AcknowledgementWindow) -> None:
        """:meth:`before_more` with an ack_window: it is confirmed later."""
        count, self.handed.unsettled = self.handed.unsettled, 0
        self.connection.io.require_usable()
        if count and window.mark(count, self.handed.serial):
            self.connection.io.post(self._acknowledge_marked, window)

    def _acknowledge_marked(self, window: AcknowledgementWindow) -> None:
        """Acknowledge what the window has marked; it runs on the IO loop."""
        count, up_to = window.take_due()
        for consumer in list(self.handed.owing):
            epoch, ranges = consumer.settle_consumed(up_to)
            if ranges:
                count -= size(ranges)
                consumer.acknowledge_now(epoch, ranges, window.await_answer(consumer, epoch, ranges))
        if count:  # What was lost with its connection, or taken back, is here no more.
            window.count_ended(count)

    def require_open(self) -> None:
        """Raises IllegalStateError when the session or its connection is closed."""
        connection = self.connection
        if connection.io.unusable or connection.tasks.closed:
            connection.require_open()
        if self.closed:
            raise IllegalStateError("the session is closed")

    # ---- called through messages -----------------------------------------------------------------------------------

    def acknowledge_by_policy(self, message: Message) -> Any:
        """What ``message.acknowledge()`` means: all that was consumed, or with acknowledgePolicy=Previous up to this
        message."""
        if self._to_previous:
            return self.acknowledge_up_to(message)
        self.require_open()
        if self.mode != "client":
            return self.finish([])
        consumer = message._delivery.consumer
        if not isinstance(consumer, ConsumerCore) or consumer.returned.rows:
            self._require_here(message, "acknowledge()", covers=True)
        found = self.acknowledge_consumed()
        return self.finish(found + self._uncovered("acknowledge()") if self.handed.uncovered.rows else found)

    def _uncovered(self, what: str, up_to: int | None = None) -> Confirmations:
        """Stands for what an acknowledgement covers, up to a serial if one is given, and went back before."""
        fault = self.handed.uncovered.fault(what, up_to)
        return [Faulty(fault)] if fault is not None else []

    def acknowledge_up_to(self, message: Message) -> Any:
        """All that the session has consumed up to a message; raises for what of it went back before."""
        self.require_open()
        if self.mode != "client":
            return self.finish([])
        serial = _receiver(message).serial_of(message)
        if serial is None:
            self._require_here(message, "the acknowledgement")
            return self.finish([])
        return self.finish(self.acknowledge_consumed(serial) + self._uncovered("the acknowledgement", serial))

    def acknowledge(self, up_to: Message | None) -> Any:
        """All that the session has consumed, or up to a message; ignored in other modes than "client"."""
        self.require_open()
        if self.mode != "client":
            return self.finish([])
        if up_to is None:
            return self.finish(self.acknowledge_consumed())
        serial = _receiver(up_to).serial_of(up_to)
        if serial is None:
            self._require_here(up_to, "the acknowledgement")
        return self.finish(self.acknowledge_consumed(serial) if serial is not None else [])

    def acknowledge_one(self, message: Message) -> Any:
        self.require_open()
        if self.mode != "client":
            return self.finish([])
        consumer = _receiver(message)
        ranges = consumer.settle_one(message)
        if not ranges:
            self._require_here(message, "acknowledge_this()")
            return self.finish([])
        confirmed = Confirmation(consumer, message._delivery.epoch, ranges)
        consumer.acknowledge(message._delivery.epoch, ranges, confirmed)
        return self.finish([confirmed])

    def _require_here(self, message: Message, what: str, *, covers: bool = False) -> None:
        """Raises when a message went back unsettled: ``what`` would do nothing for it, and when it ``covers`` others
        for those that went back too."""
        consumer = _receiver(message)
        why = consumer.why_returned(message)
        if why is not None:
            self.handed.uncovered.told(consumer, message._delivery.epoch, message.tag)
            error = not_settled(what, why)
            if covers and (others := self.handed.uncovered.others()):
                error.add_note(f"so did: {others}")
            raise error

    def settle_as(self, message: Message, outcome: str, delay_ms: int | None = None, reason: str = "") -> Any:
        """End one message otherwise than by acknowledging it: "reject", "release", "fail", or "unseen" for one that no
        application has got, which goes back as if it had never been handed out.

        ``delay_ms`` None: the session's redelivery delay, and without one the destination's.  Raises IllegalStateError
        unless the session is "client", or is "auto" and its listener has the message in hand; and for a message that is
        settled or went back.
        """
        assert outcome in OUTCOMES
        self.require_open()
        if self.mode != "client" and not (self.mode == "auto" and self.handed.in_hand is not None):
            raise IllegalStateError(
                f'{outcome}() is for sessions with ack="client" and for listeners of "auto" sessions;'
                f" this one is {self.mode!r}"
            )
        if delay_ms is None or delay_ms < 0:
            delay_ms = self.redelivery_delay_ms or -1
        confirmed = self.conclude(message, outcome, delay_ms, reason)
        if confirmed is None:
            self._require_here(message, f"{outcome}()")
            raise IllegalStateError(f"{outcome}() did nothing: the message is settled already")
        return self.finish([confirmed])

    def conclude(self, message: Message, outcome: str, delay_ms: int, reason: str) -> Confirmation | None:
        """End one message, in a session of any mode that keeps track; None when it is settled or went back before."""
        consumer = _receiver(message)
        ranges = consumer.settle_one(message)
        if not ranges:
            return None
        confirmed = Confirmation(consumer, message._delivery.epoch, ranges)
        if outcome in GIVEN_BACK and message.unit_of_order is not None:
            self.handed.holds_back += 1
            confirmed.add_done_callback(lambda _: self.connection.io.post(self._let_go))
        consumer.conclude(message._delivery.epoch, ranges, outcome, delay_ms, reason, confirmed)
        return confirmed

    def _let_go(self) -> None:
        """Later messages of the unit that were here are void by now; the others can go on."""
        self.handed.holds_back -= 1
        for consumer in list(self.consumers):
            consumer.started()

    def extend(self, message: Message) -> Any:
        """Start the ack deadline of a message again, when its consumer has one. Nothing is waited for.

        Raises for a message that is known to have gone back.
        """
        self.require_open()
        if self.handed.keeps_track:
            self._require_here(message, "extend()")
            _receiver(message).extend(message)
        return self.finish([])

    def checkpoint(self, message: Message, state: bytes) -> Any:
        """Keep how far the application is with a message; see :meth:`Message.checkpoint`."""
        self.require_open()
        if self.mode not in ("client", "auto", TRANSACTED):
            raise IllegalStateError(
                f'checkpoint() is for sessions of "client" and "auto", and transacted ones; this one is {self.mode!r}'
            )
        consumer = _receiver(message)
        if consumer.serial_of(message) is None:
            self._require_here(message, "checkpoint()")
            raise IllegalStateError("checkpoint() did nothing: the message is settled already")
        if self.transactions is not None:
            if is_in_call(self):
                raise IllegalStateError(KEPT_BEYOND)
            self.transactions.keep_checkpoint(consumer, message._delivery.epoch, message.tag, state)
            return self.finish([])
        kept = Keeping(consumer, message._delivery.epoch, [(message.tag, message.tag)])
        consumer.checkpoint(message, state, kept)
        return self.finish([kept])

    def lease_to(self, message: Message, holder: object) -> Any:
        """The delivery of a message ends with the life of a process or an actor; see :meth:`Message.lease_to`."""
        from raybroker.client.consumer.acknowledging.lives import life_of  # it knows how actors are found

        self.require_open()
        if self.mode != "client":
            raise IllegalStateError(f'lease_to() is for sessions with ack="client"; this one is {self.mode!r}')
        if _receiver(message).serial_of(message) is None:
            self._require_here(message, "lease_to()")
            raise IllegalStateError("lease_to() did nothing: the message is settled already")
        if self.handed.ties is None:
            self.handed.ties = LifeTies(lambda one: _receiver(one).serial_of(one) is not None, self._lease_expired)
        self.handed.ties.tie(message, life_of(holder))
        self.connection.io.post(self.handed.ties.watch)
        return self.finish([])

    def _lease_expired(self, message: Message, why: str) -> None:
        log.warning("message %s of %s goes back: %s", message.id, message.destination, why)
        if self.conclude(message, outcome_of(LOST), 0, why) is not None:
            _receiver(message).went_back(message._delivery.epoch, [(message.tag, message.tag)], why)

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    async def recover(self, delay_ms: int | None = None, reason: str = "") -> None:
        """Stop, give everything unacknowledged back, start with the oldest of it; see :meth:`give_back`."""
        self.require_open()
        if self.mode == "none":
            raise IllegalStateError("recover() in a session that does not acknowledge")
        if self.transactions is not None:
            raise IllegalStateError("recover() in a transacted session; use rollback()")
        await self.give_back(delay_ms, reason)

    async def give_back(self, delay_ms: int | None = None, reason: str = "") -> None:
        """Every consumer gives back what is not acknowledged, and starts again.

        What was handed out has failed: it comes again after ``delay_ms`` milliseconds (None: the session's redelivery
        delay), or is dead, with ``reason`` written on it.
        One whose connection is lost has given it back by that. Raises the first other error, after all of them.
        """
        self.handed.unsettled = 0
        self.handed.uncovered.clear()
        fault: BrokerError | None = None
        for consumer in list(self.consumers):
            try:
                await consumer.release(delay_ms, reason)
            except ConnectionLostError:
                continue
            except BrokerError as error:
                fault = fault or error
        if fault is not None:
            raise fault

    async def close_the_rest(self) -> None:
        """Close the consumers that nobody refers to, and that were kept for what they gave out."""
        for consumer in list(self.consumers):
            consumer.shut()
            await consumer.close()

    def require_transactions(self) -> SessionTransactions:
        """What commit and rollback act on; raises IllegalStateError when the session is not transacted, or is
        closed: its transaction was rolled back."""
        self.require_open()
        if self.transactions is None:
            raise IllegalStateError(
                f"commit() and rollback() are for transacted sessions; this one acknowledges {self.mode!r}"
            )
        return self.transactions

    def lost_some(self, why: str) -> None:
        """Messages of this session that were handed out and are not acknowledged went back."""
        if self.transactions is not None:
            self.transactions.current.lose(why)

    async def stage(self, consumer: ConsumerCore) -> None:
        """A consumer is about to be closed: a transaction keeps what it has consumed."""
        if self.transactions is not None:
            await self.transactions.stage(consumer)

    def keep(self, consumer: ConsumerCore) -> None:
        """A consumer is about to be opened."""
        self.consumers.append(consumer)
        self.connection.handles.consumers[consumer] = None

    def forget_consumer(self, consumer: ConsumerCore) -> None:
        self.handed.forget_consumer(consumer)
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self.connection.handles.consumers.pop(consumer, None)


ACKNOWLEDGE: Final = ""
"""The outcome of what was processed, for :func:`settle_many`; the others are those of :meth:`SessionCore.settle_as`."""


def settle_many(
    messages: Iterable[Message], outcome: str, reason: str = "", *, confirmed: bool = False
) -> Confirmations:
    """Settle messages, received in "client" sessions, in one frame for each consumer; those that went back before are
    left out. ``confirmed``: return the broker's answers to wait for."""
    found: dict[tuple[ConsumerCore, int], list[int]] = {}
    of: Any = None
    epoch = 0
    tags: list[int] = []
    for message in messages:
        delivery = message._delivery
        # Nearly all are of one consumer, as those before them.
        if delivery.consumer is not of or delivery.epoch != epoch:
            of, epoch = _receiver(message), delivery.epoch
            tags = found.setdefault((of, epoch), [])
        tags.append(message.tag)
    answers = []
    for (consumer, epoch), tags in found.items():
        ranges = consumer.settle_some(epoch, tags)
        if not ranges:
            continue
        answer = Confirmation(consumer, epoch, ranges) if confirmed or outcome != ACKNOWLEDGE else None
        if outcome == ACKNOWLEDGE:
            consumer.acknowledge(epoch, ranges, answer)
        elif answer is not None:
            consumer.conclude(epoch, ranges, outcome, -1, reason, answer)
        if answer is not None and confirmed:
            answers.append(answer)
    return answers
