"""A user's connection to the broker, as HTTP requests use it: send, receive under a lease, settle, browse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    RequestTimeoutError,
    ResourceAllocationError,
)
from raybroker.model.settings.setting_listeners import PREFETCH_BYTES_MAX
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.prefetch_room import PrefetchRoom
from raybroker.services.gateways.received_message import ReceivedMessage
from raybroker.services.rest.leases import HELD_MAX, Lease, Leases
from raybroker.services.rest.models import MessageHeld, MessageIn, MessageOut, Settled, body_of, shown
from raybroker.system import entropy

LOG: Final = logging.getLogger("raybroker.services")
STEP_TIMEOUT_S: Final = 30.0
"""How long the broker may take for one send or acknowledgement; a full destination lets senders wait."""
ARRAYS_MAX: Final = 4
"""Arrays of one user that are being stored at once, each in a transaction."""
ARRAYS_WAITING_MAX: Final = 64
BROWSES_MAX: Final = 4
"""Requests of one user that look at messages at once; the broker gives each some megabytes at a time."""
RECEIPT_BYTES: Final = 12


class MessageHandle(ReceivedMessage, Protocol):
    """A message that was received."""

    def acknowledge_this(self) -> Awaitable[Any]: ...
    def release(self) -> Awaitable[Any]: ...
    def fail(self, delay_ms: int | None = None, reason: str | None = None) -> Awaitable[Any]: ...


class ProducerHandle(Protocol):
    """Sends to any destination."""

    async def send(self, body: Any, *, destination: str, **options: Any) -> str: ...


class BrowserHandle(Protocol):
    """What waits in a queue."""

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]: ...
    async def close(self) -> None: ...


class SessionHandle(Protocol):
    """One of the connection's."""

    async def producer(self) -> ProducerHandle: ...
    async def browser(self, queue: str, selector: str | None = None) -> BrowserHandle: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...


class ConnectionHandle(Protocol):
    """A connection of the asyncio face (``raybroker.aio``)."""

    async def session(self, ack: str = "auto", *, transacted: bool = False) -> Any: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class _Asked(NamedTuple):
    """The broker was asked to settle a message."""

    answer: Awaitable[Any]


class ReceiveFitting(Protocol):
    """Up to ``most`` messages, the first one whatever it has, and no other one that does not fit; ``buffer_bytes``
    may lie ready besides."""

    async def __call__(
        self,
        session: Any,
        destination: str,
        most: int,
        timeout: float,
        fits: Callable[[Any], bool],
        buffer_bytes: int,
        /,
    ) -> list[Any]: ...


