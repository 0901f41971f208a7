"""raybroker help: pages of the manual, plain in a pipe and rendered at a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.cli import output
from raybroker.cli.tools.manual import FIRST, pages
from tests.tidy.source import ROOT


def test_the_topics_are_listed_in_the_order_of_reading(raybroker: Any) -> None:
    lines = raybroker.output("help").splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(pages())
    assert tuple(pages())[: len(FIRST)] == FIRST
    assert lines[0].endswith("  Concepts")


@pytest.mark.parametrize("path", ["concepts.md", "reference/errors.md"])
def test_a_page_in_a_pipe_is_the_file(raybroker: Any, path: str) -> None:
    topic = path.rpartition("/")[2].removesuffix(".md")
    assert raybroker.output("help", topic) == (ROOT / "raybroker" / "manual" / path).read_text(encoding="utf-8")


def test_a_page_at_a_terminal_is_rendered(raybroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    for topic in pages():
        text = raybroker.output("help", topic)
        assert "\n## " not in text
        assert "```" not in text
        assert "…" not in text or "…" in pages()[topic].read_text(encoding="utf-8")
    assert "message.acknowledge_this()" in raybroker.output("help", "jms")


def test_an_unknown_topic_is_answered_with_the_nearest(raybroker: Any) -> None:
    done = raybroker("help", "securty")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the manual has no page 'securty'; the nearest is security. Topics: concepts, ray, jms" in done.stderr
    assert "raybroker send --help shows that command" in raybroker("help", "send").stderr


def test_no_two_pages_have_one_topic() -> None:
    assert len(list((ROOT / "raybroker" / "manual").rglob("*.md"))) == len(pages())
