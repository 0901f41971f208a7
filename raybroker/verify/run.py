"""The course of a run: destinations, clients, faults, the drain, the verdict, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

import raybroker as rb
from raybroker.actors import runtime
from raybroker.model.errors import BrokerError, InvalidDestinationError, NoClusterError
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token
from raybroker.verify.clients import (
    CONNECT,
    ClientTask,
    ConsumerClient,
    MoverClient,
    ProducerClient,
    entrance_of,
)
from raybroker.verify.display import VerifyDisplay
from raybroker.verify.faults import Deed, Dice, Rounds, node_kills, planned
from raybroker.verify.injecting import Faults
from raybroker.verify.ledger import Findings
from raybroker.verify.notes import VerifyLane
from raybroker.verify.plan import MESSAGES_MAX, VerifyPlan
from raybroker.verify.recorder import Recorder
from raybroker.verify.report import FaultRecord, VerifyReport

PREFIX: Final = "raybroker_verify"
"""What the names of the destinations begin with."""
STEP_S: Final = 0.2
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
ASK_S: Final = 5.0
NODE_KILLED: Final = "kill-node"
ROLES: Final = {"consumer": ConsumerClient, "mover": MoverClient, "producer": ProducerClient}
"""Role → its class, in the order in which they begin."""


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


class Crew:
    """The clients of a run, by their roles; one that is killed gets a successor.

    Who sends is the client of one broker and waits for it when it is lost.  Another would send again elsewhere what it
    was not told about, and then a message may be stored twice, which is no broken promise and would hide one.  A queue
    whose log has copies is one queue, whichever broker leads it, and is sent to through any.
    """

    def __init__(self, plan: VerifyPlan, run: int, recorder: Any, brokers: Sequence[str]) -> None:
        self._plan = plan
        self._run = run
        self._brokers = brokers
        self._recorder = recorder
        self._nodes = [runtime.node_id()] if NODE_KILLED in plan.faults else [node.id for node in runtime.nodes()]
        self._count = 0
        self._most = 0
        self.at_work: dict[str, list[tuple[ClientTask, Any]]] = {role: [] for role in ROLES}

    def hire(self, lanes: Mapping[VerifyLane, str]) -> None:
        """All clients, consumers first, so that nobody waits for them."""
        plan = self._plan
        self._most = -(-(plan.messages or MESSAGES_MAX) // (plan.producers * len(lanes)))
        for lane, queue in lanes.items():
            for _ in range(plan.consumers):
                self._add("consumer", lane, queue)
            if lane is VerifyLane.MOVED:
                for _ in range(plan.consumers):
                    self._add("mover", lane, queue)
        for lane, queue in lanes.items():
            for _ in range(plan.producers):
                self._add("producer", lane, entrance_of(queue) if lane is VerifyLane.MOVED else queue)
        for clients in self.at_work.values():
            for _, actor in clients:
                runtime.call_blocking(actor.begin_work)

    def _add(self, role: str, lane: VerifyLane, queue: str) -> Any:
        plan = self._plan
        self._count += 1
        task = ClientTask(
            plan.cluster,
            self._run,
            lane,
            queue,
            self._count,
            size_bytes=plan.size_bytes,
            rate=plan.rate_per_second / (plan.producers * len(plan.lanes)),
            most=self._most,
            units=plan.units,
            home="" if role == "consumer" or plan.replicated else self._brokers[self._count % len(self._brokers)],
        )
        return self._start(role, task)

    def _start(self, role: str, task: ClientTask) -> Any:
        node = self._nodes[task.number % len(self._nodes)]
        actor = runtime.create_actor(ROLES[role], task, self._recorder, name=None, node=node, max_restarts=0)
        self.at_work[role].append((task, actor))
        return actor

    def kill_one(self, dice: Dice) -> str:
        """End a client at once, and put another in its place; who it was."""
        everybody = [(role, index) for role, clients in self.at_work.items() for index in range(len(clients))]
        role, index = dice.choose(everybody)
        task, actor = self.at_work[role].pop(index)
        runtime.kill(actor)
        if role == "producer":
            runtime.call_blocking(self._recorder.forget_producer, task.number)
        self._count += 1
        successor = self._start(role, replace(task, number=self._count))
        runtime.call_blocking(successor.begin_work)
        return f"{role} {task.number} of {task.lane}"

    def tell_to_stop(self, role: str) -> None:
        for _, actor in self.at_work[role]:
            runtime.tell(actor.end_work)

    def stats(self, role: str) -> list[dict[str, Any]]:
        """What each client of a role says of itself; one that does not answer has failed."""
        found = []
        for task, actor in self.at_work[role]:
            try:
                found.append(runtime.call_blocking(actor.stats, timeout_s=ASK_S))
            except BrokerError as error:
                found.append({"who": f"{role} {task.number}", "running": False, "error": str(error)})
        return found

    def kill_all(self) -> None:
        """End all at once."""
        for clients in self.at_work.values():
            for _, actor in clients:
                runtime.kill(actor)
            clients.clear()


class VerifyRun:
    """One run; what it sets up is undone by ``stack``, last first."""

    def __init__(self, plan: VerifyPlan, display: VerifyDisplay, stack: ExitStack) -> None:
        self._plan = plan
        self._display = display
        self._stack = stack
        self._clock = SystemClock()
        self._dice = Dice(plan.seed)
        self._rounds = Rounds(self._dice)
        self._began_ns = self._clock.monotonic_ns()
        self._done: list[FaultRecord] = []
        self._node_kills = 0
        self._away: set[str] = set()
        """Brokers that are not waited for: their nodes were killed, and others have what they had."""
        self._troubles: list[str] = []
        self._drained = False
        run = token(6)
        self._lanes = {lane: f"{PREFIX}_{run.hex()}_{lane}" for lane in plan.lanes}
        connection = stack.enter_context(rb.connect(cluster=plan.cluster, **CONNECT))
        self._admin = connection.admin()
        self._faults = Faults(plan.cluster, run.hex())
        self._recorder = runtime.create_actor(
            Recorder, max(plan.units, 1), name=None, node=runtime.node_id(), max_restarts=0
        )
        stack.callback(runtime.kill, self._recorder)
        self._names = self._faults.names()
        if not self._wait(self._all_answer, START_S):
            away = ", ".join(sorted(self._names - set(self._faults.brokers()))) or "all of them"
            raise NoClusterError(f"brokers of cluster {plan.cluster!r} take no clients: {away}; a run begins with all")
        self._create()
        self._crew = Crew(plan, int.from_bytes(run, "big"), self._recorder, sorted(self._names))
        stack.callback(self._crew.kill_all)
        stack.callback(self._faults.end_agents, self._trouble)

    @property
    def _seconds(self) -> float:
        return (self._clock.monotonic_ns() - self._began_ns) / 1e9

    def _trouble(self, text: str) -> None:
        if text not in self._troubles:
            self._troubles.append(text)
            self._display.note(text)

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
        self._display.note(f"created {', '.join(self._queues())}")

    def _destroy(self, name: str) -> None:
        """Destroy a queue; after a fault its brokers may need a while."""
        until_ns = self._clock.monotonic_ns() + int(DESTROY_S * 1e9)
        while True:
            try:
                self._admin.destroy_destination("queue", name)
            except InvalidDestinationError:
                return  # It is gone, or was never there.
            except BrokerError as error:
                if self._clock.monotonic_ns() > until_ns:
                    self._display.note(f"{name} is left, destroy it with destroy dst -t q -n {name}: {error}")
                    return
                self._clock.sleep(STEP_S)
            else:
                return

    # ---- the course --------------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Load, faults, drain."""
        if self._plan.faults:
            nodes = sorted({node for node, _ in self._faults.brokers().values()})
            self._node_kills = node_kills(len(nodes))
            self._faults.reach(nodes)
        self._crew.hire(self._lanes)
        if not self._wait(self._busy, BUSY_S):
            self._trouble(f"clients have not begun within {BUSY_S:g} s")
        self._display.note("clients run")
        ends_s = self._seconds + self._plan.duration_seconds
        fault_s = self._seconds + self._plan.interval_seconds
        look_s = 0.0
        while self._seconds < ends_s and not self._troubles:
            self._step()
            if self._plan.faults and self._seconds >= fault_s:
                self._do_one()
                fault_s = self._seconds + self._plan.interval_seconds
            if self._seconds >= look_s:
                look_s = self._seconds + LOOK_S
                if not self._look_at_clients():
                    break
        self._finish()

    def _step(self) -> None:
        threading.Event().wait(STEP_S)
        self._display.update(self._seconds, self._progress())

    def _progress(self) -> dict[str, Any]:
        found: dict[str, Any] = runtime.call_blocking(self._recorder.progress)
        return found

    def _wait(self, holds: Callable[[], bool], most_s: float) -> bool:
        until_s = self._seconds + most_s
        while not (held := holds()) and self._seconds < until_s:
            self._step()
        return held

    def _all_answer(self) -> bool:
        return set(self._faults.brokers()) >= self._names - self._away

    def _busy(self) -> bool:
        found = self._progress()
        return bool(found["confirmed"] and found["acknowledged"])

    def _look_at_clients(self) -> bool:
        """Say which client has failed; False when all producers have sent what they had to."""
        for role in ROLES:
            for row in self._crew.stats(role):
                if row["error"]:
                    self._trouble(f"{row['who']} has ended: {row['error']}")
        return any(row["running"] for row in self._crew.stats("producer"))

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _do_one(self) -> None:
        """One fault, and then the cluster works again."""
        allowed = [kind for kind in self._plan.faults if kind != NODE_KILLED or self._node_kills]
        if not allowed:
            return
        kind = self._rounds.choose(allowed)
        if kind == "kill-client":
            self._mark(kind)
            since_s = self._seconds
            who = self._crew.kill_one(self._dice)
            self._display.note(f"{kind} {who}")
            self._done.append(FaultRecord(kind, who, since_s, self._seconds - since_s))
            return
        before = self._faults.brokers()
        deed = planned(kind, self._dice, before, self._spared()) if set(before) >= self._names - self._away else None
        if deed is None:
            self._display.note(f"{kind}: nobody is there whom it could meet, or not all brokers answer")
            return
        if kind == NODE_KILLED:
            self._node_kills -= 1
            if self._plan.replicated:
                self._away |= {name for name, (node, _) in before.items() if node == deed.node}
        self._mark(kind)
        since_s = self._seconds
        record = FaultRecord(kind, deed.target, since_s)
        if not self._faults.do(deed, self._plan.pause_seconds):
            self._display.note(f"{deed.text}: it was gone already")
        else:
            self._display.note(deed.text)
        self._done.append(record)
        if deed.pauses:
            self._wait(lambda: False, self._plan.pause_seconds)
        if self._wait(partial(self._is_over, deed, before), self._plan.recovery_seconds):
            record.back_s = self._seconds - since_s
            self._display.note(f"all brokers and hosts answer after {record.back_s:.1f} s")
        else:
            self._trouble(f"{deed.text}: not all is back after {self._plan.recovery_seconds:g} s")

    @staticmethod
    def _spared() -> set[str]:
        """The node of this process, where the recorder and the clients are, and that of Ray's head."""
        return {runtime.node_id(), runtime.nodes()[0].id}

    def _mark(self, kind: str) -> None:
        runtime.call_blocking(self._recorder.mark, kind)

    def _is_over(self, deed: Deed, before: Mapping[str, tuple[str, Mapping[str, int]]]) -> bool:
        """Whether all brokers and hosts answer that are waited for, and the queues can be asked."""
        moved = self._away if self._plan.replicated else None
        return self._faults.is_over(deed, before, moved=moved) and self._left() is not None

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """No more is sent, what is there is drained, and consumers end."""
        self._display.note("no more is sent; draining")
        self._end_clients("producer")
        if not self._wait(self._all_answer, self._plan.recovery_seconds):
            self._trouble("not all brokers answer: what they store cannot be drained")
        else:
            self._drain()
        self._end_clients("mover")
        self._end_clients("consumer")

    def _end_clients(self, role: str) -> None:
        """Clients of a role end by themselves."""
        self._crew.tell_to_stop(role)
        if not self._wait(lambda: not any(row["running"] for row in self._crew.stats(role)), END_S):
            self._trouble(f"a {role} has not ended {END_S:g} s after it was told")
        for row in self._crew.stats(role):
            if row["error"]:
                self._trouble(f"{row['who']} has ended: {row['error']}")

    def _drain(self) -> None:
        """Wait until nothing is left, for as long as it becomes less."""
        least, since_s, said_s, empty = -1, self._seconds, 0.0, 0
        while empty < EMPTY_LOOKS:
            there = self._left()
            left = None if there is None else sum(there.values())
            if left is not None and (least < 0 or left < least):
                least, since_s = left, self._seconds
            elif there and self._seconds - since_s > SLOW_S and said_s < since_s:
                said_s = self._seconds
                rest = ", ".join(f"{count:,} in {name}" for name, count in there.items() if count)
                self._display.note(f"still draining: {rest}")
            empty = empty + 1 if left == 0 else 0
            if self._seconds - since_s > self._plan.recovery_seconds:
                self._trouble(
                    f"{least:,} messages are left in the queues, and became no fewer for"
                    f" {self._plan.recovery_seconds:g} s"
                )
                return
            self._step()
        self._drained = True

    def _left(self) -> dict[str, int] | None:
        """Queue → messages in it; None when that cannot be asked now, or of some brokers only."""
        try:
            left = {name: int(self._admin.query_destination("queue", name)["messages"]) for name in self._queues()}
        except BrokerError:
            return None
        return left if self._all_answer() else None

    def report(self, *, interrupted: bool) -> VerifyReport:
        findings: Findings = runtime.call_blocking(self._recorder.findings, self._drained)
        recoveries = runtime.call_blocking(self._recorder.recoveries)
        for record, (_, seconds, silent) in zip(self._done, recoveries, strict=False):
            record.confirmed_s, record.silent = [round(one, 3) for one in seconds], silent
        return VerifyReport(self._plan, self._seconds, findings, self._done, self._troubles, interrupted)
