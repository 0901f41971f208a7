"""Blocked sends: blocks of clients that wait for room in the pool that their destination is charged to.

A block is carried out when it fits, or when its send timeout is over: then what fits of it is taken, if nobody waits
before it, and the rest is refused.  Who waits keeps nobody from anything else: the connection is read on, and what it
asks is answered.  What ends a transaction, or its part of an XA branch, waits for the blocks that were sent in it, and
closing a producer for its blocks that the client does not wait for: it took them for sent.  Closing ends the waiting of
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.admission.pool_share import WAITING_MAX, PoolShare, PoolWaiter
from raybroker.core.outcome import Outcome, Refused
from raybroker.core.selector.content import Content
from raybroker.engine.path.executor import Executor
from raybroker.engine.path.wakeups import Durations
from raybroker.engine.sessions.attachments import Attachment, Attachments
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.engine.transactions.transactions import Transactions
from raybroker.model.blocks.block import Block
from raybroker.model.errors import InvalidDestinationError

CLOSED: Final = "the producer was closed while the message waited for room"
DESTROYED: Final = "the destination was destroyed while the message waited for room"
REPOINTED: Final = "the destination was given another quota while the message waited for room; send it again"
_ENDING: Final = frozenset({"txn_commit", "txn_prepare", "txn_stage"})
"""Requests that say that a transaction, or this session's part of it, is complete."""
CLOSING: Final = "close_producer"
PUT_OFF: Final = _ENDING | {CLOSING}


class PutOff(NamedTuple):
    """A request that waits for blocks of its session, those that ``awaited`` says; ``again``: carries it out."""

    session: ClientSession
    op: str
    args: dict[str, Any]
    awaited: Callable[[Blocked], bool]
    again: Callable[[], None]


class Blocked(NamedTuple):
    """A send that waits. ``txn``: the session's number of its transaction, or 0."""

    session: ClientSession
    attachment: Attachment
    command: cmd.Send
    block: Block
    txn: int
    transactions: Transactions


