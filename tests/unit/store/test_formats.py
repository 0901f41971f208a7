"""The format of a store: the least one that allows what is in it, so that a release which cannot read it says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raybroker.content.packed_block import PACKED
from raybroker.model.blocks.record import BLOCK, LogEntry, PackedPayload
from raybroker.model.errors import StoreDamagedError
from raybroker.store.journal import Journal, anchors, verify
from raybroker.store.journal.own_files import OwnFileOptions

RECORD_BYTES = 1000
COMPRESSED_BODY = bytes((PACKED,)) + b"c" * 99


def opened(directory: Path) -> Journal:
    journal = Journal(
        directory,
        monotonic_ns=iter(range(1 << 30)).__next__,
        entropy=bytes,
        segment_bytes=16 << 10,
        own_files=OwnFileOptions(RECORD_BYTES),
    )
    list(journal.recover())
    return journal


def formats(directory: Path) -> set[bytes]:
    return {(directory / name).read_bytes()[7:8] for name in anchors.MANIFEST_NAMES}


def plain(ordinal: int, nbytes: int = 100) -> LogEntry:
    return LogEntry(BLOCK, 1, ordinal, b"", (bytes(nbytes),))


def compressed(ordinal: int, nbytes: int = 100) -> LogEntry:
    return LogEntry(BLOCK, 1, ordinal, b"", PackedPayload((COMPRESSED_BODY[:1], b"c" * (nbytes - 1)), (bytes(nbytes),)))


def test_a_store_without_compressed_blocks_keeps_the_format_that_older_releases_read(tmp_path: Path) -> None:
    journal = opened(tmp_path / "store")
    journal.commit([plain(1)])
    journal.close()
    assert formats(tmp_path / "store") == {b"1"}
    journal = opened(tmp_path / "store")
    journal.commit([plain(2, 2 * RECORD_BYTES)])
    journal.close()
    opened(tmp_path / "store").close()
    assert formats(tmp_path / "store") == {b"2"}


@pytest.mark.parametrize("nbytes", [100, 2 * RECORD_BYTES])
def test_the_first_compressed_block_finds_a_store_that_says_so(tmp_path: Path, nbytes: int) -> None:
    directory = tmp_path / "store"
    journal = opened(directory)
    journal.commit([plain(1), compressed(2, nbytes)])
    assert b"3" in formats(directory), "before it was written"
    journal.close()
    journal = opened(directory)
    assert formats(directory) == {b"3"}, "and it stays so"
    assert journal.read(1, 2)[0] == PACKED
    journal.commit([plain(3, 2 * RECORD_BYTES)])
    journal.close()
    assert verify(directory).sound


def test_a_store_of_before_that_has_compressed_blocks_is_read(tmp_path: Path) -> None:
    """Stores were given such blocks before there was a format for it."""
    directory = tmp_path / "store"
    journal = opened(directory)
    journal.commit([LogEntry(BLOCK, 1, 1, b"", (COMPRESSED_BODY,))])
    journal.close()
    assert formats(directory) == {b"1"}
    journal = opened(directory)
    assert journal.read(1, 1) == COMPRESSED_BODY
    journal.commit([compressed(2)])
    journal.close()
    journal = opened(directory)
    assert journal.read(1, 1) == COMPRESSED_BODY
    journal.close()


def test_the_release_of_before_refuses_such_a_store_by_name_and_reads_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, entry in (("plain", plain(1)), ("large", plain(1, 2 * RECORD_BYTES)), ("small", compressed(1))):
        journal = opened(tmp_path / name)
        journal.commit([entry])
        journal.close()
        opened(tmp_path / name).close()
    monkeypatch.setattr(anchors, "COMPRESSED", anchors.OWN_FILES)  # All that its check of the format knew.
    for name in ("plain", "large"):
        journal = opened(tmp_path / name)
        assert journal.read(1, 1)
        journal.close()
    with pytest.raises(StoreDamagedError, match=re.escape("it has the format '3', of a newer release")):
        opened(tmp_path / "small")
