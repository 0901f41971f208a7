"""A forwarding agent takes messages from a queue of one cluster and puts them into a queue of another.

A *window* of messages goes at a time.  With exactly-once it is one transaction in each cluster:

    the other cluster     the messages are sent in a branch, which is prepared
    the own cluster       the messages are acknowledged in a transaction: its commit is the decision
    the other cluster     the branch is committed

The branch carries the key of that transaction and the broker that decides it.  Whoever comes after a crash finds the
branch prepared, asks what became of the transaction, and ends it the same way; a transaction that nobody knows is
rolled back for good by asking.  So every message is in one of the clusters, once, whatever dies.

Messages travel as they are: bodies and headers are not read, units of order stay what they are.  Bodies above
``compressionThreshold`` are compressed for the way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any, Final, TypeVar

from raybroker.client.blocking.handles import Connection, Consumer, Producer, Session, XaConnection
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.consumer.message import Message
from raybroker.client.destinations import Queue
from raybroker.client.producer.bodies.raw_send import put_messages
from raybroker.client.session.branch import Transaction
from raybroker.client.session.transaction import UNKNOWN, Acks, GiveBack, SessionTransactions, broadcast
from raybroker.client.session.xa import Xa, XaTransactions
from raybroker.model.definitions.forwarding import ALWAYS_FORWARD, AT_MOST_ONCE, EXACTLY_ONCE, LOG, REDIRECT, Forwarding
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.model.naming.xid import Xid
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

T = TypeVar("T")
FORMAT_ID: Final = 0x5341_4600
"""Of the branches of agents."""
NAME_BYTES: Final = 16
KEY_BYTES: Final = 16
ATTEMPT_BYTES: Final = 8
LOOK_S: Final = 0.5
"""How long an agent waits for a message before it looks whether it is to stop."""

log = logging.getLogger("raybroker.forwarding")


class AgentTransactions(SessionTransactions):
    """Transactions whose outcome another cluster may ask for, until it is told that it need not be kept."""

    vouches = True

    def __init__(self, connection: ConnectionCore, handed: HandedOut, give_back: GiveBack) -> None:
        super().__init__(connection, handed, give_back)
        self.decided: list[Channel] = []
        """The hosts that remember how the last one ended."""

    async def _decide(self, transaction: Transaction, acks: dict[Channel, Acks]) -> None:
        self.decided = list(transaction.numbers)[:1]
        await super()._decide(transaction, acks)

    async def forget_transaction(self, key: bytes) -> None:
        """The other cluster has ended its part."""
        await broadcast([channel for channel in self.decided if not channel.lost], "txn_forget", {"key": key})


class _Stopped(Exception):  # noqa: N818 - it is no error
    """The agent is to end."""


class _Refused(Exception):  # noqa: N818 - what it is about is in it
    """The other cluster will never take one of the messages."""


class _Lost(Exception):  # noqa: N818
    """The transaction of the own cluster is over, or its end is not known: begin anew."""


class _OwnConnection(Connection):
    """The connection to the agent's own cluster."""

    _transactions = AgentTransactions


