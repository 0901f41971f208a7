"""Users of the connection services on the command line; no broker is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.security.file_repository import FileRepository
from raybroker.security.mechanism import LoginRefusedError
from raybroker.security.user_file import UserFile, is_verifier


@pytest.fixture
def passfile(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("first password\nnot read\n")
    return path


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return tmp_path / "passwd"


def test_a_user_is_added_listed_changed_and_deleted(raybroker: Any, users: Path, passfile: Path) -> None:
    here = ("--file", str(users))
    out = raybroker.output("usermgr", "add", "-u", "ann", "-g", "admin", "--passfile", str(passfile), *here)
    assert out == f"added user ann of group admin to {users}\n"
    assert users.stat().st_mode & 0o777 == 0o600
    assert "first password" not in users.read_text()
    assert raybroker.json("usermgr", "list", *here) == [{"user": "ann", "group": "admin", "active": True}]
    raybroker.output("usermgr", "update", "-u", "ann", "--inactive", *here)
    assert raybroker.json("usermgr", "list", "-u", "ann", *here)[0]["active"] is False
    raybroker.output("usermgr", "delete", "-u", "ann", "-f", *here)
    assert raybroker.json("usermgr", "list", *here) == []


@pytest.mark.parametrize("kind", ["scram", "argon2"])
def test_what_is_kept_of_a_password_is_chosen(raybroker: Any, users: Path, passfile: Path, kind: str) -> None:
    pytest.importorskip("argon2")
    given = ("-u", "ann", "--passfile", str(passfile), "--hash", kind, "--file", str(users))
    raybroker.output("usermgr", "add", *given)
    assert is_verifier(UserFile(users).users()["ann"].verifier) == (kind == "scram")
    repository = FileRepository(UserFile(users))
    assert repository.check("ann", "first password").name == "ann"
    passfile.write_text("second password")
    raybroker.output("usermgr", "update", *given)
    assert repository.check("ann", "second password").name == "ann"
    with pytest.raises(LoginRefusedError):
        repository.check("ann", "first password")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("add", "-u", "ann", "--hash", "md5"), "--hash md5: it is scram or argon2"),
        (("add", "-u", "ann", "-g", "staff"), "the groups are admin, user, anonymous"),
        (("add", "-u", "a:b"), "none of * , :"),
        (("update", "-u", "ann"), "say what changes"),
        (("list", "-u", "nobody"), "there is no user 'nobody'"),
        (("delete", "-u", "nobody", "-f"), "there is no user 'nobody'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    raybroker: Any, users: Path, passfile: Path, options: tuple[str, ...], reason: str
) -> None:
    more = ("--passfile", str(passfile)) if options[0] == "add" else ()
    result = raybroker("usermgr", *options, *more, "--file", str(users))
    assert result.exit_code != 0
    assert reason in " ".join(result.stderr.split())
    assert not users.exists()


def test_a_passfile_is_encoded_and_decoded_again(raybroker: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "secrets", tmp_path / "made"
    text = "# of the keystore\nimq.keystore.password=open sesame\n"
    source.write_text(text)
    source.chmod(0o600)
    told = raybroker.output("usermgr", "encode", "-src", str(source), "-target", str(target))
    assert told == f"wrote the passwords of {source} encoded to {target}\n"
    assert "sesame" not in target.read_text()
    assert (source.read_text(), target.stat().st_mode & 0o777) == (text, 0o600)
    refused = raybroker("usermgr", "decode", "-src", str(source), "-target", str(target))
    assert (refused.exit_code, "say yes with --force" in refused.stderr) == (2, True)
    assert "sesame" not in target.read_text()
    raybroker.output("usermgr", "decode", "-src", str(target))
    assert target.read_text() == text
    target.write_text("what is this")
    refused = raybroker("usermgr", "encode", "-src", str(target))
    assert (refused.exit_code, "line 1: a line is name=password" in refused.stderr) == (1, True)
    assert target.read_text() == "what is this"
