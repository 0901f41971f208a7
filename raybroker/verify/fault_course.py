"""The faults of a run, one after the other: each waits until the cluster works again after the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from raybroker.actors import runtime
from raybroker.verify.crew import Crew
from raybroker.verify.faults import NODE_KILLED, Deed, Dice, Rounds, node_kills, planned
from raybroker.verify.injecting import Faults
from raybroker.verify.pace import RunPace
from raybroker.verify.plan import VerifyPlan
from raybroker.verify.report import FaultRecord

CLIENT_KILLED: Final = "kill-client"


class FaultCourse:
    """``done``: what has happened; ``names``: the brokers of the cluster."""

    def __init__(self, plan: VerifyPlan, pace: RunPace, faults: Faults) -> None:
        self.done: list[FaultRecord] = []
        self.names = faults.names()
        self._plan = plan
        self._pace = pace
        self._faults = faults
        self._dice = Dice(plan.seed)
        self._rounds = Rounds(self._dice)
        self._node_kills = 0
        self._away: set[str] = set()
        """Brokers that are not waited for: their nodes were killed, and others have what they had."""

    def prepare(self) -> None:
        """Have an agent on each node of a broker."""
        nodes = sorted({node for node, _ in self._faults.brokers().values()})
        self._node_kills = node_kills(len(nodes))
        self._faults.reach(nodes)

    def all_answer(self) -> bool:
        """Whether all brokers answer that are waited for."""
        return set(self._faults.brokers()) >= self.names - self._away

    def silent(self) -> set[str]:
        """Return the brokers that do not answer."""
        return self.names - set(self._faults.brokers())

    def do_next(self, crew: Crew, queues_answer: Callable[[], bool]) -> None:
        """One fault, and then the cluster works again."""
        allowed = [kind for kind in self._plan.faults if kind != NODE_KILLED or self._node_kills]
        if not allowed:
            return
        kind = self._rounds.choose(allowed)
        if kind == CLIENT_KILLED:
            self._kill_client(crew)
            return
        before = self._faults.brokers()
        deed = None
        if set(before) >= self.names - self._away:
            deed = planned(kind, self._dice, before, self._spared())
        if deed is None:
            self._pace.note(f"{kind}: nobody is there whom it could meet, or not all brokers answer")
            return
        if kind == NODE_KILLED:
            self._node_kills -= 1
            if self._plan.replicated:
                self._away |= {name for name, (node, _) in before.items() if node == deed.node}
        self._carry_out(deed, partial(self._is_over, deed, before, queues_answer))

    def _kill_client(self, crew: Crew) -> None:
        runtime.call_blocking(self._pace.recorder.mark, CLIENT_KILLED)
        since_s = self._pace.seconds
        who = crew.kill_one(self._dice)
        self._pace.note(f"{CLIENT_KILLED} {who}")
        self.done.append(FaultRecord(CLIENT_KILLED, who, since_s, self._pace.seconds - since_s))

    def _carry_out(self, deed: Deed, is_over: Callable[[], bool]) -> None:
        plan, pace = self._plan, self._pace
        runtime.call_blocking(pace.recorder.mark, deed.kind)
        since_s = pace.seconds
        record = FaultRecord(deed.kind, deed.target, since_s)
        self.done.append(record)
        there = self._faults.do(deed, plan.pause_seconds)
        pace.note(deed.text if there else f"{deed.text}: it was gone already")
        if deed.pauses:
            pace.wait(lambda: False, plan.pause_seconds)
        if pace.wait(is_over, plan.recovery_seconds):
            record.back_s = pace.seconds - since_s
            pace.note(f"all brokers and hosts answer after {record.back_s:.1f} s")
        else:
            pace.add_trouble(f"{deed.text}: not all is back after {plan.recovery_seconds:g} s")

    @staticmethod
    def _spared() -> set[str]:
        """The node of this process, where the recorder and the clients are, and that of Ray's head."""
        return {runtime.node_id(), runtime.nodes()[0].id}

    def _is_over(
        self, deed: Deed, before: Mapping[str, tuple[str, Mapping[str, int]]], queues_answer: Callable[[], bool]
    ) -> bool:
        """Whether all answers that is waited for, and the queues can be asked."""
        return self._faults.is_over(deed, before, self._away) and queues_answer()

    def let_go_on(self) -> None:
        """Let everything go on that is stopped."""
        self._faults.end_agents(self._pace.add_trouble)

    def records(self) -> list[FaultRecord]:
        """Return what has happened, with the times of producers."""
        recoveries = runtime.call_blocking(self._pace.recorder.recoveries)
        for record, (_, seconds, silent) in zip(self.done, recoveries, strict=False):
            record.confirmed_s, record.silent = [round(one, 3) for one in seconds], silent
        return self.done
