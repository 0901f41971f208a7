"""The tour of the source, and what it says to contributors, lead to files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.source import ROOT, read

TOUR = "raybroker/README.md"
CONTRIBUTING = "raybroker/CONTRIBUTING.md"
_PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`")
QUESTIONS = 20


def paths(text: str) -> Iterator[str]:
    """Paths that the tour names, from the package or from the root of the repository."""
    for found in _PATH.finditer(text):
        yield found[1]


def missing(text: str) -> list[str]:
    return [path for path in paths(text) if not (ROOT / "raybroker" / path).exists() and not (ROOT / path).exists()]


def test_the_tour_leads_to_files_that_exist() -> None:
    text = read(TOUR, CONTRIBUTING, suffixes=(".md",))
    assert [path for page in text.values() for path in missing(page)] == []
    assert len(list(paths(text[TOUR]))) > 40


def test_each_question_is_answered_with_a_path() -> None:
    text = read(TOUR, suffixes=(".md",))[TOUR]
    answers = re.split(r"^\d+\. \*\*", text[text.index("## Twenty questions") :], flags=re.MULTILINE)[1:]
    assert len(answers) == QUESTIONS
    for answer in answers:
        question, _, said = answer.partition("?**")
        assert list(paths(said)), f"{question}: the answer names no file"


def test_a_path_that_is_gone_is_found() -> None:
    assert missing("see `core/nowhere.py`, `core/queue.py` and `tests/scenarios/`") == ["core/nowhere.py"]
