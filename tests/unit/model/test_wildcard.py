"""Patterns of topics (D-05): the row's own examples, the edges it leaves open, and a second opinion by regular
expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import InvalidDestinationError
from raybroker.model.naming.wildcard import check_pattern, is_pattern, matches, matching

EXAMPLES = [
    ("large.*.circle", "large.red.circle", True),
    ("large.*.circle", "large.circle", False),
    ("large.*.circle", "large.very.red.circle", False),
    ("large.*.circle", "large.red.square", False),
    ("**.square", "red.square", True),
    ("**.square", "large.red.square", True),
    ("**.square", "square", False),
    ("small>", "small", True),
    ("small>", "small.x", True),
    ("small>", "small.x.y", True),
    ("small>", "smallyellow", False),
    ("small>", "large.small", False),
    (">", "anything", True),
    (">", "any.thing.else", True),
    (">.circle", "circle", True),
    (">.circle", "large.red.circle", True),
    (">.circle", "circles", False),
    ("small>.circle", "small.circle", True),
    ("small>.circle", "small.x.y.circle", True),
    ("small>.circle", "small.x", False),
    ("*", "small", True),
    ("*", "small.x", False),
    ("*>", "small.x", True),
    ("**", "small", True),
    ("**", "small.x.y", True),
    ("*.*", "small", False),
    ("*.*", "small.x", True),
    ("**.a.**", "x.a.y", True),
    ("**.a.**", "a.x.a.a", True),
    ("**.a.**", "x.a", False),
    ("Small.*", "small.x", False),
    ("a.b", "a.b", True),
]


@pytest.mark.parametrize(("pattern", "name", "expected"), EXAMPLES)
def test_what_a_pattern_matches(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("small.>", "leave the dot out"),
        ("small.>.x", "leave the dot out"),
        ("a>b", "inside a segment"),
        (">>", "inside a segment"),
        ("sm*", "whole segments"),
        ("***", "whole segments"),
        ("a.b*c.d", "whole segments"),
        ("a..*", "empty segment"),
        ("*.", "empty segment"),
        (".*", "empty segment"),
        ("two words.*", "two words"),
        ("a/b.*", "a/b"),
        ("*." * 127 + "ab", "at most 255"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_reason(pattern: str, why: str) -> None:
    for call in (lambda: check_pattern(pattern), lambda: matches(pattern, "a")):
        with pytest.raises(InvalidDestinationError) as caught:
            call()
        assert why in str(caught.value)
        assert len(str(caught.value)) < 250


def test_only_patterns_have_the_signs() -> None:
    assert [is_pattern(name) for name in ("a.*", "**", "small>", "a.b", "a-b$")] == [True, True, True, False, False]


def test_the_brokers_own_topics_are_nobodys_match_unless_asked_for() -> None:
    assert not matches(">", "mq.temp.t.1")
    assert not matches("*.sys.x", "mq.sys.x")
    assert matches("mq.metrics>", "mq.metrics.jvm")
    assert matching("**", ["b", "mq.temp.t.1", "a.c"]) == ["a.c", "b"]


def test_many_wildcards_on_a_long_name_take_no_time() -> None:
    pattern = "**." * 60 + "end"
    assert not matches(pattern, ".".join("a" * 127))


def expression(pattern: str) -> str:
    """The same pattern as a regular expression over the name with a dot behind every segment."""
    found = ""
    for segment in pattern.split("."):
        base = segment.removesuffix(">")
        found += {"": "", "*": r"[^.]+\.", "**": r"(?:[^.]+\.)+"}.get(base, re.escape(base) + r"\.")
        found += r"(?:[^.]+\.)*" if segment.endswith(">") else ""
    return found


SEGMENTS = st.sampled_from(["a", "b", "ab"])
NAMES = st.lists(SEGMENTS, min_size=1, max_size=7).map(".".join)
PARTS = st.sampled_from(["a", "b", "*", "**", "a>", "*>", "**>"])
PATTERNS = st.tuples(st.booleans(), st.lists(PARTS, max_size=4)).map(
    lambda drawn: ".".join(([">"] if drawn[0] or not drawn[1] else []) + drawn[1])
)


@given(PATTERNS, NAMES)
def test_it_agrees_with_regular_expressions(pattern: str, name: str) -> None:
    assert matches(pattern, name) is (re.fullmatch(expression(pattern), name + ".") is not None)
