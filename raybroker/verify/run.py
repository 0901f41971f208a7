"""The course of a run: destinations, clients, faults, the drain, the verdict, and nothing left behind."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import raybroker as rb
from raybroker.actors import runtime
from raybroker.model.errors import BrokerError, InvalidDestinationError, NoClusterError
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token
from raybroker.verify.clients import CONNECT, entrance_of
from raybroker.verify.crew import ROLES, Crew
from raybroker.verify.display import VerifyDisplay
from raybroker.verify.fault_course import FaultCourse
from raybroker.verify.injecting import Faults
from raybroker.verify.ledger import Findings
from raybroker.verify.notes import VerifyLane
from raybroker.verify.pace import RunPace
from raybroker.verify.plan import VerifyPlan
from raybroker.verify.recorder import Recorder
from raybroker.verify.report import VerifyReport

PREFIX: Final = "raybroker_verify"
"""What the names of the destinations begin with."""
LOOK_S: Final = 2.0
"""Between two looks at what each client says of itself."""
START_S: Final = 30.0
"""How long brokers that are being started are waited for."""
BUSY_S: Final = 60.0
"""How long clients may take until something of each destination is confirmed and delivered."""
END_S: Final = 90.0
"""How long a client may take to end after it was told: a send that waits for its broker ends by its own time-out."""
SLOW_S: Final = 5.0
"""So long without progress of the drain, and it is said what is left."""
EMPTY_LOOKS: Final = 2
"""So many looks in a row find nothing in the queues before they count as drained."""
DESTROY_S: Final = 30.0
AGAIN_S: Final = 0.2


def run_verify(plan: VerifyPlan, display: VerifyDisplay) -> VerifyReport:
    """Carry a plan out on a cluster that runs, and clean up. Ctrl-C ends it early with what was found so far."""
    with ExitStack() as stack:
        stack.callback(display.end_progress)
        run = VerifyRun(plan, display, stack)
        interrupted = False
        try:
            run.perform()
        except KeyboardInterrupt:
            interrupted = True
            display.note("interrupted: cleaning up")
        return run.report(interrupted=interrupted)


class VerifyRun:
    """One run; what it sets up is undone by ``stack``, last first."""

    def __init__(self, plan: VerifyPlan, display: VerifyDisplay, stack: ExitStack) -> None:
        self._plan = plan
        self._stack = stack
        self._drained = False
        run = token(6)
        self._lanes = {lane: f"{PREFIX}_{run.hex()}_{lane}" for lane in plan.lanes}
        connection = stack.enter_context(rb.connect(cluster=plan.cluster, **CONNECT))
        self._admin = connection.admin()
        recorder = runtime.create_actor(Recorder, max(plan.units, 1), name=None, node=runtime.node_id(), max_restarts=0)
        stack.callback(runtime.kill, recorder)
        self._pace = RunPace(recorder, display)
        self._faults = FaultCourse(plan, self._pace, Faults(plan.cluster, run.hex()))
        if not self._pace.wait(self._faults.all_answer, START_S):
            away = ", ".join(sorted(self._faults.silent())) or "all of them"
            raise NoClusterError(f"brokers of cluster {plan.cluster!r} take no clients: {away}; a run begins with all")
        self._create()
        self._crew = Crew(plan, int.from_bytes(run, "big"), recorder, sorted(self._faults.names))
        stack.callback(self._crew.kill_all)
        stack.callback(self._faults.let_go_on)

    def _queues(self) -> list[str]:
        return [
            name
            for lane, queue in self._lanes.items()
            for name in ((queue, entrance_of(queue)) if lane is VerifyLane.MOVED else (queue,))
        ]

    def _create(self) -> None:
        for name in self._queues():
            self._stack.callback(self._destroy, name)
            self._admin.create_destination("queue", name, **self._plan.attributes)
        self._pace.note(f"created {', '.join(self._queues())}")

    def _destroy(self, name: str) -> None:
        """Destroy a queue; after a fault its brokers may need a while."""
        clock = SystemClock()
        until_ns = clock.monotonic_ns() + int(DESTROY_S * 1e9)
        while True:
            try:
                self._admin.destroy_destination("queue", name)
            except InvalidDestinationError:
                return  # It is gone, or was never there.
            except BrokerError as error:
                if clock.monotonic_ns() > until_ns:
                    self._pace.note(f"{name} is left, destroy it with destroy dst -t q -n {name}: {error}")
                    return
                clock.sleep(AGAIN_S)
            else:
                return

    # ---- the course --------------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Load, faults, drain."""
        if self._plan.faults:
            self._faults.prepare()
        self._crew.hire(self._lanes)
        if not self._pace.wait(self._busy, BUSY_S):
            self._pace.add_trouble(f"clients have not begun within {BUSY_S:g} s")
        self._pace.note("clients run")
        ends_s = self._pace.seconds + self._plan.duration_seconds
        fault_s = self._pace.seconds + self._plan.interval_seconds
        look_s = 0.0
        while self._pace.seconds < ends_s and not self._pace.troubles:
            self._pace.step()
            if self._plan.faults and self._pace.seconds >= fault_s:
                self._faults.do_next(self._crew, lambda: self._left() is not None)
                fault_s = self._pace.seconds + self._plan.interval_seconds
            if self._pace.seconds >= look_s:
                look_s = self._pace.seconds + LOOK_S
                if not self._look_at_clients():
                    break
        self._finish()

    def _busy(self) -> bool:
        found = self._pace.progress()
        return bool(found["confirmed"] and found["acknowledged"])

    def _look_at_clients(self) -> bool:
        """Say which client has failed; False when all producers have sent what they had to."""
        for role in ROLES:
            for row in self._crew.stats(role):
                if row["error"]:
                    self._pace.add_trouble(f"{row['who']} has ended: {row['error']}")
        return any(row["running"] for row in self._crew.stats("producer"))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """No more is sent, what is there is drained, and consumers end."""
        self._pace.note("no more is sent; draining")
        self._end_clients("producer")
        if not self._pace.wait(self._faults.all_answer, self._plan.recovery_seconds):
            self._pace.add_trouble("not all brokers answer: what they store cannot be drained")
        else:
            self._drain()
        self._end_clients("mover")
        self._end_clients("consumer")

    def _end_clients(self, role: str) -> None:
        """Clients of a role end by themselves."""
        self._crew.tell_to_stop(role)
        if not self._pace.wait(lambda: not any(row["running"] for row in self._crew.stats(role)), END_S):
            self._pace.add_trouble(f"a {role} has not ended {END_S:g} s after it was told")
        for row in self._crew.stats(role):
            if row["error"]:
                self._pace.add_trouble(f"{row['who']} has ended: {row['error']}")

    def _drain(self) -> None:
        """Wait until nothing is left, for as long as it becomes less."""
        least, since_s, said_s, empty = -1, self._pace.seconds, 0.0, 0
        while empty < EMPTY_LOOKS:
            there = self._left()
            left = None if there is None else sum(there.values())
            if left is not None and (least < 0 or left < least):
                least, since_s = left, self._pace.seconds
            elif there and self._pace.seconds - since_s > SLOW_S and said_s < since_s:
                said_s = self._pace.seconds
                rest = ", ".join(f"{count:,} in {name}" for name, count in there.items() if count)
                self._pace.note(f"still draining: {rest}")
            empty = empty + 1 if left == 0 else 0
            if self._pace.seconds - since_s > self._plan.recovery_seconds:
                self._pace.add_trouble(
                    f"{least:,} messages are left in the queues, and became no fewer for"
                    f" {self._plan.recovery_seconds:g} s"
                )
                return
            self._pace.step()
        self._drained = True

    def _left(self) -> dict[str, int] | None:
        """Queue → messages in it; None when that cannot be asked now, or of some brokers only."""
        try:
            left = {name: int(self._admin.query_destination("queue", name)["messages"]) for name in self._queues()}
        except BrokerError:
            return None
        return left if self._faults.all_answer() else None

    def report(self, *, interrupted: bool) -> VerifyReport:
        findings: Findings = runtime.call_blocking(self._pace.recorder.findings, self._drained)
        return VerifyReport(
            self._plan, self._pace.seconds, findings, self._faults.records(), self._pace.troubles, interrupted
        )
