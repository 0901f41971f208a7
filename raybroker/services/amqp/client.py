"""The part that all sessions of an AMQP client share: its connection to the broker, and what bounds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from raybroker.client.consumer.subscriptions import delete_temporary
from raybroker.client.destinations import Destination
from raybroker.client.producer.members.unnamed import AnyProducer, UnnamedProducer
from raybroker.client.session import opening
from raybroker.client.session.joint_transaction import JointTransactions
from raybroker.client.session.session import TRANSACTED, SessionCore
from raybroker.services.amqp.counts import AmqpCounts
from raybroker.services.amqp.limits import PENDING_BYTES_HIGH, AmqpServiceLimits
from raybroker.services.amqp.output import AmqpOutput
from raybroker.services.amqp.transaction import AmqpTransactions
from raybroker.services.gateways.prefetch_room import PrefetchRoom
from raybroker.system.supervision import Supervisor

SHARES: Final = 16
"""A link has one part in so many, at most, of the room for what comes ahead of its client."""
MakeSession = Callable[[str], SessionCore]


class AmqpClient:
    """``session(mode)``: makes sessions of the connection to the broker, which is started; ``now_ms()``: its clock;
    ``end()``: ends it, and all that is open there; ``loops``: tasks of the client; ``regulate()``: looks whether more
    may be read.

    plain   the session of what belongs to no link that receives and to no transaction
    shared  what the messages of its producers have that say nothing of themselves
    """

    def __init__(
        self,
        session: MakeSession,
        now_ms: Callable[[], int],
        end: Callable[[], Awaitable[None]],
        output: AmqpOutput,
        limits: AmqpServiceLimits,
        loops: Supervisor,
        counts: AmqpCounts,
        regulate: Callable[[], object],
    ) -> None:
        self.session = session
        self.now_ms = now_ms
        self.end = end
        self.output = output
        self.limits = limits
        self.loops = loops
        self.counts = counts
        self.pending_bytes = 0
        """Of messages whose destinations have no room."""
        self.share_max = limits.prefetch_bytes // SHARES
        self.room = PrefetchRoom(limits.prefetch_bytes)
        self.plain = session("client")
        self.shared = opening.sent_by_default(self.plain)
        self.transactions = AmqpTransactions(self._new_transactions)
        self._regulate = regulate
        self._producing: UnnamedProducer | None = None

    async def _new_transactions(self) -> tuple[JointTransactions, UnnamedProducer]:
        """The transactions of a new session, and what sends in it."""
        session = self.session(TRANSACTED)
        producer = await opening.producer(session, None, {})
        assert isinstance(session.transactions, JointTransactions)
        assert isinstance(producer, UnnamedProducer)
        return session.transactions, producer

    async def end_temporary(self, destination: Destination) -> None:
        """Raises IllegalStateError while a consumer is open on it."""
        await delete_temporary(self.plain.connection, destination)

    def known_producer(self, destination: Destination) -> AnyProducer | None:
        """The producer for a destination that a message names, if one is open."""
        return None if self._producing is None else self._producing.known(destination)

    async def let_go(self, producer: AnyProducer) -> None:
        """Close a producer once what it has is settled."""
        await opening.let_go(producer)

    async def producer(self) -> UnnamedProducer:
        """Sends to whatever destination a message names."""
        if self._producing is None:
            made = await opening.producer(self.plain, None, {})
            assert isinstance(made, UnnamedProducer)
            self._producing = made
        return self._producing

    @property
    def has_much_pending(self) -> bool:
        return self.pending_bytes > PENDING_BYTES_HIGH

    def pend(self, nbytes: int) -> None:
        """A message waits for room, or with a negative number does no more."""
        before = self.has_much_pending
        self.pending_bytes += nbytes
        if before is not self.has_much_pending:
            self._regulate()
