"""Lines that are read without typer: they mean what typer makes of them, and all others are left to it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from typer.models import OptionInfo

from raybroker.cli import quick
from raybroker.cli.command import texts
from raybroker.cli.groups import HELP, built, made, words_of

GRID = [(verb, word) for verb in HELP for word in words_of(verb)]
LEFT = {"export msg", "import msg", "export definitions", "import definitions", "backup cls", "restore cls"}
"""Commands with an argument that is no option, which typer reads always."""
PARSED = {"--until": "10m", "-pst": "CONSUMERS", "--pause-type": "PRODUCERS", "-t": "t", "--type": "topic"}


def options(verb: str, word: str) -> Iterator[tuple[str, str | None, bool]]:
    """(Option as it is written, a value or None of a flag, whether it is required) of each that a command has."""
    for one in inspect.signature(made(verb, word).function).parameters.values():
        info = next((found for found in get_args(one.annotation)[1:] if isinstance(found, OptionInfo)), None)
        if info is None or info.callback is not None:
            continue
        ways = set()
        kind = get_args(one.annotation)[0]
        kinds = [found for found in get_args(kind) if found is not NoneType] or [kind]
        base = (
            get_args(kinds[0])[0] if get_origin(kinds[0]) is list else kinds[0] if NoneType in get_args(kind) else kind
        )
        for text in sorted(texts(one.annotation)) or [f"--{one.name}"]:
            if "/" not in text and (long := text.startswith("--")) not in ways:
                ways.add(long)
                yield text, _value(text, base, info), one.default is inspect.Parameter.empty


def _value(text: str, base: Any, info: OptionInfo) -> str | None:
    if base is bool:
        return None
    if text in PARSED:
        return PARSED[text]
    if info.parser is not None:
        return "t"
    if isinstance(base, type) and issubclass(base, Enum):
        return str(next(iter(base)).value)
    return {int: "7", float: "2.5", str: "a=b 日本 $(x)", Path: "some/file"}.get(base, "x=1")


def by_typer(verb: str, word: str, line: list[str]) -> dict[str, Any]:
    """What typer calls the function of a command with."""
    function, seen = made(verb, word).function, {}

    def note(**given: Any) -> None:
        seen.update(given)

    note.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    note.__annotations__ = function.__annotations__
    command = built(word, lambda program: program.command(word)(note))
    command.main(line, standalone_mode=False)
    return seen


def lines(verb: str, word: str) -> Iterator[list[str]]:
    """Lines with what is required, and beside it with each other option once, by turns in each way to write it."""
    known = list(options(verb, word))
    least = {text: value for text, value, required in known if required and text.startswith("--")}
    least |= {
        text: value
        for text, value, required in known
        if required and not any(other.startswith("--") for other, _, needed in known if needed)
    }
    required = [part for text, value in least.items() for part in (text, value or "")]
    yield required
    rest = [(text, value) for text, value, needed in known if not needed]
    for ways in (("--", "="), ("--", " "), ("-", " ")):
        line = list(required)
        for text, value in rest:
            if text.startswith("--") == (ways[0] == "--"):
                line += [text] if value is None else [f"{text}={value}"] if ways[1] == "=" else [text, value]
        yield line


@pytest.mark.parametrize(("verb", "word"), GRID, ids=[" ".join(one) for one in GRID])
def test_what_is_read_quickly_is_what_typer_makes_of_it(verb: str, word: str) -> None:
    function: Callable[..., Any] = made(verb, word).function
    if f"{verb} {word}" in LEFT or quick.read([verb, word, *next(lines(verb, word))]) is None:
        assert quick.read([verb, word]) is None
        return
    for line in lines(verb, word):
        found = quick.options_of(function, line)
        assert found is not None, line
        expected = by_typer(verb, word, line)
        for options_read in (found, expected):
            options_read.pop("shown_version", None)  # Of typer it is what the callback has returned.
        assert {name: _plain(value) for name, value in found.items()} == {
            name: _plain(value) for name, value in expected.items()
        }


def _plain(value: Any) -> Any:
    """Moments from now on differ by how long typer takes."""
    return round(value, -5) if isinstance(value, int) and value > 10**12 else value


@pytest.mark.parametrize(
    "line",
    [
        "list",
        "list queues",
        "list dst --help",
        "list dst -v",
        "list dst --nothing",
        "list dst -t",
        "list dst -t x",
        "list dst --json=1",
        "list dst --json --json extra",
        "list dst --cluster a --cluster b",
        "list dst -b -u",
        "list dst -- x",
        "query dst",
        "query con -n x",
        "query con -n 1.5",
        "query con -n -1",
        "list dst -rtm 0",
        "list dst -rtm 1e2",
        "list dst -rtm 2.",
        "list dst -sb h",
        "create dst -n q --if-exists never",
        "update policy -n p --operator",
        "pause dst --until yesterday",
        "export msg file -n q",
        "--context",
        "--context= list dst",
        "--version list dst",
        "send q x",
    ],
)
def test_what_has_to_be_explained_is_left_to_typer(line: str) -> None:
    assert quick.read(line.split()) is None


def test_a_context_is_read_before_the_verb() -> None:
    line = quick.read(["--context", "prod", "list", "dst"])
    assert line is not None
    assert (line.verb, line.context, line.options["cluster"]) == ("list", "prod", "default")


def test_the_program_says_the_same_either_way(tmp_path: Path) -> None:
    """Errors of commands have the same texts and exit codes; --version behind a line has typer read it."""
    for words, code, told in (
        (["list", "dst", "-u", "ann"], 2, "name one with -b host:port"),
        (["check", "svc", "-u", "ann"], 3, "name one with -b host:port"),
        (["create", "svc"], 1, "this version cannot create connection services yet"),
        (["--context", "nothing", "list", "dst"], 2, "there is no context 'nothing'"),
        (["destroy", "dst", "-n", "q"], 2, "say yes with --force"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "raybroker", *words],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
        )
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert told in done.stderr
