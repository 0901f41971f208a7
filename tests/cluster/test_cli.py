"""The real program in a Ray of its own: every command is a process, as a user starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from raybroker.cli.tools import ray_process
from raybroker.config import places
from tests.contracts.handles import until

ROOT = Path(__file__).parents[2]
COMMAND_S = 60


class Shell:
    """A user's shell: ``HOME`` of Ray and of raybroker in a folder with a short name, nothing else set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAYBROKER_"))},
            "RAY_TMPDIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def run(
        self, *arguments: str, stdin: str = "", variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "raybroker", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.environment, **(variables or {})},
            cwd=self.folder,
            timeout=COMMAND_S,
            check=False,
        )

    def output(self, *arguments: str, stdin: str = "") -> str:
        """Standard output of a command that has to succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.output(*arguments, "--json"))

    def place(self) -> places.FilePlace | None:
        """What ``up`` noted."""
        path = self.folder / "state" / "raybroker" / "default" / places.FILE
        return places.FilePlace(**json.loads(path.read_text())) if path.is_file() else None


@contextmanager
def new_shell() -> Iterator[Shell]:
    """A shell in a folder of its own; a Ray that ``up`` has started from it ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="rbt"))
    made = Shell(folder)
    try:
        yield made
    finally:
        place = made.place()
        if place is not None and place.pid is not None and places.start_mark(place.pid) == place.since:
            _kill(place.pid)
        shutil.rmtree(folder, ignore_errors=True)


def _kill(session: int) -> None:
    """Nothing of it is wanted any more: `raybroker down` is polite, and a Ray with brokers needs 10 s for its end."""
    while left := ray_process.members(session):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with new_shell() as made:
        yield made


@pytest.fixture(scope="module")
def up(shell: Shell) -> str:
    """What ``raybroker up`` says, once."""
    return shell.output("up", "-D", "imq.autocreate.queue.maxNumActiveConsumers=3")


WHOLE_LIST = """
import time
import raybroker as rb
with rb.connect() as c:
    while (rows := c.admin().list_destinations()).missing:  # A host of a busy machine has not answered yet.
        time.sleep(0.2)
    print([row['name'] for row in rows])
"""


