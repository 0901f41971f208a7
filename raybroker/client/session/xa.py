"""Branches of distributed transactions, as X/Open's XA and its Java interface define them.

A transaction manager elsewhere decides; here a session's work is done in the branch that it names by an XID.  A branch
is on every host that the session uses in it, and its key there is the packed XID.

    state      call                          next
    -          start(xid)                    ACTIVE
    ACTIVE     end(TMSUCCESS)                IDLE
    ACTIVE     end(TMSUSPEND)                SUSPENDED
    ACTIVE     end(TMFAIL)                   IDLE, can only be rolled back
    SUSPENDED  start(xid, TMRESUME)          ACTIVE
    IDLE       start(xid, TMJOIN)            ACTIVE
    IDLE       prepare                       PREPARED, or gone when it has only read
    IDLE       commit(one_phase), rollback   gone
    PREPARED   commit, rollback              gone, or remembered as an administrator ended it

Any other call raises XAStateError with the XID and its state and changes nothing.  A prepared branch outlives the
connection: recover() names it on any other.  An XID that another connection has in use is refused with XAER_DUPID by
start(): every host of the cluster is asked.  Where both have started it before either did anything in it, or a host
could not be asked, end() refuses it.  The other's branch is not touched.

An administrator may commit or roll back a prepared branch in place of its manager.  That heuristic decision stays until
forget(xid) on any connection: recover() names the branch, start(xid) is refused, and commit(xid) and rollback(xid)
raise XAError with the code XA_HEURCOM, XA_HEURRB, or XA_HEURMIX when some hosts have committed and others have not.

Errors of these calls are XAError, whose ``code`` is one of XA's return codes (XAER_…, XA_RB… and XA_HEUR…).  A lost
connection, or a host that cannot be asked, is a ConnectionLostError, as everywhere, and means XAER_RMFAIL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raybroker.client.cluster.directory import LED_BY
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.destinations import Destination
from raybroker.client.session.branch import Branch, BranchEvent, BranchState, Transaction
from raybroker.client.session.transaction import (
    UNKNOWN,
    GiveBack,
    SessionTransactions,
    broadcast,
    why,
)
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    SecurityError,
    TransactionInProgressError,
    TransactionRolledBackError,
    XAError,
    XARolledBackError,
    XAStateError,
)

if TYPE_CHECKING:
    from raybroker.model.naming.xid import Xid

T = TypeVar("T")
TMNOFLAGS: Final = 0
TMJOIN: Final = 0x0020_0000
TMENDRSCAN: Final = 0x0080_0000
TMSTARTRSCAN: Final = 0x0100_0000
TMSUSPEND: Final = 0x0200_0000
TMSUCCESS: Final = 0x0400_0000
TMRESUME: Final = 0x0800_0000
TMFAIL: Final = 0x2000_0000
XA_OK: Final = 0
XA_RDONLY: Final = 3
XA_HEURMIX: Final = 5
XA_HEURRB: Final = 6
XA_HEURCOM: Final = 7
XA_RBROLLBACK: Final = 100
XAER_NOTA: Final = -4
XAER_INVAL: Final = -5
XAER_PROTO: Final = -6
XAER_RMFAIL: Final = -7
XAER_DUPID: Final = -8

BY_KEY: Final = 0
"""In place of a transaction's number on a connection: the host finds an ended branch by its key."""
HEURISTIC: Final = {"HEURISTICALLY_COMMITTED": True, "HEURISTICALLY_ROLLED_BACK": False}
"""State of a branch that an administrator ended → whether it was committed."""


