"""What a host releases to whom when connections are full, stores are slow or broken, and clients are careless.

Each of these was found by the simulation; here is the shortest way to each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from raybroker.config import Config
from raybroker.engine.host import Host
from raybroker.engine.session import Session
from raybroker.model.block import Block, encode_block
from raybroker.model.errors import StoreError
from raybroker.model.record import Entry
from raybroker.model.settings import destination_attributes
from raybroker.store.memory import MemoryStore


class Clock:
    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


class SlowCommitter:
    """Commits when told to."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.waiting: list[tuple[Sequence[Entry], Callable[[], None]]] = []
        self.overloaded = False
        self.pending_bytes = 0

    def submit(self, entries: Sequence[Entry], done: Callable[[], None]) -> None:
        self.waiting.append((entries, done))

    def sync(self) -> None:
        while self.waiting:
            entries, done = self.waiting.pop(0)
            if entries:
                self.store.commit(entries)
            done()

    def close(self) -> None: ...


class RecordingPeer:
    """Remembers what it is told; ``full`` is a connection that takes no more."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.full = False

    def congested(self) -> bool:
        return self.full

    def room(self) -> int:
        return 0

    def deliver(self, handle: int, epoch: int, tag: int, attempt: int, block: Any) -> None:
        opened = Block(b"".join(block))
        self.told.append(("deliver", tag, attempt, opened.first_seq, opened.count))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.told.append((name, *args))

    def take(self, *names: str) -> list[tuple[Any, ...]]:
        told, self.told = self.told, []
        return [row for row in told if row[0] in names] if names else told


class Broker:
    """One host with queue ``q``, a producer connection and as many consumer connections as asked for."""

    def __init__(self, store: MemoryStore | None = None, incarnation: int = 1, cache_bytes: int = 1 << 20) -> None:
        self.store = store or MemoryStore()
        self.clock = Clock()
        self.failures: list[Exception] = []
        config = Config.of({"raybroker.memory.block_cache_bytes": cache_bytes, "imq.autocreate.reaptime": 120})
        self.host = Host(self.store, self.clock, config, incarnation=incarnation, failed=self.failures.append)
        self.committer = SlowCommitter(self.store)
        self.host.start(self.committer)
        self.committer.sync()

    def create(self, *, auto_created: bool = False) -> None:
        self.host.create("q", destination_attributes({}), auto_created=auto_created, done=lambda: None)
        self.committer.sync()

    def producer(self, number: int = 7) -> tuple[Session, RecordingPeer]:
        peer = RecordingPeer()
        session = Session(self.host, peer)
        session.call(1, "open_producer", {"handle": 1, "name": "q", "producer": number})
        assert peer.take("reply")
        return session, peer

    def consumer(self, limit: int = 100, *, full: bool = False) -> tuple[Session, RecordingPeer, int]:
        peer = RecordingPeer()
        peer.full = full
        session = Session(self.host, peer)
        args = {"handle": 1, "name": "q", "flow": "prefetch", "limit": limit, "no_ack": False}
        session.call(1, "open_consumer", args)
        ((_, _, answer),) = peer.take("reply")
        return session, peer, answer["epoch"]


def block(first_seq: int, count: int = 1, *, producer: int = 7, persistent: bool = True) -> Block:
    bodies = [b"x"] * count
    return Block(
        encode_block(bodies, producer=producer, first_seq=first_seq, timestamp_ms=1, persistent=persistent, kinds=0)
    )


def test_a_volatile_message_comes_after_the_answer_to_the_release_that_gave_it_back() -> None:
    broker = Broker()
    broker.create()
    sender, _ = broker.producer()
    receiver, peer, epoch = broker.consumer()
    sender.send(1, 1, block(1))
    sender.send(1, 1, block(2, persistent=False))
    receiver.call(5, "release", {"handle": 1, "epoch": epoch, "credit": 100})
    broker.committer.sync()
    told = peer.take("deliver", "released")
    at = next(i for i, row in enumerate(told) if row[0] == "released")
    next_tag = told[at][3]
    assert all(row[1] < next_tag for row in told[:at])
    again = told[at + 1 :]
    assert sorted(row[1:3] for row in again) == [(next_tag, 2), (next_tag + 1, 2)], "both come again, with new tags"


def test_deliveries_decided_before_a_release_are_not_written_after_it() -> None:
    broker = Broker()
    broker.create()
    sender, _ = broker.producer()
    receiver, peer, epoch = broker.consumer(full=True)
    sender.send(1, 1, block(1, 3))
    broker.committer.sync()
    receiver.call(5, "release", {"handle": 1, "epoch": epoch, "credit": 100})
    peer.full = False
    receiver.writable()
    broker.committer.sync()
    assert peer.take("deliver") == [("deliver", 4, 2, 1, 3)]


def test_a_consumer_that_acknowledges_what_it_never_got_harms_nobody() -> None:
    broker = Broker(cache_bytes=0)
    broker.create()
    sender, _ = broker.producer()
    receiver, peer, epoch = broker.consumer(full=True)
    sender.send(1, 1, block(1, 3))
    broker.committer.sync()
    receiver.acknowledge(1, epoch, 9, [(1, 3)])
    broker.committer.sync()
    peer.full = False
    receiver.writable()
    assert peer.take("deliver", "acked") == [("acked", 9, 0)]
    assert not broker.failures


def test_a_release_on_a_destroyed_queue_is_answered() -> None:
    broker = Broker()
    broker.create()
    receiver, peer, epoch = broker.consumer()
    broker.host.destroy("q", lambda: None)
    receiver.call(5, "release", {"handle": 1, "epoch": epoch, "credit": 100})
    ((_, request, code, _),) = peer.take("failed")
    assert (request, code) == (5, "invalid_destination")


def test_a_store_that_cannot_read_any_more_stops_the_host() -> None:
    broker = Broker(cache_bytes=0)
    broker.create()
    sender, _ = broker.producer()
    sender.send(1, 1, block(1))
    broker.committer.sync()
    broker.store.close()
    broker.consumer()
    entries, done = broker.committer.waiting.pop()
    assert entries
    done()
    assert isinstance(broker.failures[0], StoreError)


def test_a_full_disk_refuses_new_messages_and_confirms_those_it_has() -> None:
    broker = Broker()
    broker.create()
    sender, peer = broker.producer()
    sender.send(1, 1, block(1, 2))
    broker.store.has_room = lambda nbytes: False  # type: ignore[method-assign]
    sender.send(1, 1, block(1, 2))
    sender.send(1, 1, block(3, 1))
    assert peer.take("sent") == []
    broker.committer.sync()
    first, again, new = peer.take("sent")
    assert first[4] == again[4] == ()
    assert [(row.start, row.end, row.code) for row in new[4]] == [(0, 1, "store_full")]


def test_what_an_old_connection_still_had_in_its_buffers_is_not_stored_again() -> None:
    broker = Broker()
    broker.create()
    old, old_peer = broker.producer()
    new, peer = broker.producer()
    new.send(1, 1, block(1))
    new.send(1, 2, block(2))
    broker.committer.sync()
    old.send(1, 1, block(1))
    old.close()
    broker.committer.sync()
    assert broker.host.queues["q"].ledger.messages == 2
    assert len(peer.take("sent")) == 2
    assert old_peer.take("sent") == []


def test_a_producer_that_comes_back_needs_no_second_place() -> None:
    broker = Broker()
    broker.create()
    broker.host.update("q", {"maxNumProducers": 1}, lambda: None)
    broker.producer(7)
    broker.producer(7)
    other = RecordingPeer()
    Session(broker.host, other).call(1, "open_producer", {"handle": 1, "name": "q", "producer": 8})
    assert other.take("failed")[0][2] == "resource_allocation"


def consumed_and_restarted() -> Broker:
    """An auto-created queue took a message, a consumer settled it, and the host died before the producer heard."""
    broker = Broker()
    broker.create(auto_created=True)
    sender, _ = broker.producer()
    receiver, _, epoch = broker.consumer()
    sender.send(1, 1, block(1))
    broker.committer.sync()
    receiver.acknowledge(1, epoch, 1, [(1, 1)])
    broker.committer.sync()
    return Broker(broker.store.crash(), incarnation=2)


def test_an_empty_auto_created_queue_is_not_there_after_a_restart_but_recognises_a_retry() -> None:  # D-22
    broker = consumed_and_restarted()
    assert "q" not in broker.host.queues
    broker.create(auto_created=True)
    sender, peer = broker.producer()
    sender.send(1, 1, block(1))
    broker.committer.sync()
    assert peer.take("sent") == [("sent", 1, 1, 1, ())]
    assert broker.host.queues["q"].ledger.messages == 0


def test_an_empty_auto_created_queue_is_forgotten_after_its_reap_time() -> None:  # D-22
    broker = consumed_and_restarted()
    broker.clock.ms += 119_999
    broker.host.tick()
    assert broker.host.dormant
    broker.clock.ms += 1
    broker.host.tick()
    broker.committer.sync()
    assert not broker.host.dormant
    again = Broker(broker.store.crash(), incarnation=3)
    assert not again.host.dormant
    assert not again.host.queues
