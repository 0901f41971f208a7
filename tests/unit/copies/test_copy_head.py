"""The head of a copy: durable in turns, and of one folder only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raybroker.copies.copy_head import NAME, SLOT_BYTES, CopyHead, HeadFile
from raybroker.model.errors import StoreError
from raybroker.replication.positions import LogPosition, Term
from raybroker.replication.replica_set import ReplicaSet
from raybroker.store.fileio import FileIO


def fresh(directory: Path, node: str = "n1") -> HeadFile:
    file = HeadFile(FileIO(), directory, node)
    if file.head is None:
        file.begin_folder(CopyHead("c1", file.seal))
    return file


def test_what_is_written_is_there_again(tmp_path: Path) -> None:
    file = fresh(tmp_path)
    members = ReplicaSet(("a", "b", "c"), ("d",), 2)
    lost = LogPosition(Term(3, 9), 12, bytes(range(16)))
    file.write(CopyHead("c1", file.seal, Term(7, 2**64 - 1), 3, 2, lost, members, 4))
    file.release()
    head = fresh(tmp_path).head
    assert head is not None
    assert (head.promised, head.damages, head.damage, head.lost) == (Term(7, 2**64 - 1), 3, 2, lost)
    assert (head.members, head.log) == (members, 4)


def test_a_torn_write_leaves_what_was_there_before(tmp_path: Path) -> None:
    """The promise that was being written was not answered yet; the one before it was."""
    file = fresh(tmp_path)
    for number in (1, 2, 3):
        assert file.head is not None
        file.write(CopyHead("c1", file.seal, Term(number, 5)))
    assert file.head is not None
    torn = SLOT_BYTES * (file.head.writes & 1)
    file.release()
    with (tmp_path / NAME).open("r+b") as raw:
        raw.seek(torn + 20)
        raw.write(b"\xff" * 512)
    head = fresh(tmp_path).head
    assert head is not None
    assert head.promised == Term(2, 5)


def test_a_clone_is_nobody(tmp_path: Path) -> None:
    """A folder that was copied, on the same node or on another one, is not the copy that it was."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(mode=0o700)
    fresh(first).release()
    shutil.copytree(first, second)
    cloned = HeadFile(FileIO(), second, "n1")
    assert cloned.head is None
    assert cloned.before is not None
    assert cloned.before.id == "c1"
    moved = HeadFile(FileIO(), first, "n2")
    assert moved.head is None


def test_a_head_that_is_lost_is_nobody(tmp_path: Path) -> None:
    fresh(tmp_path).release()
    with (tmp_path / NAME).open("r+b") as raw:
        raw.write(b"\xff" * 2 * SLOT_BYTES)
    assert HeadFile(FileIO(), tmp_path, "n1").head is None


def test_a_head_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    data = CopyHead("c1", "s").encode().replace(b'"form":1', b'"form":9')
    from zlib import crc32

    from raybroker.copies import copy_head

    magic, nbytes, _ = copy_head._FRAME.unpack_from(data)
    body = data[copy_head._FRAME.size : copy_head._FRAME.size + nbytes]
    with pytest.raises(StoreError, match="newer release"):
        CopyHead.decode(copy_head._FRAME.pack(magic, nbytes, crc32(body)) + body)
