"""A short round against every listener of a real broker; longer ones: ``python -m tests.fuzz --seconds N``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.doors import LISTENERS
from tests.fuzz.engine import by_hypothesis, examine
from tests.fuzz.listeners import attacked, close, targets

FEW = 25
ROOT = Path(__file__).parents[2]
LISTENER = {
    "host": "jms",
    "control": "jms",
    "control_logged_in": "jms",
    "control_tls": "ssljms",
    "tls_handshake": "ssljms",
    "admin": "admin",
    "port_mapper": "portmapper",
    "http": "httpjms",
    "https": "httpsjms",
    "web_socket": "httpjms",
    "stomp_1.0": "stomp",
    "stomp_1.1": "stomp",
    "stomp_1.2": "stomp",
    "stomp_tls": "sslstomp",
    "metrics": "metrics",
}
"""Target → the listener that has to be as before afterwards."""


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("name", LISTENER)
def test_a_listener_outlives_some_hostile_conversations_and_keeps_nothing_of_them(name: str) -> None:
    target, strategy = targets()[name]
    tried = attacked().tried
    examine(target, strategy, FEW)
    assert attacked().tried - tried > FEW // 4, "conversations came to their end"
    attacked().check(LISTENER[name])


@pytest.mark.long  # What it finds anew is no fault of the change that is being checked.
@pytest.mark.sweep
@pytest.mark.parametrize("name", LISTENER)
def test_a_listener_outlives_hostile_conversations(name: str, sweep_seconds: float) -> None:
    tried = by_hypothesis(targets(), [name], sweep_seconds, first=1, size=FEW)
    print(f"{tried[name]} conversations")
    attacked().check(LISTENER[name])


def test_every_listener_is_a_target() -> None:
    assert targets().keys() == LISTENER.keys()
    assert set(LISTENERS) - set(LISTENER.values()) == {"ssladmin"}, "it is admin, behind what ssljms has"


def test_a_fault_of_a_listener_would_be_seen() -> None:
    """The log of the broker is watched, and so is what stays connected."""
    doors = attacked().doors
    doors.faults.found.append("an exception of ours")
    with pytest.raises(AssertionError, match="an exception of ours"):
        attacked().blame()
    client = doors.raw().login()
    assert doors.clients()
    client.close()
    doors.nothing_left()


def test_the_command_names_what_it_lacks_or_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "has_atheris", lambda: False)
    assert engine.main("tests.fuzz.wire", targets(), ["--engine", "atheris", "--target", "http"]) == 2
    assert "pip install atheris" in capsys.readouterr().err
    command = [sys.executable, "-m", "tests.fuzz", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    assert {"stomp_1.2", "web_socket", "host_decoder"} <= set(re.findall(r"[\w.]+", shown))
