"""The shell of the member machine (cluster.member): sends its envelopes, writes its record, wakes those who wait.

Everything runs on one event loop; the record file is written in a thread, in order.  The machine allows for lost
messages, so a broker that receives nothing holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from raybroker.broker.cluster.shared_table import SharedTable
from raybroker.cluster import events as ev
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.member import Member, MemberState
from raybroker.cluster.member_messages import Envelope
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.ports import Clock
from raybroker.model.errors import BrokerError, MasterUnavailableError, NotOpenError, RequestTimeoutError, StoreError
from raybroker.system import entropy
from raybroker.system.failpoint import failpoint
from raybroker.system.supervision import Supervisor

CHANGED_WAIT_S_MAX: Final = 20.0
"""Longest time that one question for changes of the view waits; below the time after which a call counts as lost."""

log = logging.getLogger("raybroker.cluster")


class Frames(Protocol):
    """The record file of a broker; all methods block."""

    def append(self, frames: tuple[bytes, ...]) -> None: ...
    def replace(self, frames: tuple[bytes, ...]) -> None: ...
    def close(self) -> None: ...


Carry = Callable[[str, Envelope], None]
"""Takes an envelope to a broker, or loses it; never waits."""


class EntryApplier(Protocol):
    """Carries out changes on this broker's own destinations; raises a BrokerError for what it could not.

    Both say whether a part waits for a host that does not start. ``awaited``: which hosts are starting, which a change
    may have to wait for, in words, "" for none.
    """

    async def apply(self, changes: tuple[Change, ...]) -> bool: ...
    async def apply_whole(self, wanted: RecordState) -> bool: ...
    def awaited(self) -> str: ...


class Clustering:
    """``halt(reason)`` ends the broker: another instance has taken over, or its record cannot be written.

    ``table``: what has the record where brokers share it instead of having a master.
    """

    def __init__(
        self,
        member: Member,
        file: Frames,
        clock: Clock,
        *,
        carry: Carry,
        applier: EntryApplier,
        halt: Callable[[str], None],
        table: SharedTable | None = None,
    ) -> None:
        self.member = member
        self.opened = asyncio.Event()
        self._file = file
        self._now_ms = MeasuredTime(clock).now_ms
        self._carry = carry
        self._applier = applier
        self._halt = halt
        self._table = table
        self._bell = asyncio.Event()
        self._base = int.from_bytes(entropy.token(5), "little")
        self._requests: dict[int, asyncio.Future[ev.Answer]] = {}
        self._next_request = 1
        self._writes: asyncio.Queue[ev.Persist] = asyncio.Queue()
        self._loops = Supervisor(f"the membership of broker {member.name}")
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        self._ended = False

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._loops.attempt("the record's file", self._write)  # It returns when nothing can be written any more.
        self.feed(ev.Started())

    async def stop(self) -> None:
        """Say goodbye to the others, and write nothing more."""
        self._leaving = True
        if not self._ended:
            self.feed(ev.Leave())
            await asyncio.sleep(0)
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._loops.close():
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(self._file.close)

    def feed(self, event: ev.Event) -> None:
        """Tell the machine, and do what it wants."""
        if self._ended:
            return
        try:
            for action in self.member.step(event, self._now_ms()):
                self._do(action)
        finally:  # Without a timer the machine would hear of the time no more.
            self._set_timer()

    def receive(self, envelope: Envelope) -> None:
        self.feed(ev.EnvelopeReceived(envelope))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._ended:
            delay_s = max(self.member.wake_at_ms - self._now_ms(), 1) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.feed, ev.MemberTick())

    def _spawn(self, work: Any) -> None:
        self._loops.once("the record", work)

    # ---- what the machine wants ------------------------------------------------------------------------------------

    def _do(self, action: ev.Action) -> None:
        match action:
            case ev.SendEnvelope(to, envelope):
                self._carry(to, envelope)
            case ev.Persist():
                self._writes.put_nowait(action)
            case ev.Apply():
                self._spawn(self._apply(action))
            case ev.ReadTable() | ev.AppendTable() | ev.ShortenTable():
                self._spawn(self._call_table(action))
            case ev.ExchangeConsumers(peer):
                # Consumers attach to every member by themselves as soon as they see the broker up, so there is nothing
                # that brokers would have to tell each other about them.
                asyncio.get_running_loop().call_soon(self.feed, ev.Exchanged(peer))
            case ev.OpenForClients():
                self.opened.set()
                self._ring()
            case ev.Answer(request):
                future = self._requests.pop(request, None)
                if future is not None and not future.done():
                    future.set_result(action)
            case ev.ViewChanged():
                self._ring()
            case ev.Note(text, warning):
                log.log(logging.WARNING if warning else logging.INFO, "%s", text)
            case ev.Halt(reason):
                if not self._leaving:
                    self._halt(reason)
                self._ended = True

    async def _call_table(self, call: ev.OnTable) -> None:
        assert self._table is not None, "the machine is told of a table only where there is one"
        self.feed(await self._table.carry_out(call))

    async def _write(self) -> None:
        while True:
            persist = await self._writes.get()
            failpoint("record.write")
            try:
                if persist.replace:
                    await asyncio.to_thread(self._file.replace, persist.frames)
                else:
                    await asyncio.to_thread(self._file.append, persist.frames)
            except Exception as error:  # noqa: BLE001 - whatever it is, what was to be durable is not
                self._ended = True
                self._halt(f"the record of broker {self.member.name} cannot be written: {error}")
                return
            failpoint("record.written")
            self.feed(ev.Persisted(persist.token))

    async def _apply(self, action: ev.Apply) -> None:
        """Carry entries out. What can never be done here is said in the log, and does not hold up what comes after."""
        failure, partly = "", False
        failpoint("record.apply")
        try:
            if action.whole is not None:
                partly = await self._applier.apply_whole(action.whole)
            else:
                partly = await self._applier.apply(action.changes)
        except BrokerError as error:
            text = str(error) or error.code
            log.error("broker %s could not carry out entry %d: %s", self.member.name, action.number, text)
            failure = text if error.retryable or isinstance(error, StoreError) else ""
        except Exception as error:  # the machine waits for an answer, and would wait for ever
            log.exception("broker %s could not carry out entry %d", self.member.name, action.number)
            failure = repr(error)
        failpoint("record.applied")
        self.feed(ev.Applied(action.number, failure, partly))
        self._ring()

    async def reached(self, number: int, timeout_s: float) -> bool:
        """Wait until the record is carried out here up to an entry; False when the time is over before."""
        return await self._until(lambda: self.member.applied >= number, timeout_s)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something holds; looked at whenever the view changes or an entry was carried out."""
        deadline = asyncio.get_running_loop().time() + min(max(timeout_s, 0.0), CHANGED_WAIT_S_MAX)
        while not holds():
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), left_s)
        return True

    # ---- who waits -------------------------------------------------------------------------------------------------

    async def propose(self, change: Change) -> int:
        """Make a change of the whole cluster; the number of its entry. Raises MasterUnavailableError."""
        failpoint("record.propose")
        answer = await self._request(lambda request: ev.Propose(request, change))
        failpoint("record.proposed")
        if isinstance(answer.error, RequestTimeoutError) and (awaited := self._applier.awaited()):
            raise RequestTimeoutError(f"{answer.error}; {awaited}")
        if answer.error is not None:
            raise answer.error
        return answer.number

    async def change_master(self, target: str) -> tuple[str, str]:
        """(result, why) of moving the record to another broker; see cluster.events.CHANGE_MASTER_RESULTS."""
        answer = await self._request(lambda request: ev.ChangeMaster(request, target))
        if answer.error is not None:
            raise answer.error
        return answer.result, answer.text

    async def _request(self, make: Callable[[int], ev.Event]) -> ev.Answer:
        if self._ended:
            raise MasterUnavailableError(f"broker {self.member.name} has stopped")
        request = self._next_request
        self._next_request += 1
        future: asyncio.Future[ev.Answer] = asyncio.get_running_loop().create_future()
        self._requests[request] = future
        try:
            self.feed(make(request))
            return await future
        finally:
            self._requests.pop(request, None)

    def require_open(self) -> None:
        """Raises NotOpenError while this broker takes no clients."""
        if not self.member.opened:
            raise NotOpenError(self.member.refusal or f"broker {self.member.name} has stopped")

    @property
    def shared(self) -> bool:
        """The record is in a table that all brokers share."""
        return self._table is not None

    @property
    def version(self) -> int:
        """Return the version of the view; it starts anywhere, so that a broker that came back is a change."""
        return self._base + self.member.membership.version + (1 if self.member.opened else 0)

    async def changed(self, version: int, timeout_s: float) -> int:
        """The version of the view, as soon as it is another one or the time is over, at most CHANGED_WAIT_S_MAX."""
        await self._until(lambda: version != self.version, timeout_s)
        return self.version

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    def cluster_row(self) -> dict[str, Any]:
        """Return the row for people who look: state, master, term, position of the record."""
        member = self.member
        return {
            "state": str(member.state),
            "master": member.claim.master,
            "term": member.claim.term,
            "is_master": member.is_master,
            "refusal": member.refusal,
            "incarnation": member.incarnation,
            "contradiction": member.contradiction,
            "faults": list(member.faults),
            **({"table": self._table.shown} if self._table is not None else {}),
            "operating": member.state in (MemberState.OPERATING, MemberState.MASTER_LOST),
        }
