"""Transactions of a host: local ones of sessions, and branches of distributed ones.

Their states are in ``transaction_state``. Whatever a commit does on this host becomes durable in one batch, with the
note that it was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.core import command as cmd
from raybroker.core.admission.admission import DUPLICATE
from raybroker.core.destination import Destination
from raybroker.core.outcome import Outcome, SendAnswered
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.path.executor import DestinationStep, Done, Executor, unawaited
from raybroker.engine.path.wakeups import Durations
from raybroker.engine.ports import Clock
from raybroker.engine.sessions.attachments import Attachment, Attachments
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.engine.transactions import transaction_log
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.engine.transactions.transaction_state import OPEN, TRANSACTION, TransactionEvent, TransactionState
from raybroker.model import refusals
from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    ResourceAllocationError,
    StoreFullError,
    TransactionRolledBackError,
    from_code,
)
from raybroker.model.refusals import refuse
from raybroker.model.settings.settings import ConfigView

TRANSACTIONS_MAX: Final = 10_000
"""Open transactions of one host."""
Ack = tuple[Attachment, Sequence[tuple[int, int]]]


@dataclass(eq=False, slots=True)
class Transaction:
    """``number`` is the host's; ``key`` is known to whoever else takes part. ``destinations``: of what it did."""

    number: int
    key: bytes
    kind: str
    created_ms: int
    session: ClientSession | None
    coordinator: str = ""
    state: TransactionState = TransactionState.STARTED
    destinations: dict[Destination, None] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    consumed: dict[int, int] = field(default_factory=dict)
    received: dict[int, tuple[Attachment, int, int]] = field(default_factory=dict)
    """Consumer → last delivery and number of those that reached its application and whose acknowledgements are to come
    with the end of the transaction."""
    delay_ms: int = 0
    """Pause before redelivery of what it consumed, after a rollback: the longest of its sessions; unknown after a
    restart."""
    began_ms: int = 0
    """When it began, by a clock that measures; what ``created_ms`` says is the time of day."""
    refusal: BrokerError | None = None
    """A destination did not take one of its messages: it can only be rolled back."""

    def happens(self, event: TransactionEvent) -> None:
        """Raises IllegalStateError for what cannot happen to it now."""
        self.state = TRANSACTION.after(self.state, event)

    def takes(self, event: TransactionEvent) -> bool:
        return TRANSACTION.takes(self.state, event)


