"""Definitions from the command line: files, plans, exit codes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.cli import connecting
from raybroker.cli.objects.definition_file import to_toml
from raybroker.client.admin.admin import Admin
from raybroker.security.user_file import UserEntry, UserFile
from tests.unit.cli.conftest import Kept

HEAD = "[raybroker]\ndefinitions = 1\n"


def test_a_file_is_exported_shown_as_a_plan_and_imported(raybroker: Any, broker: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "cluster.toml")
    raybroker.output("create", "dst", "-n", "orders.eu", "-o", "maxNumMsgs=5")
    raybroker.output("create", "dur", "-n", "audit", "-d", "prices", "-c", "me", "-s", "price > 5")
    assert raybroker.output("export", "definitions", file) == f"wrote 2 entries to {file}\n"
    found = tomllib.loads(Path(file).read_text())
    assert found["queues"] == {"orders.eu": {"maxNumMsgs": 5}}
    assert found["subscriptions"] == [{"name": "audit", "client_id": "me", "topic": "prices", "selector": "price > 5"}]
    again = raybroker("export", "definitions", file)
    assert (again.exit_code, "is there already; replace it with -f" in again.stderr) == (2, True)
    raybroker.output("export", "definitions", file, "-f")
    same = raybroker("import", "definitions", file, "--dry-run")
    assert (same.exit_code, same.stdout) == (0, "nothing to do: 2 objects as the file says\n")
    raybroker.output("update", "dst", "-n", "orders.eu", "-o", "maxNumMsgs=9")
    raybroker.output("create", "dst", "-n", "more")
    plan = raybroker("import", "definitions", file, "--dry-run")
    assert (plan.exit_code, plan.stdout.splitlines()) == (
        4,
        [
            "would update queue orders.eu: maxNumMsgs 9 -> 5",
            "left alone: queue more, which the file does not have",
            "1 step would be taken, 0 not; 1 object as the file says already",
        ],
    )
    assert raybroker.json("query", "dst", "-n", "orders.eu")["attributes"]["maxNumMsgs"] == 9
    made = raybroker("import", "definitions", file, "--prune")
    assert (made.exit_code, made.stdout.splitlines()) == (
        0,
        [
            "updated queue orders.eu: maxNumMsgs 9 -> 5",
            "destroyed queue more",
            "2 steps taken, 0 not; 1 object as the file says already",
        ],
    )


def test_standard_output_and_input_do_as_files(raybroker: Any, broker: Any) -> None:
    raybroker.output("create", "dst", "-n", "a")
    text = raybroker.output("export", "definitions", "-")
    assert tomllib.loads(text) == {"raybroker": {"definitions": 1}, "queues": {"a": {}}}
    assert json.loads(raybroker.output("export", "definitions", "-", "--json")) == tomllib.loads(text)
    raybroker.output("destroy", "dst", "-n", "a", "-f")
    assert "created queue a\n" in raybroker.output("import", "definitions", "-", stdin=text)
    report = json.loads(raybroker.output("import", "definitions", "-", "--json", stdin=text))
    assert (report["steps"], report["complete"]) == ([], True)


def test_what_fails_is_said_and_so_is_what_was_not_done(raybroker: Any, broker: Any, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    broker.session().producer("auto").send("x")
    file.write_text(HEAD + "[queues.auto]\n[queues.new]\nmaxNumMsgs = 5\n")
    result = raybroker("import", "definitions", str(file))
    assert result.exit_code == 1
    assert "cannot be done: create queue auto: it was created automatically" in result.stderr
    assert "not done: create queue new" in result.stderr
    assert result.stdout == "0 steps taken, 2 not; 0 objects as the file says already\n"
    assert raybroker("import", "definitions", str(file), "--dry-run").exit_code == 1
    result = raybroker("import", "definitions", str(file), "--keep-going")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "created queue new: maxNumMsgs=5")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.toml", HEAD + "[queues.a]\n[queues.a]\n", "Cannot declare"),
        ("a.toml", HEAD + "[queues.a]\nnope = 1\n", "queues, a: 'nope' is not a destination attribute"),
        ("a.toml", "[raybroker]\ndefinitions = 2\n", "definitions of version 2; this release reads up to 1"),
        ("a.toml", "[queues.a]\n", "these are no definitions"),
        ("a.json", '{"raybroker": {"definitions": 1}, "queues": {"a": {}, "a": {}}}', "'a' is there twice"),
        ("a.json", '{"raybroker": ', "Expecting value"),
        (
            "a.toml",
            HEAD + "[[subscriptions]]\nname='s'\ntopic='t'\n" * 1 + "[[subscriptions]]\nname='s'\ntopic='u'\n",
            "it is there twice",
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_anybody_is_asked(
    raybroker: Any, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    result = raybroker("import", "definitions", str(file))
    assert (result.exit_code, reason in result.stderr) == (2, True), result.stderr


def test_a_file_that_is_not_there_or_cannot_be_read_is_refused(raybroker: Any, tmp_path: Path) -> None:
    assert raybroker("import", "definitions", str(tmp_path / "none")).exit_code == 2
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in raybroker("import", "definitions", str(tmp_path / "bytes")).stderr
    assert raybroker("export", "definitions", str(tmp_path / "no" / "such")).exit_code == 2


SCRAM = "SCRAM-SHA-256$600000:c2FsdA==$a2V5:a2V5"


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[UserFile]:
    """The file of users of a broker with connection services, which every command connects to."""
    users = UserFile(tmp_path / "security" / "passwd")
    users.put("ann", UserEntry(SCRAM))
    properties = {
        "imq.service.activelist": "jms",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "raybroker.security.dir": str(users.path.parent),
    }
    with rb.loopback(properties=properties) as connection:
        monkeypatch.setattr(connecting, "connect", Kept(connection).connect)
        yield users


def test_users_go_into_a_file_for_its_owner_alone_and_come_back(
    raybroker: Any, guarded: UserFile, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("")
    raybroker.output("export", "definitions", str(file), "-f")
    assert "ann" not in file.read_text()
    raybroker.output("export", "definitions", str(file), "--users", "-f")
    assert file.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(file.read_text())["users"] == {"ann": {"verifier": SCRAM}}
    guarded.drop("ann")
    guarded.put("bob", UserEntry(SCRAM))
    refused = raybroker("import", "definitions", str(file))
    assert (refused.exit_code, "has users: give --users to take them" in refused.stderr) == (2, True)
    made = raybroker("import", "definitions", str(file), "--users", "--prune")
    assert made.stdout.splitlines()[:2] == [
        "created user ann: verifier=(hidden) group=user active=true",
        "destroyed user bob",
    ]
    assert list(guarded.users()) == ["ann"]
    assert "nothing to do" in raybroker.output("import", "definitions", str(file), "--users", "--prune")
    file.chmod(0o644)
    open_ = raybroker("import", "definitions", str(file), "--users")
    assert (open_.exit_code, f"chmod 600 {file}" in open_.stderr) == (2, True)


def test_an_export_without_what_a_broker_has_alone_says_so(
    raybroker: Any, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"raybroker": {"definitions": 1, "missing": ["b2"]}, "queues": {"a": {}}}
    monkeypatch.setattr(Admin, "export_definitions", lambda self, **options: found)
    result = raybroker("export", "definitions", str(tmp_path / "a.toml"))
    assert (result.exit_code, "is not whole: b2 cannot be asked" in result.stderr) == (3, True)
    assert tomllib.loads((tmp_path / "a.toml").read_text()) == found


def test_any_text_comes_back_from_toml() -> None:
    odd = 'a "quoted" \\ text\twith\nlines, \x7f, é and \U0001f600'
    given = {
        "raybroker": {"definitions": 1},
        "properties": {"imq.log.level": "INFO"},
        "queues": {"a.b": {"XMLSchemaURIList": odd, "useDMQ": False}, "c": {}},
        "policies": {"p": {"pattern": ">", "attributes": {"maxNumMsgs": -1}}},
        "agents": {"f": {"retryDelayMultiplier": 1.5}},
        "subscriptions": [{"name": odd, "topic": "t"}],
    }
    assert tomllib.loads(to_toml(given)) == given