class UserConnection:
    """``now_s``: a clock that never goes back; ``receive_fitting``: how messages are received; ``answers``: how large
    they may be; ``prefetch_bytes``: what receives under way have that is not answered. It is of use once :meth:`use`
    has given it a connection."""

    def __init__(
        self,
        now_s: Callable[[], float],
        receive_fitting: ReceiveFitting,
        answers: Answers | None = None,
        prefetch_bytes: int = PREFETCH_BYTES_MAX,
    ) -> None:
        self.leases: Leases[MessageHandle] = Leases()
        self.ended = False
        """The broker has ended it."""
        self._connection: ConnectionHandle
        self._now_s = now_s
        self._receive_fitting = receive_fitting
        self.answers = answers or Answers()
        self._coming = PrefetchRoom(prefetch_bytes)
        self._browsing = asyncio.Semaphore(BROWSES_MAX)
        self._lock = asyncio.Lock()
        self._session: SessionHandle | None = None
        self._producer: ProducerHandle | None = None
        self._arrays: list[tuple[SessionHandle, ProducerHandle]] = []
        """Transacted sessions that nobody uses now."""
        self._room = asyncio.Semaphore(ARRAYS_MAX)
        self._waiting = 0
        self._promised = 0
        """Messages that receives under way may still take."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._next = 0
        self._giving_back: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Messages are held."""
        return len(self.leases) > 0

    def use(self, connection: ConnectionHandle) -> None:
        self._connection = connection

    def was_ended(self, error: BrokerError) -> None:
        """The broker has ended the connection."""
        self.ended = True

    async def _open(self) -> tuple[SessionHandle, ProducerHandle]:
        if self._session is None or self._producer is None:
            async with self._lock:
                if self._session is None:
                    await self._connection.start()
                    self._session = await self._connection.session(ack="client")
                if self._producer is None:
                    self._producer = await self._session.producer()
        return self._session, self._producer

    # ---- sending ---------------------------------------------------------------------------------------------------

    async def send(self, destination: str, message: MessageIn) -> str:
        """Store one message; its id. ``destination``: "queue:name" or "topic:name"."""
        if message.get("persistent") is False:  # A send alone would return before the broker has decided.
            return (await self.send_all(destination, [message]))[0]
        _, producer = await self._open()
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                return await producer.send(body_of(message), destination=destination, **_options(message))
        except TimeoutError:
            raise _no_answer(destination) from None

    async def send_all(self, destination: str, messages: list[MessageIn]) -> list[str]:
        """Store all messages or none, in one transaction; their ids."""
        bodies = [body_of(message) for message in messages]
        async with self._array() as (session, producer):
            try:
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    ids = [
                        await producer.send(body, destination=destination, **_options(message))
                        for body, message in zip(bodies, messages, strict=True)
                    ]
                    await session.commit()
                    return ids
            except TimeoutError:
                raise _no_answer(destination) from None

    @contextlib.asynccontextmanager
    async def _array(self) -> AsyncIterator[tuple[SessionHandle, ProducerHandle]]:
        if self._waiting >= ARRAYS_WAITING_MAX:
            raise ResourceAllocationError(f"{self._waiting} arrays of this user wait to be stored; try again")
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            if self._arrays:
                found = self._arrays.pop()
            else:
                session = await self._connection.session(transacted=True)
                found = session, await session.producer()
            try:
                yield found
            except BaseException:
                with contextlib.suppress(BrokerError, TimeoutError):
                    async with asyncio.timeout(STEP_TIMEOUT_S):
                        await found[0].close()
                raise
            self._arrays.append(found)
        finally:
            self._room.release()

    # ---- receiving -------------------------------------------------------------------------------------------------

    async def receive(self, queue: str, most: int, wait_ms: int, lease_ms: int) -> tuple[list[MessageHeld], int]:
        """Up to ``most`` messages, each held under a receipt for ``lease_ms``; empty when none came in time. With what
        their answer takes of ``answers``, which is given back when the client has it."""
        room = self.leases.room - self._promised
        if room <= 0:
            raise ResourceAllocationError(
                f"this user holds {HELD_MAX} messages, or is about to; acknowledge or release some of them"
            )
        most = min(most, room)
        self._promised += most
        share = self._coming.take_share(self.answers.one)
        weight = Weight(share)
        try:
            try:
                session, _ = await self._open()
                wanted = f"queue:{queue}"
                found = await self._receive_fitting(session, wanted, most, wait_ms / 1000, weight.fits, share)
            finally:
                self._promised -= most
            try:
                taken = await self.answers.take_room(self, weight.size)
            except BaseException:
                self._later(self._give_back(found))
                raise
            try:
                return self._held(queue, found, lease_ms), taken
            except BaseException:
                self.answers.give_back(self, taken)
                raise
        finally:
            self._coming.give_back(share)

    def _held(self, queue: str, found: list[MessageHandle], lease_ms: int) -> list[MessageHeld]:
        until_s = self._now_s() + lease_ms / 1000
        batch, held = entropy.token(RECEIPT_BYTES).hex(), []
        unreadable: BrokerError | None = None
        for number, message in enumerate(found):
            receipt = f"{batch}-{number}"
            try:
                row = shown(message)
            except BrokerError as error:  # It is given back; whoever can read it may have it.
                unreadable = unreadable or error
                self._later(self._give_back([message]))
                continue
            held.append(MessageHeld(**row, receipt=receipt, delivery_count=message.delivery_count))
            message.drop_content()
            self.leases.hold(receipt, Lease(message, queue, until_s))
        if unreadable is not None and not held:
            raise unreadable
        if held:
            receipts = [row["receipt"] for row in held]
            loop = asyncio.get_running_loop()
            number, self._next = self._next, self._next + 1
            self._timers[number] = loop.call_later(lease_ms / 1000 + 0.001, self._over, number, receipts)
        return held

    async def give_up(self, queue: str, held: Iterable[MessageHeld]) -> None:
        """Nobody takes the answer: its messages go back as if they had not been received."""
        await self.settle_receipts(queue, [row["receipt"] for row in held], "released", None)

    def _over(self, timer: int, receipts: list[str]) -> None:
        del self._timers[timer]
        late = self.leases.over(receipts, self._now_s())
        if late:
            self._later(self._fail(late))

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _fail(self, late: list[MessageHandle]) -> None:
        for message in late:
            with contextlib.suppress(BrokerError):  # With a lost connection it went back already.
                await message.fail(0, "its lease was over before it was acknowledged")

    async def _give_back(self, messages: list[MessageHandle]) -> None:
        for message in messages:
            with contextlib.suppress(BrokerError):
                await message.release()

    async def settle_receipts(
        self, queue: str, receipts: list[str], outcome: str, delay_ms: int | None
    ) -> list[Settled]:
        """What became of each receipt; ``outcome``: "acknowledged" or "released"."""
        told = [self._redeem(queue, receipt, outcome, delay_ms) for receipt in receipts]
        waiting = [row.answer for row in told if isinstance(row, _Asked)]
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                answers = iter(await asyncio.gather(*waiting, return_exceptions=True))
        except TimeoutError:
            raise RequestTimeoutError(
                f"the broker has not answered in {STEP_TIMEOUT_S:g} s; what is not settled comes again"
            ) from None
        return [
            _settled(receipt, outcome, next(answers)) if isinstance(row, _Asked) else row
            for receipt, row in zip(receipts, told, strict=True)
        ]

    def _redeem(self, queue: str, receipt: str, outcome: str, delay_ms: int | None) -> Settled | _Asked:
        found = self.leases.redeem(receipt, queue, outcome)
        if found == "unknown":
            detail = f"queue {queue} has no message of this user under that receipt, or it ended long ago"
            return {"receipt": receipt, "outcome": "unknown", "detail": detail}
        if found == "lease over":
            detail = "its lease was over before; the message has gone back to the queue"
            return {"receipt": receipt, "outcome": "lease over", "detail": detail}
        if isinstance(found, str):
            return {"receipt": receipt, "outcome": "settled before", "detail": f"it was {found}"}
        try:
            if outcome == "acknowledged":
                return _Asked(found.acknowledge_this())
            return _Asked(found.release() if delay_ms is None else found.fail(delay_ms))
        except BrokerError as error:
            return _settled(receipt, outcome, error)

    # ---- looking ---------------------------------------------------------------------------------------------------

    async def browse(self, queue: str, most: int, selector: str | None) -> tuple[list[MessageOut], bool, int]:
        """The first ``most`` messages that wait, whether there are more, and what their answer takes as in
        :meth:`receive`."""
        async with self._browsing:
            return await self._browse(queue, most, selector)

    async def _browse(self, queue: str, most: int, selector: str | None) -> tuple[list[MessageOut], bool, int]:
        session, _ = await self._open()
        browser = await session.browser(queue, selector)
        found: list[ReceivedMessage] = []
        more, weight = False, Weight(self.answers.one)
        try:
            async for message in browser:
                more = len(found) == most or not weight.fits(message)
                if more:
                    break
                found.append(message)
        finally:
            await browser.close()
        taken = await self.answers.take_room(self, weight.size)
        try:
            return [shown(message) for message in found], more, taken
        except BaseException:
            self.answers.give_back(self, taken)
            raise

    async def close(self) -> None:
        """End it; what is held goes back."""
        for timer in self._timers.values():
            timer.cancel()
        with contextlib.suppress(BrokerError, TimeoutError, OSError):
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await self._connection.close()


