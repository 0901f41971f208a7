"""The README's two commands are what a newcomer types, and the second is exactly what the checks run."""

from __future__ import annotations

import subprocess

from tests.tidy.source import ROOT

DEMO = "python3 -m venv .venv && .venv/bin/pip install -q '.[demo]' && .venv/bin/raybroker demo"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test,demo]' && .venv/bin/python -m pytest"


def command_lines(readme: str) -> list[str]:
    """Whole lines of the README that set something up."""
    return [line.strip() for line in readme.splitlines() if line.strip().startswith("python3 -m venv")]


def readme() -> str:
    path = ROOT / "README.md"
    assert path.exists(), "there is no README.md with the two commands"
    return path.read_text(encoding="utf-8")


def test_the_readme_has_the_two_commands_each_on_a_line_of_its_own() -> None:
    assert command_lines(readme()) == [DEMO, TESTS]


def test_the_checks_run_the_test_command_of_the_readme() -> None:
    shown = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run"), "--show-test-command"], capture_output=True, text=True, check=False
    )
    assert shown.stdout.strip() == TESTS, shown.stderr


def test_a_command_inside_a_sentence_does_not_count() -> None:
    assert command_lines(f"Type `{DEMO}` now.\n") == []
    assert command_lines(f"```\n{DEMO}\n```\n") == [DEMO]