class ForwardingAgent:
    """One agent. ``own`` and ``other`` connect to the two clusters, and may raise a BrokerError.

    It runs in a thread of its own, see :meth:`run`; :meth:`stop` and :meth:`agent_row` may be called from any other.
    """

    def __init__(
        self, name: str, definition: Forwarding, own: Callable[[], Connection], other: Callable[[], XaConnection]
    ) -> None:
        self.name = name
        self.definition = definition
        self._connect_own = own
        self._connect_other = other
        self._stop = threading.Event()
        self._clock = SystemClock()
        self._busy_ns = 0
        """When there was something for the other cluster last."""
        self._own: Connection | None = None
        self._other: XaConnection | None = None
        self._session: Session
        self._consumer: Consumer
        self._far: Session
        """The session at the other cluster, and its producer."""
        self._producer: Producer
        self._xa: Xa
        self._row: dict[str, Any] = {
            "name": name,
            "state": "CONNECTING",
            "forwarded": 0,
            "discarded": 0,
            "redirected": 0,
            "retries": 0,
            "error": "",
        }

    @property
    def _tag(self) -> bytes:
        """Begins the XIDs of its branches."""
        return blake2b(self.name.encode("utf-8", "surrogatepass"), digest_size=NAME_BYTES).digest()

    # ---- any thread ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stop.set()

    def agent_row(self) -> dict[str, Any]:
        """name, state (CONNECTING, RUNNING, IDLE, RETRYING, STOPPED), forwarded, discarded, redirected, retries, error.

        IDLE: the connection to the other cluster is closed until there is something for it.
        """
        return dict(self._row)

    # ---- the agent's thread ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Forward until :meth:`stop`."""
        try:
            while not self._stop.is_set():
                self._with_retry(self._connect_both)
                try:
                    while not self._stop.is_set():
                        self._window()
                except (BrokerError, _Lost) as error:
                    # What was in hand comes again from the queue when the connections are made anew.
                    self._failed(error, 1)
        except _Stopped:
            pass
        finally:
            self._close()
            self._row["state"] = "STOPPED"

    def _connect_both(self) -> None:
        """Connect to both, and end what an earlier life left open."""
        self._close()
        self._own = _OwnConnection(self._connect_own()._core)
        self._own.start()
        self._session = self._own.session(transacted=True)
        self._reach()
        self._consumer = self._session.consumer(self.definition.queue, prefetch=self.definition.windowSize)
        self._row.update(state="RUNNING", error="")

    def _reach(self) -> None:
        """Connect to the other cluster."""
        self._leave()
        self._busy_ns = self._clock.monotonic_ns()
        self._other = self._connect_other()
        self._other.start()
        exactly = self.definition.qos == EXACTLY_ONCE
        self._far = self._other.session() if exactly else Connection(self._other._core).session()
        self._producer = self._far.producer(self.definition.target)
        if exactly:
            self._xa = self._far.xa
            branches = self._far._core.transactions
            assert isinstance(branches, XaTransactions)
            branches.only_at = Queue(self.definition.target)
            self._recover()

    def _leave(self) -> None:
        """Close the connection to the other cluster."""
        if self._other is not None:
            _quietly(self._other.close)
        self._other = None

    def _close(self) -> None:
        for connection in (self._own, self._other):
            if connection is not None:
                _quietly(connection.close)
        self._own = self._other = None

    # ---- one window --------------------------------------------------------------------------------------------------

    def _window(self) -> None:
        """Take what there is, and forward it."""
        taken = self._receive_window()
        if not taken:
            self._rest()
            return
        self._busy_ns = self._clock.monotonic_ns()
        batch = self._without_old(taken)
        try:
            if batch:
                self._with_retry(lambda: self._forward(batch), again=self._reach)
            else:
                self._commit()
        except _Refused:
            self._one_by_one(batch)

    def _rest(self) -> None:
        """Nothing to forward: no window is open, and the other cluster need not hear of us for ever."""
        most_ms = self.definition.conversationIdleTimeMaximum
        idle_ns = self._clock.monotonic_ns() - self._busy_ns
        if most_ms and self._other is not None and idle_ns >= most_ms * 1_000_000:
            self._leave()
            self._row["state"] = "IDLE"

    def _receive_window(self) -> list[Message]:
        first = self._consumer.receive(timeout=LOOK_S)
        if first is None:
            return []
        batch, definition = [first], self.definition
        until_ns = self._clock.monotonic_ns() + definition.wait_ms * 1_000_000
        while len(batch) < definition.windowSize:
            left_s = (until_ns - self._clock.monotonic_ns()) / 1e9
            more = self._consumer.receive(timeout=left_s) if left_s > 0 else self._consumer.receive_nowait()
            if more is None:
                break
            batch.append(more)
        return batch

    def _without_old(self, batch: list[Message]) -> list[Message]:
        """Put aside messages whose time is over."""
        if self.definition.errorPolicy == ALWAYS_FORWARD:
            return batch
        now_ms, most_ms = self._clock.now_ms(), self.definition.timeToLive
        old = [
            message
            for message in batch
            if 0 < message.expiration <= now_ms or (most_ms >= 0 and message.timestamp + most_ms < now_ms)
        ]
        for message in old:
            self._give_up(message, "it is too old")
        return [message for message in batch if message not in old]

    def _one_by_one(self, batch: list[Message]) -> None:
        """The other cluster refuses one of the messages for good: find out which, and forward the others."""
        good = []
        for message in batch:
            try:
                self._with_retry(lambda one=message: self._try([one]), again=self._reach)  # type: ignore[misc]  # mypy infers no type of a lambda with a default
                good.append(message)
            except _Refused as refused:
                self._give_up(message, str(refused))
        if good and self.definition.qos == EXACTLY_ONCE:
            self._with_retry(lambda: self._forward(good), again=self._reach)
        else:
            self._commit()
            self._row["forwarded"] += len(good)

    def _give_up(self, message: Message, why: str) -> None:
        """What errorPolicy says; all of it is part of the transaction here."""
        definition = self.definition
        if definition.errorPolicy == REDIRECT:
            to = self._session.producer(definition.errorDestination)
            put_messages(to._core, [message], keep_expiry=False)
            self._row["redirected"] += 1
        else:
            self._row["discarded"] += 1
        if definition.errorPolicy == LOG:
            log.warning("agent %s gives up message %s of %s: %s", self.name, message.id, definition.queue, why)

    # ---- both clusters -----------------------------------------------------------------------------------------------

    def _forward(self, batch: list[Message]) -> None:
        """Raises a BrokerError when it may be tried again, _Refused when that is of no use, _Lost when the messages are
        not in hand any more."""
        if self._other is None:
            self._reach()
        if self.definition.qos == EXACTLY_ONCE:
            self._exactly_once(batch)
        elif self.definition.qos == AT_MOST_ONCE:
            self._commit()
            self._send(batch)
        else:
            self._send(batch)
            self._commit()
        self._row["forwarded"] += len(batch)
        self._row.update(state="RUNNING", error="")

    def _commit(self) -> None:
        try:
            self._session.commit()
        except BrokerError as error:
            raise _Lost(str(error)) from error

    def _send(self, batch: list[Message]) -> None:
        try:
            for done in self._put(batch):
                done.result()
        except BrokerError as error:
            if self.definition.qos == AT_MOST_ONCE:
                log.warning("agent %s lost %d messages of %s: %s", self.name, len(batch), self.definition.queue, error)
                raise _Lost(str(error)) from error
            raise self._judged(error) from error

    def _put(self, batch: list[Message]) -> list[Future[str]]:
        """Send messages to the other cluster; futures of their parts."""
        return put_messages(
            self._producer._core,
            batch,
            keep_expiry=self._keeps_expiry,
            threshold_bytes=self.definition.compressionThreshold,
        )

    def _exactly_once(self, batch: list[Message]) -> None:
        transactions = self._session._core.transactions
        assert isinstance(transactions, AgentTransactions)
        key = transactions.require_open().key
        xid = self._xid(key)
        self._prepare(xid, batch)
        try:
            self._session.commit()
        except UNKNOWN as error:
            raise _Lost(str(error)) from error  # The branch is found again, and the transaction asked for.
        except BrokerError as error:
            _quietly(lambda: self._xa.rollback(xid))
            raise _Lost(str(error)) from error
        try:
            self._xa.commit(xid)
        except BrokerError as error:
            self._row["forwarded"] += len(batch)
            raise _Lost(str(error)) from error
        _quietly(lambda: self._session._run(transactions.forget_transaction(key)))

    def _xid(self, key: bytes) -> Xid:
        """The branch for the transaction of that key, another one at each attempt; with the broker that decides."""
        consumers = self._session._core.consumers
        place = next((c.place for c in consumers if c.consumed and c.place is not None), None)
        broker = place[0].place.member if place is not None else ""
        return Xid(FORMAT_ID, self._tag + key, token(ATTEMPT_BYTES) + broker.encode())

    def _prepare(self, xid: Xid, batch: list[Message]) -> None:
        xa, branches = self._xa, self._other._core.kept.branches if self._other is not None else {}
        try:
            xa.start(xid)
            self._put(batch)
            xa.end(xid)
            xa.prepare(xid)
        except BrokerError as error:
            branch = branches.get(xid)
            cause = branch.refusal if branch is not None and branch.refusal is not None else error
            _quietly(lambda: xa.rollback(xid))
            raise self._judged(cause) from error

    def _try(self, batch: list[Message]) -> None:
        """Whether the other cluster takes these; with exactly-once it is as if nothing had been sent."""
        if self.definition.qos == EXACTLY_ONCE:
            xid = self._xid(token(KEY_BYTES))
            self._prepare(xid, batch)
            self._xa.rollback(xid)
        else:
            self._send(batch)

    @property
    def _keeps_expiry(self) -> bool:
        return self.definition.errorPolicy != ALWAYS_FORWARD

    def _judged(self, error: BrokerError) -> Exception:
        """What a failure means: try again, or give up one of the messages."""
        never = error.code in NEVER and self.definition.errorPolicy != ALWAYS_FORWARD
        return _Refused(str(error)) if never else error

    # ---- what an earlier life left -----------------------------------------------------------------------------------

    def _recover(self) -> None:
        """End branches of this agent that are prepared at the other cluster as their transactions ended here."""
        assert self._own is not None
        for xid in self._xa.recover():
            if xid.format_id != FORMAT_ID or xid.gtrid[:NAME_BYTES] != self._tag:
                continue
            key, broker = xid.gtrid[NAME_BYTES:], xid.bqual[ATTEMPT_BYTES:].decode()
            state = self._own._core.io.run(self._outcome(key, broker))
            log.info("agent %s finds branch %s, whose transaction was %s", self.name, xid, state)
            try:
                if state == "committed":
                    self._xa.commit(xid)
                else:
                    self._xa.rollback(xid)
            except InvalidDestinationError:
                continue  # It is ended.

    async def _outcome(self, key: bytes, broker: str) -> str:
        assert self._own is not None
        core = self._own._core
        transactions = self._session._core.transactions
        assert transactions is not None
        open_one = transactions.current.transaction
        if open_one is not None and open_one.key == key:
            return "open"  # It is in hand, and is forwarded anew.
        channel = await core.channels.channel_to(Queue(self.definition.queue), broker or None)
        answer = await channel.call("txn_outcome", {"key": key})
        return str(answer["state"])

    # ---- failures ----------------------------------------------------------------------------------------------------

    def _with_retry(self, work: Callable[[], T], again: Callable[[], None] | None = None) -> T:
        """Do ``work`` again and again, with the delays of the definition; ``again`` comes before each attempt but the
        first. Raises _Refused and _Lost."""
        failures = 0
        while True:
            try:
                if failures and again is not None:
                    again()
                return work()
            except (_Refused, _Lost):
                raise
            except BrokerError as error:
                failures += 1
                self._failed(error, failures)
                self._wait(self.definition.delay_ms(failures))

    def _failed(self, error: Exception, failures: int) -> None:
        self._row["retries"] += 1
        self._row.update(state="RETRYING", error=str(error))
        log.info("agent %s has failed %d times: %s", self.name, failures, error)

    def _wait(self, ms: int) -> None:
        if self._stop.wait(ms / 1000):
            raise _Stopped


NEVER: Final = frozenset({"message_too_large", "message_format"})
"""Codes of errors that trying again does not cure."""


def _quietly(work: Callable[[], Any]) -> None:
    try:
        work()
    except BrokerError:
        return
