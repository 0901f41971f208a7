"""The shell of the takeover machine (cluster.takeover): gives signs of life, looks at the others, carries steps out.

Calls to the database are made in threads, one at a time.  A broker whose row has another tenure has lost its messages,
and ends for good.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.cluster.membership import HEARD
from raybroker.cluster.takeover import Takeover, Takeovers, TakeoverSettings, TakeoverStep
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.ports import Clock
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerError, IllegalStateError, StoreError
from raybroker.model.settings.settings import ConfigView
from raybroker.model.shared_store import SharedRow, SharedView, StoreState
from raybroker.system.supervision import Supervisor
from raybroker.transport.daemon_calls import in_daemon_thread

REASON_CHARS_MAX: Final = 500
STOPPED_S: Final = 180.0
"""How long a broker that is drained may take to stop: its consumers acknowledge what they have, and stores close."""
STOPPED_LOOK_S: Final = 0.1
"""How often it is looked whether it has stopped."""

log = logging.getLogger("raybroker.cluster")


class SharedStore(Protocol):
    """The table of brokers, see store.sql.shared; all methods block, and raise StoreError or ConfigError."""

    def view(self) -> SharedView: ...
    def beat(self, name: str, tenure: int) -> SharedView | None: ...
    def take(self, name: str, *, tenure: int, beats: int, node: str, taker: str = "") -> bool: ...
    def set_state(self, name: str, tenure: int, state: StoreState, reason: str = "") -> bool: ...


class Successors(Protocol):
    """What a takeover does beside the table."""

    node: str
    """Where it starts brokers."""

    async def hand_over(self, broker: str, tenure: int) -> None:
        """Have a broker's messages belong to ``tenure`` alone. Raises StoreError."""

    async def start(self, broker: str, tenure: int, after: int) -> None:
        """Start a broker here, and wait until it takes clients; ``after``: its incarnation that was heard last. Raises
        BrokerError."""

    def standing_by(self) -> Row:
        """How many processes stand by: standby_brokers and standby_hosts."""


@dataclass(slots=True)
class TakeoverCounts:
    """Takeovers by one broker, and attempts at them that came to nothing."""

    completed: int = 0
    failed: int = 0


class _SupersededError(Exception):
    """Another broker has taken the next tenure meanwhile."""


