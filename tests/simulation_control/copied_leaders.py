"""One seed of a log with copies that loses its leader, in virtual time: who leads next, how soon, and how often.

    python -m tests.simulation_control.copied_leaders --seeds 1000

The brokers' own code looks, asks, tells and serves (``raybroker.broker.copies``), and the copies are the machines of
``raybroker.replication``; processes, disks and networks are a model: each call and message takes its time.  What has
to hold after the leader is killed with its node, its process alone is, or its node is cut off:

soon   a broker serves the log within SERVED_S
once   there is one election, and one at the beginning

In some seeds another leader was lost before, longer ago than two changes have to be apart, and a copy has just come
back: both are no reason to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final, cast

from raybroker.broker.copies.copied_logs import AgreedRecord, CopiedLogs
from raybroker.broker.copies.copy_port import AskBroker, CopyPort, KeptCopy
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.destination_registry import Key
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.replicas.copy_takeover import APART_MS
from raybroker.copies.copy_status import status_of
from raybroker.copies.links import Address
from raybroker.errors import BrokerGoneError, ConnectionLostError
from raybroker.replication import events as ev
from raybroker.replication.messages import CopyMessage
from raybroker.replication.replica import TICK_MS, Replica
from raybroker.replication.replica_set import NOBODY, MemberChange, ReplicaSet
from tests.seeds import Simulation
from tests.simulation_replication.disk import SimDisk, Writing
from tests.virtual_time import VirtualLoop

KEY: Final[Key] = ("queue", "orders")
LOG: Final = "b1/r1"
SECRET: Final = b"s" * 16
SERVED_S: Final = {"node": 3.0, "process": 3.0, "cut": 4.0}
LEADS_S: Final = 20.0
RESTART_S: Final = 4.0
LED_LOOK_S: Final = 0.05


class Process:
    """The process of one broker's copy: the CopyPort of its broker, and its machine."""

    def __init__(self, world: LeaderWorld, broker: str, disk: SimDisk) -> None:
        self.world, self.broker, self.disk = world, broker, disk
        self.gone = False
        self.asked: dict[int, asyncio.Future[str]] = {}
        """Changes of the set that somebody waits for."""
        self.number = world.number()
        self.led_s = -1.0
        self.writing = Writing(disk, lambda _: None, lambda token: self.feed(ev.SaveDone(token)))
        self.replica = Replica(disk.copy, disk.load(), now_ms=world.loop.now_ms())
        world.after(0.001 * TICK_MS * world.rng.random(), self.tick)

    def tick(self) -> None:
        if not self.gone:
            self.feed(ev.ReplicaTick())
            self.world.after(0.001 * TICK_MS, self.tick)

    def feed(self, event: ev.ReplicaEvent) -> None:
        world = self.world
        if self.gone:
            return
        for action in self.replica.step(event, world.loop.now_ms()):
            match action:
                case ev.SendToCopy():
                    world.send(self, action.to, action.message)
                case ev.SavePromise() | ev.SaveEntries() | ev.CutLog():
                    self.writing.put(action.token, action)
                    world.in_order(self, world.plan.sync_s, self.written)
                case ev.LeaderBegan():
                    world.elected(self)
                    self.led_s = world.loop.now_s
                case ev.LeaderEnded():
                    world.counts["deposed"] += 1
                    self.end()
                    world.after(RESTART_S, world.restart, self)
                case ev.SetChanged():
                    self.asked.pop(action.request).set_result(action.reason)

    def written(self) -> None:
        if not self.gone:
            self.writing.finish_first()

    def end(self) -> None:
        self.gone = True
        self.writing.crash(self.world.rng)
        self.world.unlinked(self)

    # ---- CopyPort

    async def where(self) -> tuple[str, int, int, bytes]:
        raise AssertionError("there are no clients here")

    async def _called(self) -> None:
        await self.world.takes()
        if self.gone or not self.world.is_up(self.broker):
            raise ConnectionLostError(f"the copy of broker {self.broker} has ended")

    async def copy_row(self) -> dict[str, Any]:
        await self._called()
        world, replica = self.world, self.replica
        now_ms = world.loop.now_ms()
        others = frozenset(copy for copy in replica.members.copies if copy != replica.me)
        row = status_of(replica, now_ms, others, "").as_row()
        serves = replica.leading is not None and world.loop.now_s >= self.led_s + world.plan.start_s
        await world.takes()
        return {**row, "address": ("127.0.0.1", self.number), "pid": self.number, "serves": serves}

    async def until_unled(self, timeout_s: float) -> bool:
        await self._called()
        until_s = self.world.loop.now_s + timeout_s
        while self.replica.hears_leader(self.world.loop.now_ms()) and self.world.loop.now_s < until_s:
            await asyncio.sleep(LED_LOOK_S)
            if self.gone:
                raise ConnectionLostError(f"the copy of broker {self.broker} has ended")
        await self.world.takes()
        return not self.replica.hears_leader(self.world.loop.now_ms())

    async def know(self, addresses: Mapping[str, Address]) -> None:
        await self._called()

    async def found(self, copies: Sequence[str], min_in_sync: int) -> None:
        await self._called()
        if self.disk.members == NOBODY:
            self.disk.members = ReplicaSet(tuple(copies))
            self.replica = Replica(self.disk.copy, self.disk.load(), now_ms=self.world.loop.now_ms())

    async def lead(self) -> None:
        await self._called()
        self.feed(ev.Lead(self.world.rng.getrandbits(64)))

    async def change(self, change: str, copy: str) -> str:
        await self._called()
        request = self.world.number()
        waiting = self.asked[request] = self.world.loop.create_future()
        self.feed(ev.ChangeSet(request, MemberChange(change), copy))
        return await waiting

    async def require(self, min_in_sync: int) -> str:
        raise AssertionError("nobody changes the set here")


