"""The buffers of all members of one consumer, and the credit that they share.

The side of a multi-broker consumer that the application's threads use; it does not choose the members.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.notifier import Notifier
from raybroker.client.consumer.prefetch.credit_pool import CreditPool, Share
from raybroker.client.consumer.prefetch.prefetch_buffer import ConsumerSession, PrefetchBuffer
from raybroker.client.consumer.prefetch.prefetch_tuner import PrefetchTuner
from raybroker.client.consumer.prefetch.tuned_pool import TunedCreditPool
from raybroker.model.errors import BrokerError


class PrefetchBuffers:
    """``options``: of every member."""

    def __init__(self, session: ConsumerSession, options: ConsumerOptions) -> None:
        self.session = session
        self.closed = False
        self._connection = session.connection
        self._notifier: Notifier[PrefetchBuffer] = Notifier()
        by_acks = options.style == "prefetch" and options.limit != 0 and session.handed.keeps_track
        if options.least:
            self._credit_pool: CreditPool = TunedCreditPool(
                PrefetchTuner(options.least, options.limit),
                options.percent,
                now_ns=session.connection.clock.monotonic_ns,
                due=self._grants_due,
                tuned=self._tuned,
            )
        else:
            self._credit_pool = CreditPool(options.style, options.percent, by_acks=by_acks, due=self._grants_due)
        self._holders: dict[Share, ConsumerCore] = {}
        """Members by their part of the credit pool; those of batches have none."""
        self._failure: BrokerError | None = None
        session.connection.handles.buffers.add(self)
        self.take_one: Callable[[], Message | None] = self._take_one_of_all
        """The next message of the buffers, or None; the hot path of ``receive``. With one member it is that one's."""

    @property
    def failed(self) -> bool:
        """It has ended without being closed."""
        return self._failure is not None

    def take_messages(self, most: int) -> list[Message]:
        """Up to ``most`` messages, from one member after the other."""
        found: list[Message] = []
        while self._may_take and len(found) < most and (member := self._filled()) is not None:
            found += member.take_messages(most - len(found))
            self._next(member)
        if not found and self._failure is not None:
            raise self._failure
        return found

    def _take_one_of_all(self) -> Message | None:
        while self._may_take and (member := self._filled()) is not None:
            message = member.take_one()
            self._next(member)
            if message is not None:
                return message
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def _may_take(self) -> bool:
        return self._connection.started and not self.session.handed.holds_back

    def _filled(self) -> PrefetchBuffer | None:
        """The member to take from: the first that has something."""
        with self._notifier.lock:
            return self._notifier.first()

    def _next(self, member: PrefetchBuffer) -> None:
        """Go on to another member after each of its deliveries."""
        if member.between_deliveries:
            self._notifier.filled.rotate(-1)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something is in the buffers, or the consumer has ended; False when the time is over."""
        return self._notifier.wait(self._has_something, self._poll, timeout_s, self._connection.io.served)

    def want(self, count: int) -> None:
        """See :meth:`ConsumerCore.want`."""
        with self._notifier.lock:
            self._credit_pool.wish.count = count
            self._credit_pool.poll()

    async def drain(self) -> None:
        """See :meth:`ConsumerCore.drain`."""
        drained = self._connection.io.loop.create_future()
        with self._notifier.lock:
            self._credit_pool.start_drain(drained)
        await drained

    def arrival_future(self) -> Future[None]:
        return self._notifier.future(self._has_something, self._poll)

    def _poll(self) -> None:
        """Somebody waits; called with the lock held."""
        self._credit_pool.poll()
        for member in self._holders.values():
            member.answer_deadline()

    def _has_something(self) -> bool:
        if self.closed or self._failure is not None:
            return True
        return self._may_take and self._notifier.first() is not None

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    def _grants_due(self) -> None:
        self._connection.io.post(self._give_grants)

    def _tuned(self) -> None:
        self._connection.io.post(self._tell_limit)

    def _tell_limit(self) -> None:
        with self._notifier.lock:
            members, limit = list(self._holders.values()), self._credit_pool.limit
        for member in members:
            member.send_tuned(limit)

    def _give_grants(self) -> None:
        with self._notifier.lock:
            grants = [(self._holders.get(grant.share), grant) for grant in self._credit_pool.grants()]
        for member, grant in grants:
            if member is not None:
                member.send_grant(grant)
