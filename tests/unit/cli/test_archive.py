"""The file of exported messages: whole or not there, and what is not whole is refused with the place (W-129)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.cli.exits import UsageError
from raybroker.cli.objects import archive

KEPT = [b"first", b"x" * 1000]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.msgs"
    archive.write(path, KEPT, overwrite=False)
    return path


def test_what_was_written_is_read(file: Path) -> None:
    assert list(archive.read(file)) == KEPT
    assert archive.check(file) == 2
    assert [path.name for path in file.parent.iterdir()] == ["some.msgs"]


def test_a_file_of_no_messages_is_a_file(tmp_path: Path) -> None:
    size = archive.write(tmp_path / "none", [], overwrite=False)
    assert (list(archive.read(tmp_path / "none")), size) == ([], (tmp_path / "none").stat().st_size)


def test_every_cut_is_found(file: Path) -> None:
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(UsageError, match=r"is damaged at byte|is not a file of exported messages"):
            archive.check(file)


@settings(deadline=None)
@given(st.data())
def test_every_changed_byte_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("archive") / "some.msgs"
    archive.write(path, KEPT, overwrite=True)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"some\.msgs"):
        archive.check(path)


def test_what_follows_the_end_is_found(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="the end does not fit"):
        archive.check(file)


def test_a_length_that_cannot_be_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(archive.MAGIC + struct.pack("<II", 2**32 - 1, zlib.crc32(b"")))
    with pytest.raises(UsageError, match="a block of 4294967295 bytes cannot be"):
        archive.check(path)


def test_a_file_that_is_there_stays_unless_it_may_be_replaced(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        archive.write(file, [b"other"], overwrite=False)
    assert file.read_bytes() == before
    archive.write(file, [b"other"], overwrite=True)
    assert list(archive.read(file)) == [b"other"]


def test_what_fails_on_the_way_leaves_the_old_file(file: Path) -> None:
    def blocks() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    before = file.read_bytes()
    with pytest.raises(ZeroDivisionError):
        archive.write(file, blocks(), overwrite=True)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["some.msgs"]


def test_places_where_nothing_can_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        archive.write(tmp_path / "missing" / "f", [], overwrite=False)
    with pytest.raises(UsageError, match="cannot be written"):
        archive.write(tmp_path, [], overwrite=True)
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            archive.check(path)
