"""Handles on a pattern of topics: one consumer or producer over an attachment to every topic that matches (D-05).

The set is followed while the handle is open: a topic that appears is joined, one that is destroyed is left, and nobody
is told of either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.arrivals import Arrivals
from raybroker.client.consumer import ConsumerCore, ConsumerOptions
from raybroker.client.destinations import Destination, Topic
from raybroker.client.io import fulfil, refuse
from raybroker.client.many import Each
from raybroker.client.message import Message, message_id
from raybroker.client.producer import ProducerCore
from raybroker.client.producing import Shared
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, InvalidDestinationError
from raybroker.system.entropy import token

if TYPE_CHECKING:
    from raybroker.client.connection import ConnectionCore
    from raybroker.client.session import SessionCore

CHANGED_WAIT_S: Final = 15.0
"""One question for changes waits so long; asking again costs one call."""


class Following:
    """Keeps ``members`` in step with the topics that match; ``join(topic)`` opens one. On the IO loop."""

    def __init__(self, connection: ConnectionCore, pattern: Destination) -> None:
        self.connection = connection
        self.pattern = pattern
        self.members: dict[str, Any] = {}
        self._task: Any = None

    async def start(self, join: Callable[[Topic], Any]) -> None:
        """Join what matches now, and then whatever comes; raises what the first look raises."""
        directory = self.connection.directory
        version, names = await self.connection.patiently(
            self.pattern.name, lambda: directory.matching(self.pattern.name)
        )  # fmt: skip
        complete = await self._join_all(names, join)
        self._task = self.connection.spawn(self._follow(version if complete else -1, join))

    async def _join_all(self, names: list[str], join: Callable[[Topic], Any]) -> bool:
        """Join those that are not members; False when one could not be reached and has to be tried again."""
        complete = True
        for name in names:
            if name not in self.members:
                try:
                    self.members[name] = await join(Topic(name))
                except ConnectionLostError:
                    complete = False
                except InvalidDestinationError:
                    continue  # It is gone again.
        return complete

    async def _follow(self, version: int, join: Callable[[Topic], Any]) -> None:
        directory, seen = self.connection.directory, version
        while not self.connection.closed:
            try:
                if seen >= 0 and await directory.changed(seen, CHANGED_WAIT_S) == seen:
                    continue
                version, names = await directory.matching(self.pattern.name)
                seen = version if await self._join_all(names, join) else -1
            except BrokerError:
                seen = -1
            if seen < 0:
                await self.connection.pause()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


class PatternConsumer:
    """What a face does with a ConsumerCore, over all members; they share one lock and those who wait."""

    def __init__(self, session: SessionCore, pattern: Destination, options: ConsumerOptions) -> None:
        self.session = session
        self.destination = pattern
        self.name = pattern.name
        self.closed = False
        self._connection = session.connection
        self._options = options
        self._arrivals = Arrivals()
        self._following = Following(session.connection, pattern)
        self._members: dict[str, ConsumerCore] = self._following.members
        self._next = 0
        self._listener: Callable[[Message], object] | None = None

    async def open(self) -> None:
        await self._following.start(self._join)
        self._connection.at_close.append(self._end)

    async def _join(self, topic: Topic) -> ConsumerCore:
        member = ConsumerCore(self.session, topic, self._options, self._arrivals)
        member.left = self._leave
        member.listener = self._listener
        await self._connection.join(member, create=False)
        return member

    def _leave(self, member: ConsumerCore) -> None:
        self._members.pop(member.name, None)
        self.session.forget(member)

    # ---- as ConsumerCore -------------------------------------------------------------------------------------------

    @property
    def listener(self) -> Callable[[Message], object] | None:
        return self._listener

    @listener.setter
    def listener(self, listener: Callable[[Message], object] | None) -> None:
        self._listener = listener
        for member in list(self._members.values()):
            member.listener = listener

    @property
    def active(self) -> bool:
        return True

    def take(self, most: int) -> list[Message]:
        """Up to ``most`` messages, from one member after the other, and the next time from another first."""
        found: list[Message] = []
        members = list(self._members.values())
        self._next += 1
        for index in range(len(members)):
            if len(found) >= most:
                break
            with contextlib.suppress(BrokerError):
                found += members[(self._next + index) % len(members)].take(most - len(found))
        if not found and self.closed:
            raise IllegalStateError(f"the consumer of {self.name} is closed")
        return found

    def take_one(self) -> Message | None:
        found = self.take(1)
        return found[0] if found else None

    def wait(self, timeout_s: float | None) -> bool:
        return self._arrivals.wait(self._has_something, self._poll, timeout_s)

    def arrival_future(self) -> Future[None]:
        return self._arrivals.future(self._has_something, self._poll)

    def _has_something(self) -> bool:
        return self.closed or any(member.has_something() for member in list(self._members.values()))

    def _poll(self) -> None:
        for member in list(self._members.values()):
            member.poll()

    def shut(self) -> None:
        for member in list(self._members.values()):
            member.shut()
        with self._arrivals.lock:
            self.closed = True
            self._arrivals.tell(everybody=True)

    async def close(self) -> None:
        self._following.stop()
        for member in list(self._members.values()):
            await member.close()
        self._members.clear()
        if self._end in self._connection.at_close:
            self._connection.at_close.remove(self._end)

    async def _end(self) -> None:
        self._following.stop()
        self.shut()

    def info(self) -> dict[str, Any]:
        rows = [member.info() for member in list(self._members.values())]
        limit = max((row["limit"] for row in rows), default=self._options.limit)
        return {
            "destination": self.name, "limit": limit, "buffered": sum(row["buffered"] for row in rows),
            "consumed": sum(row["consumed"] for row in rows), "topics": sorted(self._members),
        }  # fmt: skip


class PatternProducer:
    """What a face does with a ProducerCore: every match gets a copy; with no match there is nobody to send to."""

    def __init__(
        self, connection: ConnectionCore, pattern: Destination, shared: Shared, *, pickles: bool,
        session: SessionCore | None,
    ) -> None:  # fmt: skip
        self.destination = pattern
        self.name = pattern.name
        self.shared = shared
        self.closed = False
        self._connection = connection
        self._pickles = pickles
        self._session = session
        self._following = Following(connection, pattern)
        self._members: dict[str, ProducerCore] = self._following.members
        self._identity = int.from_bytes(token(8), "little")
        self._unsent = 0

    async def open(self) -> None:
        await self._following.start(self._join)

    async def _join(self, topic: Topic) -> ProducerCore:
        member = await self._connection.open_producer(
            topic, self.shared, pickles=self._pickles, session=self._session, create=False
        )
        member.left = self._leave
        return member

    def _leave(self, member: ProducerCore) -> None:
        self._members.pop(member.name, None)
        self._connection.forget_producer(member)

    # ---- as ProducerCore -------------------------------------------------------------------------------------------

    @property
    def transacted(self) -> bool:
        return self._session is not None and self._session.work is not None

    @property
    def duplicates(self) -> int:
        return sum(member.duplicates for member in list(self._members.values()))

    def put(
        self, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *, urgent: bool, block: bool = True
    ) -> str | None:
        """The id is that of the first copy; ``waiter`` is told when the last one is settled."""
        if self.closed:
            raise IllegalStateError(f"the producer for {self.name} is closed")
        members = list(self._members.values())
        if not block and not all(member.has_room() for member in members):
            return None
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

    def put_many(
        self, bodies: Iterable[Any], shared: Shared, each: Each | None = None
    ) -> Iterator[tuple[int, Future[str]]]:
        """As ProducerCore; each piece counts once however many topics get it."""
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
        for rows in zip(*streams, strict=True):
            whole: Future[str] = Future()
            for part, (_, future) in zip(_parts(whole, len(rows)), rows, strict=True):
                future.add_done_callback(lambda done, part=part: _pass_on(done, part))
            yield rows[0][0], whole

    def room_future(self) -> Future[None]:
        return next(
            (member.room_future() for member in list(self._members.values()) if not member.has_room()), _done()
        )  # fmt: skip

    @property
    def throttled(self) -> bool:
        return any(member.throttled for member in self._members.values())

    def settled_futures(self) -> list[Future[None]]:
        return [future for member in list(self._members.values()) for future in member.settled_futures()]

    async def close(self) -> None:
        self.closed = True
        self._following.stop()
        for member in list(self._members.values()):
            await member.close()
            self._connection.forget_producer(member)
        self._members.clear()


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def _parts(whole: Future[str], count: int) -> Iterator[Future[str]]:
    """So many futures that ``whole`` waits for: it gets a result of one of them, or the first error."""
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