class Maker:
    """Of one broker."""

    def __init__(self, world: LeaderWorld, broker: str) -> None:
        self.node = f"node of {broker}"
        self._world = world
        self._broker = broker

    def new_secret(self) -> bytes:
        return SECRET

    async def open(self, log: str, secret: bytes) -> Process:
        """Return the process that is there; the one that comes after it may not have begun yet."""
        await self._world.takes()
        return self._world.processes[self._broker]

    async def end_copy(self, log: str, *, remove: bool) -> None:
        raise AssertionError("nothing is destroyed here")

    def host(self, copy: CopyPort) -> Any:
        return f"host of {self._broker}"

    def host_elsewhere(self, broker: str, log: str, secret: bytes, ask: AskBroker) -> Any:
        return f"host of {broker}"

    def kept(self) -> Mapping[str, KeptCopy]:
        return {LOG: KeptCopy(SECRET, KEY, "r1")}

    async def keep(self, log: str, kept: KeptCopy | None) -> None:
        raise AssertionError("all is kept already")


class Served:
    """What one broker serves; stands for its Placement."""

    def __init__(self, world: LeaderWorld, broker: str) -> None:
        self._world = world
        self._broker = broker

    async def serve_led(self, key: Key, host: Any, attributes: Any, pauses: Any, *, opened: bool) -> None:
        await self._world.takes()
        self._world.serving[self._broker] = self._world.loop.now_s

    def leave_led(self, key: Key, host: Any) -> None:
        self._world.serving.pop(self._broker, None)


class Plan:
    """Seconds that things take at most."""

    def __init__(self, rng: Random) -> None:
        self.brokers = rng.choice((3, 3, 3, 5))
        self.call_s = rng.choice((0.002, 0.02, 0.06))
        self.message_s = rng.choice((0.001, 0.01, 0.05))
        self.sync_s = rng.choice((0.002, 0.02, 0.06))
        self.start_s = rng.choice((0.02, 0.2))
        self.fault = rng.choice(("node", "node", "process", "cut"))
        self.second = rng.random() < 0.3
        """There was another leader before, and another copy has just come back."""
        self.knows_s = rng.choice((0.02, 1.0, 30.0))
        """Until a call to a process that has ended says so."""