def test_up_says_how_programs_find_the_cluster(shell: Shell, up: str) -> None:
    place = shell.place()
    assert place is not None
    assert place.alive()
    export = up.splitlines()[-1]
    assert export == f"export RAY_ADDRESS={place.address} RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={place.token_path}"
    variables = dict(part.split("=", 1) for part in export.removeprefix("export ").split())
    program = subprocess.run(
        [sys.executable, "-c", WHOLE_LIST],
        env={**shell.environment, **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
    )
    assert program.stdout == "['mq.sys.dmq']\n"


def program(shell: Shell, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a user's program says that is started with nothing else in its environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**shell.environment, **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


AT_ONCE = """
import ray, threading
import raybroker as rb
said, begin = [], threading.Barrier(4)
def connect():
    begin.wait()
    try:
        with rb.connect() as connection:
            said.append(len(connection.admin().list_destinations()) > 0)
    except BaseException as error:
        said.append(repr(error))
threads = [threading.Thread(target=connect) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(said)
"""


def test_threads_connect_at_once_and_find_the_token_where_up_left_it(shell: Shell, up: str) -> None:
    found = program(shell, AT_ONCE)
    assert (found.stdout, found.stderr) == ("[True, True, True, True]\n", "")


JOINING = """
import time
import raybroker as rb
since_s = time.monotonic()
try:
    rb.connect()
finally:
    print(time.monotonic() - since_s)
"""
JOINS_S = 10
"""Ray itself would try for twenty; a process needs some for the import of Ray."""


@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_wrong_token_is_named_as_the_cause_at_once(shell: Shell, up: str, mode: str) -> None:
    place = shell.place()
    assert place is not None
    wrong = shell.folder / "wrong.token"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    variables = {"RAY_ADDRESS": place.address, "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN_PATH": str(wrong)}
    found = program(shell, JOINING, **variables)
    last = found.stderr.strip().splitlines()[-1]
    access = f"with the token in {wrong}" if mode == "token" else "without a token: RAY_AUTH_MODE is not set"
    assert f"the Ray at {place.address} accepts connections and has not let us in, {access}" in last
    assert "NoClusterError" in last
    assert found.stderr.count("Failed to get cluster ID") <= 1, "Ray says so once, and is not asked again"
    assert float(found.stdout) < JOINS_S
    listed = shell.run("list", "dst", variables=variables)
    assert listed.returncode
    assert "has not let us in" in listed.stderr


def test_a_queue_lives_through_the_verbs(shell: Shell, up: str) -> None:
    shell.output("create", "dst", "-t", "q", "-n", "JMSQueue", "-o", "consumerFlowLimit=20", "-o", "maxNumMsgs=100")
    attributes = shell.json("query", "dst", "-t", "q", "-n", "JMSQueue")["attributes"]
    assert (attributes["consumerFlowLimit"], attributes["maxNumMsgs"]) == (20, 100)
    shell.output("send", "JMSQueue", "-", "--lines", stdin="one\ntwo\nthree\n")
    assert json.loads(shell.output("receive", "JMSQueue", "--json"))["body"] == "one"
    assert [(row["name"], row["messages"]) for row in shell.json("list", "dst")] == [("JMSQueue", 2), ("mq.sys.dmq", 0)]
    shell.output("destroy", "dst", "-t", "q", "-n", "JMSQueue", "-f")
    refused = shell.run("query", "dst", "-t", "q", "-n", "JMSQueue")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "'JMSQueue' does not exist" in refused.stderr


def test_the_broker_shows_itself_and_where_its_values_are_from(shell: Shell, up: str) -> None:
    brokers = shell.json("list", "bkr")
    assert [(row["broker"], row["state"]) for row in brokers] == [("b1", "UP")]
    rows = {row["property"]: row for row in shell.json("query", "bkr", "--explain")}
    given = rows["imq.autocreate.queue.maxNumActiveConsumers"]
    assert (given["value"], given["origin"]) == (3, "-Dimq.autocreate.queue.maxNumActiveConsumers")
    said = shell.output("update", "bkr", "-b", "b1", "-o", "imq.log.level=WARNING")
    assert said == "updated broker b1: imq.log.level=WARNING\n"
    assert level(shell, "-b", "b1") == ("WARNING", "update bkr")


def level(shell: Shell, *options: str) -> tuple[str, str]:
    """What the log's level is and by whom."""
    rows = {row["property"]: row for row in shell.json("query", "bkr", "--explain", *options)}
    return rows["imq.log.level"]["value"], rows["imq.log.level"]["origin"]


@pytest.mark.long
def test_messages_stay_over_down_and_up_and_down_ends_ray(shell: Shell, up: str) -> None:
    shell.output("send", "kept", "hello")
    place = shell.place()
    assert place is not None
    assert place.pid is not None
    assert shell.output("down") == "cluster default is down\nRay is down\n"
    assert ray_process.members(place.pid) == []
    assert shell.place() is None
    gone = shell.run("list", "dst")
    assert (gone.returncode, gone.stdout) == (3, "")
    assert "raybroker up" in gone.stderr
    shell.output("up")
    assert shell.output("receive", "kept", "--timeout", "10") == "hello\n"
    assert level(shell) == ("WARNING", "update bkr")  # M-02, A-17
    shell.output("down")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_broker_is_stopped_and_comes_back(shell: Shell) -> None:  # K-19, A-20
    assert "brokers b1, b2," in shell.output("up", "--brokers", "2")
    nobody = shell.run("down", "--broker", "b9")
    assert (nobody.returncode, "b1, b2" in nobody.stderr) == (2, True)
    assert shell.output("down", "--broker", "b2") == "broker b2 of cluster default is down\n"
    listed = shell.run("list", "bkr", "--json")
    assert {row["broker"]: row["state"] for row in json.loads(listed.stdout)} == {"b1": "UP", "b2": "DOWN"}
    assert (listed.returncode, json.loads(listed.stderr)["error"]) == (3, "broker b2 is DOWN: it was stopped")
    health = shell.run("check", "cls")
    assert (health.returncode, "broker b2 is LEFT: it was stopped" in health.stdout) == (1, True)
    of_one = shell.run("check", "bkr", "-b", "b2")
    assert (of_one.returncode, "it was stopped" in of_one.stdout) == (2, True)
    last = shell.run("down", "--broker", "b1")
    assert (last.returncode, "the last one" in last.stderr) == (2, True)
    assert "none of the brokers b1, b2;" in shell.run("up", "--broker", "b9").stderr
    assert "brokers b1, b2," in shell.output("up", "--broker", "b2")
    assert shell.run("list", "bkr").returncode == 0
    shell.output("down")


def begun(folder: Path) -> ray_process.BegunRay | None:
    path = folder / "state" / "raybroker" / "default" / ray_process.BEGUN
    return ray_process._begun(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_up_that_is_ended_half_way_leaves_nothing_or_what_down_ends(number: signal.Signals) -> None:
    with new_shell() as shell:
        command = subprocess.Popen(
            [sys.executable, "-m", "raybroker", "up"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=shell.environment,
            cwd=shell.folder,
        )
        found = until(lambda: begun(shell.folder))
        session = found.place.pid
        try:
            if number == signal.SIGKILL:
                until(lambda: len(ray_process.members(session)) > 1)
                another = shell.run("up")
                assert (another.returncode, f"process {command.pid} starts" in another.stderr) == (1, True)
            command.send_signal(number)
            _, said = command.communicate(timeout=COMMAND_S)
            if number == signal.SIGKILL:
                assert ray_process.members(session)
                assert shell.output("down") == (
                    f"the Ray at {found.place.address}, which an up that was killed had started, is down\n"
                )
            else:
                assert (command.returncode, "Traceback" in said) == (128 + number, False)
            assert (ray_process.members(session), begun(shell.folder), shell.place()) == ([], None, None)
            assert not (shell.folder / "ray" / "ray_current_cluster").exists()
        finally:
            command.kill()
            _kill(session)
