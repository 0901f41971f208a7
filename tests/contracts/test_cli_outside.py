"""The command line from outside the Ray cluster: every verb with -b and -u, and what it may do there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConnectionEndedError, RequestTimeoutError
from raybroker.wire.scram import ScramClient
from tests import program
from tests.contracts.test_services import Outside, until

PASSWORD = "secret"


class Shell:
    def __init__(self, outside: Outside, folder: Path) -> None:
        self.address = f"127.0.0.1:{outside.ports['portmapper']}"
        self.passfile = folder / "pw"
        self.passfile.write_text(f"{PASSWORD}\n")
        self.passfile.chmod(0o600)

    def way(self, user: str) -> list[str]:
        return ["-b", self.address, "-u", user, "--passfile", str(self.passfile)]

    def run(self, user: str, *words: str) -> program.Done:
        return program.invoke(*words, *self.way(user))

    def output(self, user: str, *words: str) -> str:
        done = self.run(user, *words)
        assert done.exit_code == 0, done.output + done.stderr
        return done.stdout


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened)


@pytest.fixture
def shell(outside: Outside, tmp_path: Path) -> Shell:
    return Shell(outside, tmp_path)


def test_a_context_is_how_a_broker_is_reached(
    outside: Outside, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def output(*words: str) -> str:
        done = program.invoke(*words)
        assert done.exit_code == 0, done.output + done.stderr
        return done.stdout

    output("context", "add", "prod", *shell.way("root"))
    output("context", "add", "ann", *shell.way("ann"), "--use")
    assert output("--context", "prod", "create", "dst", "-n", "orders") == "created queue orders\n"
    assert output("send", "orders", "hello") == "sent 1 message to orders\n"
    refused = program.invoke("destroy", "dst", "-n", "orders", "-f")
    assert (refused.exit_code, "ann" in refused.stderr) == (1, True), "the one in use is ann, who may not"
    monkeypatch.setenv("RAYBROKER_CONTEXT", "prod")
    assert output("destroy", "dst", "-n", "orders", "-f") == "destroyed queue orders\n"
    assert shell.run("ann", "destroy", "dst", "-n", "other", "-f").exit_code == 1, "the command line goes first"


def test_a_login_that_is_too_slow_is_tried_again(
    outside: Outside, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is busy for a while: nothing was asked for yet, so that it may be tried again."""
    final, slow = ScramClient.final, [True, True]

    def at_last(self: ScramClient, challenge: str) -> str:
        if slow:
            slow.pop()
            raise RequestTimeoutError("a step of the login took longer than 1 s: it was too slow")
        return final(self, challenge)

    monkeypatch.setattr(ScramClient, "final", at_last)
    done = shell.run("root", "list", "svc", "-rtm", "30")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("it was too slow); try again; trying again") == 2
    slow[:] = [True] * 1000
    done = shell.run("root", "list", "svc", "-rtm", "0.5", "-rtr", "1")
    assert done.exit_code == 3
    assert "too slow" in done.stderr
    assert len(slow) > 900


def test_an_administrator_works_from_outside(outside: Outside, shell: Shell) -> None:
    assert shell.output("root", "create", "dst", "-n", "orders", "-o", "maxNumMsgs=5") == "created queue orders\n"
    assert shell.output("ann", "send", "orders", "hello") == "sent 1 message to orders\n"
    rows = json.loads(shell.output("root", "list", "dst", "--json"))
    assert [(row["name"], row["messages"]) for row in rows if row["name"] == "orders"] == [("orders", 1)]
    assert json.loads(shell.output("root", "query", "bkr", "--json"))["hosts"]
    checks = json.loads(shell.run("root", "check", "bkr", "--json").stdout)["checks"]
    assert {row["broker"] for row in checks} == {"loopback"}
    assert json.loads(shell.output("root", "list", "svc", "--json"))
    assert [row["user"] for row in json.loads(shell.output("root", "list", "cxn", "--json"))] == ["root"]
    assert "hello" in shell.output("ann", "receive", "orders")
    assert shell.output("root", "destroy", "dst", "-n", "orders", "-f") == "destroyed queue orders\n"
    assert json.loads(shell.output("root", "why-denied", "bob", "consume", "q", "--json"))["allowed"] is False


