"""What a connection asks about transactions: requests of the protocol, as calls of the host's Transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raybroker.engine.transactions import Ack, Transaction
from raybroker.model.errors import ProtocolError, TransactionRolledBackError
from raybroker.model.setting import INT_MAX

if TYPE_CHECKING:
    from raybroker.engine.session import Session

KEY_BYTES_MAX: Final = 160
"""Longest key: an XID with its lengths and format."""


def opened(session: Session, number: int) -> Transaction:
    """The session's transaction of that number; the first use begins a local one."""
    transaction = session.transactions.get(number)
    if transaction is None:
        transaction = session.transactions[number] = session.host.transactions.begin(session)
    return transaction


def _key(args: dict[str, Any]) -> bytes:
    key = args["key"]
    if not isinstance(key, bytes) or not 1 <= len(key) <= KEY_BYTES_MAX:
        raise ProtocolError(f"the key of a transaction is 1 to {KEY_BYTES_MAX} bytes")
    return key


def _acks(session: Session, args: dict[str, Any]) -> list[Ack]:
    """Raises TransactionRolledBackError for a consumer that is not attached any more."""
    found: list[Ack] = []
    for handle, epoch, ranges in args.get("acks") or ():
        attachment = session.consumer(int(handle), int(epoch))
        if attachment is None:
            raise TransactionRolledBackError("a consumer of the transaction is gone, and what it consumed went back")
        found.append((attachment, [(int(first), int(last)) for first, last in ranges]))
    return found


def _joined(session: Session, args: dict[str, Any]) -> Transaction:
    """The transaction with its acknowledgements; one that cannot have them is rolled back."""
    number = int(args["txn"])
    transaction = opened(session, number)
    _require_open(session, transaction, number)
    transaction.delay_ms = max(transaction.delay_ms, _delay_ms(args))
    try:
        acks = _acks(session, args)
        session.host.transactions.stage(transaction, acks)
    except TransactionRolledBackError:
        session.transactions.pop(number, None)
        session.host.transactions.roll_back(transaction, _nobody)
        raise
    return transaction


def _delay_ms(args: dict[str, Any]) -> int:
    delay_ms = int(args.get("delay_ms", 0))
    if not 0 <= delay_ms <= INT_MAX:
        raise ProtocolError(f"a redelivery delay of {delay_ms} ms; it is 0 to {INT_MAX}")
    return delay_ms


def _require_open(session: Session, transaction: Transaction, number: int) -> None:
    if transaction.state == "ROLLEDBACK":
        session.transactions.pop(number, None)
        raise TransactionRolledBackError("the transaction was rolled back; it was open for too long")


def _begin(session: Session, request: int, args: dict[str, Any]) -> None:
    number = int(args["txn"])
    if number in session.transactions:
        raise ProtocolError(f"transaction {number} has begun already")
    session.transactions[number] = session.host.transactions.begin(session, _key(args), "xa")
    session.peer.reply(request, {})


def _stage(session: Session, request: int, args: dict[str, Any]) -> None:
    transaction = _joined(session, args)
    if transaction.kind == "xa":
        transaction.state = "FAILED" if args.get("failed") else "COMPLETE"
        session.transactions.pop(int(args["txn"]), None)
    session.peer.reply(request, {})


def _commit(session: Session, request: int, args: dict[str, Any]) -> None:
    key = _key(args)
    transaction = _to_end(session, args, key)
    session.transactions.pop(int(args["txn"]), None)
    session.host.transactions.commit(
        transaction, key, lambda: session.peer.reply(request, {}), shared=bool(args.get("shared"))
    )


def _prepare(session: Session, request: int, args: dict[str, Any]) -> None:
    key = _key(args)
    transaction = _to_end(session, args, key)
    session.transactions.pop(int(args["txn"]), None)
    session.host.transactions.prepare(
        transaction, key, str(args.get("coordinator", "")), lambda vote: session.peer.reply(request, {"vote": vote})
    )


def _to_end(session: Session, args: dict[str, Any], key: bytes) -> Transaction:
    """The XA branch of that key, whichever session began it, or the session's own transaction with its last part."""
    transactions = session.host.transactions
    found = transactions.find(key)
    if found is not None and found.kind == "xa":
        if args.get("acks"):
            raise ProtocolError("acknowledgements join an XA branch before it is prepared or committed")
        return found
    if transactions.log.outcome(key) is False:
        own = session.transactions.pop(int(args["txn"]), None)
        if own is not None:
            transactions.roll_back(own, _nobody)
        raise TransactionRolledBackError("the transaction was rolled back: its session ended, or it took too long")
    return _joined(session, args)


def _decide(session: Session, request: int, args: dict[str, Any]) -> None:
    """The answer has ``heuristic``, committed or not, when an administrator has ended the branch: nothing is done."""
    key = _key(args)
    ended = session.host.transactions.log.heuristic.get(key)
    if ended is not None:
        session.peer.reply(request, {"heuristic": ended.commit})
        return
    session.host.transactions.decide(key, bool(args["commit"]), lambda: session.peer.reply(request, {}))


def _rollback(session: Session, request: int, args: dict[str, Any]) -> None:
    transaction = session.transactions.pop(int(args["txn"]), None)
    if transaction is None or transaction.state == "ROLLEDBACK":
        if transaction is None and args.get("received"):  # All that it did was to receive, and nobody has told so yet.
            session.host.meters.ended(commit=False)
        session.peer.reply(request, {})
        return
    session.host.transactions.roll_back(transaction, lambda: session.peer.reply(request, {}))


def _received(session: Session, request: int, args: dict[str, Any]) -> None:
    """Messages have reached the application; their acknowledgements come with the end of the transaction."""
    transaction = opened(session, int(args["txn"]))
    if transaction.state == "STARTED":
        transaction.delay_ms = max(transaction.delay_ms, _delay_ms(args))
        for handle, epoch, tag, count in args["received"]:
            attachment = session.consumer(int(handle), int(epoch))
            if attachment is not None:
                transaction.received[attachment.number] = attachment, int(tag), max(int(count), 0)
    session.peer.reply(request, {})


def _outcome(session: Session, request: int, args: dict[str, Any]) -> None:
    session.host.transactions.conclude(_key(args), lambda state: session.peer.reply(request, {"state": state}))


def _known(session: Session, request: int, args: dict[str, Any]) -> None:
    transactions, key = session.host.transactions, _key(args)
    found = transactions.find(key) or transactions.log.heuristic.get(key)
    session.peer.reply(request, {"state": found.state if found is not None else None})


def _forget(session: Session, request: int, args: dict[str, Any]) -> None:
    session.host.transactions.forget(_key(args), lambda: session.peer.reply(request, {}))


def _recover(session: Session, request: int, args: dict[str, Any]) -> None:
    session.peer.reply(request, session.host.transactions.recoverable())


def _nobody() -> None:
    """Nobody waits for it."""


OPS: Final[dict[str, Callable[[Session, int, dict[str, Any]], None]]] = {
    "txn_begin": _begin,
    "txn_stage": _stage,
    "txn_commit": _commit,
    "txn_prepare": _prepare,
    "txn_decide": _decide,
    "txn_rollback": _rollback,
    "txn_received": _received,
    "txn_outcome": _outcome,
    "txn_forget": _forget,
    "txn_known": _known,
    "txn_recover": _recover,
}