class XaTransactions(SessionTransactions):
    """What an XA session works on: the branch it was started in, or nothing."""

    reports_received = False
    always_open = False

    def __init__(self, connection: ConnectionCore, handed: HandedOut, give_back: GiveBack) -> None:
        super().__init__(connection, handed, give_back)
        self.branches = self._connection.kept.branches
        self.only_at: Destination | None = None
        """The one destination that branches of this manager are at, where it uses no other one."""
        self._leave()

    def next_one(self) -> Transaction | None:
        return None

    def _leave(self) -> None:
        """Outside of every branch nothing is sent or received."""
        self.current.transaction = None
        self._handed.unsettled = 1
        for producer in self.current.producers:
            producer.refuse_sends(self.current.nothing_open())

    def staged(self, transaction: Transaction, channel: Channel) -> None:
        """The host takes the branch for ended there; whatever follows begins it again."""
        transaction.numbers.pop(channel, None)

    async def commit(self, *, cancellable: bool = True) -> None:
        raise TransactionInProgressError("commit() in an XA session: the transaction manager calls xa.commit(xid)")

    async def rollback(self, delay_ms: int | None = None, reason: str = "") -> None:
        raise TransactionInProgressError("rollback() in an XA session: the transaction manager calls xa.rollback(xid)")

    async def close(self) -> None:
        """A branch that is open in the session can only be rolled back."""
        if isinstance(self.current.transaction, Branch):
            await self.end_branch(self.current.transaction.xid, TMFAIL)

    async def to_the_end(self, call: Coroutine[Any, Any, T]) -> T:
        """Make one of the manager's calls whole, even when whoever waits for it gives up."""
        return await self._connection.tasks.to_the_end(call)

    # ---- one session's part ------------------------------------------------------------------------------------------

    async def start_branch(self, xid: Xid, flags: int) -> None:
        check_xid(xid)
        if isinstance(self.current.transaction, Branch):
            raise XAStateError(
                f"start({xid}): the session is in branch {self.current.transaction.xid}, which is ACTIVE; end it first",
                XAER_PROTO,
            )
        known = self.branches.get(xid)
        if flags == TMNOFLAGS:
            if known is not None:
                raise XAStateError(
                    f"start({xid}): the branch exists and is {known.state}; join or resume it", XAER_DUPID
                )
            branch = self.branches[xid] = Branch(xid)
            try:
                await self._refuse_known(xid)
            except BaseException:
                del self.branches[xid]
                raise
        elif flags in (TMJOIN, TMRESUME):
            branch = self._found(xid, "start", BranchState.IDLE if flags == TMJOIN else BranchState.SUSPENDED)
            branch.happens(BranchEvent.JOIN if flags == TMJOIN else BranchEvent.RESUME)
        else:
            raise XAStateError(f"start({xid}): flags {flags:#x}; they are TMNOFLAGS, TMJOIN or TMRESUME", XAER_INVAL)
        self.current.transaction = branch
        self._handed.unsettled = 0
        for producer in self.current.producers:
            producer.refuse_sends(None)

    async def end_branch(self, xid: Xid, flags: int) -> None:
        if flags not in (TMSUCCESS, TMSUSPEND, TMFAIL):
            raise XAStateError(f"end({xid}): flags {flags:#x}; they are TMSUCCESS, TMSUSPEND or TMFAIL", XAER_INVAL)
        known = self.branches.get(xid)
        if known is not None and known.state is BranchState.SUSPENDED and flags != TMSUSPEND:
            known.happens(BranchEvent.END)
            known.lost = known.lost or ("it was ended with TMFAIL" if flags == TMFAIL else "")
            return
        branch = self._found(xid, "end", BranchState.ACTIVE)
        if self.current.transaction is not branch:
            raise XAStateError(f"end({xid}): the branch is ACTIVE in another session", XAER_PROTO)
        try:
            await self._finish_part(branch, flags)
        finally:
            branch.happens(BranchEvent.SUSPEND if flags == TMSUSPEND else BranchEvent.END)
            for producer in self.current.producers:
                producer.end_transaction()
            self.forget_closed()
            self._leave()
        if branch.duplicate and flags != TMFAIL:
            raise XAStateError(f"end({xid}): {branch.duplicate}; what was done here is rolled back", XAER_DUPID)
        if branch.doomed and flags != TMFAIL:
            raise XARolledBackError(f"branch {xid} can only be rolled back: {branch.doomed}", XA_RBROLLBACK)

    async def _finish_part(self, branch: Branch, flags: int) -> None:
        """Everything sent in the branch is at its hosts, and the acknowledgements join it."""
        try:
            if flags == TMFAIL:
                branch.lost = branch.lost or "it was ended with TMFAIL"
                for producer in self.current.producers:
                    producer.discard(TransactionRolledBackError(f"branch {branch.xid} is rolled back"))
                await self._give_back()
            else:
                await self._hand_over(branch)
            # Also where something that it sent was refused: what it received must not be left to the next branch.
            acks = self.take_acks(branch)
            await self._begun(branch)
            args = {"failed": flags == TMFAIL, "delay_ms": self._handed.redelivery_delay_ms}
            await asyncio.gather(
                *(
                    channel.call("txn_stage", {**args, "txn": number, "acks": acks.get(channel, [])})
                    for channel, number in branch.numbers.items()
                )
            )
        except BrokerError as error:
            branch.lost = branch.lost or str(error)
        branch.numbers.clear()
        branch.begun.clear()

    async def _hand_over(self, branch: Branch) -> None:
        """Everything sent in the branch is at its hosts; a refusal dooms the branch."""
        try:
            await self.hand_over(branch)
        except BrokerError as error:
            branch.lost = branch.lost or str(error)

    async def _begun(self, branch: Branch) -> None:
        """The hosts have begun it, or have refused: then what was done there is rolled back, and nothing else there."""
        for channel, number, begun in branch.begun:
            try:
                await begun
            except IllegalStateError as error:
                branch.duplicate = str(error)
                branch.hosts.pop(channel, None)
                branch.numbers.pop(channel, None)
                await broadcast([channel], "txn_rollback", {"txn": number})
        if branch.duplicate:
            await self._give_back()

    async def _refuse_known(self, xid: Xid) -> None:
        """Raise XAER_DUPID when a host of the cluster has the branch already; it is another connection's."""
        states = await self._connection.directory.branch_states(xid.pack())
        if states:
            raise XAStateError(f"start({xid}): there is a branch of that XID already, which is {states[0]}", XAER_DUPID)

    # ---- the manager's part ------------------------------------------------------------------------------------------

    async def prepare(self, xid: Xid) -> int:
        branch = await self._committable(xid, "prepare")
        try:
            waiting = await self._prepare(branch, None, list(branch.hosts), {})
        except BrokerError as error:
            await self._forget(branch)
            raise XARolledBackError(f"branch {xid} was rolled back: {why(error)}", XA_RBROLLBACK) from None
        if not waiting:
            del self.branches[xid]
            return XA_RDONLY
        branch.hosts = {channel: branch.hosts[channel] for channel in waiting}
        branch.happens(BranchEvent.PREPARE)
        return XA_OK

    async def _committable(self, xid: Xid, call: str) -> Branch:
        """The branch, which is IDLE; one that could only be rolled back raises XARolledBackError, and was by that."""
        branch = self._found(xid, call, BranchState.IDLE)
        if reason := branch.doomed:
            await self._forget(branch)
            raise XARolledBackError(f"branch {xid} was rolled back: {reason}", XA_RBROLLBACK)
        branch.numbers = dict.fromkeys(branch.hosts, BY_KEY)
        return branch

    async def commit_branch(self, xid: Xid, one_phase: bool) -> None:
        if not one_phase:
            await self._settle(xid, commit=True)
            return
        branch = await self._committable(xid, "commit")
        try:
            await self._decide(branch, {})
        except UNKNOWN:
            self.branches.pop(xid, None)
            raise
        except BrokerError as error:
            await self._forget(branch)
            raise XARolledBackError(f"branch {xid} was rolled back: {why(error)}", XA_RBROLLBACK) from None
        del self.branches[xid]

    async def rollback_branch(self, xid: Xid) -> None:
        branch = self.branches.get(xid)
        if branch is not None and branch.state is BranchState.IDLE:
            await self._forget(branch)
            if (
                self.current.transaction is None
            ):  # What is buffered goes back too, so that the oldest comes first again.
                await self._give_back()
                self._leave()
            return
        await self._settle(xid, commit=False)

    async def _settle(self, xid: Xid, *, commit: bool) -> None:
        """Second phase of a prepared branch, of this connection or one that recover() named."""
        branch = self.branches.get(xid)
        if branch is None:
            await self._settle_recovered(xid, commit=commit)
            return
        self._found(xid, "commit" if commit else "rollback", BranchState.PREPARED)
        connection = self._connection
        args = {"key": branch.key, "commit": commit}
        for channel, coordinator in list(branch.hosts.items()):

            async def decide(channel: Channel = channel, coordinator: Destination = coordinator) -> None:
                broker = channel.place.member or None
                there = channel if not channel.lost else await connection.channels.channel_to(coordinator, broker)
                answer = await there.call("txn_decide", args)
                branch.heuristic.append((answer or {}).get("heuristic"))

            with _told_otherwise(xid, commit=commit):
                try:
                    await connection.tasks.with_retry(coordinator.name, decide)
                except IllegalStateError:
                    self.branches.pop(xid, None)
                    raise
            del branch.hosts[channel]
        del self.branches[xid]
        _raise_heuristic(xid, commit, branch.heuristic)

    async def _forget(self, branch: Branch) -> None:
        await broadcast(list(branch.hosts), "txn_decide", {"key": branch.key, "commit": False})
        self.branches.pop(branch.xid, None)

    async def _settle_recovered(self, xid: Xid, *, commit: bool) -> None:
        try:
            rows = await self._rows_of(xid)
        except SecurityError:  # Who may not administer may still ask whether there is such a branch at all.
            if await self._connection.directory.branch_states(xid.pack()):
                raise
            rows = []
        if not rows:
            raise XAStateError(f"there is no branch {xid}: it was never prepared, or it is settled", XAER_NOTA)
        admin = self._connection.directory.admin
        decided = any(row["state"] in HEURISTIC for row in rows)
        for row in rows:
            place = f"{row['host']}:{row['id']}"
            with _told_otherwise(xid, commit=commit):
                # All parts are remembered, so that the code stays the same.
                if row["state"] == BranchState.PREPARED and decided:
                    await admin("commit_transaction" if commit else "rollback_transaction", {"id": place})
                elif row["state"] == BranchState.PREPARED:
                    await admin("decide_transaction", {"id": place, "commit": commit})
        _raise_heuristic(xid, commit, [HEURISTIC.get(row["state"]) for row in rows])

    async def _recoverable(self) -> list[dict[str, Any]]:
        """Rows of the branches that wait for their manager: prepared, or with a heuristic outcome.

        Raises ConnectionLostError when a host cannot be asked that may have some: they would seem to be settled.
        """
        directory, at = self._connection.directory, self.only_at
        rows: list[dict[str, Any]] = await directory.admin("list_transactions", {})
        missing = sorted(getattr(rows, "missing", ()))
        if missing and at is not None:
            place = await directory.locate(at.kind, at.name, False)
            if LED_BY in place.traits:  # What has its log has all of it, wherever it was before.
                missing = [name for name in missing if name in (place.broker, place.key.partition("@")[0])]
        if missing:
            raise ConnectionLostError(f"the branches of {', '.join(missing)} cannot be asked for now; try again")
        waiting = {BranchState.PREPARED, *HEURISTIC}
        return [row for row in rows if row["kind"] == "xa" and row["state"] in waiting]

    async def _rows_of(self, xid: Xid) -> list[dict[str, Any]]:
        return [row for row in await self._recoverable() if row["key"] == xid.pack().hex()]

    async def recover(self) -> list[Xid]:
        from raybroker.model.naming.xid import Xid

        return sorted({Xid.unpack(bytes.fromhex(row["key"])) for row in await self._recoverable()})

    async def forget_branch(self, xid: Xid) -> None:
        check_xid(xid)
        branch = self.branches.get(xid)
        rows = await self._rows_of(xid)
        state = branch.state if branch is not None else BranchState.PREPARED
        waits = any(row["state"] == BranchState.PREPARED for row in rows)
        if waits or (branch is not None and (not rows or state is not BranchState.PREPARED)):
            raise XAStateError(f"forget({xid}): the branch is {state}; only finished ones are forgotten", XAER_PROTO)
        self.branches.pop(xid, None)
        for row in rows:
            await self._connection.directory.admin("forget_transaction", {"id": f"{row['host']}:{row['id']}"})
        channels = self._connection.channels.open()
        await broadcast(channels, "txn_forget", {"key": xid.pack()})

    def _found(self, xid: Xid, call: str, state: BranchState) -> Branch:
        check_xid(xid)
        branch = self.branches.get(xid)
        if branch is None:
            raise XAStateError(f"{call}({xid}): this connection has no branch of that XID", XAER_NOTA)
        if branch.state is not state:
            raise XAStateError(f"{call}({xid}): the branch is {branch.state}; it has to be {state}", XAER_PROTO)
        return branch