class Transactions:
    """The transactions of a host; ``by_number``: those that have not ended. ``log``: what a checkpoint has to know."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        attachments: Attachments,
        durations: Durations,
        meters: Meters,
        clock: Clock,
        config: ConfigView,
        report: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._attachments = attachments
        self._durations = durations
        self._meters = meters
        self._clock = clock
        self._config = config
        self._report = report
        self.by_number: dict[int, Transaction] = {}
        self._by_key: dict[bytes, Transaction] = {}
        """Those that others know by a key: XA branches, and what is prepared. A commit of any other looks here too."""
        self.log = TxLog()
        self.configure()

    def configure(self) -> None:
        """Take what may change from the configuration."""
        config = self._config
        self._sent_max: int = config["imq.transaction.producer.maxNumMsgs"]
        self._consumed_max: int = config["imq.transaction.consumer.maxNumMsgs"]
        self._remembered_max: int = config["imq.txn.reapLimit"]
        self._timeout_ms: int = config["raybroker.transaction.timeout_ms"]

    # ---- while it is open ------------------------------------------------------------------------------------------

    def begin_transaction(self, session: ClientSession | None, key: bytes = b"", kind: str = "local") -> Transaction:
        """A new transaction of a session; an XA branch that is open already is joined."""
        if kind == "xa":
            found = self.find(key)
            if found is not None:
                if found.session is None or session is None or found.session.connection != session.connection:
                    raise IllegalStateError(f"another connection has a branch of that XID, which is {found.state}")
                found.happens(TransactionEvent.JOIN)
                return found
            ended = self.log.heuristic.get(key)
            if ended is not None:
                raise IllegalStateError(f"a branch of that XID is {ended.state}; forget it before a new one")
            self.log.forget_transaction(key)
        if len(self.by_number) >= TRANSACTIONS_MAX:
            raise ResourceAllocationError(f"the host has {TRANSACTIONS_MAX} open transactions; end some")
        now_ms = self._durations.now_ms()
        transaction = Transaction(self.log.next_number, key, kind, self._clock.now_ms(), session, began_ms=now_ms)
        self.log.next_number += 1
        self._add(transaction)
        if self._timeout_ms:
            self._durations.wake(now_ms + self._timeout_ms)
        return transaction

    def find(self, key: bytes) -> Transaction | None:
        return self._by_key.get(key)

    def _add(self, transaction: Transaction) -> None:
        self.by_number[transaction.number] = transaction
        if transaction.key:
            self._by_key[transaction.key] = transaction

    def _drop(self, transaction: Transaction) -> None:
        self.by_number.pop(transaction.number, None)
        if self._by_key.get(transaction.key) is transaction:
            del self._by_key[transaction.key]

    def joins(self, transaction: Transaction, attachment: int, count: int) -> str | None:
        """A producer sends ``count`` more messages in it; the reason when that is too many."""
        sent = transaction.sent.get(attachment, 0) + count
        if 0 <= self._sent_max < sent:
            return f"a producer sends at most imq.transaction.producer.maxNumMsgs={self._sent_max} in a transaction"
        transaction.sent[attachment] = sent
        return None

    def stage(self, transaction: Transaction, acks: Sequence[Ack]) -> None:
        """Acknowledgements join it. Raises ResourceAllocationError; an impossible one rolls it back and raises."""
        for attachment, ranges in acks:
            transaction.received.pop(attachment.number, None)
            consumed = transaction.consumed.get(attachment.number, 0) + sum(b - a + 1 for a, b in ranges)
            if 0 <= self._consumed_max < consumed:
                raise ResourceAllocationError(
                    f"a consumer receives at most imq.transaction.consumer.maxNumMsgs={self._consumed_max} messages"
                    " in a transaction; roll back and commit more often"
                )
            transaction.consumed[attachment.number] = consumed
        try:
            for attachment, ranges in acks:
                transaction.destinations[attachment.destination] = None
                self._meters.acknowledged(attachment, ranges, transaction.number)
                self._executor.perform(
                    attachment.destination, cmd.StageAcks(transaction.number, attachment.number, ranges)
                )
        except TransactionRolledBackError:
            self.roll_back(transaction, unawaited)
            raise

    def stage_checkpoints(self, transaction: Transaction, states: Sequence[tuple[Attachment, int, bytes]]) -> None:
        """Checkpoints of messages join it, by their tags, just before it commits in one phase; whatever keeps one from
        being kept rolls it back and is raised."""
        try:
            for attachment, tag, state in states:
                transaction.destinations[attachment.destination] = None
                self._executor.perform(
                    attachment.destination, cmd.StageCheckpoint(transaction.number, attachment.number, tag, state)
                )
        except BrokerError:
            self.roll_back(transaction, unawaited)
            raise

    # ---- how it ends -----------------------------------------------------------------------------------------------

    def commit(self, transaction: Transaction, key: bytes, done: Done, *, shared: bool = False) -> None:
        """Commit in one phase; ``shared``: other hosts are prepared, and this is the decision for them too.

        Raises TransactionRolledBackError when somebody who waited for the decision was told otherwise.
        """
        TRANSACTION.require(transaction.state, TransactionEvent.COMMIT_ONE_PHASE)
        self._require_not_given_up(transaction, key)
        transaction.key = key
        self._decide(transaction, True, done, shared=shared)

    def takes(self, number: int) -> bool:
        """Whether something may still join the transaction of that number."""
        transaction = self.by_number.get(number)
        return transaction is not None and transaction.takes(TransactionEvent.JOIN)

    def note_refusal(self, number: int, outcome: Outcome) -> None:
        """What a destination said to messages of a transaction; a duplicate was taken before."""
        transaction = self.by_number.get(number)
        for effect in outcome.immediate if transaction is not None else ():
            for row in effect.refused if isinstance(effect, SendAnswered) else ():
                if transaction is not None and transaction.refusal is None and row.code != DUPLICATE:
                    transaction.refusal = from_code(row.code, row.text)

    def _require_not_given_up(self, transaction: Transaction, key: bytes) -> None:
        if transaction.refusal is not None:
            self.roll_back(transaction, unawaited)
            raise transaction.refusal
        if self.log.outcome(key) is False or self.log.superseded(key):
            self.roll_back(transaction, unawaited)
            raise TransactionRolledBackError("the transaction was rolled back: it took too long to commit")
        self._require_room(transaction)

    def _require_room(self, transaction: Transaction) -> None:
        """What it sent is written now: with a full disk it is rolled back, and StoreFullError raised."""
        nbytes = 0
        for destination in transaction.destinations:
            staged = destination.staged.get(transaction.number)
            for block in staged.blocks if staged is not None else ():
                if block.persistent:
                    nbytes += destination.block_index.held[block.ordinal].bytes_of(block.mask)
        if nbytes and not self._executor.has_room(nbytes):
            self.roll_back(transaction, unawaited)
            raise StoreFullError(
                "the store's disk is full; the transaction was rolled back; consume messages or free space"
            )

    def prepare(self, transaction: Transaction, key: bytes, coordinator: str, done: Callable[[str], None]) -> None:
        """Write it down; ``done`` gets the vote "commit", or "read_only" when there is nothing to decide."""
        TRANSACTION.require(transaction.state, TransactionEvent.PREPARE)
        self._require_not_given_up(transaction, key)
        transaction.key = key
        if not any(transaction.number in destination.staged for destination in transaction.destinations):
            self._drop(transaction)
            done("read_only")
            return
        transaction.happens(TransactionEvent.PREPARE)
        transaction.coordinator, transaction.session = coordinator, None
        self._by_key[key] = transaction
        row = transaction_log.PreparedRow(
            transaction.number, key, transaction.kind, coordinator, transaction.created_ms
        )
        self.log.prepared[row.number] = row
        note = transaction_log.note(transaction_log.PREPARED, row.number, key, row.kind, coordinator, row.created_ms)
        steps = [
            DestinationStep(destination, cmd.Prepare(transaction.number)) for destination in transaction.destinations
        ]
        self._executor.perform_all(steps, (note,), lambda: done("commit"))

    def decide(self, key: bytes, commit: bool, done: Done) -> None:
        """End a prepared transaction. Saying it again is allowed; saying the opposite raises IllegalStateError, as
        does whatever is said of a branch with a heuristic outcome."""
        ended = self.log.heuristic.get(key)
        if ended is not None:
            raise IllegalStateError(f"the branch is {ended.state}: an administrator has ended it")
        transaction = self.find(key)
        if transaction is not None and transaction.takes(TransactionEvent.COMMIT):
            self._decide(transaction, commit, done)
            return
        if transaction is not None and not commit:
            self.roll_back(transaction, done)
            return
        known = self.log.outcome(key)
        if known is None and commit:
            raise IllegalStateError("no transaction of that id is prepared here; it was rolled back, or ended long ago")
        if known is not None and known != commit:
            raise IllegalStateError(f"the transaction was {'committed' if known else 'rolled back'} already")
        if known is None:
            self._never(key, done)
        else:
            # It was decided, but that may not be durable yet: the answer waits behind it.
            self._executor.append([], done)

    def _never(self, key: bytes, done: Done) -> None:
        """Write down that an unknown transaction is rolled back: a commit that is still on its way will fail."""
        self.log.remember(key, False, shared=False)
        self._executor.append([transaction_log.decided(0, key, False, False)], done)

    def conclude(self, key: bytes, done: Callable[[str], None]) -> None:
        """``done`` gets how it ended, or "prepared"; one that is open or not known ends here, rolled back."""
        state = self.outcome(key)
        transaction = self.find(key)
        if state == "unknown":
            self._never(key, lambda: done("rolled_back"))
        elif state == "started" and transaction is not None:
            self.roll_back(transaction, lambda: done("rolled_back"))
        else:
            self._executor.append([], lambda: done(state))

    def roll_back(self, transaction: Transaction, done: Done) -> None:
        if transaction.takes(TransactionEvent.ROLL_BACK):
            self._decide(transaction, False, done)

    def _decide(
        self, transaction: Transaction, commit: bool, done: Done, *, shared: bool = False, heuristic: bool = False
    ) -> None:
        number = transaction.number
        prepared = transaction.state is TransactionState.PREPARED
        committed = TransactionEvent.COMMIT if prepared else TransactionEvent.COMMIT_ONE_PHASE
        transaction.happens(committed if commit else TransactionEvent.ROLL_BACK)
        self._meters.ended(commit=commit)
        self._drop(transaction)
        self.log.prepared.pop(number, None)
        extra = []
        if transaction.key and (commit or prepared or transaction.kind == "xa"):
            most = max(self._remembered_max, transaction_log.SESSIONS_MAX)
            self.log.remember(transaction.key, commit, shared, most)
            extra.append(transaction_log.decided(number, transaction.key, commit, shared))
        if heuristic:
            row = transaction_log.HeuristicRow(number, transaction.key, commit, transaction.created_ms)
            self.log.heuristic[row.key] = row
            extra.append(transaction_log.note(transaction_log.HEURISTIC, number, row.key, commit, row.created_ms))
        delay_ms = 0 if commit else transaction.delay_ms
        for destination in () if commit else transaction.destinations:
            self._meters.life.rolled_back(destination, number)
        steps = [
            DestinationStep(destination, cmd.Decide(number, commit, delay_ms))
            for destination in transaction.destinations
        ]
        self._executor.perform_all(steps, extra, done)

    def outcome(self, key: bytes) -> str:
        """ "committed", "rolled_back", "prepared", "started", or "unknown": never prepared here, or long ago."""
        transaction = self.find(key)
        if transaction is not None:
            return "prepared" if transaction.state is TransactionState.PREPARED else "started"
        known = self.log.outcome(key)
        if known is None:  # Of those of a session that others took part in each is remembered until all have heard.
            return "rolled_back" if self.log.superseded(key) else "unknown"
        return "committed" if known else "rolled_back"

    def forget_transaction(self, key: bytes, done: Done) -> None:
        """Everybody has heard how it ended."""
        known = self.log.forget_transaction(key)
        self._executor.append([transaction_log.note(transaction_log.FORGOTTEN, 0, key)] if known else [], done)

    def recoverable(self) -> list[bytes]:
        """Keys of prepared XA branches, oldest first, and of those with a heuristic outcome."""
        waiting = (t for t in self.by_number.values() if t.state is TransactionState.PREPARED)
        return [one.key for one in waiting if one.kind == "xa"] + list(self.log.heuristic)

    # ---- when others end -------------------------------------------------------------------------------------------

    def closed(self, session: ClientSession) -> None:
        """A session is gone: what it left open is rolled back, and comes again at once."""
        for transaction in [t for t in self.by_number.values() if t.session is session and t.state in OPEN]:
            transaction.delay_ms = 0
            self.roll_back(transaction, unawaited)

    def without(self, destination: Destination) -> None:
        """A destination is to be destroyed; raises IllegalStateError while a prepared transaction needs it."""
        number = self.prepared_in(destination)
        if number is not None:
            raise IllegalStateError(
                f"{destination.kind} {destination.name} is part of the prepared transaction {number};"
                " commit or roll that back first"
            )
        for transaction in self.by_number.values():
            if transaction.number in destination.staged and transaction.refusal is None:
                what = f"{destination.kind} {destination.name} was destroyed, and was part of it"
                transaction.refusal = TransactionRolledBackError(f"the transaction was rolled back: {what}")
            transaction.destinations.pop(destination, None)

    def prepared_in(self, destination: Destination) -> int | None:
        """A prepared transaction that did something in this destination, by its number."""
        staged = (self.by_number[number] for number in destination.staged if number in self.by_number)
        return next((one.number for one in staged if one.state is TransactionState.PREPARED), None)

    def roll_back_overdue(self) -> None:
        """Roll back what has been open for too long."""
        if not self._timeout_ms:
            return
        now_ms = self._durations.now_ms()
        late = [t for t in self.by_number.values() if t.state in OPEN and t.began_ms + self._timeout_ms <= now_ms]
        for transaction in late:
            self._report(f"transaction {transaction.number} was open for too long and is rolled back")
            self.roll_back(transaction, unawaited)
            self._free(transaction)

    def _free(self, transaction: Transaction) -> None:
        """What its consumers have goes to others: they do not know that it is over."""
        for attachment, tag, _ in transaction.received.values():
            if attachment.number in self._attachments.by_number:
                self._executor.perform(
                    attachment.destination, cmd.TakeBack(attachment.number, tag, transaction.delay_ms)
                )

    # ---- restart and administration --------------------------------------------------------------------------------

    def restore(self, log: TxLog) -> None:
        self.log = log
        for row in log.prepared.values():
            transaction = Transaction(row.number, row.key, row.kind, row.created_ms, None, row.coordinator)
            transaction.state = TransactionState.PREPARED
            self._add(transaction)

    def recovered(self) -> None:
        """The destinations are there again; autorollback ends what was prepared."""
        for transaction in list(self.by_number.values()):
            for destination in self._registry.destinations.values():
                if transaction.number in destination.staged:
                    transaction.destinations[destination] = None
            if transaction.kind == "xa" and self._config["imq.transaction.autorollback"]:
                self.roll_back(transaction, unawaited)

    def decide_by_hand(self, number: int, commit: bool, done: Done) -> None:
        """An administrator ends a transaction: commit only from PREPARED.

        For a prepared XA branch that is a heuristic decision; its manager is told when it asks.
        """
        transaction = self.by_number.get(number)
        if transaction is None:
            ended = next((row for row in self.log.heuristic.values() if row.number == number), None)
            if ended is not None:
                refuse(refusals.of_settling(number, ended.state, commit=commit))
            raise IllegalStateError(f"there is no transaction {number}; list txn shows those there are")
        prepared = transaction.state is TransactionState.PREPARED
        refuse(refusals.of_settling(number, transaction.state, commit=commit))
        heuristic = transaction.kind == "xa" and prepared
        if heuristic and len(self.log.heuristic) >= transaction_log.HEURISTICS_MAX:
            raise ResourceAllocationError(
                f"the host remembers {transaction_log.HEURISTICS_MAX} heuristic outcomes; "
                "let managers forget some (xa.forget)"
            )
        if heuristic:
            how = "committed" if commit else "rolled back"
            self._report(f"transaction {number}, a prepared XA branch, was {how} heuristically")
        self._decide(transaction, commit, done, heuristic=heuristic)
        if not commit:
            self._free(transaction)

    def transaction_rows(self) -> list[dict[str, Any]]:
        """What administrators see: transactions that are open or prepared, and heuristic outcomes."""
        ended = [_heuristic_row(row) for row in self.log.heuristic.values()]
        return [self._row(transaction) for transaction in self.by_number.values()] + ended

    def _row(self, transaction: Transaction) -> dict[str, Any]:
        staged = [
            destination.staged[transaction.number]
            for destination in transaction.destinations
            if transaction.number in destination.staged
        ]
        session = transaction.session
        return {
            "id": transaction.number,
            "key": transaction.key.hex(),
            "kind": transaction.kind,
            "state": transaction.state,
            "client_id": session.client_id if session is not None else None,
            "connection": session.connection if session is not None else None,
            "messages": sum(s.messages for s in staged),
            "acks": sum(s.acknowledged for s in staged) + sum(count for _, _, count in transaction.received.values()),
            "created_ms": transaction.created_ms,
            "coordinator": transaction.coordinator,
        }


def _heuristic_row(row: transaction_log.HeuristicRow) -> dict[str, Any]:
    return {
        "id": row.number,
        "key": row.key.hex(),
        "kind": "xa",
        "state": row.state,
        "client_id": None,
        "connection": None,
        "messages": 0,
        "acks": 0,
        "created_ms": row.created_ms,
        "coordinator": "",
    }
