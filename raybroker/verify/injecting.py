"""Carrying out faults: an agent on each node, and the look at the cluster until it works again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.model.errors import BrokerError, ConnectionLostError
from raybroker.verify.faults import NODE_KILLED, NODE_PAUSED, Deed, FaultAgent

ASK_S: Final = 5.0
"""How long a broker may take to say what it is, while it is looked at every now and then."""


class Faults:
    """Faults done to a cluster, in the name of a run."""

    def __init__(self, cluster: str, run: str) -> None:
        self._cluster = cluster
        self._run = run
        self._agents: dict[str, Any] = {}

    def names(self) -> set[str]:
        """The brokers of the cluster, also those that do not answer."""
        return set(runtime.brokers_of(self._cluster))

    def brokers(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Broker → its node and process ids, of those that answer."""
        found = {}
        for name in runtime.brokers_of(self._cluster):
            try:
                actor = runtime.find_broker(self._cluster, name)
                if actor is None:
                    continue
                row = runtime.call_blocking(actor.ready, timeout_s=ASK_S)
                if row["operating"]:
                    found[name] = (str(row["node"]), dict(runtime.call_blocking(actor.pids, timeout_s=ASK_S)))
            except BrokerError:
                continue  # It is down, or between two lives.
        return found

    def reach(self, nodes: Sequence[str]) -> None:
        """Have an agent on each node before anything happens."""
        for node in nodes:
            self._agent(node)
        for node in nodes:
            runtime.call_blocking(self._agents[node].alive)

    def _agent(self, node: str) -> Any:
        if node not in self._agents:
            name = f"{self._cluster}/verify/{self._run}/{node}"
            self._agents[node] = runtime.create_actor(FaultAgent, name=name, node=node, max_restarts=0)
        return self._agents[node]

    def do(self, deed: Deed, pause_s: float) -> bool:
        """Carry one out; False when none of its processes was there any more."""
        agent = self._agent(deed.node)
        if deed.kind == NODE_KILLED:
            del self._agents[deed.node]
            try:
                runtime.call_blocking(agent.kill_node)
            except ConnectionLostError:
                return True  # The agent has ended with its node.
            return False
        if deed.kind == NODE_PAUSED:
            return bool(runtime.call_blocking(agent.pause_node, pause_s))
        pids = list(deed.processes.values())
        if deed.pauses:
            return bool(runtime.call_blocking(agent.pause, pids, pause_s))
        return bool(runtime.call_blocking(agent.kill, pids))

    def is_over(
        self, deed: Deed, before: Mapping[str, tuple[str, Mapping[str, int]]], moved: Collection[str] = ()
    ) -> bool:
        """Whether the cluster works as before: all brokers, hosts and copies answer, and what was killed is new.

        moved  brokers that need not come back: others have what they had
        """
        now = self.brokers()
        for name in set(before) - set(moved):
            if name not in now or set(before[name][1]) - set(now[name][1]):
                return False
        there = {pid for node, pids in now.values() if node == deed.node for pid in pids.values()}
        return deed.pauses or not there & set(deed.processes.values())

    def end_agents(self, failed: Callable[[str], None]) -> None:
        """Let everything go on, and end the agents."""
        for node, agent in self._agents.items():
            try:
                runtime.call_blocking(agent.go_on)
            except BrokerError as error:
                failed(f"the agent on node {node} cannot be asked, and lets go on by itself what it stopped: {error}")
            else:
                runtime.kill(agent)
        self._agents.clear()
