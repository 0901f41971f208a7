"""Exceptions of consumers as texts: bounded, in one piece, and taken apart again."""

from __future__ import annotations

from raybroker.model.failure import REASON_CHARS_MAX, TRACEBACK_CHARS_MAX, describe, parted, summary_of


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def caught(error: Exception, depth: int = 0) -> Exception:
    def descend(left: int) -> None:
        if left:
            descend(left - 1)
        raise error

    try:
        descend(depth)
    except type(error) as found:
        return found
    raise AssertionError


def test_summary_and_traceback_are_taken_apart_as_they_were_put_together() -> None:
    summary, trace = parted(describe(caught(KeyError("a\nb"))))
    assert summary == "KeyError: 'a\\nb'"
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith(summary)
    assert parted(describe(KeyError("never raised"))) == ("KeyError: 'never raised'", "")
    assert parted("no such customer\nnone at all") == ("no such customer\nnone at all", "")


def test_the_innermost_calls_of_a_long_traceback_are_kept() -> None:
    text = describe(caught(ValueError("\ud800" + "x" * 5_000), depth=200))
    summary, trace = parted(text)
    assert len(text) <= REASON_CHARS_MAX
    assert len(trace) <= TRACEBACK_CHARS_MAX + 50
    assert "raise error" in trace or "xxx" in trace
    assert summary.startswith("ValueError: ?xxx")
    text.encode()


def test_calls_of_the_machinery_can_be_left_out_and_what_came_before_is_named() -> None:
    error = caught(ValueError("x"), depth=1)
    error.__cause__ = KeyError("first")
    assert "in caught" in describe(error)
    assert "in caught" not in describe(error, skip=1)
    assert describe(error, skip=99) == "ValueError: x"
    assert describe(error).endswith("\nafter KeyError: 'first'")


def test_an_exception_that_cannot_say_its_text_and_one_without_any_have_a_summary() -> None:
    assert summary_of(OddError()).endswith("OddError: <its text cannot be made>")
    assert summary_of(ValueError()) == "ValueError"
