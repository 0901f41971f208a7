"""Completion by the real shells, at a terminal: what stands on the line after the key is what is there, and no more."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import program
from tests.contracts.test_services import Outside

PROGRAM = [sys.executable, "-m", "raybroker"]
WAIT_S = 60
HOSTILE = [
    'a two it\'s "x"',
    "b:colon:日本語",
    "c$(touch CANARY)`touch CANARY`",
    "d;touch CANARY|x&",
    "e!x=k*?[x]{a,b}\\m~x#y$HOME",
]
"""Names of subscriptions, each with a first letter of its own."""
START = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}
SET_UP = {
    "bash": 'source <(PROGRAM completion bash); bind -x \'"\\C-xs": printf %s "$READLINE_LINE" > SHOWN\'\n',
    "zsh": "autoload -Uz compinit && compinit -u -D; source <(PROGRAM completion zsh); "
    "show() { print -rn -- \"$BUFFER\" > SHOWN }; zle -N show; bindkey '^Xs' show\n",
    "fish": "PROGRAM completion fish | source; bind \\cxs 'commandline > SHOWN'\n",
}
LAST_WORD = {
    "bash": 'for one in {}; do :; done; printf %s "$one"',
    "zsh": 'for one in {}; do :; done; printf %s "$one"',
    "fish": "for one in {}; end; printf %s $one",
}


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.shell, self.folder, self.shown = shell, folder, folder / "shown"
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "INPUTRC": "/dev/null",
            "RAYBROKER_COMPLETION_S": "10",  # The machine of the test is busy.
        }
        self.process, self.number = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(shell, [shell, *START[shell]], variables)
        fcntl.ioctl(self.number, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")
        self.written = b""
        self.send(SET_UP[shell].replace("PROGRAM", " ".join(PROGRAM)).replace("SHOWN", str(self.shown)))
        self.line("")  # It reads keys from here on.

    def send(self, text: str) -> None:
        os.write(self.number, text.encode())

    def line(self, typed: str) -> str:
        """What stands on the line after this was typed; the line is gone then."""
        self.shown.unlink(missing_ok=True)
        self.send(f"{typed}\x18s")
        until = time.monotonic() + WAIT_S
        while not self.shown.exists() or (typed and not self.shown.read_text()):
            if select.select([self.number], [], [], 0.02)[0]:
                self.written += os.read(self.number, 1 << 16)
            assert time.monotonic() < until, self.written[-2000:].decode(errors="replace")
        found = self.shown.read_text().rstrip("\n")
        self.send("\x01\x0b")  # To its beginning, and away with it.
        return found

    def last_word(self, line: str) -> str:
        """What the shell makes of the last word of a line."""
        words = line.removeprefix("raybroker ")
        command = [self.shell, *START[self.shell][:-1], "-c", LAST_WORD[self.shell].replace("{}", words)]
        done = subprocess.run(command, capture_output=True, cwd=self.folder, check=True, timeout=60)
        assert done.stderr == b""
        return done.stdout.decode()

    def close(self) -> None:
        os.close(self.number)  # It hangs up.
        os.waitpid(self.process, 0)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path_factory.mktemp("broker"), opened)


@pytest.fixture
def folder(outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the context ``prod``, which is in use."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    passfile = tmp_path / "pw"
    passfile.write_text("secret\n")
    passfile.chmod(0o600)
    address = f"127.0.0.1:{outside.ports['portmapper']}"
    done = program.invoke("context", "add", "prod", "-b", address, "-u", "root", "--passfile", str(passfile), "--use")
    assert done.exit_code == 0, done.output
    return tmp_path


@pytest.fixture(params=START)
def terminal(request: pytest.FixtureRequest, folder: Path) -> Iterator[Terminal]:
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    made = Terminal(shell, folder)
    yield made
    made.close()


def test_what_is_there_is_completed_and_stands_for_itself(outside: Outside, terminal: Terminal) -> None:
    admin = outside.admin
    if not {row["name"] for row in admin.list_subscriptions()}:
        admin.create_destination("topic", "news")
        admin.create_destination("queue", "orders.all")
        for name in HOSTILE:
            admin.create_subscription(name, "news", client_id="c")
    assert terminal.line("raybroker pur\t").rstrip() == "raybroker purge"
    assert terminal.line("raybroker pause dst -n ord\t").rstrip() == "raybroker pause dst -n orders.all"
    assert terminal.line("raybroker pause dst --name=ord\t").rstrip() == "raybroker pause dst --name=orders.all"
    assert terminal.line("raybroker pause dst -t t -n n\t").rstrip() == "raybroker pause dst -t t -n news"
    assert terminal.line("raybroker list dst --temp\t").rstrip() == "raybroker list dst --temporary"
    assert terminal.line("raybroker --context pr\t").rstrip() == "raybroker --context prod"
    for name in HOSTILE:
        line = terminal.line(f"raybroker purge dur -n {name[0]}\t")
        assert terminal.last_word(line.strip()) == name, line
    for begun, name in (("'a", HOSTILE[0]), ('"c', HOSTILE[2]), ("b:co", HOSTILE[1])):
        line = terminal.line(f"raybroker purge dur -n {begun}\t")
        assert terminal.last_word(line.strip()) == name, line
    assert not (terminal.folder / "CANARY").exists()
    assert b"raybroker:" not in terminal.written
    assert b"Traceback" not in terminal.written


def test_without_an_answer_the_line_stays_as_it_is(folder: Path, outside: Outside) -> None:
    """Nobody is told why, neither on standard error nor on the line, and nobody waits for long."""
    line = "raybroker pause dst -n ord"
    for command, variables in (
        (line, {"RAYBROKER_CONTEXT": "nothing"}),
        (f"raybroker --context nothing {line.removeprefix('raybroker ')}", {}),
        ("raybroker pause dst -b 127.0.0.1:1 -u root -n o", {}),
        ("raybroker pause dst -b 192.0.2.1:7676 -u root --passfile pw -n o", {}),
        ("raybroker pause dst -b 127.0.0.1:1 -u root --passfile missing -n o", {}),
        ("raybroker nothing dst -n o", {}),
        ("raybroker pause dst -n 'a'b", {}),
    ):
        since = time.monotonic()
        done = subprocess.run(
            [*PROGRAM, "completion", "words", "bash", command, " \t\n\"'><=;|&(:"],
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
            cwd=folder,
            check=True,
            timeout=30,
        )
        assert (done.stdout.splitlines()[1:], done.stderr) == ([], ""), command
        assert time.monotonic() - since < 20
