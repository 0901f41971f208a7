"""Three brokers that keep copies of one log, over real disks and sockets: who serves it, and a disk that is lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from raybroker.broker.copies.copied_logs import AgreedRecord, CopiedLogs
from raybroker.broker.copies.copy_port import LED_WHERE, AskBroker, CopyPort, KeptCopy
from raybroker.broker.copies.leader_watch import until_unled
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.destination_registry import Key
from raybroker.cluster.change_record import Change, RecordState
from raybroker.copies.copy import Copy, CopyEvents, CopyPlace
from raybroker.copies.links import Address
from raybroker.errors import BrokerGoneError, ConnectionLostError
from raybroker.replication.replica_set import MemberChange

NAMES = ("b1", "b2", "b3")
KEY: Key = ("queue", "orders")
LOG = "b1/r1"
SECRET = b"s" * 16
WAIT_S = 30.0


class Port:
    """A copy of this process, as its broker sees it."""

    def __init__(self, folder: Path, broker: str, number: int) -> None:
        self._answers: SimpleQueue[str] = SimpleQueue()
        events = CopyEvents(changed=lambda request, reason: self._answers.put(reason))
        self.copy = Copy(CopyPlace(folder, broker, LOG, segment_bytes=1 << 20), SECRET, events)
        self.address = self.copy.serve()
        self.number = number

    async def where(self) -> tuple[str, int, int, bytes]:
        return (*self.address, self.number, b"")

    async def copy_row(self) -> dict[str, Any]:
        if self.copy.status().trouble:
            raise ConnectionLostError("it has ended")
        row = self.copy.status().as_row()
        return {**row, "address": self.address, "pid": self.number, "serves": self.copy.leads}

    async def until_unled(self, timeout_s: float) -> bool:
        return await until_unled(self.copy.is_led, timeout_s)

    async def know(self, addresses: Mapping[str, Address]) -> None:
        self.copy.know(addresses)

    async def found(self, copies: Sequence[str], min_in_sync: int) -> None:
        self.copy.found(copies, min_in_sync)

    async def lead(self) -> None:
        self.copy.lead()

    async def change(self, change: str, copy: str) -> str:
        self.copy.change(MemberChange(change), copy, 1)
        return await asyncio.to_thread(self._answers.get, timeout=WAIT_S)

    async def require(self, min_in_sync: int) -> str:
        self.copy.require(min_in_sync, 1)
        return await asyncio.to_thread(self._answers.get, timeout=WAIT_S)

    async def hand_over(self, copy: str, *, quiet: bool) -> str:
        return self.copy.hand_over(copy, quiet=quiet)


class Maker:
    """Of one broker."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.node = f"node of {broker}"
        self._folder = folder / broker
        self._broker = broker
        self._kept: dict[str, KeptCopy] = {}
        self._made = 0
        self.port: Port | None = None

    def new_secret(self) -> bytes:
        return SECRET

    async def open(self, log: str, secret: bytes) -> Port:
        if self.port is None:
            self._made += 1
            self.port = Port(self._folder, self._broker, self._made)
        return self.port

    async def end_copy(self, log: str, *, remove: bool) -> None:
        if self.port is not None:
            self.port.copy.shut_down()
            self.port = None
        if remove:
            shutil.rmtree(self._folder)

    def host(self, copy: CopyPort) -> Any:
        return f"host of {self._broker}", copy

    def host_elsewhere(self, broker: str, log: str, secret: bytes, ask: AskBroker) -> Any:
        return f"host of {broker}", ask

    def kept(self) -> Mapping[str, KeptCopy]:
        return self._kept

    async def keep(self, log: str, kept: KeptCopy | None) -> None:
        self._kept = {} if kept is None else {log: kept}


class Served:
    """What one broker serves; stands for its Placement."""

    def __init__(self) -> None:
        self.hosts: dict[tuple[str, str], Any] = {}

    async def serve_led(
        self, key: tuple[str, str], host: Any, attributes: Any, pauses: Any, *, opened: bool = True
    ) -> None:
        if opened:
            self.hosts[key] = host

    def leave_led(self, key: tuple[str, str], host: Any) -> None:
        if self.hosts.get(key) is host:
            del self.hosts[key]


