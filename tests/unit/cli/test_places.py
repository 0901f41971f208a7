"""How a command finds the Ray that another one started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from raybroker.actors import runtime
from raybroker.cli import connecting
from raybroker.cli.tools import ray_process
from raybroker.config import places
from raybroker.config.places import FilePlace
from raybroker.model.errors import ConfigError, IllegalStateError, NoClusterError


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


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], start_new_session=True)


def begin(home: Path, cluster: str, head: int, owner: int, since: str | None) -> Path:
    """What an ``up`` has left that is at work, or was killed."""
    directory = places.directory(cluster)
    directory.mkdir(parents=True, exist_ok=True)
    place = FilePlace("127.0.0.1:1", "token", "t", head, places.start_mark(head))
    path = directory / ray_process.BEGUN
    path.write_text(json.dumps(asdict(ray_process.BegunRay(place, owner, since))))
    return path


def test_a_ray_is_ended_that_was_started_by_a_command_which_is_gone(home: Path) -> None:
    gone = sleeper()
    since = places.start_mark(gone.pid)
    ours, kept, other, busy = sleeper(), sleeper(), sleeper(), sleeper()
    try:
        gone.kill()
        gone.wait()
        files = [
            begin(home, "ours", ours.pid, gone.pid, since),
            begin(home, "kept", kept.pid, gone.pid, since),
            begin(home, "other", other.pid, gone.pid, since),
        ]
        at_it = begin(home, "busy", busy.pid, os.getppid(), places.start_mark(os.getppid()))
        torn = begin(home, "torn", busy.pid, gone.pid, since)
        torn.write_text(torn.read_text()[:40])
        places.save("joined", FilePlace("127.0.0.1:1", pid=kept.pid, since=places.start_mark(kept.pid)))
        found = ray_process.end_abandoned(places.directory("ours"))
        assert found is not None
        assert found.pid == ours.pid
        assert (ours.wait(10), other.wait(10)) == (-signal.SIGTERM, -signal.SIGTERM)
        assert (kept.poll(), busy.poll()) == (None, None), "another cluster is in it, or it is being started"
        assert [path.exists() for path in (*files, torn, at_it)] == [False, False, False, False, True]
        assert ray_process.end_abandoned(places.directory("ours")) is None
        with pytest.raises(IllegalStateError, match=f"process {os.getppid()} starts the cluster"):
            ray_process.end_abandoned(places.directory("busy"))
    finally:
        for process in (ours, kept, other, busy):
            process.kill()
            process.wait()


def test_a_head_that_nobody_has_written_down_does_not_begin() -> None:
    head = subprocess.run([sys.executable, "-c", ray_process.HEAD], input=b"", check=False, timeout=30)
    assert head.returncode == 1


def test_a_ray_that_was_started_is_waited_for_until_it_takes_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its port answers before: who connects then waits for two seconds, however soon it has a node."""
    listens = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read(1);"
        " time.sleep(60)"
    )
    monkeypatch.setattr(ray_process, "_command", lambda port, others: [sys.executable, "-c", listens, str(port)])
    monkeypatch.setenv("RAY_worker_niceness", "0")
    answers, asked = [False, False, True], list[str]()

    def takes_programs(where: str) -> bool:
        asked.append(where)
        return answers[len(asked) - 1]

    monkeypatch.setattr(runtime, "takes_programs", takes_programs)
    with ray_process.started_ray(tmp_path / "cluster", print) as place:
        assert asked == [place.address] * 3
        assert place.pid is not None
        ray_process.end_session(place.pid)


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
