"""Local transactions of an AMQP client: messages that it sends and settles happen with the discharge, or not at all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Final

from raybroker.client.consumer.message import Message
from raybroker.client.producer.members.unnamed import UnnamedProducer
from raybroker.client.session.joint_transaction import JointTransactions
from raybroker.client.session.session import settle_many
from raybroker.model.errors import ResourceAllocationError
from raybroker.services.amqp.limits import TRANSACTION_MESSAGES_MAX, TRANSACTIONS_MAX
from raybroker.wire.amqp.conditions import UNKNOWN_ID, AmqpViolation

IDLE_MAX: Final = 4
"""Sessions of ended transactions that the next ones use."""


Returned = Callable[[dict[int, Message], bool], None]
"""Tells a link that a transaction which settles these messages has ended: (messages, they are unsettled as before)."""


class AmqpTransaction:
    """``transactions``: of a session of its own; ``producer``: of that session."""

    def __init__(self, transactions: JointTransactions, producer: UnnamedProducer) -> None:
        self.producer = producer
        self.waiting = 0
        """Messages that wait for room at their destinations."""
        self._transactions = transactions
        self._messages = 0
        self._room = asyncio.Event()
        self._accepted: list[tuple[Returned, dict[int, Message], bool]] = []
        """(who is told, delivery → message, the client has settled them)."""
        self._others: list[tuple[Returned, dict[int, Message], bool, str, str]] = []
        """The same of what it settles otherwise, with the outcome and the reason."""
        self.refusal: BaseException | None = None
        """Why a message of it could not be sent, which is found at the end."""

    def require_room(self, count: int = 1) -> None:
        """Raises ResourceAllocationError when no more messages may be part of it."""
        if self._messages + count > TRANSACTION_MESSAGES_MAX:
            raise ResourceAllocationError(
                f"a transaction has more than {TRANSACTION_MESSAGES_MAX} messages; commit more often"
            )
        self._messages += count

    def accept(self, returned: Returned, messages: dict[int, Message], *, settled: bool) -> None:
        self.require_room(len(messages))
        self._accepted.append((returned, messages, settled))

    def refuse(
        self, returned: Returned, messages: dict[int, Message], outcome: str, reason: str, *, settled: bool
    ) -> None:
        self.require_room(len(messages))
        self._others.append((returned, messages, settled, outcome, reason))

    def has_room_again(self) -> None:
        """One message less waits for room."""
        self.waiting -= 1
        self._room.set()

    async def _sent(self) -> None:
        """Everything that came is handed over."""
        while self.waiting:
            self._room.clear()
            await self._room.wait()

    async def commit(self) -> None:
        """Raises when it was rolled back: what it settles has failed then, and comes again."""
        await self._sent()
        try:
            if self.refusal is not None:
                raise self.refusal
            for _, messages, _ in self._accepted:
                self._transactions.join(list(messages.values()))
            await self._transactions.commit()
        except BaseException:
            await self.roll_back()
            raise
        for _, messages, _, outcome, reason in self._others:
            settle_many(messages.values(), outcome, reason)
        self._clear(again=False)

    async def roll_back(self) -> None:
        """What it sent is destroyed; what it settles comes again, counted as failed, unless the client still has it."""
        await self._sent()
        await self._transactions.rollback()
        for _, messages, settled in (*self._accepted, *(row[:3] for row in self._others)):
            if settled:
                settle_many(messages.values(), "fail", "the transaction was rolled back")
        self._clear(again=True)

    def _clear(self, *, again: bool) -> None:
        rows = [*self._accepted, *(row[:3] for row in self._others)]
        self._accepted.clear()
        self._others.clear()
        self._messages, self.refusal = 0, None
        for returned, messages, settled in rows:
            returned(messages, again and not settled)


class AmqpTransactions:
    """The transactions of one client, by their ids. ``make()``: a session for one, and what sends in it."""

    def __init__(self, make: Callable[[], Awaitable[tuple[JointTransactions, UnnamedProducer]]]) -> None:
        self._make = make
        self._open: dict[bytes, AmqpTransaction] = {}
        self._idle: list[AmqpTransaction] = []
        self._ids = itertools.count(1)

    async def declare(self) -> bytes:
        """A new one; its id. Raises ResourceAllocationError when there are too many."""
        if len(self._open) >= TRANSACTIONS_MAX:
            raise ResourceAllocationError(f"a connection has at most {TRANSACTIONS_MAX} open transactions")
        number = next(self._ids).to_bytes(8, "big")
        if self._idle:
            self._open[number] = self._idle.pop()
            return number
        self._open[number] = AmqpTransaction(*await self._make())
        return number

    def find(self, number: bytes) -> AmqpTransaction:
        """Raises AmqpViolation, amqp:transaction:unknown-id."""
        found = self._open.get(number)
        if found is None:
            raise AmqpViolation(f"there is no transaction {number.hex()[:40]}", UNKNOWN_ID)
        return found

    async def discharge(self, number: bytes, *, fail: bool) -> None:
        """End one: commit it, or with ``fail`` roll it back. Raises when a commit was rolled back instead."""
        found = self.find(number)
        del self._open[number]
        await (found.roll_back() if fail else found.commit())
        if len(self._idle) < IDLE_MAX:
            self._idle.append(found)
