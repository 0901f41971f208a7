"""What judges the clients: the checker of histories, results of programs, what is done where something is missing."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.amqp_clients import building, programs
from tests.amqp_clients.kills import AT_ONCE, PRODUCERS, History, wrong

GOOD = History(["a:1", "a:2", "a:3"], ["a:1", "a:2"], ["a:1", "a:2", "a:2!"], [])


def test_a_history_without_faults_is_right() -> None:
    assert wrong(GOOD, 1) == []
    assert wrong(replace(GOOD, received=["a:1!", "a:2", "a:3"]), 1) == []
    assert wrong(replace(GOOD, received=["a:1"], doubtful=["a:2"]), 1) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"received": ["a:1"]}, "never received: 1"),
        ({"received": ["a:1", "a:2", "b:7"]}, "never sent: 1"),
        ({"received": ["a:1"] * (PRODUCERS * AT_ONCE + 2) + ["a:2"]}, "without JMSRedelivered: 16"),
        ({"faults": ["producer a hangs"]}, "producer a hangs"),
        ({"doubtful": [f"a:{number}" for number in range(AT_ONCE + 1)]}, "transactions that have failed"),
        ({"confirmed": []}, "nothing was shown"),
        ({"received": [], "confirmed": []}, "nothing was shown"),
    ],
)
def test_the_checker_finds(change: dict[str, Any], word: str) -> None:
    assert any(word in line for line in wrong(replace(GOOD, **change), 1))


def said(monkeypatch: pytest.MonkeyPatch, code: str, **options: float) -> programs.Results:
    monkeypatch.setattr(programs, "command", lambda *given: [sys.executable, "-c", code])
    server: Any = None
    return programs.run("joram", server, **options)


PASSED = """print('{"case": "x", "result": "passed", "seconds": 0.1, "why": null}', flush=True)\n"""
FAILED = """print('{"case": "y", "result": "failed", "seconds": 0.1, "why": "so"}', flush=True)\n"""


def test_results_are_those_that_the_program_says_and_ends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(monkeypatch, PASSED)
    assert (found.passed, found.failed) == (["x"], {})
    found = said(monkeypatch, PASSED + FAILED + "exit(1)")
    assert (found.passed, found.failed) == (["x"], {"y": "so"})
    assert found.text == "y: so\n1 passed, 1 failed"


@pytest.mark.parametrize("code", ["", PASSED + "exit(1)", PASSED + "exit(3)", FAILED, "import os; os.abort()"])
def test_a_program_that_ends_in_another_way_has_failed(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    assert "its end" in said(monkeypatch, code).failed["joram"]


def test_a_program_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(monkeypatch, PASSED + "import time; time.sleep(60)", limit_s=1)
    assert (found.passed, list(found.failed)) == (["x"], ["joram"])


def test_what_is_made_is_kept_under_a_digest_and_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "source"
    source.write_text("one")
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text(source.read_text())
        if source.read_text() == "bad":
            raise RuntimeError("it has failed")

    first = building.made("kind", [source], make)
    assert building.made("kind", [source], make) == first
    assert len(made) == 1
    source.write_text("two")
    second = building.made("kind", [source], make)
    assert [(path / "file").read_text() for path in (first, second)] == ["one", "two"]
    source.write_text("bad")
    with pytest.raises(RuntimeError):
        building.made("kind", [source], make)
    assert sorted(building.cache().iterdir()) == sorted([first, second])


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(building.MissingError, match=r"no-such-program is not installed; .* package something"):
        building.program("no-such-program", "something")


def test_the_list_is_read_from_its_source() -> None:
    names = programs.cases_of_source()
    assert len(names) == len(set(names)) >= 60
    assert "Selectors.onMessageId" in names