def _raise_heuristic(xid: Xid, commit: bool, outcomes: list[bool | None]) -> None:
    """``outcomes`` of the branch's hosts: what an administrator decided there, None where the manager did just now.

    Raises XAError when an administrator decided anywhere, also when the manager decided the same.
    """
    if all(outcome is None for outcome in outcomes):
        return
    ended = {commit if outcome is None else outcome for outcome in outcomes}
    if len(ended) > 1:
        text, code = "committed on some hosts and rolled back on others", XA_HEURMIX
    else:
        text, code = ("committed", XA_HEURCOM) if True in ended else ("rolled back", XA_HEURRB)
    verb = "commit" if commit else "rollback"
    raise XAError(f"{verb}({xid}): an administrator has decided: the branch was {text}; then call forget", code)


@contextmanager
def _told_otherwise(xid: Xid, *, commit: bool) -> Iterator[None]:
    """A host that has no such prepared branch any more, because another connection has settled it, means XAER_NOTA."""
    try:
        yield
    except (IllegalStateError, InvalidDestinationError) as error:
        if isinstance(error, XAError):
            raise
        verb = "commit" if commit else "rollback"
        raise XAStateError(f"{verb}({xid}): another connection has settled the branch: {error}", XAER_NOTA) from None


def check_xid(xid: object) -> None:
    from raybroker.model.naming.xid import Xid

    if not isinstance(xid, Xid):
        raise XAStateError(f"{xid!r} is no XID; make one with Xid(format_id, gtrid, bqual)", XAER_INVAL)


