"""What commands print: one shape of JSON, and lines that hold at a narrow terminal, in a pipe and in any locale."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import program
from tests.contracts.test_services import Outside

ROWS, OBJECT = "an array of objects with the same keys", "an object"
SHAPES = {
    "list dst": ROWS,
    "list con": ROWS,
    "list dur": ROWS,
    "list quota": ROWS,
    "list policy": ROWS,
    "list policy --conflicts": ROWS,
    "list sch": ROWS,
    "list txn": ROWS,
    "list msg -n orders": ROWS,
    "list tpl": ROWS,
    "list bkr": ROWS,
    "list svc": ROWS,
    "list cxn": ROWS,
    "list node": ROWS,
    "query dst -n orders": OBJECT,
    "query dst -n orders --effective": ROWS,
    "query con -n CON": OBJECT,
    "query quota -n small": OBJECT,
    "query policy -n every": OBJECT,
    "query sch -n SCH": OBJECT,
    "query txn -n TXN": OBJECT,
    "query bkr": OBJECT,
    "query cls": OBJECT,
    "query store": ROWS,
    "query svc -n jms": ROWS,
    "query cxn -n CXN": OBJECT,
    "metrics dst -n orders -msp 1": ROWS,
    "metrics svc -msp 1": ROWS,
    "metrics cxn -msp 1": ROWS,
    "metrics bkr -msp 1": ROWS,
    "why msg -n orders --id MSG": ROWS,
    "why con -n CON": ROWS,
    "why dst -n orders": ROWS,
    "why dur -n 東京 -c client": ROWS,
    "why txn -n TXN": ROWS,
    "check bkr": "grade checks",
    "check cls": "grade checks",
    "check dst -n orders": "grade checks",
    "check svc": "grade checks",
    "audit --seconds 0 --guess-seconds 0": "grade findings",
    "audit --list": ROWS,
    "why-denied ann produce orders": OBJECT,
    "context list": ROWS,
}
"""Command → the shape of its --json. Words in capitals are ids of what there is."""
EXCUSED = {
    "top": "several looks, by tests of its own",
    "analyze": "alerts, a line each",
    "salvage": "a report of a store",
    "receive": "messages, a line each",
    "verify": "a report of a run",
    "list pool": "asks Ray",
    "list saf": "agents are of clusters",
    "query saf": "agents are of clusters",
    "compact dst": "changes something",
    "replace replica": "changes something",
    "export definitions": "a file",
    "import definitions": "changes something",
    "why prod": "a producer is named by a message that it sends now",
    "dbmgr query": "a database",
    "keytool make": "changes a file",
    "keytool import": "changes a file",
    "keytool show": "a file",
    "objmgr list": "an object store",
    "objmgr query": "an object store",
    "usermgr list": "a file",
}
"""Command with --json → why it is not here."""
LONG = "orders.of.a.department.with.a.very.long.name.indeed." + "x" * 120


class Filled:
    """A broker with one of each thing; the user root reaches it by the context in use."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder = folder
        outside = Outside(folder, opened)
        admin = outside.admin
        for name in ("orders", LONG, "dollar$HOME"):
            admin.create_destination("queue", name)
        admin.create_destination("topic", "news")
        admin.create_subscription("東京", "news", client_id="client", selector="a = 'ü'")
        admin.create_template("small", maxNumMsgs=100)
        admin.create_quota("small", MessagesMaximum=1000)
        for name in ("every", "other"):
            admin.create_policy(name, "orders>", priority=1, maxNumMsgs=1000)
        client = outside.connect("ann", client_id="日本")
        session, self.work = client.session(), client.session(transacted=True)
        message = session.producer("orders").send("body ü 日本 " + "long " * 50, {"property": "ü", "n": 1})
        session.producer("orders").send({"a": 1})
        self.work.producer("orders").send("x")
        self.consumer = session.consumer("news")
        passfile = folder / "pw"
        passfile.write_text("secret\n")
        passfile.chmod(0o600)
        self.variables = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
        self.variables.pop("COLUMNS", None)
        address = f"127.0.0.1:{outside.ports['portmapper']}"
        self.run("context", "add", "prod", "-b", address, "-u", "root", "--passfile", str(passfile), "--use")
        made = self.run("create", "sch", "hello", "-d", "orders", "--when", "0 3 * * *")
        assert made.exit_code == 0, made.output
        self.ids = {
            "CON": admin.list_consumers()[0]["id"],
            "SCH": admin.list_schedules()[0]["id"],
            "TXN": admin.list_transactions()[0]["id"],
            "CXN": next(row["id"] for row in admin.list_connections() if row["user"] == "ann"),
            "MSG": message,
        }

    def words(self, line: str) -> list[str]:
        return [str(self.ids.get(word, word)) for word in line.split()]

    def run(self, *words: str) -> program.Done:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(self.folder / "config"))
            return program.invoke(*words)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with ExitStack() as opened:
        yield Filled(tmp_path_factory.mktemp("broker"), opened)


@pytest.mark.parametrize("line", SHAPES)
def test_json_has_one_shape(filled: Filled, line: str) -> None:
    done = filled.run(*filled.words(line), "--json")
    assert done.exit_code in (0, 1, 2) if line.startswith(("check", "audit")) else done.exit_code == 0, done.output
    found, shape = json.loads(done.stdout), SHAPES[line]
    if shape == ROWS:
        assert isinstance(found, list)
        assert all(isinstance(row, Mapping) for row in found)
        assert len({tuple(row) for row in found}) <= 1
    else:
        assert isinstance(found, dict)
        assert shape == OBJECT or shape.split() == list(found)


