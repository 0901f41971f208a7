"""A broker that keeps a copy is lost, in virtual time: whether another one gets its copy, when, and how often.

The brokers' own code looks for what is lost (``raybroker.broker.copies.placing``), and the rest is as in
``copied_leaders``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from raybroker.broker.copies.copy_port import KeptCopy
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.copies.placing import Placing
from raybroker.cluster.change_record import Change, RecordState
from tests.simulation_control.copied_leaders import KEY, LEADS_S, LOG, SECRET, LeaderWorld, Maker, Process
from tests.simulation_replication.disk import SimDisk

KEEPING = ("b1", "b2", "b3")
SPARE = "b4"


class ChangingMaker(Maker):
    """Of one broker, which may get a copy or lose it."""

    async def open(self, log: str, secret: bytes) -> Process:
        return self._world.processes.get(self._broker) or await self._made()

    async def _made(self) -> Process:
        await self._world.takes()
        world, broker = self._world, self._broker
        world.processes[broker] = Process(world, broker, SimDisk(f"c{world.number()}", int(broker[1:])))
        return world.processes[broker]

    async def end_copy(self, log: str, *, remove: bool) -> None:
        process = self._world.processes.pop(self._broker, None)
        if process is not None:
            process.end()

    def kept(self) -> Mapping[str, KeptCopy]:
        return cast(ReplacingWorld, self._world).kept[self._broker]

    async def keep(self, log: str, kept: KeptCopy | None) -> None:
        copies = cast(ReplacingWorld, self._world).kept[self._broker]
        copies.pop(log, None)
        if kept is not None:
            copies[log] = kept


class ReplacingWorld(LeaderWorld):
    """``after_s``: how long a broker has to be silent; ``spare``: there is one without a copy from the beginning."""

    def __init__(self, seed: int, after_s: int, *, spare: bool = True) -> None:
        super().__init__(seed)
        self.plan.knows_s = 1.0
        self.names = KEEPING
        self.after_s = after_s
        self.kept: dict[str, dict[str, KeptCopy]] = {}
        self.runs: dict[str, list[asyncio.Task[None]]] = {}
        self.record = RecordState()
        ids = tuple(f"c{name}" for name in KEEPING)
        self.record.apply(Change("place_copies", KEY, PlacedLog(KEY, LOG, KEEPING, ids).attributes()))
        self.record.apply(Change("create_destination", KEY, {"replicas": len(KEEPING)}))
        self.processes.clear()
        for number, name in enumerate(KEEPING):
            self.processes[name] = Process(self, name, SimDisk(ids[number], number))
        for name in (*KEEPING, SPARE) if spare else KEEPING:
            self.begin(name)

    def maker_of(self, name: str) -> Maker:
        return ChangingMaker(self, name)

    def begin(self, name: str) -> None:
        """A broker starts, with what is on its disk."""
        self.down.discard(name)
        self.kept.setdefault(name, {LOG: KeptCopy(SECRET, KEY, "r1")} if name in KEEPING else {})
        if name in self.processes and self.processes[name].gone:
            self.processes[name] = Process(self, name, self.processes[name].disk)
        run = self.start_broker(name)
        placing = Placing(self.logs[name], cast(Any, _Calls(self, name)), lambda: self.record, self._propose)
        self.runs[name] = [run, self.loop.create_task(placing.run(lambda: self.after_s))]

    def lose(self, name: str) -> None:
        """A node is lost with its broker."""
        for run in self.runs.pop(name):
            run.cancel()
        if name in self.processes:
            self.processes[name].end()
        self.down.add(name)

    async def follower(self) -> str:
        """Wait until a broker serves the log; returns one that keeps a copy, too."""
        leader = await self._until_served("", LEADS_S)
        return next(name for name in KEEPING if name != leader)

    def keeping(self) -> list[str]:
        """Return the brokers that have copies, or are to have them."""
        return sorted(PlacedLog.of_record(KEY, self.record.copies[KEY]).staying)

    def voting(self) -> list[str]:
        """Return the brokers whose copies have a vote, as the leader of the log knows it."""
        leader = next(process for process in self.processes.values() if process.replica.leading and not process.gone)
        brokers = {process.replica.me: name for name, process in self.processes.items()}
        return sorted(brokers[copy] for copy in leader.replica.members.voters)


class _Calls:
    """How one broker calls all of them, itself too; stands for its BrokerCalls."""

    def __init__(self, world: LeaderWorld, name: str) -> None:
        self.name = name
        self._world = world

    def live(self) -> list[str]:
        return [name for name in self._world.logs if self._world.is_up(name)]

    async def ask_at(self, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        return await self._world.call_broker(self.name, broker, method, args, timeout_s)
