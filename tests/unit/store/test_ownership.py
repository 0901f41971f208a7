"""Whose a directory of stores is: written once, checked before anything else, and nothing of another's is changed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from raybroker.model.errors import StoreError
from raybroker.store import ownership


def test_a_directory_without_an_owner_is_taken_and_then_belongs_to_that_one(tmp_path: Path) -> None:  # P-06
    ownership.check(tmp_path, "c/b1/h1")
    ownership.claim(tmp_path, "c/b1/h1")
    ownership.check(tmp_path, "c/b1/h1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before == {"owner": b"c/b1/h1\n"}
    assert stat.S_IMODE((tmp_path / "owner").stat().st_mode) == 0o600
    for other in ("c/b1/h2", "c/b2/h1", "d/b1/h1", "c/b1"):
        with pytest.raises(StoreError, match=f"belongs to c/b1/h1, and this is {other}.*raybroker.store.dir.*Remove"):
            ownership.check(tmp_path, other)
    ownership.claim(tmp_path, "d/b1/h1")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, "who claims has checked before"


def test_a_claim_that_a_crash_cut_short_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "owner").touch()
    (tmp_path / "owner.new").write_text("c/b")
    ownership.check(tmp_path, "c/b1")
    ownership.claim(tmp_path, "c/b1")
    assert (tmp_path / "owner").read_text() == "c/b1\n"
    assert not (tmp_path / "owner.new").exists()


def test_what_cannot_be_read_or_written_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "owner").mkdir()
    with pytest.raises(StoreError, match="owner cannot be read"):
        ownership.check(tmp_path, "c/b1")
    with pytest.raises(StoreError, match="owner cannot be written"):
        ownership.claim(tmp_path / "nowhere", "c/b1")
    ownership.check(tmp_path / "nowhere", "c/b1")


def test_names_of_any_bytes_are_compared_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "owner").write_bytes(b"\xff\xfe\n" + b"x" * 10_000)
    with pytest.raises(StoreError, match="belongs to"):
        ownership.check(tmp_path, "c/b1")