class StoreWatch:
    """One broker's part in the shared store.

    tenure      the one in which it was started
    state       what it says of itself, None for nothing new
    superseded  is told why, when its tenure is over
    """

    def __init__(
        self,
        clustering: Clustering,
        store: SharedStore,
        tenure: int,
        config: ConfigView,
        clock: Clock,
        *,
        successors: Successors,
        state: Callable[[], StoreState | None],
        superseded: Callable[[str], None],
    ) -> None:
        self.name = clustering.member.name
        self.tenure = tenure
        self.counts = TakeoverCounts()
        self.failure = ""
        """Why the store could not be looked at last, "" when it could."""
        self._member = clustering.member
        self._store = store
        interval_ms = config["imq.cluster.monitor.interval"] * 1000
        self._machine = Takeovers(self.name, TakeoverSettings(interval_ms, config["imq.cluster.monitor.threshold"]))
        self._now_ms = MeasuredTime(clock).now_ms
        self._successors = successors
        self._state = state
        self._superseded = superseded
        self._view = SharedView(0, ())
        self._ended = False
        self._writing = threading.Lock()
        self._loops = Supervisor(f"the shared store of broker {self.name}")

    # ---- looks

    async def run(self) -> None:
        """Look each interval, for as long as the broker lives."""
        loop, interval_s = asyncio.get_running_loop(), self._machine.settings.interval_ms / 1000
        while not self._ended:
            began_s = loop.time()
            await self._look_at_store()
            await asyncio.sleep(max(interval_s - (loop.time() - began_s), interval_s / 4))

    async def _look_at_store(self) -> None:
        try:
            view = await in_daemon_thread(self._store.beat, self.name, self.tenure)
            if view is None:
                self._end_tenure()
                return
            self._view = view
            await self._say(view)
            await self._answer_for_others()
        except BrokerError as error:
            self._machine.missed()
            if not self.failure:
                log.warning("[B2185] broker %s cannot look at the shared store: %s", self.name, error)
            self.failure = str(error)
            return
        if self.failure:
            self.failure = ""
            log.info("[B1186] broker %s sees the shared store again", self.name)
        membership = self._member.membership
        work = self._machine.looked(view, membership.live(), self._heard(), self._now_ms())
        if work is not None:
            self._loops.once(f"the takeover of broker {work.name}", self._carry_out(work))

    def _end_tenure(self) -> None:
        self._ended = True
        self._superseded(f"it was taken over: its tenure {self.tenure} is over, and its messages are served elsewhere")

    async def _say(self, view: SharedView) -> None:
        """Have the table say what this broker is, also after a write that came to nothing."""
        wanted, own = self._state(), view.row_of(self.name)
        if wanted is not None and own is not None and own.state is not wanted:
            await in_daemon_thread(self._write_state, wanted, False)

    def _write_state(self, state: StoreState, last: bool) -> None:
        """What is written after the end began is the last; another thread."""
        with self._writing:
            if last or not self._ended:
                self._store.set_state(self.name, self.tenure, state)

    async def _answer_for_others(self) -> None:
        answered_for = self._machine.vicarious
        if answered_for is not None and await in_daemon_thread(self._store.beat, *answered_for) is None:
            work = self._machine.work
            if work is not None:
                self._machine.ended(work)

    async def leave(self, state: StoreState) -> None:
        """Say the last about this broker, when it stops in order."""
        self._ended = True
        try:
            await in_daemon_thread(self._write_state, state, True)
        except BrokerError as error:
            log.warning("broker %s could not write into the shared store that it is %s: %s", self.name, state, error)

    def close(self) -> None:
        self._ended = True
        self._loops.close()

    # ---- takeovers

    async def takeover_broker(self, broker: str) -> Row:
        """See the verb."""
        view = await in_daemon_thread(self._store.view)
        if self._member.opened is False:
            raise IllegalStateError(f"broker {self.name} takes no clients itself, and takes nobody over")
        work = self._machine.request_takeover(broker, view, self._heard())
        self._loops.once(f"the takeover of broker {broker}", self._carry_out(work))
        return {"broker": broker, "taker": self.name, "tenure": work.next_tenure, "node": self._successors.node}

    async def take_drained(self, broker: str, stop: Callable[[], Awaitable[object]]) -> Row:
        """Have a broker stop, and start it here as soon as it has; ``stop`` answers at once. Raises IllegalStateError
        where that cannot be begun."""
        view = await in_daemon_thread(self._store.view)
        row = view.row_of(broker)
        if row is None or row.state is not StoreState.OPERATING:
            state = "not there" if row is None else str(row.state)
            raise IllegalStateError(
                f"broker {broker} is {state} in the shared store, and only what operates is drained"
            )
        if not self._member.opened:
            raise IllegalStateError(f"broker {self.name} takes no clients itself, and takes nobody over")
        if self._machine.work is not None:
            raise IllegalStateError(
                f"broker {self.name} takes over {self._machine.work.name} now; ask again afterwards"
            )
        await stop()
        log.warning("[B2195] broker %s is drained to broker %s", broker, self.name)
        self._loops.once(f"the drain of broker {broker}", self._take_when_stopped(broker, row.tenure))
        return {"broker": broker, "taker": self.name, "tenure": row.tenure + 1, "node": self._successors.node}

    async def _take_when_stopped(self, broker: str, tenure: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STOPPED_S
        why = "it is not stopped yet"
        while loop.time() < until_s:
            try:
                view = await in_daemon_thread(self._store.view)
                row = view.row_of(broker)
                if row is None or row.tenure != tenure:
                    return  # Somebody else has taken it over meanwhile.
                if row.state is StoreState.BROKER_DOWN:
                    await self._carry_out(self._machine.request_takeover(broker, view, self._heard()))
                    return
                why = f"it is {row.state}"
            except BrokerError as error:  # It is still heard, or the database is away for a moment.
                why = str(error)
            await asyncio.sleep(STOPPED_LOOK_S)
        log.error("[B3195] broker %s is not drained: %s after %g s", broker, why, STOPPED_S)

    def _heard(self) -> set[str]:
        return {row.name for row in self._member.membership.broker_rows() if row.state in HEARD}

    async def _carry_out(self, work: Takeover) -> None:
        following: Takeover | None = work
        log.warning("[B2187] broker %s is lost: broker %s takes it over, tenure %d", work.name, self.name, work.tenure)
        try:
            while following is not None:
                work = following
                await self._step(work)
                with suppress(BrokerError):  # It is for people, who look at it sooner than the next look is due.
                    self._view = await in_daemon_thread(self._store.view)
                following = self._machine.done(work)
                if following is None and work.step is not TakeoverStep.START:
                    raise _SupersededError
        except _SupersededError:
            log.info("[B1188] broker %s is taken over by somebody else, or has shown a sign of life", work.name)
        except BrokerError as error:
            await self._failed(work, error)
        else:
            self.counts.completed += 1
            log.warning(
                "[B2189] broker %s was taken over by %s and takes clients, tenure %d, on node %s",
                work.name,
                self.name,
                work.next_tenure,
                self._successors.node,
            )
        finally:
            self._machine.ended(work)

    async def _step(self, work: Takeover) -> None:
        """Raises BrokerError, _SupersededError."""
        name, tenure, node = work.name, work.next_tenure, self._successors.node
        match work.step:
            case TakeoverStep.TAKE:

                def take() -> bool:
                    return self._store.take(name, tenure=work.tenure, beats=work.beats, node=node, taker=self.name)

                if not await in_daemon_thread(take):
                    raise _SupersededError
            case TakeoverStep.HAND_OVER:
                await self._successors.hand_over(name, tenure)
                if not await in_daemon_thread(self._store.set_state, name, tenure, StoreState.TAKEOVER_COMPLETE):
                    raise _SupersededError
            case TakeoverStep.START:
                await self._successors.start(name, tenure, self._member.membership.broker_row(name).incarnation)

    async def _failed(self, work: Takeover, error: BrokerError) -> None:
        self.counts.failed += 1
        log.error("[B3190] the takeover of broker %s has failed, and is tried again: %s", work.name, error)
        if work.step is TakeoverStep.TAKE:
            return
        try:
            reason = f"{work.step.value}: {error}"[:REASON_CHARS_MAX]
            await in_daemon_thread(
                self._store.set_state, work.name, work.next_tenure, StoreState.TAKEOVER_FAILED, reason
            )
        except StoreError as unwritten:
            log.warning("the shared store does not say so: %s", unwritten)

    # ---- what is shown

    def standing_by(self) -> Row:
        """How many processes this broker has ready to become a lost one."""
        return self._successors.standing_by()

    def row(self, name: str) -> Row:
        """What the shared store has of a broker, for people; empty for one that it does not know."""
        found = self._view.row_of(name)
        row = {} if found is None else _shown(found, self._view.now_ms)
        return {**row, "store_reason": self.failure} if name == self.name and self.failure else row

    def states(self) -> dict[str, int]:
        """State → how many brokers are in it."""
        return dict(Counter(str(row.state) for row in self._view.rows))


def _shown(row: SharedRow, now_ms: int) -> Row:
    return {
        "store_state": str(row.state),
        "tenure": row.tenure,
        "store_node": row.node,
        "taken_by": row.taker,
        "takeovers": row.takeovers,
        "silent_ms": max(now_ms - row.beat_ms, 0) if row.beat_ms else 0,
        **({"store_reason": row.reason} if row.reason else {}),
    }
