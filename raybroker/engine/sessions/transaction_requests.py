"""Requests of a connection about transactions, as calls of the host's Transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.engine.measuring.meters import Meters
from raybroker.engine.path.executor import unawaited
from raybroker.engine.sessions.attachments import Attachment
from raybroker.engine.sessions.session import Arguments, Operation, Session
from raybroker.engine.transactions.transaction_state import TRANSACTION, TransactionEvent, TransactionState
from raybroker.engine.transactions.transactions import Ack, Transaction, Transactions
from raybroker.model.errors import ProtocolError, TransactionRolledBackError
from raybroker.model.settings.setting import INT_MAX

KEY_BYTES_MAX: Final = 160
"""Longest key: an XID with its lengths and format."""


class TransactionRequests:
    """Requests about transactions."""

    def __init__(self, transactions: Transactions, meters: Meters) -> None:
        self._transactions = transactions
        self._meters = meters

    def operations(self) -> Mapping[str, Operation]:
        return {
            "txn_begin": self._begin_transaction,
            "txn_stage": self._stage,
            "txn_commit": self._commit,
            "txn_prepare": self._prepare,
            "txn_decide": self._decide,
            "txn_rollback": self._rollback,
            "txn_received": self._received,
            "txn_outcome": self._outcome,
            "txn_forget": self._forget,
            "txn_recover": self._recover,
        }

    def _joined(self, session: Session, args: Arguments) -> Transaction:
        """The transaction with its acknowledgements staged; rolled back when they cannot be staged."""
        number = int(args["txn"])
        transaction = session.transaction(number)
        _require_open(session, transaction, number)
        transaction.delay_ms = max(transaction.delay_ms, _delay_ms(args))
        try:
            acks = _acks(session, args)
            self._transactions.stage(transaction, acks)
        except TransactionRolledBackError:
            session.transactions.pop(number, None)
            self._transactions.roll_back(transaction, unawaited)
            raise
        return transaction

    def _begin_transaction(self, session: Session, request: int, args: Arguments) -> None:
        number = int(args["txn"])
        if number in session.transactions:
            raise ProtocolError(f"transaction {number} has begun already")
        session.transactions[number] = self._transactions.begin_transaction(session.client, _key(args), "xa")
        session.peer.reply(request, {})

    def _stage(self, session: Session, request: int, args: Arguments) -> None:
        transaction = self._joined(session, args)
        if transaction.kind == "xa":
            transaction.happens(TransactionEvent.FAIL if args.get("failed") else TransactionEvent.END)
            session.transactions.pop(int(args["txn"]), None)
        session.peer.reply(request, {})

    def _commit(self, session: Session, request: int, args: Arguments) -> None:
        key = _key(args)
        transaction = self._to_end(session, args, key)
        session.transactions.pop(int(args["txn"]), None)
        if args.get("checkpoints"):
            self._transactions.stage_checkpoints(transaction, self._checkpoints(session, transaction, args))
        self._transactions.commit(
            transaction, key, lambda: session.peer.reply(request, {}), shared=bool(args.get("shared"))
        )

    def _checkpoints(
        self, session: Session, transaction: Transaction, args: Arguments
    ) -> list[tuple[Attachment, int, bytes]]:
        """What of the messages that its consumers go on with is to be kept; rolls it back where one is gone."""
        if transaction.kind == "xa":
            raise ProtocolError("an XA branch has no checkpoints")
        found: list[tuple[Attachment, int, bytes]] = []
        for handle, epoch, tag, state in args["checkpoints"]:
            attachment = session.consumer(int(handle), int(epoch))
            if not isinstance(state, bytes):
                raise ProtocolError(f"a checkpoint is bytes, not {type(state).__name__}")
            if attachment is None:
                self._transactions.roll_back(transaction, unawaited)
                raise TransactionRolledBackError(
                    "a consumer of the transaction is gone, and what it consumed went back"
                )
            found.append((attachment, int(tag), state))
        return found

    def _prepare(self, session: Session, request: int, args: Arguments) -> None:
        key = _key(args)
        transaction = self._to_end(session, args, key)
        session.transactions.pop(int(args["txn"]), None)
        self._transactions.prepare(
            transaction, key, str(args.get("coordinator", "")), lambda vote: session.peer.reply(request, {"vote": vote})
        )

    def _to_end(self, session: Session, args: Arguments, key: bytes) -> Transaction:
        """The XA branch of that key, whoever began it, or the session's own transaction with its last part."""
        transactions = self._transactions
        found = transactions.find(key)
        if found is not None and found.kind == "xa":
            if args.get("acks"):
                raise ProtocolError("acknowledgements join an XA branch before it is prepared or committed")
            return found
        if transactions.log.outcome(key) is False:
            own = session.transactions.pop(int(args["txn"]), None)
            if own is not None:
                transactions.roll_back(own, unawaited)
            raise TransactionRolledBackError("the transaction was rolled back: its session ended, or it took too long")
        return self._joined(session, args)

    def _decide(self, session: Session, request: int, args: Arguments) -> None:
        """Decide a branch; when an administrator has ended it nothing is done, and ``heuristic`` says if that was a
        commit."""
        key = _key(args)
        ended = self._transactions.log.heuristic.get(key)
        if ended is not None:
            session.peer.reply(request, {"heuristic": ended.commit})
            return
        self._transactions.decide(key, bool(args["commit"]), lambda: session.peer.reply(request, {}))

    def _rollback(self, session: Session, request: int, args: Arguments) -> None:
        transaction = session.transactions.pop(int(args["txn"]), None)
        if transaction is None or transaction.state is TransactionState.ROLLEDBACK:
            # It has only received, and was not reported yet.
            if transaction is None and args.get("received"):
                self._meters.ended(commit=False)
            session.peer.reply(request, {})
            return
        self._transactions.roll_back(transaction, lambda: session.peer.reply(request, {}))

    def _received(self, session: Session, request: int, args: Arguments) -> None:
        """Messages have reached the application; their acknowledgements come with the end of the transaction."""
        transaction = session.transaction(int(args["txn"]))
        if transaction.state is TransactionState.STARTED:
            transaction.delay_ms = max(transaction.delay_ms, _delay_ms(args))
            for handle, epoch, tag, count in args["received"]:
                attachment = session.consumer(int(handle), int(epoch))
                if attachment is not None:
                    transaction.received[attachment.number] = attachment, int(tag), max(int(count), 0)
        session.peer.reply(request, {})

    def _outcome(self, session: Session, request: int, args: Arguments) -> None:
        self._transactions.conclude(_key(args), lambda state: session.peer.reply(request, {"state": state}))

    def _forget(self, session: Session, request: int, args: Arguments) -> None:
        self._transactions.forget_transaction(_key(args), lambda: session.peer.reply(request, {}))

    def _recover(self, session: Session, request: int, args: Arguments) -> None:
        session.peer.reply(request, self._transactions.recoverable())