class Brokers:
    """Some brokers, the first three of which keep copies, and the record that they agree on."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self.folder = folder
        self.names = names
        self.record = RecordState()
        self.record_id = "r1"
        self.makers = {name: Maker(folder, name) for name in names}
        self.served = {name: Served() for name in names}
        self.logs: dict[str, CopiedLogs] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        logs = self.logs[name] = CopiedLogs(
            name,
            AgreedRecord(lambda: self.record, lambda: self.record_id, self.propose),
            self,
            self.makers[name],
            cast(Any, self.served[name]),
            lambda: time.monotonic_ns() // 1_000_000,
        )
        self._runs[name] = asyncio.get_running_loop().create_task(logs.run())

    async def restart(self) -> None:
        """All brokers stop, and start with their disks."""
        for name in self.names:
            self._runs.pop(name).cancel()
            await self.makers[name].end_copy(LOG, remove=False)
            self.served[name] = Served()
        self.logs.clear()
        for name in self.names:
            self.start(name)

    async def lose(self, name: str) -> None:
        """Its machine is gone, with its disk."""
        self._runs.pop(name).cancel()
        del self.logs[name]
        await self.makers[name].end_copy(LOG, remove=True)
        self.makers[name] = Maker(self.folder, name)
        self.served[name] = Served()

    async def propose(self, change: Change) -> None:
        """Brokers that have carried all out forget what was destroyed."""
        self.record.apply(change)
        if not any(logs.keeps_destroyed() for logs in self.logs.values()):
            self.record.past.clear()

    async def call_broker(self, broker: str, method: str, args: dict[str, Any], *, timeout_s: float) -> Any:
        if broker not in self.logs:
            raise BrokerGoneError(f"broker {broker} is not there")
        found: Callable[..., Awaitable[Any]] = self.logs[broker].methods()[method]
        return await found(**args)

    async def make(self) -> None:
        args = (LOG, SECRET.hex(), *KEY)
        ids = [await self.logs[name].open(*args) for name in NAMES]
        await self.propose(Change("place_copies", KEY, PlacedLog(KEY, LOG, NAMES, tuple(ids)).attributes()))
        await self.propose(Change("create_destination", KEY, {"replicas": 3}))

    def serving(self) -> list[str]:
        return [name for name in self.names if KEY in self.served[name].hosts]

    async def until(self, true: Callable[[], Any], what: str) -> None:
        end_s = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < end_s, f"not within {WAIT_S} s: {what}"
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        for run in self._runs.values():
            run.cancel()
        for maker in self.makers.values():
            await maker.end_copy(LOG, remove=False)


async def story(folder: Path) -> None:
    brokers = Brokers(folder)
    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "the broker at which it was made serves it")
        placed = brokers.logs["b3"].placed(KEY)
        assert placed is not None
        await brokers.until(lambda: brokers.logs["b3"].known_leader(placed) == "b1", "b3 hears who leads")
        (host, ask), broker = cast(Any, await brokers.logs["b3"].host_of(placed))
        assert (str(host), broker) == ("host of b1", "b1")
        port = brokers.makers["b1"].port
        assert port is not None
        assert await ask(LED_WHERE, {}) == (*port.address, port.number, b""), "b1 is asked where its host is"
        await brokers.lose("b1")
        await brokers.until(lambda: len(brokers.serving()) == 1, "another broker serves it")
        (leader,) = brokers.serving()
        assert leader in ("b2", "b3")
        row = brokers.logs[leader].replication_row(KEY)
        assert (row["leader"], row["leader_changes"], row["term"]) == (leader, 1, 2)
        assert {one["broker"] for one in row["copies"] if one["connected"]} == {"b2", "b3"}
        brokers.start("b1")
        await brokers.until(
            lambda: brokers.record.copies[KEY]["ids"] != list(placed.ids), "the new disk is one of them"
        )
        copies = brokers.logs[leader].replication_row(KEY)["copies"]
        assert {one["broker"] for one in copies if one["voter"]} == set(NAMES)
        assert brokers.serving() == [leader], "who comes back follows"
        await brokers.propose(Change("destroy_destination", KEY))
        assert brokers.record.past == {KEY}, "it is remembered while there are copies"
        await brokers.until(lambda: not any(folder.iterdir()), "the copies of what was destroyed are gone")
        assert brokers.serving() == []
    finally:
        await brokers.close()


def test_a_lost_leader_is_followed_and_its_new_disk_learns(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path))


async def drained(folder: Path) -> None:
    brokers = Brokers(folder)
    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        await brokers.propose(Change("begin_drain", ("broker", "b1"), {"since_ms": 1}))
        await brokers.propose(Change("begin_drain", ("broker", "b2"), {"since_ms": 1}))
        await brokers.until(lambda: brokers.serving() == ["b3"], "what is not drained serves it")
        row = brokers.logs["b3"].replication_row(KEY)
        assert (row["leader"], row["term"]) == ("b3", 2), "nobody else has led in between"
        await brokers.propose(Change("begin_drain", ("broker", "b3"), {"since_ms": 1}))
        await asyncio.sleep(0.3)
        assert brokers.serving() == ["b3"], "there is nobody to hand it over to"
        assert (await brokers.logs["b3"].copy_rows())[LOG]["heir"] == ""
        left = [brokers.logs[name].figures()["drained_logs"] for name in ("b1", "b3")]
        assert left == [{"handing_over": 0, "stuck": 0}, {"handing_over": 0, "stuck": 1}]
        await brokers.propose(Change("end_drain", ("broker", "b2")))
        await brokers.until(lambda: brokers.serving() == ["b2"], "who may serve again does")
    finally:
        await brokers.close()


def test_a_drained_broker_hands_what_it_leads_over(tmp_path: Path) -> None:
    asyncio.run(drained(tmp_path))


async def other_process(folder: Path) -> None:
    brokers = Brokers(folder)
    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        own, maker = brokers.logs["b1"]._own[LOG], brokers.makers["b1"]
        await maker.end_copy(LOG, remove=False)
        await brokers.logs["b1"]._find_again(maker, own, SECRET)
        await brokers.until(lambda: "b1" not in brokers.serving(), "what has ended is not served")
    finally:
        await brokers.close()


def test_a_leader_that_ended_is_not_served_though_its_next_process_is_there_already(tmp_path: Path) -> None:
    asyncio.run(other_process(tmp_path))


async def absent(folder: Path) -> None:
    brokers = Brokers(folder)
    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        brokers.record = RecordState()  # One that is older was restored.
        await brokers.until(lambda: brokers.serving() == [], "it is served no more")
        await asyncio.sleep(1.0)
    finally:
        await brokers.close()


def test_copies_that_no_record_has_stay_on_disk(tmp_path: Path) -> None:
    """Nothing is removed because it is absent."""
    asyncio.run(absent(tmp_path))
    assert {path.parent.name for path in tmp_path.glob("*/copy.head")} == set(NAMES)