class Weight:
    """The weight of the messages of one answer, which has one at least and otherwise ``most`` bytes of bodies."""

    def __init__(self, most: int) -> None:
        self.size = 0
        self._most = most
        self._empty = True

    def fits(self, message: ReceivedMessage) -> bool:
        """Whether there is room for one more, which is in the answer then. The bodies of those that cannot be read,
        which is found out later, have no bytes."""
        try:
            nbytes = message.inflated_bytes(MESSAGE_BYTES_MAX if self._empty else self._most - self.size)
        except BrokerError:
            nbytes = 0
        if not self._empty and self.size + nbytes > self._most:
            return False
        self.size += nbytes
        self._empty = False
        return True


def _settled(receipt: str, outcome: str, answer: Any) -> Settled:
    if isinstance(answer, ConnectionLostError | IllegalStateError):
        detail = f"the message has gone back to the queue: {answer}"
        return {"receipt": receipt, "outcome": "lease over", "detail": detail}
    if isinstance(answer, BrokerError):
        return {"receipt": receipt, "outcome": "failed", "detail": str(answer)}
    if isinstance(answer, BaseException):
        raise answer
    return {"receipt": receipt, "outcome": "acknowledged" if outcome == "acknowledged" else "released", "detail": ""}


_OPTIONS: Final = (
    "properties",
    "correlation_id",
    "reply_to",
    "type",
    "priority",
    "ttl_ms",
    "delivery_delay_ms",
    "unit_of_order",
    "persistent",
    "dedup_id",
)


def _options(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: message[name] for name in _OPTIONS if name in message}


def _no_answer(destination: str) -> RequestTimeoutError:
    """The broker has not answered in time."""
    return RequestTimeoutError(
        f"{destination} has not taken the message in {STEP_TIMEOUT_S:g} s: it may be full or paused, and whether it is"
        " stored is unknown; send it again with a dedup_id where that matters"
    )