class Xa:
    """``session.xa``: what a transaction manager calls. ``run`` is how the face waits for work on the IO loop."""

    def __init__(self, transactions: XaTransactions, run: Callable[[Any], Any]) -> None:
        self._transactions = transactions
        self._run: Callable[[Coroutine[Any, Any, Any]], Any] = lambda call: run(transactions.to_the_end(call))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def start(self, xid: Xid, flags: int = TMNOFLAGS) -> Any:
        """Make the session work in this branch: TMNOFLAGS a new one, TMJOIN, or TMRESUME."""
        return self._run(self._transactions.start_branch(xid, flags))

    def end(self, xid: Xid, flags: int = TMSUCCESS) -> Any:
        """The session leaves the branch: TMSUCCESS, TMSUSPEND, or TMFAIL (it can only be rolled back).

        Raises TransactionRolledBackError when something of it was refused or lost.
        """
        return self._run(self._transactions.end_branch(xid, flags))

    def prepare(self, xid: Xid) -> Any:
        """First phase: XA_OK, or XA_RDONLY when there is nothing to commit. Raises TransactionRolledBackError."""
        return self._run(self._transactions.prepare(xid))

    def commit(self, xid: Xid, one_phase: bool = False) -> Any:
        """Second phase, or both in one for a branch that was not prepared.

        Raises XAError with the code XA_HEURCOM, XA_HEURRB or XA_HEURMIX when an administrator has ended the branch.
        """
        return self._run(self._transactions.commit_branch(xid, one_phase))

    def rollback(self, xid: Xid) -> Any:
        """What the branch sent is dropped; what it received comes again, flagged.

        Raises XAError with the code XA_HEURCOM, XA_HEURRB or XA_HEURMIX when an administrator has ended the branch.
        """
        return self._run(self._transactions.rollback_branch(xid))

    def recover(self, flags: int = TMSTARTRSCAN | TMENDRSCAN) -> Any:
        """The XIDs of all prepared branches of the cluster, also those of clients that are gone, and of those
        that an administrator has ended and nobody has forgotten yet."""
        return self._run(self._transactions.recover())

    def forget(self, xid: Xid) -> Any:
        """The manager will not ask for this branch again; an administrator's decision about it is dropped."""
        return self._run(self._transactions.forget_branch(xid))
