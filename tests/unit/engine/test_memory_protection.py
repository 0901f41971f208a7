"""What a host does as its memory fills, and that it undoes it as memory becomes free; the measuring is a fake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.memory_level import Level
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.memory.memory_protection import (
    ENDING,
    LOOK_MS,
    LOW_MEMORY,
    THROTTLE_MS,
    UNBOUNDED,
    MemoryProtection,
)
from raybroker.engine.path.producer_signals import ProducerSignals
from raybroker.engine.path.wakeups import Wakeups
from raybroker.engine.ports import Notice
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.model.errors import MemoryLowError
from raybroker.model.settings.settings import lookup
from raybroker.store.memory import MemoryStore
from tests.unit.engine.rig import Client, FakeMemory, RecordingPeer, Rig

HANDLE = 3


class Guard:
    """Memory protection without a host. ``appended``: what waits for durability; ``destination``: what it says."""

    def __init__(self, memory: FakeMemory | None, **config: Any) -> None:
        self.memory = memory
        self.config = {name.replace("__", "."): value for name, value in config.items()}
        self.cache = BlockCache(MemoryStore(), 1000)
        self.attachments = Attachments(1)
        self.appended: list[Any] = []
        self.lines: list[str] = []
        self.alarms: list[int] = []
        self.destination = "open", 0
        self.now_ms = 1_000_000
        self.queue: Any = SimpleNamespace(
            admission=SimpleNamespace(gate_state=lambda: self.destination),
            producers=SimpleNamespace(attached=self.attachments.by_number),
        )
        executor: Any = SimpleNamespace(append=lambda entries, done: self.appended.append(done))
        self.guard = MemoryProtection(
            memory,
            _View(self.config),
            lambda: self.now_ms,
            self.cache,
            ProducerSignals(self.attachments, {("queue", "q"): self.queue}),
            executor,
            Wakeups(self.alarms.append),
            self.lines.append,
        )

    def producer(self) -> tuple[int, RecordingPeer]:
        peer: Any = RecordingPeer()
        return self.attachments.attach(self.queue, peer, HANDLE, Outbox()).number, peer

    def use(self, mib: int, ms: int = LOOK_MS) -> Level:
        assert self.memory is not None
        self.memory.used = mib
        self.now_ms += ms
        self.guard.check_if_due(self.now_ms)
        return self.guard.level


class _View:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def __getitem__(self, name: str) -> Any:
        return self.given.get(name, lookup(name, "broker").default)


def gates(peer: RecordingPeer) -> list[str]:
    return [row[2] for row in peer.take("gate")]


def test_without_a_memory_to_guard_nothing_is_looked_at_or_counted() -> None:
    world = Guard(None)
    world.guard.check_if_due(1)
    world.guard.configure()
    assert (world.guard.left, world.guard.left_bytes, world.guard.level, world.alarms) == (
        UNBOUNDED,
        UNBOUNDED,
        Level.GREEN,
        [],
    )


def test_at_green_it_looks_by_the_second_and_by_the_count() -> None:
    memory = FakeMemory()
    world = Guard(memory)
    world.use(100)
    for _ in range(50):
        world.use(100, ms=10)
    assert memory.looks == 1
    assert (world.guard.left, world.guard.left_bytes) == (5000, 10 << 20)
    world.guard.used_up(7)
    assert (memory.looks, world.guard.left) == (2, 5000)
    world.use(100, ms=LOOK_MS)
    assert (memory.looks, world.alarms, memory.given_back) == (3, [], [])


def test_yellow_drops_copies_when_the_store_has_all_of_them() -> None:
    world = Guard(FakeMemory())
    dropped: list[Any] = []
    world.cache.copies = lambda: [(1, 1)]  # type: ignore[method-assign]
    world.cache.drop = dropped.append  # type: ignore[method-assign,assignment]
    assert world.use(800) is Level.YELLOW
    assert (world.cache.budget_bytes, dropped, len(world.appended)) == (0, [], 1)
    world.appended.pop()()
    assert dropped == [[(1, 1)]]
    assert world.guard.left == 500
    world.use(850)
    assert world.appended == [], "once a time"
    assert world.use(0) is Level.GREEN
    assert world.cache.budget_bytes == 1000
    world.use(800)
    world.use(0)
    world.appended.pop()()
    assert dropped == [[(1, 1)]], "there is memory again"


def test_orange_lets_so_many_in_and_then_makes_senders_wait_for_the_next_look() -> None:
    memory = FakeMemory()
    world = Guard(memory)
    (one, peer), (other, other_peer) = world.producer(), world.producer()
    assert world.use(900) is Level.ORANGE
    assert world.guard.left == 50
    assert (gates(peer), world.alarms) == ([], [world.now_ms + THROTTLE_MS])
    looks = memory.looks
    for _ in range(3):
        world.guard.used_up(one)
    assert (gates(peer), gates(other_peer)) == ([LOW_MEMORY], [])
    assert memory.looks == looks + 1, "one look a batch"
    assert world.guard.holds(one)
    assert not world.guard.holds(other)
    world.use(900, ms=THROTTLE_MS)
    assert (gates(peer), world.guard.left) == (["open"], 50)
    memory.used = 0
    world.guard.left = -1
    world.guard.used_up(one)
    assert (gates(peer), world.guard.left, world.guard.level) == ([], 5000, Level.GREEN)
    assert True in memory.given_back


def test_who_has_to_wait_waits_no_longer_when_the_level_rose_between_two_looks_by_time() -> None:
    memory = FakeMemory()
    world = Guard(memory)
    one, peer = world.producer()
    world.use(0)
    memory.used = 900
    world.guard.used_up(one)
    assert (gates(peer), world.guard.left) == ([], 50)
    world.guard.used_up(one)
    assert (gates(peer), world.alarms) == ([LOW_MEMORY], [world.now_ms + THROTTLE_MS])
    world.use(900, ms=THROTTLE_MS)
    assert gates(peer) == ["open"]


def test_who_is_told_to_wait_by_the_destination_hears_that_again_afterwards() -> None:
    world = Guard(FakeMemory())
    one, peer = world.producer()
    world.destination = "paused", 9
    world.use(980)
    assert gates(peer) == []
    assert world.guard.holds(one)
    world.use(0)
    assert gates(peer) == ["paused"]
    world.use(980)
    world.destination = "slow", 0
    world.use(0)
    assert gates(peer) == ["slow"]


def test_red_bars_and_refuses_and_green_undoes_all_of_it() -> None:
    world = Guard(FakeMemory())
    one, peer = world.producer()
    world.guard.require("x")
    assert world.use(990) is Level.RED
    assert gates(peer) == [LOW_MEMORY]
    assert world.guard.barred == (
        "memory is out: 990 of 1000 MiB are used (level RED, imq.red.threshold=98); consume messages, or give the"
        " broker more memory (raybroker.memory.limit_bytes)"
    )
    with pytest.raises(MemoryLowError, match="no queue: memory is out: 990 of 1000 MiB"):
        world.guard.require("no queue")
    late, late_peer = world.producer()
    world.guard.attached(late)
    assert gates(late_peer) == [LOW_MEMORY]
    assert world.use(850) is Level.YELLOW
    world.guard.require("x")
    assert (world.guard.barred, world.guard.left) == ("", 500)
    assert (gates(peer), gates(late_peer), world.guard.holds(one)) == (["open"], ["open"], "")
    assert [type(line) is Notice for line in world.lines] == [False, True]
    assert world.guard.memory_row() == {
        "memory_level": "YELLOW",
        "memory_used_bytes": 850 << 20,
        "memory_limit_bytes": 1000 << 20,
    }


def test_producers_that_have_left_are_forgotten() -> None:
    world = Guard(FakeMemory())
    one, peer = world.producer()
    world.use(980)
    del world.attachments.by_number[one]
    world.use(0)
    assert gates(peer) == [LOW_MEMORY]
    assert not world.guard.holds(one)
    world.use(900)
    world.guard.used_up(one)
    assert peer.told == []


def test_a_change_of_the_properties_holds_at_once() -> None:
    memory = FakeMemory()
    world = Guard(memory)
    assert world.use(700) is Level.GREEN
    world.config["imq.red.threshold"] = 60
    world.guard.configure()
    assert world.guard.level.name == "RED"
    world.config["imq.red.count"] = 5
    world.guard.configure()
    assert (world.guard.barred, world.guard.left) == ("", 5)
    del world.config["imq.red.threshold"]
    world.guard.configure()
    assert world.guard.level.name == "GREEN"


def test_at_red_a_transaction_fails_and_consuming_goes_on() -> None:
    rig = Rig(memory=FakeMemory())
    rig.create()
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    client.send(producer, "a", "b")
    assert client.got() == ["a", "b"]
    assert rig.memory is not None
    rig.memory.used = 990
    rig.tick(LOOK_MS)
    client.peer.take()
    client.send(producer, "c", txn=1)
    assert client.refused() == ["memory_low"]
    assert client.fails("txn_commit", txn=1, key=b"k" * 16, acks=[]) == "memory_low"
    client.ack(consumer, "a", "b")
    rig.sync()
    assert rig.held() == 0
    client.send(producer, "a", "b", first=1)
    assert client.refused() == [], "they were taken before"
    rig.memory.used = 0
    rig.tick(LOOK_MS)
    client.send(producer, "d")
    assert client.got() == ["d"]


def test_the_bytes_that_stay_in_memory_are_those_of_volatile_messages() -> None:
    rig = Rig(memory=FakeMemory())
    rig.create()
    client = Client(rig)
    producer = client.producer()
    client.send(producer, "stored" * 100)
    client.send(producer, "volatile" * 100, persistent=False)
    rig.sync()
    assert rig.memory is not None
    rig.memory.used = 800
    client.send(producer, "on its way" * 100)
    rig.tick(LOOK_MS)
    assert 800 < rig.host.cache.kept_bytes < 1500
    client.consumer()
    assert sorted(body[:8] for body in client.got()) == ["on its w", "storedst", "volatile"]


@pytest.mark.parametrize("memory", [None, FakeMemory()], ids=["no limit", "a limit"])
def test_all_producers_wait_for_the_end_whatever_the_memory_does(memory: FakeMemory | None) -> None:
    world = Guard(memory)
    one, peer = world.producer()
    if memory is not None:
        world.use(990)
        assert gates(peer) == [LOW_MEMORY]
    world.guard.hold_everyone()
    world.guard.hold_everyone()
    assert gates(peer) == [ENDING]
    late, late_peer = world.producer()
    world.guard.attached(late)
    assert gates(late_peer) == [ENDING]
    if memory is not None:
        world.use(0)
        world.guard.left = -1
        world.guard.used_up(one)
    assert (gates(peer), gates(late_peer), world.guard.holds(one), world.guard.holds(late)) == ([], [], ENDING, ENDING)


@pytest.mark.parametrize("hours", [-1, 1])
def test_it_looks_as_often_when_the_clock_is_set(hours: int) -> None:
    rig = Rig(memory=FakeMemory())
    assert rig.memory is not None
    rig.tick(LOOK_MS)
    looks = rig.memory.looks
    rig.clock.stepped_ms = hours * 3_600_000
    rig.tick(LOOK_MS - 1)
    assert rig.memory.looks == looks
    rig.tick(1)
    assert rig.memory.looks == looks + 1