class LeaderWorld:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.loop = VirtualLoop()
        self.plan = Plan(self.rng)
        self.counts: Counter[str] = Counter()
        self.names = tuple(f"b{number}" for number in range(1, 1 + self.plan.brokers))
        self.cut: set[str] = set()
        """Brokers that reach nobody, and are reached by nobody."""
        self.down: set[str] = set()
        self.serving: dict[str, float] = {}
        """Broker → since when it serves."""
        self.leaders: list[str] = []
        self.processes: dict[str, Process] = {}
        self.logs: dict[str, CopiedLogs] = {}
        self._numbers = 0
        self._until: dict[int, float] = {}
        ids = tuple(f"c{name[1:]}" for name in self.names)
        self.record = RecordState()
        self.record.apply(Change("place_copies", KEY, PlacedLog(KEY, LOG, self.names, ids).attributes()))
        self.record.apply(Change("create_destination", KEY, {"replicas": len(self.names)}))
        for number, name in enumerate(self.names):
            self.processes[name] = Process(self, name, SimDisk(ids[number], number))

    # ---- time

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def after(self, seconds: float, run: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(seconds, run, *args)

    def in_order(self, process: Process, most_s: float, run: Callable[[], object]) -> None:
        """Run something soon, and not before what was to be run so of this process before."""
        until = max(self._until.get(process.number, 0.0), self.loop.now_s + most_s * self.rng.random())
        self._until[process.number] = until
        self.loop.call_at(until, run)

    async def takes(self) -> None:
        await asyncio.sleep(self.plan.call_s * self.rng.random())

    # ---- the network

    def is_up(self, broker: str) -> bool:
        return broker not in self.down

    def reaches(self, one: str, other: str) -> bool:
        return one == other or (self.is_up(other) and not self.cut & {one, other})

    def send(self, sender: Process, to: str, message: CopyMessage) -> None:
        self.after(self.plan.message_s * self.rng.random(), self._arrive, sender, to, message)

    def _arrive(self, sender: Process, to: str, message: CopyMessage) -> None:
        for process in self.processes.values():
            if process.replica.me == to and self.reaches(sender.broker, process.broker):
                process.feed(ev.CopyMessageReceived(sender.replica.me, message))

    def unlinked(self, ended: Process) -> None:
        """The connections of a process end with it."""
        for process in self.processes.values():
            if process is not ended and self.reaches(process.broker, ended.broker):
                self.after(self.plan.message_s, process.feed, ev.LinkLost(ended.replica.me))

    async def call_broker(self, caller: str, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        await self.takes()
        if not self.reaches(caller, broker):
            wait_s = self.plan.knows_s if broker in self.down else timeout_s
            await asyncio.sleep(min(wait_s, timeout_s))
            raise BrokerGoneError(f"broker {broker} is not there")
        found: Callable[..., Awaitable[Any]] = self.logs[broker].methods()[method]
        answer = await asyncio.wait_for(found(**args), timeout_s)
        await self.takes()
        return answer

    # ---- what happens

    def elected(self, process: Process) -> None:
        self.leaders.append(process.broker)

    def restart(self, ended: Process) -> None:
        if self.is_up(ended.broker):
            self.processes[ended.broker] = Process(self, ended.broker, ended.disk)

    def start_broker(self, name: str) -> asyncio.Task[None]:
        peers = _Peers(self, name)
        served = cast(Any, Served(self, name))
        logs = self.logs[name] = CopiedLogs(
            name,
            AgreedRecord(lambda: self.record, lambda: "r1", self._propose),
            peers,
            self.maker_of(name),
            served,
            self.loop.now_ms,
        )
        return self.loop.create_task(logs.run())

    def maker_of(self, name: str) -> Maker:
        return Maker(self, name)

    async def _propose(self, change: Change) -> None:
        self.record.apply(change)

    async def _until_served(self, but: str, seconds: float) -> str:
        """The broker that serves and leads; ``but``: not that one."""
        end_s = self.loop.now_s + seconds
        while self.loop.now_s < end_s:
            await asyncio.sleep(0.01)
            for name in self.serving:
                if name != but and self.processes[name].replica.leading is not None and not self.processes[name].gone:
                    return name
        raise AssertionError(f"no broker serves the log within {seconds} s; elected so far: {self.leaders}")

    async def story(self) -> None:
        """Raises AssertionError when something does not hold."""
        runs = {name: self.start_broker(name) for name in self.names}
        leader = await self._until_served("", LEADS_S)
        await asyncio.sleep(5 + self.rng.random())
        self.counts["first elections"] += len(self.leaders)
        assert len(self.leaders) == 1, f"more than one election at the beginning: {self.leaders}"
        if self.plan.second:
            leader = await self._leads_second(leader)
        fault, began_s = self.plan.fault, self.loop.now_s
        self.counts[fault] += 1
        lost = self.processes[leader]
        match fault:
            case "node":
                runs[leader].cancel()
                lost.end()
                self.down.add(leader)
            case "process":
                self._end_process(leader)
            case "cut":
                self.cut.add(leader)
        self.serving.pop(leader, None)
        self.leaders.clear()
        await self._until_served(leader, SERVED_S[fault])
        self.counts[f"{fault} ms"] += int(1000 * (self.loop.now_s - began_s))
        await asyncio.sleep(5)
        self.counts["elections"] += len(self.leaders)
        assert len(self.leaders) == 1, f"more than one election after the loss: {self.leaders}"
        self.cut.clear()
        await asyncio.sleep(5)
        for run in runs.values():
            run.cancel()

    async def _leads_second(self, first: str) -> str:
        """Have another one lead; the first one is back when there may be the next one, and later a third one restarts.
        The broker that leads now."""
        self._end_process(first, APART_MS / 1000)
        leader = await self._until_served(first, SERVED_S["process"])
        await asyncio.sleep(APART_MS / 1000 + RESTART_S)
        self._end_process(self.rng.choice([name for name in self.names if name != leader]))
        await asyncio.sleep(RESTART_S + 1 + 4 * self.rng.random())
        return leader

    def _end_process(self, broker: str, back_s: float = RESTART_S) -> None:
        self.processes[broker].end()
        self.serving.pop(broker, None)
        self.after(back_s, self.restart, self.processes[broker])

    def run(self) -> None:
        logging.getLogger("raybroker.cluster").disabled = True
        try:
            self.run_to_end(self.story())
        finally:
            logging.getLogger("raybroker.cluster").disabled = False

    def run_to_end(self, story: Coroutine[Any, Any, None]) -> None:
        try:
            self.loop.run_until_complete(story)
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left))
            self.loop.close()


class _Peers:
    """How one broker reaches the others."""

    def __init__(self, world: LeaderWorld, name: str) -> None:
        self._world = world
        self._name = name

    async def call_broker(self, broker: str, method: str, args: dict[str, Any], *, timeout_s: float) -> Any:
        return await self._world.call_broker(self._name, broker, method, args, timeout_s)


def happened(world: LeaderWorld) -> Counter[str]:
    return Counter(world.counts)


SIMULATION = Simulation(
    "tests.simulation_control.copied_leaders", LeaderWorld, happened, "happened", batch_seeds=25, seeds=500
)

if __name__ == "__main__":
    raise SystemExit(SIMULATION.main(__doc__))
