"""The clients of a run as actors: on which node each is, who replaces one that is killed, and their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.model.errors import BrokerError
from raybroker.verify.clients import ClientTask, ConsumerClient, MoverClient, ProducerClient, entrance_of
from raybroker.verify.faults import NODE_FAULTS, Dice
from raybroker.verify.notes import VerifyLane
from raybroker.verify.plan import MESSAGES_MAX, VerifyPlan

ASK_S: Final = 5.0
ROLES: Final = {"consumer": ConsumerClient, "mover": MoverClient, "producer": ProducerClient}
"""Role → its class, in the order in which they begin."""


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
        self._nodes = (
            [runtime.node_id()] if set(NODE_FAULTS) & set(plan.faults) else [node.id for node in runtime.nodes()]
        )
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