def test_messages_of_many_frames_are_exported_and_imported(outside: Outside, shell: Shell, tmp_path: Path) -> None:
    """Blocks of messages that were sent together are longer than a frame, too."""
    bodies, file = [f"{number}".ljust(3000) for number in range(1500)], str(tmp_path / "orders.msgs")
    for name in ("orders", "copies"):
        shell.output("root", "create", "dst", "-n", name)
    with outside.connect("ann") as connection:
        session = connection.session()
        session.producer("orders").send_many(bodies)
        assert "exported 1500 messages" in shell.output("root", "export", "msg", file, "-n", "orders")
        said = shell.output("root", "import", "msg", file, "-n", "copies")
        assert said == "imported 1500 messages into queue copies\n"
        found: list[Any] = []
        consumer = session.consumer("copies")
        while len(found) < len(bodies) and (taken := consumer.receive_many(1500, timeout=10)):
            found += [message.body for message in taken]
        assert found == bodies


def test_services_are_paused_quiesced_and_changed(outside: Outside, shell: Shell) -> None:
    def state() -> tuple[str, int]:
        row = next(row for row in outside.admin.list_services() if row["service"] == "jms")
        return row["state"], row["connections_max"]

    assert shell.output("root", "pause", "bkr") == "paused service jms\n"
    assert state() == ("PAUSED", 500)
    assert shell.run("ann", "send", "q", "x").exit_code == 1
    shell.output("root", "resume", "bkr")
    shell.output("root", "quiesce", "bkr")
    assert state()[0] == "QUIESCED"
    shell.output("root", "unquiesce", "bkr")
    shell.output("root", "update", "svc", "-n", "jms", "-o", "maxThreads=20")
    assert state() == ("RUNNING", 10)
    wrong = {
        "ports=1": "cannot be changed, port, minThreads, maxThreads can",
        "maxThreads=1": "max_threads",
        "maxThreads=4": "is more than",
    }
    for changes, told in wrong.items():
        done = shell.run("root", "update", "svc", "-n", "jms", "-o", changes)
        assert (done.exit_code, told in done.stderr) == (1, True), done.stderr
    assert state() == ("RUNNING", 10)


def test_ray_is_not_imported(shell: Shell) -> None:
    code = """
import sys
from raybroker.cli.main import app
try:
    app(sys.argv[1:], prog_name="raybroker")
except SystemExit as end:
    assert not end.code, end.code
assert not [name for name in sys.modules if name.split(".")[0] == "ray"]
"""
    subprocess.run([sys.executable, "-c", code, "list", "dst", *shell.way("root")], check=True, timeout=100)


