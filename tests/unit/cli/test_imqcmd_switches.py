"""Switches that scripts for imqcmd give to every command: -s prints nothing, -v the version, -f asks nothing."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from raybroker.cli.command import ASKS_NOTHING, texts
from raybroker.cli.groups import HELP, made, words_of

ALONE = {"create sch", "list bkr", "metrics dst", "metrics bkr", "metrics svc", "metrics cxn", "restore cls"}
"""Commands that connect in a way of their own, or print for as long as they run."""
COMMANDS = [
    (verb, word, made(verb, word).function) for verb in HELP for word in words_of(verb) if f"{verb} {word}" not in ALONE
]
"""Verbs of administration."""


@pytest.mark.parametrize(("verb", "name", "callback"), COMMANDS, ids=[f"{verb} {name}" for verb, name, _ in COMMANDS])
def test_every_command_takes_them(verb: str, name: str, callback: Any) -> None:
    taken = {text for one in inspect.signature(callback).parameters.values() for text in texts(one.annotation)}
    assert {"-s", "-v"} <= taken
    if verb in ASKS_NOTHING:
        assert "-f" in taken


def test_silent_prints_nothing_and_fails_as_ever(raybroker: Any, broker: Any) -> None:
    quiet = raybroker("create", "dst", "-t", "q", "-n", "orders", "-s")
    assert (quiet.exit_code, quiet.stdout) == (0, "")
    assert "orders" in raybroker.output("list", "dst")
    assert raybroker.output("list", "dst", "-s") == ""
    failed = raybroker("query", "dst", "-t", "q", "-n", "nothing", "-s")
    assert failed.exit_code != 0
    assert failed.stdout == ""


def test_a_pause_asks_nothing_and_a_version_is_printed(raybroker: Any, broker: Any) -> None:
    raybroker.output("create", "dst", "-t", "q", "-n", "orders")
    for verb in ("pause", "resume"):
        raybroker.output(verb, "dst", "-t", "q", "-n", "orders", "-f")
    for arguments in (("-v",), ("list", "dst", "-v"), ("pause", "dst", "-v")):
        assert raybroker.output(*arguments).startswith("raybroker")
