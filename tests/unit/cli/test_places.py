"""How a command finds the Ray that another one started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybroker.cli import connecting
from raybroker.cli.tools import ray_process
from raybroker.config import places
from raybroker.config.places import FilePlace
from raybroker.model.errors import ConfigError, NoClusterError


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without any Ray."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what ``use`` sets is undone
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def address() -> Iterator[str]:
    """Somebody who takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_what_was_noted_is_found_and_forgotten(home: Path) -> None:
    place = FilePlace("h:1", "token", "/t", 7, "8")
    places.save("eu", place)
    assert places.load("eu") == place
    assert (home / "state" / "raybroker" / "eu" / "cluster.json").is_file()
    places.forget("eu")
    places.forget("eu")
    assert places.load("eu") is None


def test_the_place_is_beside_the_stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBROKER_STORE__DIR", str(home / "stores"))
    assert places.directory("eu") == home / "stores" / "eu"


def test_a_damaged_note_is_no_note(home: Path) -> None:
    places.save("eu", FilePlace("h:1"))
    (places.directory("eu") / places.FILE).write_text("{")
    assert places.load("eu") is None
    assert list(places.others("us")) == []


def test_other_clusters_are_known() -> None:
    places.save("eu", FilePlace("h:1"))
    places.save("us", FilePlace("h:2"))
    assert list(places.others("eu")) == [FilePlace("h:2")]


def test_a_place_is_alive_while_its_process_is_the_one_that_was_noted(address: str) -> None:
    mark = places.start_mark(os.getpid())
    assert FilePlace(address, pid=os.getpid(), since=mark).alive()
    assert not FilePlace(address, pid=os.getpid(), since="1").alive()
    assert not FilePlace("127.0.0.1:1", pid=os.getpid(), since=mark).alive()


def test_ray_address_comes_first(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    places.save("default", FilePlace("h:1"))
    found = connecting.find_ray("default")
    assert found is not None
    assert found.address == address


def test_a_ray_address_without_an_answer_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(NoClusterError, match="nothing answers at RAY_ADDRESS"):
        connecting.find_ray("default")


def test_the_noted_place_is_used_with_its_token(address: str) -> None:
    places.save("default", FilePlace(address, "token", "/t"))
    assert connecting.find_ray("default") == FilePlace(address, "token", "/t")
    assert (os.environ["RAY_ADDRESS"], os.environ["RAY_AUTH_TOKEN_PATH"]) == (address, "/t")


def test_another_cluster_s_ray_will_do(address: str) -> None:
    places.save("eu", FilePlace(address))
    found = connecting.find_ray("default")
    assert found is not None
    assert found.address == address


def test_the_last_ray_start_is_found_and_forgotten_when_it_ended(home: Path, address: str) -> None:
    (home / "ray").mkdir()
    (home / "ray" / "ray_current_cluster").write_text(address)
    found = connecting.find_ray("default")
    assert found == FilePlace(address)
    places.forget_last_started(FilePlace("127.0.0.1:1"))
    assert places.last_started() is not None
    places.forget_last_started(FilePlace(address))
    assert places.last_started() is None


def test_without_any_ray_the_error_says_how_to_start_one() -> None:
    with pytest.raises(NoClusterError, match="raybroker up"):
        connecting.connect("default")
    places.save("eu", FilePlace("127.0.0.1:1"))
    with pytest.raises(NoClusterError, match=r"started at 127.0.0.1:1 and is gone.*raybroker up --name eu"):
        connecting.connect("eu")


def test_a_token_is_for_the_user_s_eyes_only(home: Path) -> None:
    path = ray_process.write_token(home / "token")
    secret = path.read_text()
    assert (path.stat().st_mode & 0o777, len(secret)) == (0o600, 64)
    assert ray_process.write_token(path).read_text() == secret
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        ray_process.write_token(path)


def test_a_session_is_ended_with_all_its_processes_and_nothing_else() -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print(flush=True); sys.stdin.read()"
    ours = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        assert ours.stdout is not None
        ours.stdout.readline()
        assert len(ray_process.members(ours.pid)) == 2
        ray_process.end_session(ours.pid)
        assert ray_process.members(ours.pid) == []
        assert ray_process.members(bystander.pid) == [bystander.pid]
    finally:
        bystander.kill()
        bystander.wait()
        ours.communicate()
