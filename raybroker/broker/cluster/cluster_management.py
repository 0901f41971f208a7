"""Management of the cluster itself: its brokers, its master, its record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.admin.copy_checks import of_brokers
from raybroker.admin.verb_types import MasterChange
from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.broker.cluster.draining import Draining
from raybroker.broker.cluster.takeovers import StoreWatch
from raybroker.broker.copies.copied_logs import LED_COPIES
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.observing.alone import NotShared
from raybroker.cluster.backup import dump
from raybroker.cluster.change_record import Change
from raybroker.cluster.events import BrokersConfigured
from raybroker.hosting.host_port import Row
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_broker_name

WHY_TIMEOUT_S: Final = 2.0
"""How long a broker that is not up may take to say why."""
MASTER_TIMEOUT_S: Final = 60.0
"""How long the master may take to hand the record over: it gives up itself before."""


class ClusterItself:
    """``propose`` makes a change on all brokers; ``forget`` tells that a broker was removed for good; ``nodes``:
    broker → node id, as far as it is known; ``taking``: the store that brokers share, or the lack of one."""

    def __init__(
        self,
        clustering: Clustering,
        brokers: BrokerCalls,
        propose: Callable[[Change], Awaitable[None]],
        forget: Callable[[str], Awaitable[None]],
        nodes: Callable[[], dict[str, str]],
        taking: StoreWatch | NotShared,
        draining: Draining,
    ) -> None:
        self._clustering = clustering
        self._brokers = brokers
        self._propose = propose
        self._forget = forget
        self._nodes = nodes
        self.stored = taking.row
        self.draining = draining
        self._own_standing_by = taking.standing_by

    async def list_brokers(self) -> list[Row]:
        """One row a broker: broker, state, coordinator, master, node, how far its copy of the record goes, and
        ``reason``: why it is not up, "" for one that is; with a shared store what that has of it, and how
        many processes stand by there; with copies of logs how many it keeps, leads and has behind; of a drained one how
        far that is."""
        member, nodes = self._clustering.member, self._nodes()
        coordinator = member.membership.coordinator()
        reasons, standing_by, copies, drains = await asyncio.gather(
            self._reasons(), self._standing_by(), self._copies(), self.draining.drains.drain_rows()
        )
        return [
            {
                "broker": row.name,
                "state": str(row.state),
                "seat": row.name == coordinator,
                "master": row.name == member.claim.master,
                "node": nodes.get(row.name, ""),
                "record": row.number,
                "reason": reasons.get(row.name, ""),
                **self.stored(row.name),
                **standing_by.get(row.name, {}),
                **copies.get(row.name, {}),
                **drains.get(row.name, {}),
            }
            for row in member.membership.broker_rows()
        ]

    async def processes_standing_by(self) -> Row:
        """Return how many processes of this broker do."""
        return self._own_standing_by()

    async def _standing_by(self) -> dict[str, Row]:
        """Broker → how many processes it has ready to become a lost one, of those that answer; of none where brokers do
        not take over from each other."""
        live = self._brokers.live() if self.stored(self._clustering.member.name) else []
        asked = (self._brokers.ask_at(name, "standing_by", {}, WHY_TIMEOUT_S) for name in live)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return {name: answer for name, answer in zip(live, answers, strict=True) if isinstance(answer, dict)}

    async def _copies(self) -> dict[str, dict[str, int]]:
        """Broker → how many copies of logs it keeps, leads and so on; of none where no log has copies."""
        found = [PlacedLog.of_record(key, row) for key, row in self._clustering.member.agreed.copies.items()]
        live = self._brokers.live() if found else []
        asked = (self._brokers.ask_at(name, LED_COPIES, {}, WHY_TIMEOUT_S) for name in live)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        told = {name: answer for name, answer in zip(live, answers, strict=True) if isinstance(answer, dict)}
        return of_brokers({placed.log: placed.brokers for placed in found}, told, all_told=len(told) == len(live))

    async def _reasons(self) -> dict[str, str]:
        """Why brokers are not up, in the words of those that answer."""
        absent = self._brokers.absent()
        asked = [name for name in absent if name != self._clustering.member.name]
        answers = await asyncio.gather(*(self._why(name) for name in asked), return_exceptions=True)
        told = {name: str(answer) for name, answer in zip(asked, answers, strict=True) if isinstance(answer, str)}
        return {name: told.get(name) or why for name, why in absent.items()}

    async def _why(self, broker: str) -> Any:
        return await asyncio.wait_for(self._brokers.ask_at(broker, "why", {}, WHY_TIMEOUT_S), WHY_TIMEOUT_S)

    async def query_cluster(self) -> Row:
        """The cluster as this broker sees it: state, master, term, and the configuration change record."""
        member = self._clustering.member
        record = member.record
        return {
            "broker": member.name,
            **self._clustering.cluster_row(),
            "seat": member.membership.coordinator(),
            "brokers": await self.list_brokers(),
            "record": {
                "id": record.id,
                "number": record.number,
                "digest": record.digest,
                "destinations": len(record.state.destinations),
                "subscriptions": len(record.state.subscriptions),
            },
        }

    async def reload_cluster(self, brokers: list[str]) -> list[str]:
        """Make these the brokers of the cluster, for those that are up, which are returned, and those to come.

        Raises ConfigError when a broker that is up is not among them: stop it first.
        """
        for name in brokers:
            check_broker_name(name)
        gone = [name for name in self._brokers.live() if name not in brokers]
        if gone:
            raise ConfigError(f"brokers {', '.join(gone)} are up and not in the list; stop them first")
        for name in brokers:
            await self.list_broker(name)
        for name in self._clustering.member.agreed.brokers:
            if name not in brokers:
                await self._propose(Change("remove_broker", (name,)))
                await self._forget(name)
        return self._brokers.live()

    async def list_broker(self, name: str) -> None:
        """Have the record name a broker; another broker may be doing the same."""
        try:
            if name not in self._clustering.member.agreed.brokers:
                await self._propose(Change("add_broker", (name,)))
        except ConfigError:
            if name not in self._clustering.member.record.state.brokers:
                raise

    def take_brokers(self) -> None:
        """The record names the brokers of the cluster: those are expected from now on."""
        names = self._clustering.member.agreed.brokers
        if names:
            self._clustering.feed(BrokersConfigured(tuple(names)))

    async def change_master(self, target: str, passed_on: bool = False) -> MasterChange:
        """Move the configuration change record to another broker while brokers run; result and text.

        A broker that is not the master passes it on to the master; raises BrokerGoneError when that cannot be asked.
        """
        member = self._clustering.member
        master = member.claim.master
        if not passed_on and not member.is_master and master != member.name and master in self._brokers.live():
            answer: MasterChange = await self._brokers.ask_at(
                master, "change_master", {"target": target, "passed_on": True}, MASTER_TIMEOUT_S
            )
            return answer
        result, text = await self._clustering.change_master(target)
        return {"result": result, "text": text}

    async def backup_record(self) -> bytes:
        """The configuration change record as a file."""
        member = self._clustering.member
        return dump(member.record, number=member.durable.number)
