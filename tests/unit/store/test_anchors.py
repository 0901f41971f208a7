"""The manifest and the commit mark: round trips, the newer one counts, a broken one is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import StoreDamagedError
from raybroker.store.fileio import FileIO
from raybroker.store.journal.anchors import (
    COMPRESSED,
    MARK_NAME,
    OWN_FILES,
    PLAIN,
    Manifest,
    ManifestFiles,
    Mark,
    MarkFile,
    SegmentRecord,
)
from raybroker.store.journal.format import FormatError

STORE = bytes(range(16))
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
records = st.builds(SegmentRecord, u64, u32, u64, u64, u32, st.booleans(), u64, u32, u64, u64, u64, u32, u32, u32)
manifests = st.builds(
    Manifest,
    u64,
    st.binary(min_size=16, max_size=16),
    u32,
    u64,
    st.booleans(),
    st.lists(records, max_size=5).map(tuple),
    st.sampled_from((PLAIN, OWN_FILES, COMPRESSED)),
)


@given(manifests)
def test_a_manifest_comes_back_as_it_was(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode() + b"what was here before") == manifest


def test_a_manifest_cut_or_flipped_anywhere_is_refused() -> None:
    data = Manifest(3, STORE, 1, 0, False, (SegmentRecord(1, 1, 4096, 0, 5),)).encode()
    for at in range(len(data)):
        with pytest.raises(FormatError):
            Manifest.decode(data[:at])
        with pytest.raises(FormatError):
            Manifest.decode(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


def test_the_newer_manifest_counts_and_a_torn_one_does_not(tmp_path: Path) -> None:
    files = ManifestFiles(FileIO(), tmp_path)
    files.create(Manifest(1, STORE, 0, 0, False, ()))
    for generation in (2, 3):
        files.write(Manifest(generation, STORE, 0, generation, False, ()))
    files.close()
    again = ManifestFiles(FileIO(), tmp_path)
    assert again.load() == []
    assert again.current == Manifest(3, STORE, 0, 3, False, ())
    again.close()
    (tmp_path / "manifest.1").write_bytes(b"torn")
    again = ManifestFiles(FileIO(), tmp_path)
    assert again.load() == ["manifest.1: no manifest"]
    assert again.current == Manifest(2, STORE, 0, 2, False, ())
    again.close()


@given(st.builds(Mark, st.just(STORE), u64, u32, st.booleans(), u64, u64, u64))
def test_a_mark_comes_back_as_it_was(mark: Mark) -> None:
    assert Mark.decode(mark.encode()) == mark


def test_a_mark_cut_or_flipped_anywhere_is_refused() -> None:
    data = Mark(STORE, 1, 2, False, 3, 4, 5).encode()
    for at in range(len(data)):
        with pytest.raises(FormatError):
            Mark.decode(data[:at])
        with pytest.raises(FormatError):
            Mark.decode(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


def mark(seq: int) -> Mark:
    return Mark(STORE, 1, 1, False, seq, 1, 512)


def test_a_torn_mark_leaves_the_one_before_it(tmp_path: Path) -> None:
    file = MarkFile(FileIO(), tmp_path)
    file.create(mark(0))
    for seq in (1, 2, 3):
        file.write(mark(seq))
    path = tmp_path / MARK_NAME
    data = path.read_bytes()
    assert file.load() == mark(3)
    path.write_bytes(data[:512] + bytes(512))
    assert file.load() == mark(2)
    path.write_bytes(bytes(512) + data[512:])
    assert file.load() == mark(3)
    path.write_bytes(bytes(1024))
    with pytest.raises(StoreDamagedError, match="what was acknowledged is unknown"):
        file.load()
