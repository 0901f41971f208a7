"""Bodies that come in pieces: their files, in a journal of their own."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raybroker.model.blocks.block import encode_block
from raybroker.model.blocks.large_block import PIECE_BYTES, LargeBlock, payload_of, pieces_of
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.store.journal import FileIO, Journal, verify
from raybroker.store.journal.large_files import NewBody

DATA = random.Random(1).randbytes(5 * PIECE_BYTES + 11)


def journal(directory: Path, io: FileIO | None = None) -> Journal:
    return Journal(directory, monotonic_ns=lambda: 0, entropy=os.urandom, segment_bytes=1 << 20, io=io or FileIO())


def opened(directory: Path, io: FileIO | None = None) -> tuple[Journal, list[LogEntry]]:
    store = journal(directory, io)
    return store, list(store.recover())


def come(store: Journal, data: bytes = DATA) -> NewBody:
    body = store.begin_body(len(data))
    for number in range(pieces_of(len(data))):
        body.write(data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES])
    body.finish()
    return body


def block_of(body: NewBody, data: bytes = DATA) -> LargeBlock:
    front = encode_block(
        [data], producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=0, headers=[b"head"], front=True
    )
    return LargeBlock(front, body)


def keep(store: Journal, body: NewBody, ordinal: int) -> None:
    store.commit([LogEntry(BLOCK, 1, ordinal, b"meta", payload_of(block_of(body)))])


def names(directory: Path, prefix: str) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith(prefix))


def pieces(block: LargeBlock) -> bytes:
    return b"".join(block.large.piece(number) for number in range(pieces_of(block.large.nbytes)))


def test_a_stored_block_has_its_front_at_hand_and_its_body_in_the_file(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store, _ = opened(directory)
    keep(store, come(store), 1)
    store.commit([LogEntry(BLOCK, 1, 2, b"meta", (b"small",))])
    for _ in range(2):
        found = store.large(1, 1)
        assert found is not None
        assert bytes(found.header(0) or b"") == b"head"
        assert pieces(found) == DATA
        assert store.read(1, 1) == bytes(found.view)
        assert store.large(1, 2) is None
        assert not found.large.claim()
        store.close()
        assert not verify(directory).damages
        store, entries = opened(directory)
        assert [(entry.destination, entry.ordinal, entry.meta) for entry in entries] == [
            (1, 1, b"meta"),
            (1, 2, b"meta"),
        ]
    store.close()


def test_a_body_without_a_block_goes_with_the_last_reference(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "store")
    bodies = [come(store), store.begin_body(100)]
    assert len(names(tmp_path / "store", "body-")) == 2
    del bodies
    gc.collect()
    assert names(tmp_path / "store", "body-") == []
    assert len(names(tmp_path / "store", "free-")) == 2
    keep(store, come(store), 1)
    assert len(names(tmp_path / "store", "free-")) == 1
    store.close()


class Busy(FileIO):
    """Does something else in the middle of taking a file from the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def fallocate(self, fd: int, nbytes: int) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().fallocate(fd, nbytes)


def test_whoever_drops_a_body_waits_for_nobody_who_uses_the_pool(tmp_path: Path) -> None:
    """It may be any thread that collects garbage, with locks that this one may wait for."""
    io = Busy()
    store, _ = opened(tmp_path / "store", io)
    bodies, ended = [come(store)], []

    def drop_elsewhere() -> None:
        other = threading.Thread(target=bodies.clear)
        other.start()
        other.join(20)
        ended.append(not other.is_alive())

    io.meanwhile = drop_elsewhere
    keep(store, come(store), 1)
    assert ended == [True]
    assert store.stats().free_files == 1
    assert len(names(tmp_path / "store", "body-")) == 1
    store.close()


def test_what_a_crash_leaves_of_a_body_is_free(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store, _ = opened(directory)
    keep(store, come(store), 1)
    left = come(store)
    name = names(directory, "body-")[1]
    store._release()
    store, _ = opened(directory)
    assert names(directory, "body-") == names(directory, "body-")[:1]
    assert name.replace("body", "free") in names(directory, "free-")
    found = store.large(1, 1)
    assert found is not None
    assert pieces(found) == DATA
    del left
    store.close()


def test_a_dead_block_gives_its_file_back_after_a_checkpoint(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "store")
    keep(store, come(store), 1)
    store.free(1, [1])
    assert len(names(tmp_path / "store", "body-")) == 1
    store.commit([LogEntry(CHECKPOINT, 0, 0, b"")])
    assert names(tmp_path / "store", "body-") == []
    store.close()


def test_a_piece_that_has_changed_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store, _ = opened(directory)
    keep(store, come(store), 1)
    path = directory / names(directory, "body-")[0]
    data = bytearray(path.read_bytes())
    data[PIECE_BYTES + 1] ^= 4
    path.write_bytes(data)
    found = store.large(1, 1)
    assert found is not None
    assert found.large.piece(0) == DATA[:PIECE_BYTES]
    with pytest.raises(StoreDamagedError, match="piece 1 of a body is damaged"):
        found.large.piece(1)
    store.close()
    assert verify(directory).damages


class FullDisk(FileIO):
    """Says that it is full, or broken, when it is told to."""

    error = 0

    def fallocate(self, fd: int, nbytes: int) -> None:
        self._fail()
        super().fallocate(fd, nbytes)

    def pwritev(self, fd: int, buffers: object, offset: int) -> int:
        self._fail()
        return super().pwritev(fd, buffers, offset)  # type: ignore[arg-type]

    def fdatasync(self, fd: int) -> None:
        self._fail()
        super().fdatasync(fd)

    def _fail(self) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))


def test_a_body_that_finds_no_room_leaves_nothing_and_the_store_lives_on(tmp_path: Path) -> None:
    io = FullDisk()
    store, _ = opened(tmp_path / "store", io)
    io.error = 28
    with pytest.raises(StoreFullError, match="no room"):
        store.begin_body(len(DATA))
    assert names(tmp_path / "store", "body-") == []
    io.error = 0
    body = store.begin_body(len(DATA))
    io.error = 28
    with pytest.raises(StoreFullError, match="cannot be written"):
        body.write(DATA[:PIECE_BYTES])
    del body
    io.error = 0
    keep(store, come(store), 1)
    store.close()


def test_a_body_that_cannot_be_synced_is_refused_and_the_store_lives_on(tmp_path: Path) -> None:
    io = FullDisk()
    store, _ = opened(tmp_path / "store", io)
    body = store.begin_body(10)
    body.write(b"0123456789")
    io.error = 5
    with pytest.raises(StoreError, match="cannot be made durable"):
        body.finish()
    io.error = 0
    keep(store, come(store), 1)
    store.close()