def test_every_command_with_json_has_its_shape_here() -> None:
    def walk(group: Any, path: str) -> Iterator[str]:
        for name, command in group.commands.items():
            words = f"{path} {name}".strip()
            if hasattr(command, "commands"):
                yield from walk(command, words)
            elif any("--json" in one.opts and one.is_flag for one in command.params):
                yield words

    there = set(walk(program.commands(), ""))
    named = {words for words in there if any(f"{line} ".startswith(f"{words} ") for line in SHAPES)}
    assert named | set(EXCUSED) == there
    assert named.isdisjoint(EXCUSED)


@pytest.mark.parametrize(
    ("line", "code", "status"),
    [
        ("query dst -n nothing --json", "invalid_destination", 1),
        ("list dst -t x --json", "usage", 2),
        ("list dst --json --nothing", "usage", 2),
        ("query dst --json", "usage", 2),
        ("list dst --json -b 127.0.0.1:1 -u root --passfile PW", "no_cluster", 3),
        ("check dst -n nothing --json", "invalid_destination", 3),
    ],
)
def test_an_error_is_an_object_on_standard_error(filled: Filled, line: str, code: str, status: int) -> None:
    words = [str(filled.folder / "pw") if word == "PW" else word for word in line.split()]
    done = filled.run(*words)
    assert (done.exit_code, done.stdout) == (status, "")
    told = json.loads(done.stderr)
    assert (told["code"], told["exit_code"]) == (code, status)
    assert told["error"]
    plain = filled.run(*(word for word in words if word != "--json"))
    assert told["error"].splitlines()[0] in " ".join(plain.stderr.split())


ALL = """
import json, sys, typer
from raybroker.cli.main import app, main
for words in json.load(open(sys.argv[1])):
    sys.argv[1:] = words
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush(); sys.stderr.flush()
    print(f"\\n--- {code} {words[:2]}", flush=True)
"""
LINES = [*(line for line in SHAPES if not line.startswith("metrics")), "--help", "list --help", "list dst --help"]


def all_of(filled: Filled, *, terminal: bool, **variables: str) -> str:
    """Standard output and standard error of all commands, one after the other in a fresh process."""
    file = filled.folder / "lines.json"
    file.write_text(json.dumps([filled.words(line) for line in LINES]))
    command = [sys.executable, "-c", ALL, str(file)]
    environment = {**filled.variables, **variables}
    if not terminal:
        done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=100)
        return (done.stdout + done.stderr).decode(errors="surrogateescape")
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")  # 24 lines of 80 columns.
    with subprocess.Popen(command, env=environment, stdin=follower, stdout=follower, stderr=follower):
        os.close(follower)
        written = b""
        try:
            while chunk := os.read(leader, 1 << 16):
                written += chunk
        except OSError:  # Nobody writes there any more.
            pass
    os.close(leader)
    return written.decode(errors="surrogateescape").replace("\r\n", "\n")


def ended_well(text: str) -> None:
    ends = re.findall(r"^--- (\S+) (.*)$", text, re.MULTILINE)
    assert len(ends) == len(LINES), text[-2000:]
    graded = ("check", "audit")
    bad = [end for end in ends if end[0] not in ("012" if any(verb in end[1] for verb in graded) else "0")]
    assert bad == [], text[-2000:]
    assert "Traceback" not in text


def columns_of(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[0-9;]*m")


def test_tables_fit_a_terminal_of_80_columns_without_colour(filled: Filled) -> None:
    text = all_of(filled, terminal=True, TERM="xterm-256color", NO_COLOR="1")
    ended_well(text)
    assert "\x1b[1m" in text, "titles are bold all the same"
    assert COLOUR.search(text) is None
    for part in re.split(r"(?<=\])\n", text)[: len(LINES)]:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", part).splitlines()
        if any("─" in line for line in lines):
            table = lines[next(place for place, line in enumerate(lines) if "─" in line) - 1 :]
            assert max(map(columns_of, table)) <= 80, "\n".join(table)
            assert "…" not in "".join(table) or "'msg'" in part, "nothing is left out, but of bodies"


def test_a_dumb_terminal_gets_text_alone(filled: Filled) -> None:
    text = all_of(filled, terminal=True, TERM="dumb")
    ended_well(text)
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "variables",
    [
        {"LANG": "C", "LC_ALL": ""},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=lambda variables: " ".join(f"{name}={value}" for name, value in variables.items()),
)
def test_in_a_pipe_and_any_locale_it_is_text(filled: Filled, variables: dict[str, str]) -> None:
    text = all_of(filled, terminal=False, **variables)
    ended_well(text)
    assert "\x1b" not in text
    assert LONG in text, "in a pipe nothing is cut or folded"


@pytest.mark.parametrize("line", ["list dst", "list dst --json", "query bkr", "check bkr", "--help"])
def test_a_reader_that_goes_away_is_no_failure(filled: Filled, line: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "raybroker", *line.split()],
            env=filled.variables,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            timeout=100,
        )
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode in (0, 1)
