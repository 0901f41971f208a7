"""What every store promises, run over each of them: order, atomicity, freeing, checkpoints, reopening."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import StoreError
from raybroker.store.journal import Journal
from raybroker.store.journal.reserve import RESERVE_FILES
from raybroker.store.memory import MemoryStore
from raybroker.store.sql.address import Address
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from raybroker.store.sql.registration import StoreOwner
from raybroker.store.sql.store import SqlStore
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token
from tests.contracts import postgres

SEGMENT_BYTES = 16 << 10
AnyStore = MemoryStore | Journal | SqlStore


class MemoryHarness:
    def __init__(self, directory: Path) -> None:
        self._log: list[LogEntry] = []
        self.store = MemoryStore()
        self.store.checkpoint_after_entries = 40

    def open(self) -> AnyStore:
        return self.store

    def reopen(self, *, clean: bool) -> AnyStore:
        self.store = self.store.crash()
        return self.store


class JournalHarness:
    sync = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "store"
        self.store: Journal | None = None

    def open(self) -> AnyStore:
        self.store = Journal(
            self._directory,
            monotonic_ns=SystemClock().monotonic_ns,
            entropy=token,
            sync=self.sync,
            segment_bytes=SEGMENT_BYTES,
        )
        return self.store

    def reopen(self, *, clean: bool) -> AnyStore:
        assert self.store is not None
        if not clean:
            self.store._log.dead = "the process died"
        self.store.close()
        return self.open()


class RelaxedHarness(JournalHarness):
    sync = False


class SqliteHarness:
    def __init__(self, directory: Path) -> None:
        self._url = f"sqlite:///{directory}/store.db"
        self._id = "rig"
        self._database = Database(self._address())
        self.store: SqlStore | None = None

    def _address(self) -> Address:
        return Address("sqlite", self._url, embedded=True)

    def open(self) -> AnyStore:
        self.store = SqlStore(
            self._database,
            self._id,
            "h1",
            owner=StoreOwner("c", "b", "", "1"),
            monotonic_ns=SystemClock().monotonic_ns,
            segment_bytes=SEGMENT_BYTES,
        )
        return self.store

    def reopen(self, *, clean: bool) -> AnyStore:
        assert self.store is not None
        if not clean:
            self.store._dead = "the process died"
        self.store.close()
        return self.open()


class PostgresHarness(SqliteHarness):
    server: postgres.Server
    numbers = itertools.count(1)

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        number = next(self.numbers)
        self._id = f"rig{number}"
        StoreTables(self._database, self._id, "c", "b").create()

    def _address(self) -> Address:
        return Address("postgresql", self.server.url)


Harness = MemoryHarness | JournalHarness | SqliteHarness
HARNESSES = {
    "memory": MemoryHarness,
    "journal": JournalHarness,
    "journal-no-sync": RelaxedHarness,
    "sqlite": SqliteHarness,
    "postgresql": PostgresHarness,
}
POSTGRES = pytest.mark.xdist_group("postgres")


@pytest.fixture(scope="module")
def running_postgres() -> Iterator[None]:
    with postgres.server() as found:
        PostgresHarness.server = found
        yield


@pytest.fixture(params=[*list(HARNESSES)[:-1], pytest.param("postgresql", marks=[POSTGRES, pytest.mark.sweep])])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    if request.param == "postgresql":
        request.getfixturevalue("running_postgres")
    made: Harness = HARNESSES[request.param](tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


@pytest.fixture(params=[True, False], ids=["closed", "killed"])
def reopen(request: pytest.FixtureRequest, harness: Harness) -> Callable[[], AnyStore]:
    return lambda: harness.reopen(clean=request.param)


@pytest.fixture
def store(harness: Harness) -> AnyStore:
    opened = harness.open()
    assert list(opened.recover()) == []
    return opened


def block(ordinal: int, payload: bytes = b"payload", destination: int = 1) -> LogEntry:
    return LogEntry(BLOCK, destination, ordinal, b"meta %d" % ordinal, (payload,))


def bare(entry: LogEntry) -> LogEntry:
    """The entry as recovery gives it back."""
    return LogEntry(entry.kind, entry.destination, entry.ordinal, entry.meta)


def note(text: bytes, destination: int = 1) -> LogEntry:
    return LogEntry(NOTE, destination, 0, text)


def checkpoint(text: bytes) -> LogEntry:
    return LogEntry(CHECKPOINT, 0, 0, text)


def reclaim(store: AnyStore) -> None:
    while store.maintain(1 << 20):
        pass


def test_a_new_store_is_empty(store: AnyStore) -> None:
    assert not store.checkpoint_due()
    assert store.stats().live_bytes == 0


def test_entries_come_back_in_log_order(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    batches = [[note(b"created"), block(1)], [block(2), note(b"two"), block(3, destination=2)], [note(b"last")]]
    for batch in batches:
        store.commit(batch)
    assert list(reopen().recover()) == [bare(entry) for batch in batches for entry in batch]


def test_a_payload_of_many_buffers_is_read_as_one(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    buffers = (b"one", bytearray(b"two"), memoryview(b"three"), b"", *[b"%d" % i for i in range(3000)])
    store.commit([LogEntry(BLOCK, 7, 9, b"", buffers)])
    assert store.read(7, 9) == b"".join(buffers)
    again = reopen()
    assert list(again.recover()) == [LogEntry(BLOCK, 7, 9, b"")]
    assert again.read(7, 9) == b"".join(buffers)


def test_the_largest_ids_and_empty_payloads_are_kept(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    entry = LogEntry(BLOCK, 2**32 - 1, 2**64 - 1, b"")
    store.commit([entry])
    again = reopen()
    assert list(again.recover()) == [entry]
    assert again.read(2**32 - 1, 2**64 - 1) == b""


def test_a_batch_larger_than_a_segment_is_kept(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    large = bytes(range(256)) * (5 * SEGMENT_BYTES // 256)
    store.commit([block(1), block(2, large), note(b"n" * SEGMENT_BYTES)])
    store.commit([block(3)])
    again = reopen()
    assert [entry.ordinal for entry in again.recover()] == [1, 2, 0, 3]
    assert again.read(1, 2) == large
    assert again.read(1, 3) == b"payload"


def test_a_freed_block_is_not_read(store: AnyStore) -> None:
    store.commit([block(1), block(2)])
    store.free(1, [1, 1, 77])
    store.free(5, [1])
    with pytest.raises(KeyError):
        store.read(1, 1)
    with pytest.raises(KeyError):
        store.read(9, 1)
    assert store.read(1, 2) == b"payload"
    assert store.stats().live_bytes == 7


def test_notes_before_a_checkpoint_are_superseded_and_blocks_are_not(
    store: AnyStore, reopen: Callable[[], AnyStore]
) -> None:
    store.commit([checkpoint(b"old"), note(b"gone"), block(1)])
    store.commit([note(b"gone too"), block(2), checkpoint(b"state")])
    store.commit([block(3), note(b"kept")])
    assert list(reopen().recover()) == [
        checkpoint(b"state"),
        bare(block(1)),
        bare(block(2)),
        bare(block(3)),
        note(b"kept"),
    ]


def test_entries_behind_the_checkpoint_of_their_own_batch_come_after_it(
    store: AnyStore, reopen: Callable[[], AnyStore]
) -> None:
    store.commit([block(1), note(b"gone"), checkpoint(b"state"), note(b"kept"), block(2)])
    assert list(reopen().recover()) == [checkpoint(b"state"), bare(block(1)), note(b"kept"), bare(block(2))]


def test_a_checkpoint_is_due_after_much_writing_and_settles_it(store: AnyStore) -> None:
    ordinal = 0
    while not store.checkpoint_due():
        store.commit([block(ordinal, bytes(1000))])
        ordinal += 1
        assert ordinal < 100
    store.commit([checkpoint(b"state")])
    assert not store.checkpoint_due()


def test_a_large_checkpoint_does_not_ask_for_the_next_at_once(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    large = bytes(10 * SEGMENT_BYTES)
    store.commit([checkpoint(large)])
    store.commit([note(b"after")])
    assert not store.checkpoint_due()
    assert list(reopen().recover()) == [checkpoint(large), note(b"after")]


def test_freed_blocks_go_for_good_once_a_checkpoint_covers_them(
    store: AnyStore, reopen: Callable[[], AnyStore]
) -> None:
    for ordinal in range(200):
        store.commit([block(ordinal, bytes(1000)), note(b"n")])
        if ordinal >= 3:
            store.free(1, [ordinal - 3])
        if store.checkpoint_due():
            store.commit([checkpoint(b"%d" % ordinal)])
            reclaim(store)
    assert store.stats().reserved_bytes <= 10 * SEGMENT_BYTES
    store.commit([checkpoint(b"last")])
    reclaim(store)
    again = reopen()
    found = list(again.recover())
    assert found[0] == checkpoint(b"last")
    ordinals = [entry.ordinal for entry in found if entry.kind == BLOCK]
    assert ordinals == sorted(set(ordinals))
    assert set(ordinals) >= {197, 198, 199}
    assert len(ordinals) < 100


def test_a_compaction_begins_with_a_checkpoint_and_keeps_what_lives(store: AnyStore) -> None:
    store.commit([block(ordinal, bytes([ordinal]) * 1000) for ordinal in range(100)])
    store.free(1, range(1, 100))
    assert store.usage() == {1: (1, 1000)}
    store.compact()
    store.commit([checkpoint(b"state")])
    reclaim(store)
    assert not store.compacting
    assert store.stats().used_bytes < 20_000
    assert store.read(1, 0) == bytes(1000)


def test_survivors_of_sparse_segments_are_kept_and_space_is_bounded(
    store: AnyStore, reopen: Callable[[], AnyStore]
) -> None:
    survivors = list(range(0, 400, 20))
    for ordinal in range(400):
        store.commit([block(ordinal, b"%04d" % ordinal * 250)])
        if ordinal not in survivors:
            store.free(1, [ordinal])
        if store.checkpoint_due():
            store.commit([checkpoint(b"state")])
            reclaim(store)
    store.commit([checkpoint(b"last"), note(b"after")])
    reclaim(store)
    stats = store.stats()
    assert stats.live_bytes == 1000 * len(survivors)
    reserve_bytes = RESERVE_FILES * 2 * SEGMENT_BYTES
    assert stats.reserved_bytes <= 2 * stats.live_bytes + 7 * SEGMENT_BYTES + reserve_bytes
    again = reopen()
    found = list(again.recover())
    blocks = [entry for entry in found if entry.kind == BLOCK]
    assert found[0] == checkpoint(b"last")
    assert found[-1] == note(b"after")
    assert len(blocks) == len({entry.ordinal for entry in blocks})
    assert {entry.ordinal for entry in blocks} >= set(survivors)
    assert all(entry.meta == b"meta %d" % entry.ordinal for entry in blocks)
    for ordinal in survivors:
        assert again.read(1, ordinal) == b"%04d" % ordinal * 250


def test_a_store_goes_on_where_it_was(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    expected = []
    for generation in range(5):
        for number in range(7):
            expected.append(block(10 * generation + number, b"g%d" % generation * 500))
            store.commit([expected[-1]])
        store = reopen()
        assert list(store.recover()) == [bare(entry) for entry in expected]
    for entry in expected:
        assert store.read(1, entry.ordinal) == b"".join(entry.payload)


def test_a_committed_buffer_may_be_used_again_by_its_owner(store: AnyStore) -> None:
    buffer = bytearray(b"first")
    store.commit([LogEntry(BLOCK, 1, 1, b"", (buffer,))])
    buffer[:] = b"other"
    assert store.read(1, 1) == b"first"


def test_the_same_block_twice_is_a_bug_of_the_caller(store: AnyStore) -> None:
    store.commit([block(1)])
    with pytest.raises(AssertionError):
        store.commit([block(1)])


def test_an_empty_batch_is_nothing(store: AnyStore, reopen: Callable[[], AnyStore]) -> None:
    store.commit([])
    assert list(reopen().recover()) == []


def test_a_closed_store_takes_nothing(store: AnyStore) -> None:
    store.commit([block(1)])
    store.close()
    store.close()
    for call in (
        lambda: store.commit([block(2)]),
        lambda: store.read(1, 1),
        lambda: store.free(1, [1]),
        lambda: store.maintain(1),
    ):
        with pytest.raises(StoreError):
            call()


def test_there_is_room_for_a_small_batch(store: AnyStore) -> None:
    assert store.has_room(100)
    assert store.has_room(3 * SEGMENT_BYTES)