def test_a_command_is_watched_over_a_broker_that_is_away(tmp_path: Path) -> None:
    with ExitStack() as opened:
        shell = Shell(Outside(tmp_path, opened), tmp_path)
        command = [sys.executable, "-m", "raybroker", "list", "dst", "--watch", "0.5", *shell.way("root")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            looks = 0
            while looks < 2:
                looks += ", every 0.5 s" in watching.stdout.readline()
            opened.close()
            while "no connection service answers" not in (line := watching.stderr.readline()):
                assert line.startswith("raybroker: 20"), line
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
            assert "Traceback" not in watching.stderr.read()


LOOK = """
import json, sys
from raybroker.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("words", ["list dst", "query dst -n kept", "pause dst -n kept", "check bkr"])
def test_a_plain_verb_imports_what_it_uses(outside: Outside, shell: Shell, words: str) -> None:
    """Imports are most of what it takes beside the proof of the password; typer's own include pydantic."""
    outside.admin.create_destination("queue", "kept")
    command = [sys.executable, "-c", LOOK, *words.split(), *shell.way("root")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    assert modules & {"http", "numpy", "ray", "rich", "sqlalchemy", "urllib.request"} == set()
    layers = {name.split(".")[1] for name in modules if name.startswith("raybroker.")}
    assert layers.isdisjoint({"actors", "broker", "cluster", "core", "engine", "hosting", "services", "store"})
    root = Path(rb.__file__).parents[1]
    files = [name for name in modules if (root / f"{name.replace('.', '/')}.py").is_file()]
    assert len(files) <= 120
    assert len(modules) <= 470, "with those of Python and of typer"


ADMINISTRATION = (
    "create dst -n made",
    "update dst -n kept -o maxNumMsgs=1",
    "destroy dst -n kept -f",
    "purge dst -n kept -f",
    "pause dst -n kept",
    "resume dst -n kept",
    "list dst",
    "query dst -n kept",
    "list con",
    "list dur",
    "list txn",
    "query bkr",
    "update bkr -o imq.log.level=WARNING",
    "list svc",
    "pause svc -n jms",
    "quiesce svc -n jms",
    "list cxn",
    "list cxn --by ann",
    "destroy cxn -n loopback/jms/1 -f",
    "destroy cxn --by ann -f",
    "why-denied bob consume kept",
    "create tpl -n t",
    "delete msg -n kept --all -f",
    "list msg -n kept",
    "reset dst -n kept",
    "top --once",
    "pause bkr",
    "quiesce bkr",
    "update svc -n jms -o maxThreads=2",
    "metrics svc -n jms -msp 1",
    "metrics cxn -msp 1",
    "shutdown bkr -f",
    "shutdown bkr -f --time 60",
    "restart bkr -f",
    "check bkr",
    "check dst -n kept",
    "check svc",
)


@pytest.mark.parametrize("words", ADMINISTRATION)
def test_a_user_without_rights_administers_nothing(outside: Outside, shell: Shell, words: str) -> None:
    outside.admin.create_destination("queue", "kept")
    outside.inside.session().producer("kept").send("stays")
    before = outside.admin.query_destination("queue", "kept"), outside.admin.list_services()
    done = shell.run("bob", *words.split())
    code = 3 if words.startswith("check") else 1
    assert (done.exit_code, "user 'bob' may not connect to ADMIN services" in done.stderr) == (code, True), done.stderr
    found = outside.admin.query_destination("queue", "kept"), outside.admin.list_services()
    assert [row | {"accepted": 0, "refused": 0} for row in found[1]] == [
        row | {"accepted": 0, "refused": 0} for row in before[1]
    ]
    assert found[0]["messages"] == 1
    assert found[0]["attributes"] == before[0]["attributes"]
    assert not [row for row in outside.admin.list_destinations() if row["name"] == "made"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("receive kept", "may not consume"),
        ("receive kept --browse", "may not browse"),
        ("send fresh x", "may not create queues"),
    ],
)
def test_rules_hold_for_messages_from_a_shell(outside: Outside, shell: Shell, words: str, told: str) -> None:
    outside.admin.create_destination("queue", "kept")
    done = shell.run("bob", *words.split())
    assert done.exit_code == 1
    assert f"user 'bob' {told}" in done.stderr


def test_what_cannot_be_right_is_said_before_anything_is_tried(shell: Shell, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.write_text("secret")
    loose.chmod(0o644)
    (tmp_path / "tuned").write_text("imq.keystore.password=x\n")
    (tmp_path / "tuned").chmod(0o600)
    for words, told in (
        (["-u", "root"], "name one with -b"),
        (["-b", shell.address], "with -u"),
        (["-b", shell.address, "-u", "root"], "no terminal"),
        (["-b", shell.address, "-u", "root", "--passfile", str(loose)], "may be read by others"),
        (["-b", shell.address, "-u", "root", "--passfile", str(tmp_path / "none")], "is not there"),
        (["-b", shell.address, "-u", "root", "--passfile", str(tmp_path / "tuned")], "has no imq.imqcmd.password"),
        (["-b", shell.address, "-u", "root", "--token-file", str(loose)], "no -u and --passfile"),
    ):
        done = program.invoke("list", "dst", *words)
        assert done.exit_code == 2, done.output
        assert told in done.stderr
        assert "secret" not in done.stderr
    done = program.invoke("list", "dst", "-b", "127.0.0.1:1", "-u", "a", "--passfile", shell.passfile)
    assert (done.exit_code, "no connection service answers" in done.stderr) == (3, True)
    shell.passfile.write_text("imq.imqcmd.password=secret\n")
    assert shell.output("root", "list", "dst")


def test_metrics_of_a_service_and_of_a_connection_are_those_of_its_clients(outside: Outside, shell: Shell) -> None:
    outside.inside.session().producer("orders").send_many(["from inside"] * 5)
    client = outside.connect("ann")
    session = client.session()
    producer = session.producer("orders")
    producer.send_many(["x" * 100] * 20)
    assert len(session.consumer("orders").receive_many(3, timeout=20)) == 3
    gone = outside.connect("ann")
    gone.session().producer("orders").send("and good-bye")
    gone.close()

    def shown(*words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(shell.output("root", "metrics", *words, "-msp", "1", "--json"))
        return found

    def counted() -> int:
        return int(shown("svc", "-n", "jms")[0]["messages_in"])

    until(lambda: counted() == 21)
    (row,) = shown("svc", "-n", "jms")
    assert (row["messages_in"], row["broker"]) == (21, "loopback"), "handles inside the Ray cluster do not count"
    assert row["messages_out"] >= 3
    assert row["packet_bytes_in"] > row["message_bytes_in"] > 20 * 100
    (bounds,) = shown("svc", "-n", "jms", "-m", "cxn")
    assert (bounds["connections"], bounds["connections_max"], bounds["state"]) == (1, 500, "RUNNING")
    (rates,) = shown("svc", "-n", "admin", "-m", "rts", "-int", "0.05")
    assert rates["messages_in"] == 0
    (connection,) = [row for row in outside.admin.list_connections() if row["user"] == "ann"]
    (row,) = shown("cxn", "-n", connection["id"])
    assert (row["user"], row["messages_in"]) == ("ann", 20)
    (opened,) = shown("cxn", "-n", connection["id"], "-m", "cxn")
    assert (opened["producers"], opened["consumers"]) == (1, 1)
    producer.close()


def test_clients_inside_are_listed_queried_and_ended_with_a_reason(outside: Outside, shell: Shell) -> None:
    producer = outside.inside.session().producer("orders")
    (row,) = json.loads(shell.output("root", "list", "cxn", "--service", "inside", "-d", "orders", "--json"))
    assert (row["service"], row["producers"], row["hosts"]) == ("inside", 1, ["loopback"])
    assert row["id"] in shell.output("root", "list", "cxn")
    assert row["pid"] in shell.output("root", "query", "cxn", "-n", row["id"])
    counted = json.loads(shell.output("root", "metrics", "cxn", "-msp", "1", "--json"))
    assert row["id"] not in {one["id"] for one in counted}
    missed = shell.run("root", "destroy", "cxn", "-n", "0" * 24, "-f")
    assert missed.exit_code != 0
    assert "there is no connection" in missed.stderr
    told = shell.output("root", "destroy", "cxn", "--service", "inside", "--reason", "call 4711", "-f")
    assert told == "destroyed 1 connection\n"
    with pytest.raises(ConnectionEndedError, match="call 4711"):
        producer.send("x")
    assert json.loads(shell.output("root", "list", "cxn", "--service", "inside", "--json")) == []