class BlockedSends:
    """The blocked sends of one host. ``ask``: called with a share that may need more of its pool; ``content``: the
    headers of a block."""

    def __init__(
        self,
        executor: Executor,
        attachments: Attachments,
        durations: Durations,
        ask: Callable[[PoolShare], None],
        content: Callable[[Block], Content],
    ) -> None:
        self._executor = executor
        self._content = content
        self._live = attachments.by_number
        self._durations = durations
        self._now_ms = durations.now_ms
        self._ask = ask
        self._shares: dict[PoolShare, int] = {}
        """Those where somebody waits → when time alone may change something."""
        self._due: set[PoolShare] = set()
        """Those that are to be served when no command is under way."""
        self._leaving: list[PoolWaiter] = []
        """Those that wait no longer and are about to be refused."""
        self._calls: list[PutOff] = []

    def send(self, send: Blocked, timeout_ms: int) -> Outcome | None:
        """Carry the send out now, or have it wait; None: it waits."""
        command, account = send.command, send.attachment.destination.policy.account
        count, nbytes = len(command.sizes), sum(command.sizes)
        if account is None or not account.share.must_wait(count, nbytes, send.attachment.number):
            return self._perform(send, "")
        share, now_ms = account.share, self._now_ms()
        if not share.has_room_to_wait(nbytes):
            return self._perform(send, f"{share.refusal(count)}; {WAITING_MAX} blocks wait for room already")
        share.wait(PoolWaiter(count, nbytes, now_ms, now_ms + timeout_ms, send.attachment.number, send))
        send.session.blocked += 1
        self._shares[share] = now_ms + timeout_ms
        self.serve(share)
        return None

    def serve(self, share: PoolShare) -> None:
        """Room may have come, or time passed: let in whoever may, when no command is under way."""
        if share.waiting and share not in self._due:
            self._due.add(share)
            self._executor.later(partial(self._serve, share))

    def end_overdue(self) -> None:
        """End the waiting of those whose time is over."""
        for share, due_ms in list(self._shares.items()):
            if due_ms <= self._now_ms():
                self.serve(share)
            else:
                self._durations.wake(due_ms)

    def _serve(self, share: PoolShare) -> None:
        self._due.discard(share)
        while (found := share.take_next(self._now_ms())) is not None:
            waiter, first = found
            self._finish(waiter, "" if first else share.refusal(waiter.messages))
        if share.waiting:
            self._ask(share)
            due_ms = self._shares[share] = share.due_ms(self._now_ms())
            self._durations.wake(due_ms)
        else:
            self._shares.pop(share, None)

    def turn_away(self, share: PoolShare, wanted: Callable[[Attachment], bool], text: str) -> None:
        """Refuse blocks that wait, those of the chosen producers."""
        chosen = [w for w in share.waiting if wanted(w.what.attachment)]
        for waiter in chosen:  # All before the first is finished: what it makes happen lets in others.
            share.leave(waiter)
        self._leaving += chosen
        for waiter in chosen:
            self._leaving.remove(waiter)
            self._finish(waiter, text)
        self.serve(share)

    def left(self, attachment: Attachment) -> None:
        """A producer is going: what it has waiting still is refused."""
        account = attachment.destination.policy.account
        if account is not None:
            self.turn_away(account.share, lambda one: one is attachment, CLOSED)

    def gone(self, session: ClientSession) -> None:
        """Its connection is lost: a client that comes back sends again what was not confirmed."""
        self._drop(lambda send: send.session is session)
        self._calls = [call for call in self._calls if call.session is not session]
        session.blocked = 0

    def puts_off(self, session: ClientSession, op: str, args: dict[str, Any], again: Callable[[], None]) -> bool:
        """Whether a request waits for blocks that were sent before, and is carried out ``again`` after that; a rollback
        drops them instead."""
        if op == "txn_rollback":
            self._drop(lambda send: send.session is session and send.txn == args.get("txn"))
            self._resume(session, (CLOSING,))  # A commit of what is dropped here must not come before the rollback.
            return False
        if op == CLOSING:
            awaited = partial(_left_behind, args.get("handle"))
            if any(call.session is session and call.op == op and call.args == args for call in self._calls):
                return False  # It is asked again, which ends the waiting.
        elif op in _ENDING:
            awaited = partial(_sent_in, args.get("txn"))
        else:
            return False
        if not self._waits(session, awaited):
            return False
        self._calls.append(PutOff(session, op, args, awaited, again))
        return True

    # ---- internals -------------------------------------------------------------------------------------------------

    def _waits(self, session: ClientSession, awaited: Callable[[Blocked], bool]) -> bool:
        waiting = (waiter for share in self._shares for waiter in share.waiting)
        sends = (waiter.what for waiter in chain(waiting, self._leaving))
        return any(send.session is session and awaited(send) for send in sends)

    def _resume(self, session: ClientSession, ops: Collection[str] = PUT_OFF) -> None:
        """Carry out the requests of a session that have nothing left to wait for."""
        while ready := [
            call
            for call in self._calls
            if call.session is session and call.op in ops and not self._waits(session, call.awaited)
        ]:
            self._calls.remove(ready[0])
            ready[0].again()

    def _drop(self, chosen: Callable[[Blocked], bool]) -> None:
        for share in list(self._shares):
            for waiter in [w for w in share.waiting if chosen(w.what)]:
                share.leave(waiter)
                waiter.what.session.blocked -= 1
            self.serve(share)

    def _finish(self, waiter: PoolWaiter, text: str) -> None:
        """Carry out what has waited; with ``text`` none of it is taken."""
        send: Blocked = waiter.what
        send.session.blocked -= 1
        number = send.command.txn
        if number and not send.transactions.takes(number):
            pass  # It was rolled back, which tells the client more than a refusal.
        elif send.attachment.number in self._live:
            room = not send.block.persistent or self._executor.has_room(send.block.nbytes)
            command = send.command._replace(room=room)
            if command.content is None and send.attachment.destination.selective:  # A selector came while it waited.
                command = command._replace(content=self._content(send.block))
            outcome = self._perform(send._replace(command=command), text)
            if outcome is not None and number:
                send.transactions.note_refusal(number, outcome)
        elif send.block.persistent or send.txn:
            gone = Refused(0, send.block.count, InvalidDestinationError.code, "the destination was destroyed")
            send.session.peer.sent(send.attachment.handle, send.block.first_seq, send.block.count, (gone,))
        self._resume(send.session)

    def _perform(self, send: Blocked, text: str) -> Outcome | None:
        command = send.command._replace(turned_away=text) if text else send.command
        return self._executor.perform(send.attachment.destination, command, send.block)


def _sent_in(txn: object, send: Blocked) -> bool:
    return send.txn != 0 and send.txn == txn


def _left_behind(handle: object, send: Blocked) -> bool:
    """A block of that producer whose client waits for no answer: it is not persistent, or part of a transaction."""
    return send.attachment.handle == handle and (send.txn != 0 or not send.block.persistent)
