"""--watch: looks again and again, over a broker that is away, until Ctrl-C."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import typer

from raybroker.cli import output, watching
from raybroker.cli.exits import with_seconds
from raybroker.cli.watching import CLEAR, watched
from raybroker.errors import ConnectionLostError, SecurityError


class Looks:
    """What looks come to, one after the other; the last one is Ctrl-C."""

    def __init__(self, *looks: Callable[[], object]) -> None:
        self._looks = iter([*looks, self._interrupt])
        self.opened = self.closed = 0

    @contextmanager
    def open(self) -> Iterator[Looks]:
        self.opened += 1
        yield self
        self.closed += 1

    def look(self, through: Looks) -> None:
        assert through is self
        next(self._looks)()

    def _interrupt(self) -> None:
        raise KeyboardInterrupt


def lost() -> None:
    raise ConnectionLostError("the broker is away")


def part() -> None:
    print("part")
    raise typer.Exit(3)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pause:
        def wait(self, seconds: float) -> None:
            assert seconds == 7

    monkeypatch.setattr(watching, "_pause", Pause)
    monkeypatch.setattr(watching, "_time", lambda: "12:00")


def test_looks_follow_each_other_over_a_broker_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(lambda: print("one"), lost, lost, part, lambda: print("two"))
    watched(7, looks.open, looks.look, json=False)
    out, err = capsys.readouterr()
    head = "12:00, every 7 s\n"
    assert out == f"{head}one\n{head}part\n{head}two\n"
    assert err == "raybroker: 12:00: the broker is away\n" * 2
    assert (looks.opened, looks.closed) == (3, 3)


def test_json_has_no_lines_between(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(lambda: print("[]"), lambda: print("[]"))
    watched(7, looks.open, looks.look, json=True)
    assert capsys.readouterr().out == "[]\n[]\n"


@pytest.mark.parametrize("error", [ConnectionLostError("x"), SecurityError("x"), ZeroDivisionError()])
def test_what_fails_at_first_or_is_refused_ends_it(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        watched(7, (looks := Looks(fail)).open, looks.look, json=False)
    if not isinstance(error, ConnectionLostError):
        with pytest.raises(type(error)):
            watched(7, (looks := Looks(lambda: None, fail)).open, looks.look, json=False)


def test_without_the_option_there_is_one_look(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(lambda: print("one"))
    watched(None, looks.open, looks.look, json=False)
    assert capsys.readouterr().out == "one\n"


@pytest.mark.parametrize(("term", "clears"), [("xterm", True), ("dumb", False), ("", False)])
def test_at_a_terminal_each_look_takes_the_place_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, term: str, clears: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", term)
    screen, errors = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)

    def look() -> None:
        assert output.is_terminal()
        output.table([], {"a": "a"}, empty="nothing there")

    looks = Looks(look)
    watched(7, looks.open, looks.look, json=False)
    start = CLEAR if clears else ""
    assert screen.getvalue() + errors.getvalue() == f"{start}12:00, every 7 s\nnothing there\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--watch", "--watch=2"),
        ("--watch 5", "--watch 5"),
        ("--watch 0.5 -n q", "--watch 0.5 -n q"),
        ("--watch -n q", "--watch=2 -n q"),
        ("-n q --watch=3", "-n q --watch=3"),
    ],
)
def test_without_a_number_it_is_every_two_seconds(line: str, expected: str) -> None:
    assert with_seconds(line.split()) == expected.split()


@pytest.mark.parametrize("seconds", ["0.1", "0", "-1", "x", "86401"])
def test_the_interval_has_bounds(raybroker: Any, seconds: str) -> None:
    assert raybroker("list", "dst", "--watch", seconds).exit_code == 2
    assert raybroker("pause", "dst", "--watch").exit_code == 2, "it changes something"
