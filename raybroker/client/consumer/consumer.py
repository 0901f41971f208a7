"""The consumer behind every face: one attachment to a destination, and what it says to the broker.

The buffer that its messages wait in is ``prefetch_buffer``; here is everything that runs on the IO loop.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from raybroker.client.connection.channel import Channel, ended_by
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.consumer.acknowledging import unacknowledged_ranges
from raybroker.client.consumer.acknowledging.ack_deadline import AckDeadline
from raybroker.client.consumer.acknowledging.returned_deliveries import (
    CLOSED,
    LOST,
    OVERDUE,
    RECOVERED,
    TIMED_OUT,
    not_settled,
)
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.message import Message, ReceivedDelivery
from raybroker.client.consumer.notifier import Notifier
from raybroker.client.consumer.prefetch.credit_pool import CreditGrant, CreditPool, Share
from raybroker.client.consumer.prefetch.flow_control import BatchFlow, CreditFlow, PrefetchFlow
from raybroker.client.consumer.prefetch.prefetch_buffer import ConsumerSession, PrefetchBuffer, Watched
from raybroker.client.consumer.prefetch.prefetch_tuner import PrefetchTuner
from raybroker.client.consumer.prefetch.taken_bytes import TakenBytes, TakenCost
from raybroker.client.consumer.prefetch.tuned_flow import TunedFlow
from raybroker.client.destinations import Destination
from raybroker.client.io.io_thread import call_or_refuse, refuse
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import missing
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError
from raybroker.system.entropy import token
from raybroker.wire.native import frames as wire

IDENTITY_BYTES: Final = 8
log = logging.getLogger("raybroker.client")


class ToCome:
    """What is known of deliveries that are to come.

    ``min_tag``: lower ones are old ones'; by tag ``fences``, the fencing numbers, and ``states``, the checkpoints.
    """

    __slots__ = ("fences", "min_tag", "states")

    def __init__(self) -> None:
        self.min_tag = 0
        self.fences: dict[int, int] = {}
        self.states: dict[int, bytes] = {}

    def states_of(self, tag: int, count: int) -> dict[int, bytes]:
        """Take out the checkpoints of messages that are here now."""
        return {at: self.states.pop(at) for at in sorted(self.states) if tag <= at < tag + count}

    def clear(self) -> None:
        self.fences.clear()
        self.states.clear()


class MemberOwner:
    """The handle that a consumer is one of several attachments of."""

    def member_failed(self, member: ConsumerCore) -> None:
        """It cannot go on, because of ``member.failure``; its buffer is empty."""

    def member_lost(self, member: ConsumerCore) -> bool:
        """Its channel is gone: whether it is not to be brought back."""
        return False

    def member_promoted(self) -> None:
        """One became active."""

    def batch_came(self, member: ConsumerCore) -> None:
        """One of batches has got one; on the IO loop."""

    def member_moved(self, member: ConsumerCore) -> bool:
        """It is about to be attached where its traits say: whether another one is to be in its place."""
        return False


class ConsumerCore(PrefetchBuffer, Endpoint):
    """One attachment to one destination; alone, or a member of a multi-broker consumer, its ``owner``.

    broker    whose member of the destination; None: that of the home broker
    identity  names the consumer to all brokers; ``notifier`` and ``credit_pool`` are shared by its members as well
    """

    session: ConsumerSession
    _connection: ConnectionCore
    may_get = True
    """There was something at the destination that may come for it when it was opened, as far as is known."""

    def __init__(
        self,
        session: ConsumerSession,
        destination: Destination,
        options: ConsumerOptions,
        *,
        broker: str | None = None,
        identity: str = "",
        owner: MemberOwner | None = None,
        notifier: Notifier[PrefetchBuffer] | None = None,
        credit_pool: CreditPool | None = None,
    ) -> None:
        flow: CreditFlow | BatchFlow | Share
        if options.batch is not None:
            flow = BatchFlow()
        elif credit_pool is not None:
            flow = credit_pool.join()
        elif options.least:
            tuner, now_ns = PrefetchTuner(options.least, options.limit), session.connection.clock.monotonic_ns
            flow = TunedFlow(tuner, options.percent, now_ns, self._tuned)
        else:
            flow = CreditFlow(options.limit, options.percent)
        PrefetchBuffer.__init__(self, session, flow, notifier or Notifier())
        Endpoint.__init__(self, destination, broker)
        self.identity = identity or token(IDENTITY_BYTES).hex()
        self.options = options
        self.unpickles = options.unpickles
        self.message_bytes_max = session.connection.message_bytes_max
        self.reports_failure = owner is None
        self.active = True
        self.listener: Callable[[Message], object] | None = None
        self.failure: BrokerError | None = None
        """Why it ended without being closed."""
        self._owner = owner or MemberOwner()
        if options.buffer.cost:
            self._taken = TakenCost()
        elif options.buffer.nbytes:
            self._taken = TakenBytes(options.buffer.nbytes)
        self._ack_deadline = AckDeadline(options.lease_ms, self._extend_held) if options.lease_ms else None
        self._to_come = ToCome()
        self._alone = False
        """No duplicate can come: there is one broker, and there will never be another."""
        self._let_go = False
        """The application has no reference to it any more."""
        self._why_gone = LOST
        """Why nothing can be settled any more once there is no attachment."""

    async def open(self, *, create: bool) -> ConsumerCore:
        """Join the session, and be attached; raises what the broker answers, or the last retryable error."""
        self.session.keep(self)
        try:
            await self._connection.attachments.attach(self, create=create)
        except BaseException:
            self.session.forget_consumer(self)
            raise
        return self

    @property
    def share(self) -> Share:
        """Its part of the credit pool; for members only."""
        assert self._share is not None
        return self._share

    def acknowledge(self, epoch: int, ranges: unacknowledged_ranges.Ranges, confirmed: Future[int] | None) -> None:
        """Send an acknowledgement; without a connection it fails, and the messages will come again."""
        self._connection.io.post(call_or_refuse, confirmed, self._send_ack, epoch, ranges, confirmed)

    def acknowledge_now(self, epoch: int, ranges: unacknowledged_ranges.Ranges, confirmed: Future[int]) -> None:
        """:meth:`acknowledge` on the IO loop."""
        call_or_refuse(confirmed, self._send_ack, epoch, ranges, confirmed)

    def conclude(
        self,
        epoch: int,
        ranges: unacknowledged_ranges.Ranges,
        outcome: str,
        delay_ms: int,
        reason: str,
        confirmed: Future[int],
    ) -> None:
        """Send another outcome than an acknowledgement."""
        self._connection.io.post(
            call_or_refuse, confirmed, self._send_outcome, epoch, ranges, outcome, delay_ms, reason, confirmed
        )

    def extend(self, message: Message) -> None:
        """Start a message's ack deadline again."""
        tag = message.tag
        self._connection.io.post(self._send_extend, message._delivery.epoch, [(tag, tag)])

    def checkpoint(self, message: Message, state: bytes, kept: Future[int]) -> None:
        """Tell the host how far the application is with a message."""
        self._connection.io.post(self._start_checkpoint, message._delivery.epoch, message.tag, state, kept)

    def _start_checkpoint(self, epoch: int, tag: int, state: bytes, kept: Future[int]) -> None:
        self._connection.tasks.spawn(self._send_checkpoint(epoch, tag, state, kept))

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    async def _send_checkpoint(self, epoch: int, tag: int, state: bytes, kept: Future[int]) -> None:
        channel = self._reachable(epoch)
        if channel is None:
            refuse(kept, not_settled("checkpoint()", self._why_gone))
            return
        try:
            await channel.call("checkpoint", {"handle": self._handle, "epoch": epoch, "tag": tag, "state": state})
        except BrokerError as error:
            refuse(kept, error)
        else:
            kept.set_result(0)

    def _reachable(self, epoch: int) -> Channel | None:
        """The channel, if it is there and the attachment is still that of ``epoch``."""
        channel = self._channel
        return channel if channel is not None and not channel.lost and epoch == self.epoch else None

    def _send_credit(self, credit: int, epoch: int) -> None:
        if (channel := self._reachable(epoch)) is not None:
            channel.link.write(wire.credit(self._handle, epoch, credit))

    def send_grant(self, grant: CreditGrant) -> None:
        """Tell the host what the credit pool has granted."""
        if (channel := self._reachable(self.epoch)) is not None:
            write = wire.credit if grant.stands else wire.drain
            channel.link.write(write(self._handle, self.epoch, grant.credit))

    def _asks(self) -> int:
        """The limit that it is opened with."""
        if isinstance(self._flow, TunedFlow):
            return self._flow.limit
        return self.options.limit if self._share is None else self._share.credit_pool.asks(self.options.limit)

    def _tuned(self) -> None:
        self._connection.io.post(self.send_tuned, self._flow.limit)

    def send_tuned(self, limit: int) -> None:
        """Let the host show which limit the consumer has chosen."""
        if self._reachable(self.epoch) is not None and self.epoch:
            self._connection.tasks.spawn(self._tell_limit(self.epoch, limit))

    async def _tell_limit(self, epoch: int, limit: int) -> None:
        if (channel := self._reachable(epoch)) is not None:
            with contextlib.suppress(BrokerError):  # It is only shown; whoever attaches tells it again.
                await channel.call("tune_consumer", {"handle": self._handle, "epoch": epoch, "limit": limit})

    def _send_taken(self, tag: int, epoch: int) -> None:
        if (channel := self._reachable(epoch)) is not None:
            channel.link.write(wire.taken(self._handle, epoch, tag))

    def _send_begun(self, tag: int, epoch: int) -> None:
        if (channel := self._reachable(epoch)) is not None:
            channel.link.write(wire.begun(self._handle, epoch, tag))

    def _send_answer(self, credit: int, epoch: int) -> None:
        if credit:
            self._send_credit(credit, epoch)
        else:
            self._send_begun(0, epoch)

    def _send_extend(self, epoch: int, ranges: unacknowledged_ranges.Ranges) -> None:
        if (channel := self._reachable(epoch)) is not None:
            channel.link.write(wire.extend(self._handle, epoch, ranges))

    def _send_ack(self, epoch: int, ranges: unacknowledged_ranges.Ranges, confirmed: Future[int] | None) -> None:
        channel = self._channel
        if channel is not None and epoch == self.epoch:
            channel.acknowledge(self._handle, epoch, ranges, confirmed)
        elif confirmed is not None:
            refuse(confirmed, not_settled("the acknowledgement", self._why_gone))
        self._told += 1  # As told() does: a call for each acknowledgement costs more than the line.
        if self._let_go:
            self.close_if_settled()

    def _send_outcome(
        self,
        epoch: int,
        ranges: unacknowledged_ranges.Ranges,
        outcome: str,
        delay_ms: int,
        reason: str,
        confirmed: Future[int] | None,
    ) -> None:
        channel = self._channel
        if channel is not None and epoch == self.epoch:
            channel.settle_deliveries(self._handle, epoch, outcome, delay_ms, reason, ranges, confirmed)
        elif confirmed is not None:
            refuse(confirmed, not_settled(f"{outcome}()", self._why_gone))
        if confirmed is not None:
            self.told()

    def _extend_held(self) -> None:
        """Extend what is in the buffer and what a running listener has in hand."""
        with self._lock:
            ranges = [(d.tag, d.tag + d.block.count - 1) for d in self._deliveries]
            if ranges:
                ranges[0] = (ranges[0][0] + self._at, ranges[0][1])
            in_hand = self.session.handed.in_hand
            if in_hand is not None and in_hand._delivery.consumer is self:
                ranges.insert(0, (in_hand.tag, in_hand.tag))
            for message in self.session.handed.ties or ():
                delivery = message._delivery
                if delivery.consumer is self and delivery.epoch == self.epoch:
                    ranges.insert(0, (message.tag, message.tag))
        if ranges:
            self._send_extend(self.epoch, ranges)

    async def attach(self, channel: Channel) -> None:
        """Open on a channel, with an empty buffer."""
        if self._owner.member_moved(self):
            raise ConnectionLostError(f"{self.name} has moved to one place of the cluster")
        options, share = self.options, self._share
        drained = share is not None and share.credit_pool.shared
        self._alone = self._connection.brokers.alone
        args = {
            "flow": options.style,
            "limit": self._asks(),
            "limit_max": options.limit if options.least else 0,
            "no_ack": self.session.mode == "none",
            "selector": options.selector,
            "no_local": options.no_local,
            "subscription": options.subscription,
            "lease_ms": options.lease_ms,
            "drain": drained,
            "owner": self.session.owner,
            "home": self._connection.directory.home,
            "consumer": self.identity,
            "recalls": options.recalls,
            "shares": options.shares,
            "buffer_bytes": options.buffer.nbytes,
            "buffer_cost": options.buffer.cost,
            "fenced": options.fenced,
            "labels": self._labels(),
            "batch": options.batch.as_arguments() if options.batch is not None else None,
        }
        # Before it is opened: the first deliveries may come right behind the answer.
        with self._lock:
            self._forget()
        opened = partial(self._opened, drained=drained)
        await self._open(channel, "open_consumer", args, opened, undo="close_consumer")

    def drain_left_s(self) -> float | None:
        """See Message.draining."""
        return self._connection.events.drain.left_s(self._connection.clock.monotonic_ns() / 1e9)

    def _labels(self) -> list[str]:
        """What it has at hand: what the application says, and in Ray its node."""
        objects = self._connection.channels.objects
        here = [objects.node] if objects is not None and objects.node else []
        return list(dict.fromkeys([*here, *self.options.buffer.labels]))

    def _opened(self, answer: dict[str, Any], *, drained: bool) -> None:
        with self._lock:
            limit, options = answer["limit"], self.options
            self.epoch = answer["epoch"]
            if options.batch is not None:
                self._flow = BatchFlow()
            elif self._share is not None:
                most = answer.get("limit_max", limit) if options.least else None
                self._share.credit_pool.opened(self._share, limit, drained=drained, most=most)
            elif isinstance(self._flow, TunedFlow):
                self._flow.opened(limit, answer.get("limit_max", limit))
            elif options.style == "credit":
                self._flow = CreditFlow(limit, options.percent)
            else:
                before = self._flow
                self._flow = PrefetchFlow(limit, before.wish if isinstance(before, PrefetchFlow) else 1)
            self.active = answer["active"]
            self.may_get = answer.get("may_get", True)
            options.warn_if_cut(self.name, limit)
            if self._notifier.has_waiters:
                self.poll()
        if self._ack_deadline is not None:
            self._ack_deadline.start()

    def _forget(self) -> None:
        """The buffer is void, and what is unacknowledged: the broker will deliver everything unacknowledged again."""
        self._drop_all(LOST)
        self._settled_up_to = 0
        self._all_flow.handed_out(self._flow.buffered)
        self._flow.restart()
        self._to_come.clear()
        self._to_come.min_tag = 0
        self._connection.events.drain.consumer_ended(id(self))
        self.epoch = 0

    def _withdrawn(self, ranges: unacknowledged_ranges.Ranges) -> None:
        """Deliveries are void. With an ack deadline more is asked for when the application comes back for it."""
        transacted = self.session.mode == "transacted"
        if not self.options.lease_ms and not transacted:
            if ask := self.withdraw(ranges):
                self._send_credit(ask, self.epoch)
            self.close_if_settled()
            return
        before = unacknowledged_ranges.count(self.consumed)
        ask = self.withdraw(ranges, TIMED_OUT if transacted else OVERDUE)
        if transacted and before != unacknowledged_ranges.count(self.consumed):
            self.session.lost_some(TIMED_OUT)
        with self._lock:
            self.owing = max(self.owing, 0) + ask
            if self._notifier.has_waiters:
                self.answer_deadline()
        if self.listener is not None:
            self.session.wake_listeners()
        self.close_if_settled()

    def received(self) -> tuple[int, int] | None:
        """(last tag, how many) of what was handed out and not acknowledged; None when there is nothing."""
        with self._lock:
            return (self.consumed[-1][1], unacknowledged_ranges.count(self.consumed)) if self.consumed else None

    def want(self, count: int) -> None:
        """Have so many messages on their way or in the buffer, with a limit of 0, from now on. On the IO loop."""
        with self._lock:
            if isinstance(self._flow, PrefetchFlow):
                self._flow.wish = count
                self.poll()

    async def drain(self) -> None:
        """Wait until nothing more comes for what is wanted; all that there was for it has come then. On the IO loop,
        with a limit of 0."""
        channel, flow = self._channel, self._flow
        if channel is None or channel.lost or not isinstance(flow, PrefetchFlow):
            return
        drained = self._connection.io.loop.create_future()
        with self._lock:
            flow.drains.append(drained)
        self._connection.io.post(self._send_drain, self.epoch)
        await drained

    def _send_drain(self, epoch: int) -> None:
        channel = self._reachable(epoch)
        if channel is not None:
            channel.link.write(wire.drain(self._handle, epoch, 0))
        elif isinstance(self._flow, PrefetchFlow):
            self._flow.drained()

    def _asked(self, frame: wire.ReadyFrame | wire.DrainedFrame) -> None:
        """The host has something, or nothing more, for this member."""
        share = self._share
        if isinstance(self._flow, BatchFlow):
            if frame.epoch == self.epoch and not self._let_go:
                self._batch_told(self._flow, void=isinstance(frame, wire.DrainedFrame) and frame.unused > 0)
        elif share is not None and frame.epoch == self.epoch:
            with self._lock:
                if isinstance(frame, wire.ReadyFrame):
                    share.credit_pool.ready(share)
                else:
                    share.credit_pool.drained(share)
        elif (
            isinstance(self._flow, PrefetchFlow) and isinstance(frame, wire.DrainedFrame) and frame.epoch == self.epoch
        ):
            with self._lock:
                self._flow.drained()

    def _batch_told(self, flow: BatchFlow, *, void: bool) -> None:
        """A batch is here, or (``void``) none comes any more for what was asked."""
        with self._lock:
            if void:
                flow.voided()
                if self._notifier.has_waiters:
                    self.poll()
                return
            flow.ended()
            self._notifier.notify()
        self._owner.batch_came(self)

    def revoke_batch(self) -> None:
        """Ask for no batch any more; on the IO loop. One that has left comes all the same."""
        channel = self._reachable(self.epoch)
        with self._lock:
            says = isinstance(self._flow, BatchFlow) and self._flow.revoke()
        if says and channel is not None:
            channel.link.write(wire.drain(self._handle, self.epoch, 0))

    def on_frame(self, frame: wire.Frame) -> None:
        if not isinstance(frame, wire.DeliverFrame):
            self._on_other(frame)
            return
        block, tag = frame.block, frame.tag
        count = block.count
        fence = self._to_come.fences.pop(tag, 0) if self._to_come.fences else 0
        states = self._to_come.states_of(tag, count) if self._to_come.states else None
        if self.closed or self._let_go or tag < self._to_come.min_tag:
            self._all_flow.meter(count)
            if self._let_go and tag >= self._to_come.min_tag:
                self._give_back([(tag, tag + count - 1)])
            return
        if missing(block):
            self._missed(tag, block)
            return
        expires, attempt = block.expires(), frame.attempt
        if not self._alone and self._connection.kept.duplicates.again(block):
            attempt = max(attempt, 2)
        if expires is None and attempt == 1:
            delivery = ReceivedDelivery(block, self, frame.epoch, tag, attempt)
        else:
            delivery = watched = Watched(block, self, frame.epoch, tag, attempt)
            watched.expires = expires
        if fence:
            delivery.fence = fence
        if states:
            delivery.states = states
        notifier = self._notifier
        with self._lock:
            self._deliveries.append(delivery)
            if not self._listed:
                self._listed = True
                notifier.filled.append(self)
            if self._taken is not None:
                self._taken.last = max(self._taken.last, tag + count - 1)
            ask = self._flow.arrived(count)
            notifier.notify()
            if self.listener is not None:
                self.session.wake_listeners()
        if self._all_flow.counts_arrived:
            self._all_flow.arrived(count)
        if ask:
            self._send_credit(ask, frame.epoch)

    def _missed(self, tag: int, block: Block) -> None:
        """A large message was taken back, or removed, before its body was read: somebody else gets it."""
        with self._lock:
            ask = self._flow.arrived(1) + self._flow.dropped(1)
            if self._taken is not None:
                self._taken.last = max(self._taken.last, tag)
                self._gone(self._taken, block)
            if self._share is not None:
                self._share.settled(1)
            if self._notifier.has_waiters:
                self.poll()
            if self.listener is not None:
                self.session.wake_listeners()
        self._all_flow.meter(1)
        self._give_back([(tag, tag)])
        if ask:
            self._send_credit(ask, self.epoch)

    def _on_other(self, frame: wire.Frame) -> None:
        """A frame that brings no messages."""
        if isinstance(frame, wire.ReadyFrame | wire.DrainedFrame):
            self._asked(frame)
        elif isinstance(frame, wire.WithdrawnFrame):
            if frame.epoch == self.epoch:
                self._withdrawn(list(frame.ranges))
        elif isinstance(frame, wire.RecallFrame):
            if (channel := self._reachable(frame.epoch)) is not None:
                given, ask = self.give_up(frame.ranges)
                channel.link.write(wire.recalled(self._handle, frame.epoch, given))
                if ask:
                    self._send_credit(ask, frame.epoch)
        elif isinstance(frame, wire.MarkFrame):
            if frame.epoch == self.epoch:
                self._to_come.fences[frame.tag] = frame.fence
        elif isinstance(frame, wire.CheckpointFrame):
            if frame.epoch == self.epoch:
                self._to_come.states[frame.tag] = frame.state
        elif isinstance(frame, wire.PromotedFrame):
            self.active = True
            self._owner.member_promoted()
        elif isinstance(frame, wire.EventFrame) and frame.name == "draining":
            channel = self._channel
            self._connection.events.drain_told(id(self), channel.place.key if channel else "", frame.data)
        elif isinstance(frame, wire.EventFrame) and frame.name in ("destroyed", "halted"):
            self._connection.attachments.end_handle(self, ended_by(frame, self.name))

    def _notify(self, *, everybody: bool = False) -> None:
        self._notifier.notify(everybody=everybody)
        if self.listener is not None:
            self.session.wake_listeners()

    async def release(self, delay_ms: int | None = None, reason: str = "") -> None:
        """Give everything unacknowledged back and start again (recover); failures are what was handed out.

        ``delay_ms`` is the pause before those come again, None the session's; ``reason`` is written on those that are
        dead by it.
        """
        channel, epoch = self._channel, self.epoch
        if channel is None or channel.lost or not epoch:
            return  # Whoever attaches, which may be under way, starts with everything.
        share = self._share
        with self._lock:
            if share is not None and share.credit_pool.pause(share):
                channel.link.write(wire.drain(self._handle, epoch, 0))
            credit = self._flow.limit if (share is None or share.standing) and not self._let_go else 0
            last = max(self.consumed[-1][1] if self.consumed else 0, self._settled_up_to)
            seen = self._handed_out_up_to
            self._drop_all(RECOVERED)
            self._to_come.min_tag = 1 << 62
            self._settled_up_to = 0

        def released(next_tag: int) -> None:
            channel.large.deliver_now(self._handle)
            with self._lock:
                self._all_flow.handed_out(self._flow.buffered)
                if share is not None:
                    share.credit_pool.resumed(share)
                else:
                    self._flow.restart()
                self._to_come.min_tag = next_tag
                if self._notifier.has_waiters:
                    self.poll()

        args = {
            "handle": self._handle,
            "epoch": epoch,
            "credit": credit,
            "consumed": last,
            "seen": seen,
            "delay_ms": self.session.handed.redelivery_delay_ms if delay_ms is None else delay_ms,
            "reason": reason,
        }
        await channel.call("release", args, released)
        self.close_if_settled()

    def let_go(self) -> None:
        """Nobody can receive from it any more: what waits here goes back, and it is closed once what was received is
        settled."""
        if self.closed or self._let_go:
            return
        self._let_go = True
        self.session.handed.leaving[self] = None
        channel = self._reachable(self.epoch)
        if channel is not None:
            channel.link.write(wire.drain(self._handle, self.epoch, 0))  # Nothing more is to come.
        with self._lock:
            ranges = [tags for delivery in self.drop_buffer() for tags in delivery]
            self._all_flow.handed_out(self._flow.buffered)
            self._flow.restart()
        self._give_back(ranges)
        if channel is not None:
            channel.large.deliver_now(self._handle)  # Nobody waits for their bodies.
        if self.session.mode == "dups_ok":
            self.session.flush_lazily()
        self.close_if_settled()

    def _give_back(self, ranges: unacknowledged_ranges.Ranges) -> None:
        """Messages that the application has not seen are for anybody."""
        if ranges and self.session.handed.keeps_track:
            self._send_outcome(self.epoch, ranges, "unseen", -1, "", None)

    def told(self) -> None:
        """The host has been told of something that was settled, or cannot be."""
        self._told += 1
        if self._let_go:
            self.close_if_settled()

    def close_if_settled(self) -> None:
        """Close it when nobody refers to it, nothing that it gave out is left to be acknowledged, and the host has been
        told of all that was: a thread that settles something tells it after that, and the host would refuse it then."""
        if not self._let_go or self.closed:
            return
        with self._lock:
            settled = not self.consumed and self._told == self._settlements
        if settled:
            self.shut()
            self._connection.tasks.spawn(self.close())

    @property
    def _handed_out_up_to(self) -> int:
        """The highest delivery that the application has got and that may not be settled; it never saw higher ones.

        Deliveries that wait for the disk come after others that are later: lower ones may be here unseen.
        """
        return max(self._settled_up_to, *(row[1] for row in self.consumed), 0)

    def started(self) -> None:
        """The connection was started: what is in the buffer may be handed out."""
        with self._lock:
            if self._deliveries:
                self._notify()

    def has_ended(self) -> bool:
        """True once the application has closed it, or has lost it."""
        return self.closed or self._let_go

    def on_lost(self) -> None:
        super().on_lost()
        if self._ack_deadline is not None:
            self._ack_deadline.stop()
        with self._lock:
            had_handed_out = bool(self.consumed)
            self._forget()
        if had_handed_out:
            self.session.lost_some("the connection to a consumer of it was lost")
        self.close_if_settled()
        if not self._owner.member_lost(self) and not self.closed:
            self._connection.attachments.recover(self)

    def fail(self, error: BrokerError) -> None:
        self.failure = error
        if not self.reports_failure:
            self.abandon()
            self._owner.member_failed(self)
            return
        with self._lock:
            self._failure = error
            self._notify(everybody=True)

    def abandon(self) -> None:
        """It is over for this member, and its consumer goes on: what is here will come from elsewhere."""
        with self._lock:
            self.closed = True
            self._forget()

    def shut(self) -> None:
        """No more messages for the application; whoever waits is woken."""
        with self._lock:
            self.closed = True
            self._failure = self._failure or IllegalStateError(f"the consumer of {self.name} is closed")
            self._notify(everybody=True)
            self._deliveries.clear()
            self._at = 0

    async def close(self) -> None:
        """Detach on the host: what is not acknowledged goes back. A transaction keeps what it has consumed."""
        await self.session.stage(self)
        channel, self._channel = self._channel, None
        self._why_gone = CLOSED
        if self._ack_deadline is not None:
            self._ack_deadline.stop()
        self._all_flow.handed_out(self._flow.buffered)
        self._flow.restart()
        self._connection.events.drain.consumer_ended(id(self))
        with self._lock:
            seen = self._handed_out_up_to
            self._drop_all(CLOSED)
        self.session.forget_consumer(self)
        if channel is not None and not channel.lost:
            await channel.confirmed(self._handle)
        if channel is not None and not channel.lost:
            await channel.call("close_consumer", {"handle": self._handle, "seen": seen})
            channel.endpoints.pop(self._handle, None)

    def info(self) -> dict[str, Any]:
        """Return a row for people who look: name, limit, messages buffered, and consumed but not acknowledged."""
        waiting = unacknowledged_ranges.count(self.consumed)
        return {"destination": self.name, "limit": self._flow.limit, "buffered": self.buffered, "consumed": waiting}
