"""The file of users: what is put there twice is there once, and changes at the same time are all kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raybroker.errors import ConfigError
from raybroker.security.user_file import UserEntry, UserFile

SCRAM, OTHER = "SCRAM-SHA-256$1:c2FsdA==$a2V5:a2V5", "SCRAM-SHA-256$1:c2FsdA==$b3Ro:b3Ro"


def test_what_is_as_it_should_be_stays(tmp_path: Path) -> None:
    file = UserFile(tmp_path / "security" / "passwd")
    file.put("ann", UserEntry(SCRAM))
    seen = file.path.stat()
    file.put("ann", UserEntry(SCRAM))
    file.drop("bob")
    assert (file.path.stat().st_mtime_ns, file.path.stat().st_ino) == (seen.st_mtime_ns, seen.st_ino)
    assert seen.st_mode & 0o777 == 0o600
    file.put("ann", UserEntry(OTHER, active=False))
    assert dict(file.users()) == {"ann": UserEntry(OTHER, "user", False)}
    file.drop("ann")
    assert dict(file.users()) == {}


def test_a_group_stays_as_it_was_made_and_holds_one_anonymous_user(tmp_path: Path) -> None:
    file = UserFile(tmp_path / "passwd")
    file.put("ann", UserEntry(SCRAM))
    with pytest.raises(ConfigError, match="is of group user, which stays as it was made"):
        file.put("ann", UserEntry(SCRAM, "admin"))
    file.put("guest", UserEntry(SCRAM, "anonymous"))
    with pytest.raises(ConfigError, match="group anonymous holds one user, and has 'guest'"):
        file.put("other", UserEntry(SCRAM, "anonymous"))
    for name in ("a:b", "", "x" * 129):
        with pytest.raises(ConfigError, match="a name has 1 to 128"):
            file.put(name, UserEntry(SCRAM))


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    names = [f"u{n}" for n in range(40)]
    ready = threading.Barrier(len(names))

    def put(name: str) -> None:
        ready.wait()
        UserFile(tmp_path / "passwd").put(name, UserEntry(SCRAM))

    threads = [threading.Thread(target=put, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(UserFile(tmp_path / "passwd").users()) == sorted(names)
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]
