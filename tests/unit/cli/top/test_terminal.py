"""``raybroker top`` at a pseudo terminal: it is drawn, takes keys, follows a new size, and leaves all as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from raybroker.cli.top.terminal import ENTER, LEAVE

WAIT_S = 30.0
OWN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
"""Ctrl-C and Ctrl-Z reach a program by the terminal that it is the session of."""
TOP = """
import sys
import raybroker as rb
from raybroker.cli import connecting
from raybroker.cli.main import main

class Kept:
    def __getattr__(self, name):
        return getattr(connection, name)

    def close(self):
        pass

with rb.loopback(client_id="日本語") as connection:
    connection.start()
    session = connection.session()
    session.producer("orders").send_many(range(30))
    session.producer("invoices").send("x")
    connection.admin().pause_destination("queue", "orders", "consumers")
    connecting.connect = lambda cluster, broker=None: Kept()
    sys.argv = ["raybroker", "top", "-i", "0.1"]
    main()
"""
ALONE = """
import sys
from raybroker.cli.top.drawing import ScreenLine
from raybroker.cli.top.terminal import Terminal

with Terminal() as terminal:
    print("a warning", file=sys.stderr)
    terminal.show([ScreenLine("drawn", "critical")])
    for _ in range(1000):
        if "x" in list(terminal.keys(0.5)):
            raise OSError("it broke")
"""


class Seen:
    """A program at a terminal of its own, and what it has written there."""

    def __init__(self, code: str, **environment: str) -> None:
        self.fd, self.slave = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL + code],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        )

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, text: str) -> None:
        self.text = ""
        os.write(self.fd, text.encode())

    def shows(self, *wanted: str) -> str:
        """Wait until all of it was written since the latest keys; the screen that was drawn last."""
        until_s = time.monotonic() + WAIT_S
        while not all(text in self.text for text in wanted):
            assert time.monotonic() < until_s, f"{wanted} is not in {self.text[-3000:]!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
        return self.text

    def left(self, code: int) -> str:
        """It has ended so, and the terminal is as it was; what was written last."""
        assert self.process.wait(WAIT_S) == code, self.text[-3000:]
        text = self.shows(LEAVE)
        assert text.count(ENTER) <= text.count(LEAVE)
        assert termios.tcgetattr(self.slave) == self.before
        return text.rpartition(LEAVE)[2] + self._rest()

    def _rest(self) -> str:
        found = ""
        while select.select([self.fd], [], [], 0.2)[0]:
            found += os.read(self.fd, 65536).decode("utf-8", "replace")
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        os.close(self.fd)
        os.close(self.slave)


@pytest.fixture
def terminal() -> Iterator[Any]:
    opened: list[Seen] = []

    def start(code: str, **environment: str) -> Seen:
        opened.append(Seen(code, **environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_top_is_drawn_takes_keys_and_ends_with_ctrl_c(terminal: Any) -> None:
    top = terminal(TOP)
    top.shows(ENTER, "raybroker destinations", "NOTE     queue orders: it is CONSUMERS_PAUSED", "invoices", "in/s▼")
    top.press(">")
    top.shows("out/s▼")
    top.press("/注")
    top.shows("filter: 注_", "nothing matches the filter")
    top.press("\x1b")
    top.shows("invoices")
    top.press("/inv\r")
    assert "orders  " not in top.shows("with 'inv'").rpartition("\x1b[H")[2]
    top.press("\x1b3")
    top.shows("raybroker connections", "日本語")
    top.resize(10, 40)
    top.press("p")
    screen = top.shows("PAUSED", "\x1b[J").rpartition("\x1b[H")[2]
    assert screen.count("\r\n") < 10
    top.press("\x03")
    top.left(0)


def test_a_signal_to_end_restores_the_terminal_and_says_what_was_held(terminal: Any) -> None:
    alone = terminal(ALONE)
    alone.shows(ENTER, "\x1b[1;31mdrawn\x1b[0m")
    alone.process.send_signal(signal.SIGTERM)
    assert "a warning" in alone.left(128 + signal.SIGTERM)


def test_an_error_restores_the_terminal_and_is_told_behind_it(terminal: Any) -> None:
    alone = terminal(ALONE, NO_COLOR="1")
    alone.shows(ENTER, "\x1b[1mdrawn\x1b[0m")
    alone.press("x")
    assert "OSError: it broke" in alone.left(1)


def test_a_stop_gives_the_terminal_to_the_shell_until_it_goes_on(terminal: Any) -> None:
    alone = terminal(ALONE)
    alone.shows("drawn")
    alone.press("")
    alone.process.send_signal(signal.SIGTSTP)  # Nobody would wake it up here, so that it goes on at once.
    assert alone.shows(LEAVE, ENTER).index(LEAVE) < alone.text.index(ENTER)
    alone.process.send_signal(signal.SIGTERM)
    alone.left(128 + signal.SIGTERM)
