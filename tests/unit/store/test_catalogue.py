"""A broker's catalogue on the disk: whole or as before, and never older than what somebody was told is kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.catalogue import Catalogue

WRITERS = 8
PATIENCE_S = 60.0


def filled() -> Catalogue:
    return Catalogue(
        b"\1" * 32,
        7,
        {"h3": "shared"},
        {"small": {"maxNumMsgs": 5}},
        {"imq.log.level": ["WARNING", "INFO"]},
        {"q": {"MessagesMaximum": 5}},
        {"p": {"pattern": ">", "attributes": {"useDMQ": True}}},
    )


def test_it_comes_back_as_it_was_saved_for_its_owner_only(tmp_path: Path) -> None:
    assert Catalogue.load(tmp_path) is None
    filled().save(tmp_path / "new")
    assert Catalogue.load(tmp_path / "new") == filled()
    (file,) = (tmp_path / "new").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_older_image_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    catalogue = filled()
    older = catalogue.image()
    catalogue.hosts["h4"] = "dedicated"
    newer = catalogue.image()
    catalogue.write(tmp_path, newer)
    catalogue.write(tmp_path, older)
    assert Catalogue.load(tmp_path) == catalogue


def test_an_image_shows_nothing_that_was_changed_after_it(tmp_path: Path) -> None:
    catalogue = filled()
    image = catalogue.image()
    catalogue.hosts.clear()
    catalogue.write(tmp_path, image)
    assert Catalogue.load(tmp_path) == filled()


def test_whoever_has_written_finds_what_he_wrote_however_many_write_at_once(tmp_path: Path) -> None:
    catalogue = filled()
    changing = threading.Lock()
    missing: list[str] = []

    def add(host: str) -> None:
        with changing:
            catalogue.hosts[host] = "dedicated"
            image = catalogue.image()
        catalogue.write(tmp_path, image)
        found = Catalogue.load(tmp_path)
        if found is None or host not in found.hosts:
            missing.append(host)

    def work(writer: int) -> None:
        for number in range(20):
            add(f"w{writer}-{number}")

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert missing == []
    assert Catalogue.load(tmp_path) == catalogue


def test_what_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        filled().save(blocked)
    filled().save(tmp_path)
    path = tmp_path / "catalogue.json"
    path.write_bytes(path.read_bytes().replace(b"shared", b"shaped"))
    with pytest.raises(StoreDamagedError, match="its checksum does not match"):
        Catalogue.load(tmp_path)