def _key(args: Arguments) -> bytes:
    key = args["key"]
    if not isinstance(key, bytes) or not 1 <= len(key) <= KEY_BYTES_MAX:
        raise ProtocolError(f"the key of a transaction is 1 to {KEY_BYTES_MAX} bytes")
    return key


def _acks(session: Session, args: Arguments) -> list[Ack]:
    """Raises TransactionRolledBackError for a consumer that is not attached any more."""
    found: list[Ack] = []
    for handle, epoch, ranges in args.get("acks") or ():
        attachment = session.consumer(int(handle), int(epoch))
        if attachment is None:
            raise TransactionRolledBackError("a consumer of the transaction is gone, and what it consumed went back")
        found.append((attachment, [(int(first), int(last)) for first, last in ranges]))
    return found


def _delay_ms(args: Arguments) -> int:
    delay_ms = int(args.get("delay_ms", 0))
    if not 0 <= delay_ms <= INT_MAX:
        raise ProtocolError(f"a redelivery delay of {delay_ms} ms; it is 0 to {INT_MAX}")
    return delay_ms


def _require_open(session: Session, transaction: Transaction, number: int) -> None:
    if transaction.state is TransactionState.ROLLEDBACK:
        session.transactions.pop(number, None)
        raise TransactionRolledBackError("the transaction was rolled back; it was open for too long")
    TRANSACTION.require(transaction.state, TransactionEvent.END)
