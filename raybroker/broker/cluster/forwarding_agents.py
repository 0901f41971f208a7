"""Forwarding agents of a cluster: defined in the configuration change record, kept running by the coordinator.

An agent is a client of both clusters and keeps nothing of its own, so that it may run anywhere and end at any time; see
client.forwarding.agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.cluster.change_record import Change
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.forwarding import Forwarding, forwarding
from raybroker.model.errors import BrokerError, ConfigError, InvalidDestinationError
from raybroker.model.naming.names import check_template_name

LOOK_S: Final = 1.0
"""How often the coordinator looks whether all agents run."""

log = logging.getLogger("raybroker.forwarding")


class Hands(Protocol):
    """Runs agents. What is ended or begun twice does no harm."""

    @property
    def cluster(self) -> str:
        """The name of the cluster that they belong to."""
        ...

    async def keep(self, wanted: dict[str, Forwarding]) -> None:
        """Have these run, and no others."""
        ...

    async def agent_row(self, name: str, definition: Forwarding) -> Row:
        """What an agent says of itself; raises a BrokerError when it cannot be asked."""
        ...


class Agents:
    """``propose`` makes a change of the whole cluster; without ``hands`` agents are defined and do not run."""

    def __init__(
        self, clustering: Clustering, propose: Callable[[Change], Awaitable[None]], hands: Hands | None = None
    ) -> None:
        self._clustering = clustering
        self._propose = propose
        self._hands = hands

    def _defined(self) -> dict[str, Forwarding]:
        return {key[0]: forwarding(fields) for key, fields in self._clustering.member.agreed.forwardings.items()}

    async def run(self) -> None:
        """Keep agents running for as long as this broker is the coordinator."""
        member = self._clustering.member
        while self._hands is not None:
            await asyncio.sleep(LOOK_S)
            if not member.opened or member.membership.coordinator() != member.name:
                continue
            try:
                await self._hands.keep(self._defined())
            except Exception:  # the next look may fare better, and without looks no agent runs
                log.exception("broker %s could not look for forwarding agents", member.name)

    # ---- verbs

    async def create_forwarding(self, name: str, queue: str, to: str, attributes: Row) -> None:
        check_template_name(name)
        made = forwarding({"queue": queue, "to": to, **attributes})
        if self._hands is not None and (made.cluster, made.target) == (self._hands.cluster, made.queue):
            raise ConfigError(f"to = {made.to!r} is the queue that the agent takes from")
        await self._propose(Change("create_forwarding", (name,), made.as_dict()))

    async def destroy_forwarding(self, name: str) -> None:
        """End an agent; what it has not forwarded stays in its queue. Raises InvalidDestinationError."""
        self._found(name)
        await self._propose(Change("destroy_forwarding", (name,)))

    async def list_forwardings(self) -> list[Row]:
        """One row an agent, by name: its attributes, state and counts."""
        defined = self._defined()
        return list(await asyncio.gather(*(self._row(name, defined[name]) for name in sorted(defined))))

    async def query_forwarding(self, name: str) -> Row:
        """The row of one; raises InvalidDestinationError."""
        return await self._row(name, self._found(name))

    def _found(self, name: str) -> Forwarding:
        found = self._defined().get(name)
        if found is None:
            raise InvalidDestinationError(
                f"there is no forwarding agent {name!r}; list_forwardings shows those there are"
            )
        return found

    async def _row(self, name: str, definition: Forwarding) -> Row:
        row: Row = {"name": name, **definition.as_dict(), "state": "STOPPED"}
        if self._hands is None:
            return row
        try:
            return {**row, **await self._hands.agent_row(name, definition)}
        except BrokerError as error:
            return {**row, "state": "STARTING", "error": str(error)}
