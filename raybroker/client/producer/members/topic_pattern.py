"""A producer for a pattern of topics: an attachment to every topic that matches on the home broker.

The set is followed while the handle is open: a topic that appears is joined, one that is destroyed is left, and nobody
is told of either.  Consumers of patterns are ``consumer.multi_broker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from operator import itemgetter
from typing import Any

from raybroker.client.cluster.broker_members import BrokerMembers, Key
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.destinations import Destination
from raybroker.client.io.io_thread import fulfil, refuse
from raybroker.client.producer.bodies.body_encoding import Encode
from raybroker.client.producer.open_producer import open_producer
from raybroker.client.producer.pacing.flow_rate import least
from raybroker.client.producer.pacing.one_way import one_way_sends
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_owner import ProducerOwner
from raybroker.client.producer.producer_state import RunTold, Shared
from raybroker.client.producer.send_many import Each
from raybroker.client.producer.settlement import NOTHING_TO_WAIT_FOR
from raybroker.client.session.current_transaction import CurrentTransaction
from raybroker.content.headers import message_id
from raybroker.model.errors import BrokerError, IllegalStateError, InvalidDestinationError
from raybroker.system.entropy import token


class PatternProducer(ProducerOwner[ProducerCore]):
    """What a face does with a ProducerCore: every match gets a copy; with no match there is nobody to send to."""

    def __init__(
        self,
        connection: ConnectionCore,
        pattern: Destination,
        shared: Shared,
        *,
        encode: Encode,
        transactions: CurrentTransaction[ProducerCore] | None,
    ) -> None:
        self.destination = pattern
        self.name = pattern.name
        self.shared = shared
        self.closed = False
        self._connection = connection
        self._encode = encode
        self._transactions = transactions
        self._members: dict[Key, ProducerCore] = {}
        self.one_way = one_way_sends(connection.attributes, pattern.kind, transacted=self.transacted)
        """As ProducerCore; one for all members."""
        self._topics = BrokerMembers(connection.directory, connection.tasks, pattern, "", self._members, self._join)
        self._identity = int.from_bytes(token(8), "little")
        self._unsent = 0

    async def open(self) -> None:
        await self._topics.join_present()
        self._topics.follow()

    async def _join(self, broker: str, topic: Destination, create: bool) -> None:
        member = await open_producer(
            self._connection, topic, self.shared, encode=self._encode, transactions=self._transactions, create=create
        )
        member.belong_to(self)
        if self.one_way is not None:
            member.one_way = self.one_way
        self._members[broker, topic.name] = member

    def member_failed(self, member: ProducerCore) -> None:
        self._members.pop(("", member.name), None)
        self._topics.member_left()
        self._connection.handles.forget_producer(member)

    # ---- as ProducerCore -------------------------------------------------------------------------------------------

    @property
    def transacted(self) -> bool:
        return self._transactions is not None

    @property
    def duplicates(self) -> int:
        return sum(member.duplicates for member in list(self._members.values()))

    def put(
        self, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *, urgent: bool, block: bool = True
    ) -> str | None:
        """The id is that of the first copy; ``waiter`` is told when the last one is settled."""
        if self.closed:
            raise IllegalStateError(f"the producer for {self.name} is closed")
        if not block and not self.has_room():
            return None
        members = list(self._members.values())
        if not members:
            self._unsent += 1
            sent = message_id(self._identity, self._unsent)
            if waiter is not None:
                fulfil(waiter, sent)
            return sent
        parts: list[Future[str] | None] = [None] * len(members)
        if waiter is not None:
            parts = list(_parts(waiter, len(members)))
        ids = []
        for member, part in zip(members, parts, strict=True):
            ids.append(member.put(body, header, shared, part, urgent=urgent))
        return ids[0]

    def put_run(self, kind: int, bodies: list[bytes], header: bytes, shared: Shared, told: RunTold) -> bool:
        """Accept none: :meth:`put` knows when the last copy of each is settled."""
        return False

    def put_many(
        self, bodies: Iterable[Any], shared: Shared, each: Each | None = None
    ) -> Iterator[tuple[int, Future[str]]]:
        """Do what :meth:`ProducerCore.put_many` does; each piece counts once however many topics get it."""
        if self.closed:
            raise IllegalStateError(f"the producer for {self.name} is closed")
        members = list(self._members.values())
        collected = list(bodies)
        owns = [None for _ in members] if each is None else each.copies(len(members))
        streams = [member.put_many(collected, shared, own) for member, own in zip(members, owns, strict=True)]
        if not streams:
            done: Future[str] = Future()
            fulfil(done, message_id(self._identity, self._unsent + 1))
            self._unsent += len(collected)
            yield len(collected), done
            return
        rounds, handed = zip(*(filter(itemgetter(0), stream) for stream in streams), strict=True), 0
        while handed < len(collected):
            if not self.has_room():
                yield 0, NOTHING_TO_WAIT_FOR
            rows = next(rounds)
            handed += rows[0][0]
            whole: Future[str] = Future()
            for part, (_, future) in zip(_parts(whole, len(rows)), rows, strict=True):
                future.add_done_callback(lambda done, part=part: _pass_on(done, part))
            yield rows[0][0], whole

    def room_future(self) -> Future[None]:
        return next((member.room_future() for member in list(self._members.values()) if not member.has_room()), _done())

    @property
    def waits_for_rate(self) -> bool:
        """The rate of one topic holds the next message back, see :attr:`ProducerCore.waits_for_rate`."""
        return any(member.waits_for_rate for member in list(self._members.values()))

    @property
    def flow_limit(self) -> float | None:
        """The limit of the topic that takes least, see :attr:`ProducerCore.flow_limit`."""
        return least(member.flow_limit for member in list(self._members.values()))

    def has_room(self) -> bool:
        """Do what :meth:`ProducerCore.has_room` does."""
        return all(member.has_room() for member in list(self._members.values()))

    @property
    def refused(self) -> int:
        return sum(member.refused for member in list(self._members.values()))

    def wait_no_longer(self, error: BrokerError) -> None:
        """Do what :meth:`ProducerCore.wait_no_longer` does."""
        for member in list(self._members.values()):
            member.wait_no_longer(error)

    def take_back(self, waiter: Future[str]) -> bool:
        """Do what :meth:`ProducerCore.take_back` does."""
        return False

    @property
    def throttled(self) -> bool:
        return any(member.throttled for member in self._members.values())

    @property
    def low(self) -> str:
        """The reason of the first that has one, see :attr:`ProducerCore.low`."""
        return next((member.low for member in list(self._members.values()) if member.low), "")

    def settled_futures(self) -> list[Future[None]]:
        return [future for member in list(self._members.values()) for future in member.settled_futures()]

    async def close(self) -> None:
        self.closed = True
        self._topics.stop()
        for member in list(self._members.values()):
            await member.close()
        self._members.clear()


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def _parts(whole: Future[str], count: int) -> Iterator[Future[str]]:
    """Yield ``count`` futures that ``whole`` waits for: it gets a result of one of them, or the first error."""
    left, sent = count, ""

    def one_is_done(part: Future[str]) -> None:
        nonlocal left, sent
        left -= 1
        error = part.exception()
        if error is None:
            sent = sent or part.result()
        elif not isinstance(error, InvalidDestinationError):  # A topic that was destroyed meanwhile gets no copy.
            refuse(whole, error)
        if left == 0:
            fulfil(whole, sent)

    for _ in range(count):
        part: Future[str] = Future()
        part.add_done_callback(one_is_done)
        yield part


def _pass_on(done: Future[str], part: Future[str]) -> None:
    error = done.exception()
    if error is not None:
        refuse(part, error)
    else:
        fulfil(part, done.result())
