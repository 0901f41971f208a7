"""Local transactions: what a session sends and consumes between two commits happens together or not at all.

Sends go to their hosts as they come, the last of them in one write with the commit, and are held there;
acknowledgements travel with the commit.  With one host commit is one call, atomic in its log.  With
several the first host is the coordinator: the others prepare, the coordinator commits, and with that it is decided; the
others get the decision, and one that did not get it asks.

    state       event                          next
    OPEN        commit                         COMMITTING
    OPEN        rollback, close                ended: everything comes back
    OPEN        a connection used in it ends   LOST
    LOST        commit                         ended; TransactionRolledBackError
    LOST        rollback                       ended
    COMMITTING  the host's answer              ended
    COMMITTING  the connection ends            the host is asked what became of it

Whatever ends a transaction opens the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.destinations import Destination
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.session.branch import Transaction
from raybroker.client.session.current_transaction import CurrentTransaction
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    RequestTimeoutError,
    TransactionRolledBackError,
)
from raybroker.system.entropy import token

PREFIX_BYTES: Final = 8
"""Of a key: what the transactions of one session have in common; a count follows. Hosts remember the latest one."""
Acks = list[list[Any]]
GiveBack = Callable[..., Awaitable[None]]
"""Gives back what the consumers of a session have received: (delay_ms, reason), see ``SessionCore.give_back``."""
ROLLED_BACK: Final = "the transaction was rolled back: "
KEPT_BEYOND: Final = (
    "checkpoint() within a transaction keeps its message beyond the commit, and the call of a listener ends with it;"
    " receive the messages instead"
)
UNKNOWN: Final = (ConnectionLostError, RequestTimeoutError)
"""Errors that leave open whether a commit happened."""


class SessionTransactions:
    """The transactions of one session, one after the other; everything runs on the IO loop."""

    reports_received = True
    """Hosts get to know what it receives before its end; a branch of a distributed transaction began there anyway."""
    vouches = False
    """The host that decides keeps the outcome for somebody who is not part of the transaction, until it may forget."""
    always_open = True
    """There is an open transaction at any time."""
    ends_with_calls = False
    """A pool of listeners ends its transactions: no message is kept beyond the call of its function."""

    def __init__(self, connection: ConnectionCore, handed: HandedOut, give_back: GiveBack) -> None:
        self._connection = connection
        self._handed = handed
        self._give_back = give_back
        self._ending = asyncio.Lock()
        self._reported: dict[Channel, list[list[int]]] = {}
        """The last report to each host of what the open transaction has received."""
        self.settling: list[ConsumerCore] = []
        """What these gave out the open transaction acknowledges, and the hosts may not know it yet."""
        self.checkpoints: dict[ConsumerCore, dict[int, tuple[int, bytes]]] = {}
        """Of the open transaction: tag → (epoch, state) of messages that it leaves unacknowledged, for the next one."""
        self._prefix = token(PREFIX_BYTES)
        self._count = 0
        self.current: CurrentTransaction[ProducerCore] = CurrentTransaction(self.under_way)
        self.current.transaction = self._new()

    def require_open(self) -> Transaction:
        """The open one; raises IllegalStateError outside the branches of an XA session."""
        if self.current.transaction is None:
            raise self.current.nothing_open()
        return self.current.transaction

    def under_way(self) -> bool:
        """Whether the open transaction has sent or received something, in any thread."""
        transaction = self.current.transaction
        if transaction is None or transaction.used or self._handed.unsettled > 0:
            return True
        return any(producer.holds_some for producer in self.current.producers)

    # ---- commit and rollback ---------------------------------------------------------------------------------------

    async def commit(self, *, cancellable: bool = True) -> None:
        """All sends become visible and all that was consumed is acknowledged.

        ``cancellable``: whoever waits may be cancelled; the commit goes on all the same.

        Raises TransactionRolledBackError, or the refusal of one of its sends: it was rolled back, and the next one is
        open. Raises ConnectionLostError, or RequestTimeoutError after imqAckTimeout, when it cannot be known.
        """
        if cancellable:
            await self._connection.tasks.to_the_end(self._commit())
        else:
            await self._commit()

    async def _commit(self) -> None:
        async with self._ending:
            self._handed.unsettled = 0
            transaction = self.require_open()
            try:
                await self.hand_over(transaction)
                transaction.complete = True
                acks = self.take_acks(transaction)
                kept = sum(len(tags) for tags in self.checkpoints.values())
                await self._decide(transaction, acks)
            except BrokerError as error:
                await self._end_transaction(transaction, error)
                if isinstance(error, (TransactionRolledBackError, *UNKNOWN)):
                    raise
                raise type(error)(f"{error}; the transaction was rolled back") from None
            await self._end_transaction(transaction, None)
            self._handed.unsettled += kept

    def keep_checkpoint(self, consumer: ConsumerCore, epoch: int, tag: int, state: bytes) -> None:
        """The commit keeps how far the work on a message is, and leaves it with its consumer. In any thread.

        Raises IllegalStateError in a branch of a distributed transaction, and for messages of a second host: its
        checkpoints are decided where the transaction is.
        """
        if not self.always_open:
            raise IllegalStateError("a branch of a distributed transaction has no checkpoints")
        if self.ends_with_calls:
            raise IllegalStateError(KEPT_BEYOND)
        place = consumer.place
        others = [one.place for one in self.checkpoints if one is not consumer]
        if place is None or any(other is None or other[0] is not place[0] for other in others):
            raise IllegalStateError(
                f"the transaction has a checkpoint of a message of another host than that of {consumer.name}, or the"
                " connection to that is lost; commit between the two"
            )
        self.checkpoints.setdefault(consumer, {})[tag] = epoch, state

    async def rollback(self, delay_ms: int | None = None, reason: str = "") -> None:
        """Sends are destroyed; what was consumed comes again, flagged; see :meth:`SessionCore.give_back`."""
        await self._connection.tasks.to_the_end(self._roll_back(delay_ms, reason))

    async def _roll_back(self, delay_ms: int | None, reason: str) -> None:
        async with self._ending:
            self._handed.unsettled = 0
            error = TransactionRolledBackError("the transaction was rolled back")
            await self._end_transaction(self.require_open(), error, delay_ms, reason)

    async def close(self) -> None:
        """The session ends: what is not committed is not to be."""
        await self.rollback()

    async def hand_over(self, transaction: Transaction) -> None:
        """Wait until everything sent in it has left for its host; raises what keeps it from being committed."""
        for producer in list(self.current.producers):
            if not producer.handed_over():
                await asyncio.wrap_future(producer.settled_future())
            if producer.spoils is not None:
                raise TransactionRolledBackError(f"{ROLLED_BACK}{producer.spoils}")
        if transaction.refusal is not None:
            raise transaction.refusal
        if transaction.lost:
            ended = self._connection.channels.ended.error
            raise TransactionRolledBackError(f"{ROLLED_BACK}{transaction.lost}{f': {ended}' if ended else ''}")

    def take_acks(self, transaction: Transaction) -> dict[Channel, Acks]:
        """Settle what was consumed: the acknowledgements of each connection."""
        found: dict[Channel, Acks] = {}
        for consumer in list(self._handed.owing):
            place = consumer.place
            kept = self.checkpoints.get(consumer)
            epoch, ranges = consumer.settle_consumed(None) if kept is None else consumer.settle_all_but(kept)
            if kept is not None and place is not None:
                transaction.number_on(place[0], consumer.destination)
            if ranges:
                self.settling.append(consumer)
            if ranges and place is not None:
                channel, handle = place
                transaction.number_on(channel, consumer.destination)
                found.setdefault(channel, []).append([handle, epoch, [list(r) for r in ranges]])
        return found

    async def _decide(self, transaction: Transaction, acks: dict[Channel, Acks]) -> None:
        channels = list(transaction.numbers)
        if not channels:
            return
        states, there = self._states()
        if there is not None:
            channels.sort(key=lambda channel: channel is not there)  # What decides has the checkpoints.
        coordinator, others = channels[0], channels[1:]
        voted: list[Channel] = []
        if others:
            voted = await self._prepare(transaction, coordinator, others, acks)
        args = {
            "txn": transaction.numbers[coordinator],
            "key": transaction.key,
            "acks": acks.get(coordinator, []),
            "checkpoints": states,
            "shared": bool(voted) or self.vouches,
            "delay_ms": self._handed.redelivery_delay_ms,
        }
        try:
            await self.answered(transaction, coordinator, "txn_commit", args)
        except UNKNOWN:
            raise
        except BrokerError:
            await broadcast(voted, "txn_decide", {"key": transaction.key, "commit": False})
            raise
        answered = await broadcast(voted, "txn_decide", {"key": transaction.key, "commit": True})
        if others and answered == len(voted) and not self.vouches:
            await broadcast([coordinator], "txn_forget", {"key": transaction.key})

    def _states(self) -> tuple[list[list[Any]], Channel | None]:
        """The checkpoints, and where their messages are; raises TransactionRolledBackError when that is lost."""
        found: list[list[Any]] = []
        there: Channel | None = None
        for consumer, tags in self.checkpoints.items():
            place = consumer.place
            if place is None or (there is not None and place[0] is not there):
                raise TransactionRolledBackError(f"{ROLLED_BACK}the connection to {consumer.name} was lost")
            there, handle = place
            found += [[handle, epoch, tag, state] for tag, (epoch, state) in tags.items()]
        return found, there

    async def _prepare(
        self, transaction: Transaction, coordinator: Channel | None, channels: list[Channel], acks: dict[Channel, Acks]
    ) -> list[Channel]:
        """First phase: returns those that wait for the decision; raises TransactionRolledBackError.  ``coordinator``:
        whose host decides; None: a transaction manager does."""
        answers = await asyncio.gather(
            *(
                channel.call(
                    "txn_prepare",
                    {
                        "txn": transaction.numbers[channel],
                        "key": transaction.key,
                        "acks": acks.get(channel, []),
                        "coordinator": "" if coordinator is None else host_key(coordinator),
                        "delay_ms": self._handed.redelivery_delay_ms,
                    },
                )
                for channel in channels
            ),
            return_exceptions=True,
        )
        wait = [c for c, a in zip(channels, answers, strict=True) if isinstance(a, dict) and a["vote"] == "commit"]
        faults = [answer for answer in answers if isinstance(answer, BaseException)]
        if faults:
            if coordinator is not None and any(isinstance(fault, UNKNOWN) for fault in faults):
                # One that was asked may prepare later, and then asks the coordinator, which would be silent for long.
                wait.append(coordinator)
            await broadcast(wait, "txn_decide", {"key": transaction.key, "commit": False})
            raise TransactionRolledBackError(f"{ROLLED_BACK}{why(faults[0])}")
        return wait

    async def answered(self, transaction: Transaction, channel: Channel, op: str, args: dict[str, Any]) -> Any:
        """A call that decides; if the connection ends meanwhile, the host is asked what became of it."""
        if channel.lost:
            raise TransactionRolledBackError(f"{ROLLED_BACK}the connection to its host was lost")
        timeout_ms: int = self._connection.attributes["imqAckTimeout"]
        try:
            if not timeout_ms:
                return await channel.call(op, args)
            async with asyncio.timeout(timeout_ms / 1000):
                return await channel.call(op, args)
        except TimeoutError:
            raise RequestTimeoutError(
                f"no answer to a commit within imqAckTimeout={timeout_ms} ms; whether it happened is not known"
            ) from None
        except ConnectionLostError as error:
            coordinator = transaction.seats[channel]
            connection, broker = self._connection, channel.place.member
            state = await outcome_of(connection, coordinator, broker, transaction.key, error)
        if state != "committed":
            raise TransactionRolledBackError(
                f"{ROLLED_BACK}the connection was lost during its commit; the host says {state!r}"
            )
        return None

    async def _end_transaction(
        self, transaction: Transaction, error: BrokerError | None, delay_ms: int | None = None, reason: str = ""
    ) -> None:
        """It is over. With an error everything it holds comes back."""
        if error is not None:
            for producer in self.current.producers if not transaction.complete else ():
                producer.discard(error)
            if not isinstance(error, UNKNOWN):  # With an unknown outcome the hosts find out by themselves.
                await roll_back(transaction, self._only_received(transaction))
            with contextlib.suppress(BrokerError):
                await self._give_back(delay_ms, reason)
        for producer in self.current.producers:
            producer.end_transaction()
        self.checkpoints = {}
        self.forget_closed()
        self.current.transaction = self.next_one()
        for producer in self.current.producers:
            producer.handed_over()

    def _only_received(self, transaction: Transaction) -> set[Channel]:
        """Connections on which it has only received, and has not reported it; it has numbers there from now on."""
        found: set[Channel] = set()
        for consumer in list(self._handed.owing) if not transaction.lost and self.reports_received else ():
            place = consumer.place
            if place is not None and place[0] not in transaction.numbers and consumer.received() is not None:
                transaction.number_on(place[0], consumer.destination)
                found.add(place[0])
        return found

    def forget_closed(self) -> None:
        """Producers that were closed meanwhile have told those who waited for their messages, and consumers that nobody
        refers to have nothing left to be acknowledged."""
        self.current.producers = [producer for producer in self.current.producers if not producer.closed]
        settled, self.settling = self.settling, []
        for consumer in settled:
            consumer.told()
        for consumer in list(self._handed.leaving):
            consumer.close_if_settled()

    def report_received(self) -> bool:
        """Tell the hosts of the open transaction what it has received; False when it has received nothing."""
        transaction = self.current.transaction
        if transaction is None or transaction.lost or transaction.complete or not self.reports_received:
            return False
        rows: dict[Channel, list[list[int]]] = {}
        for consumer in list(self._handed.owing):
            place, found = consumer.place, consumer.received()
            if place is not None and found is not None:
                channel, handle = place
                transaction.number_on(channel, consumer.destination)
                rows.setdefault(channel, []).append([handle, consumer.epoch, *found])
        for channel, received in rows.items():
            if received != self._reported.get(channel):
                self._reported[channel] = received
                args = {
                    "txn": transaction.numbers[channel],
                    "received": received,
                    "delay_ms": self._handed.redelivery_delay_ms,
                }
                self._connection.tasks.spawn(_tell_of_receipt(channel, args))
        return bool(rows)

    async def stage(self, consumer: ConsumerCore) -> None:
        """A consumer is about to be closed: what it has consumed stays part of the transaction."""
        transaction, place = self.current.transaction, consumer.place
        kept = self.checkpoints.get(consumer)
        if kept is not None:
            what = f"a consumer of {consumer.name} was closed before the checkpoint of its message was committed"
            self.current.note_refusal(IllegalStateError(what))
        epoch, ranges = consumer.settle_consumed(None) if kept is None else consumer.settle_all_but(kept)
        if transaction is None or transaction.lost or place is None or not ranges:
            return
        channel, handle = place
        number = transaction.number_on(channel, consumer.destination)
        acks = [[handle, epoch, [list(r) for r in ranges]]]
        args = {"txn": number, "acks": acks, "delay_ms": self._handed.redelivery_delay_ms}
        try:
            await channel.call("txn_stage", args)
        except BrokerError as error:
            self.current.note_refusal(error)
        self.staged(transaction, channel)

    def staged(self, transaction: Transaction, channel: Channel) -> None:
        """Called when acknowledgements have joined a transaction before its end."""

    def next_one(self) -> Transaction | None:
        return self._new()

    def _new(self) -> Transaction:
        self._count += 1
        self._reported.clear()
        return Transaction(self._prefix + self._count.to_bytes(8, "big"))


async def outcome_of(
    connection: ConnectionCore, coordinator: Destination, broker: str, key: bytes, error: ConnectionLostError
) -> str:
    """What became of a transaction whose commit was interrupted by ``error``: its host is asked.

    ``coordinator``: a destination on that host, of that broker. Raises ConnectionLostError when the host cannot be
    asked: then it is not known.
    """

    async def ask() -> str:
        channel = await connection.channels.channel_to(coordinator, broker or None)
        return str((await channel.call("txn_outcome", {"key": key}))["state"])

    if not connection.attachments.reconnects:
        raise error
    try:
        return await connection.tasks.with_retry(coordinator.name, ask)
    except BrokerError as fault:
        raise ConnectionLostError(
            f"the connection was lost during a commit, and what became of it cannot be asked: {fault}"
        ) from None


def why(error: BaseException) -> str:
    """The reason that an error gives, without saying twice that something was rolled back."""
    return str(error).removeprefix(ROLLED_BACK)


def host_key(channel: Channel) -> str:
    """The name of a host as brokers know it: a place's key without its address."""
    return channel.place.key.partition("@")[0]


async def _tell_of_receipt(channel: Channel, args: dict[str, Any]) -> None:
    """A call whose failure changes nothing.  It is made here, since a task that is cancelled before it begins leaves
    behind what was made for it."""
    with contextlib.suppress(BrokerError):
        await channel.call("txn_received", args)


async def roll_back(transaction: Transaction, untold: Collection[Channel] = ()) -> None:
    """Tell every host that it is not to be; one that cannot be told rolls back by itself.

    ``untold``: hosts that do not know it yet, since all it did there was to receive: they count it."""
    await settled(
        channel.call("txn_rollback", {"txn": number} | ({"received": True} if channel in untold else {}))
        for channel, number in transaction.numbers.items()
    )


async def broadcast(channels: list[Channel], op: str, args: dict[str, Any]) -> int:
    """Call all of them; returns how many answered. The others ask by themselves later."""
    if not channels:
        return 0
    return await settled(channel.call(op, args) for channel in channels)


async def settled(calls: Iterable[Awaitable[object]]) -> int:
    """Wait for calls whose failure changes nothing; returns how many succeeded."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    return sum(not isinstance(answer, BaseException) for answer in answers)
