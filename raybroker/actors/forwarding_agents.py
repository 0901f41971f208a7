"""Forwarding agents as actors: one an agent, started by the coordinator's broker, anywhere in the Ray.

An agent that dies is started again by Ray and goes on where its transactions ended; it has nothing that could be lost.
A failed call changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from hashlib import blake2b
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.forwarding import Forwarding
from raybroker.model.errors import BrokerError, ConnectionLostError
from raybroker.system.supervision import Supervisor
from raybroker.transport.daemon_calls import in_daemon_thread

RECONNECT_MS: Final = 5_000
"""How long an agent's handles try to come back before it begins anew."""
ROW_TIMEOUT_S: Final = 3.0
STOP_TIMEOUT_S: Final = 10.0
FINISH_S: Final = 3.0
"""How long an agent may take to finish its window; one that is ended in the middle loses nothing."""
VERSION_BYTES: Final = 4


class AgentActor:
    """See the module."""

    def __init__(self, cluster: str, name: str, definition: Forwarding) -> None:
        # In an agent's process alone: a broker, and whoever starts one, needs no client.
        from raybroker.client.connection.factory import connect, connect_xa
        from raybroker.client.forwarding.agent import ForwardingAgent

        attributes: dict[str, Any] = {"raybroker.reconnect.timeout_ms": RECONNECT_MS}
        self._agent = ForwardingAgent(
            name,
            definition,
            lambda: connect(cluster=cluster, **attributes),
            lambda: connect_xa(cluster=definition.cluster, **attributes),
        )
        self._loops = Supervisor(f"forwarding agent {name}")
        self._thread = self._loops.thread("forwarding", self._agent.run, thread_name="raybroker-agent")

    async def agent_row(self) -> Row:
        """State and counts since the actor started, and its process id."""
        return {**self._agent.agent_row(), "pid": os.getpid()}

    async def stop(self) -> None:
        """Finish the window that is under way, and end."""
        self._agent.stop()
        await asyncio.to_thread(self._thread.join, FINISH_S)


def end_all(cluster: str) -> None:
    """End all agents of a cluster that is stopped."""
    for actor_name in runtime.list_actors(runtime.agent_name(cluster, "")):
        actor = runtime.find_actor(actor_name)
        if actor is None:
            continue
        try:
            runtime.call_blocking(actor.stop, timeout_s=STOP_TIMEOUT_S)
        except BrokerError:
            continue  # It is killed, which does no harm.
        finally:
            runtime.kill(actor)


class RayHands:
    """The Hands of broker.cluster.forwarding_agents: each agent is an actor, and a changed definition makes a new
    one."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def _name(self, name: str, definition: Forwarding) -> str:
        text = repr(sorted(definition.as_dict().items()))
        version = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=VERSION_BYTES).hexdigest()
        return runtime.agent_name(self.cluster, f"{name}/{version}")

    async def keep(self, wanted: dict[str, Forwarding]) -> None:
        names = {self._name(name, definition): (name, definition) for name, definition in wanted.items()}
        there = await in_daemon_thread(runtime.list_actors, runtime.agent_name(self.cluster, ""))
        for actor_name in there:
            if actor_name not in names:
                await self._end_agent(actor_name)
        for actor_name, (name, definition) in names.items():
            if actor_name not in there:
                await in_daemon_thread(self._start_agent, actor_name, name, definition)

    def _start_agent(self, actor_name: str, name: str, definition: Forwarding) -> None:
        runtime.create_actor(AgentActor, self.cluster, name, definition, name=actor_name)

    async def _end_agent(self, actor_name: str) -> None:
        actor = await in_daemon_thread(runtime.find_actor, actor_name)
        if actor is None:
            return
        try:
            await runtime.call(actor.stop, timeout_s=STOP_TIMEOUT_S)
        except BrokerError:
            return  # The next look tries again.
        await in_daemon_thread(runtime.kill, actor)

    async def agent_row(self, name: str, definition: Forwarding) -> Row:
        actor: Any = await in_daemon_thread(runtime.find_actor, self._name(name, definition))
        if actor is None:
            raise ConnectionLostError(f"agent {name} has not been started yet")
        return dict(await runtime.call(actor.agent_row, timeout_s=ROW_TIMEOUT_S))
