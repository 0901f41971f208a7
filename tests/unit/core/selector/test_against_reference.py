"""Random selectors over random messages: the same answers as a reference that shares no code, whatever way they are
asked for; and random text does no more than be refused."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from raybroker.core.selector import compile_selector
from raybroker.model.errors import InvalidSelectorError
from tests.unit.core.selector import reference
from tests.unit.core.selector.samples import Messages

NAMES = st.sampled_from(["a", "b", "c", "flag", "_x$1", "JMSPriority", "JMSType", "JMSXGroupID", "JMS_ours"])
SPECIAL_NUMBERS = [0, 1, -1, 2, 7, 2**63 - 1, -(2**63), 2**53 + 1, 0.0, -0.5, 1.0, 2.5, 1e308, float("nan")]
VALUES = (
    st.sampled_from(SPECIAL_NUMBERS)
    | st.sampled_from(["", "a", "ab", "a%b", "a_b", "b'c", "x\ny", "7"])
    | st.booleans()
    | st.none()
    | st.sampled_from([b"", b"a"])
    | st.integers(-5, 5)
)
MESSAGES = st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=12)

QUOTED = st.sampled_from(["''", "'a'", "'ab'", "'b''c'", "'7'", "'a%'", "'%b'", "'a_b'", "'%a%'", "'_'", "'a!%b'"])
NUMBERS = st.sampled_from(["0", "1", "2", "3", "7", "9223372036854775807", "2.5", ".5", "1.", "1e2", "1e308", "0.0"])
TRUTHS = st.sampled_from(["TRUE", "false"])
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def joined(*parts: Any) -> st.SearchStrategy[str]:
    """The parts, each a text or a strategy for texts, with blanks between."""
    made = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*made).map(" ".join)


def sums(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        joined(inner, st.sampled_from("+-*/"), inner) | joined(st.sampled_from("+-"), inner) | joined("(", inner, ")")
    )


SUMS = st.recursive(NAMES | NUMBERS, sums, max_leaves=4)
NEGATION = st.sampled_from(["", "NOT"])
PREDICATES = (
    joined(SUMS, COMPARISONS, SUMS)
    | joined(NAMES, st.sampled_from(["=", "<>"]), QUOTED | TRUTHS)
    | joined(QUOTED, st.sampled_from(["=", "<>"]), NAMES)
    | joined(SUMS, NEGATION, "BETWEEN", SUMS, "and", SUMS)
    | joined(NAMES, NEGATION, "in (", QUOTED, ",", QUOTED, ")")
    | joined(NAMES, NEGATION, "LIKE", QUOTED)
    | joined(NAMES, NEGATION, "LIKE", QUOTED, "ESCAPE '!'")
    | joined(NAMES, "is", NEGATION, "NULL")
    | NAMES
    | TRUTHS
)


def conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        joined(inner, st.sampled_from(["AND", "OR", "and"]), inner)
        | joined("NOT", inner)
        | joined("(", inner, ")")
        | joined("(", inner, ")", st.sampled_from(["=", "<>"]), NAMES | TRUTHS)
    )


SELECTORS = st.recursive(PREDICATES, conditions, max_leaves=6)
WORDS = st.one_of(NAMES, QUOTED, NUMBERS, TRUTHS, COMPARISONS) | st.sampled_from(
    [
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "LIKE",
        "IN",
        "IS",
        "NULL",
        "ESCAPE",
        "+",
        "-",
        "*",
        "/",
        "(",
        ")",
        ",",
        "IS NULL",
        "IN ('a')",
        "LIKE 'a'",
    ]
)
"""Any order of these is a text that is often wrong."""


def expected(text: str, messages: list[dict[str, Any]]) -> list[bool] | None:
    try:
        return [reference.matches(text, message) for message in messages]
    except reference.Refused:
        return None


def actual(text: str, messages: list[dict[str, Any]], some: int) -> list[bool] | None:
    """Asked for one by one; ``pick`` must say the same for all, and for those of ``some``."""
    try:
        selector = compile_selector(text)
    except InvalidSelectorError:
        return None
    content = Messages(messages, messages)
    each = [selector.matches(content, index, 0) for index in range(len(messages))]
    everybody = (1 << len(messages)) - 1
    wanted = sum(1 << index for index, yes in enumerate(each) if yes)
    for mask in (everybody, everybody & some, 0):
        assert selector.pick(content, mask, 0) == wanted & mask
    return each


@settings(max_examples=700)
@given(SELECTORS, MESSAGES, st.integers(0, 2**12 - 1))
@example("NOT a IN ('a' , 'b')", [{"a": 7}, {}, {"a": "a"}, {"a": b"a"}], 5)
@example("( a = b ) = flag", [{"a": 1, "b": 1.0, "flag": True}, {"a": 1, "flag": True}], 3)
@example("- 9223372036854775808 = a", [{"a": -(2**63)}], 1)
@example("a / 0 = 1 OR TRUE", [{"a": 1}], 1)
def test_answers_are_those_of_the_reference(text: str, messages: list[dict[str, Any]], mask: int) -> None:
    assert actual(text, messages, mask) == expected(text, messages)


@settings(max_examples=700)
@given(st.lists(WORDS, max_size=9).map(" ".join), MESSAGES)
@example("- - 9223372036854775808 = a", [{}])
@example("NOT NOT 'a'", [{}])
@example("a AND 5", [{}])
@example("( a ) IS NULL", [{}])
def test_what_the_reference_refuses_is_refused_and_nothing_else(text: str, messages: list[dict[str, Any]]) -> None:
    assert actual(text, messages, 0) == expected(text, messages)


@settings(max_examples=500)
@given(st.text(max_size=40) | st.text("aJMSX'%_ ()=<>!\"\\.0x1eE+-*/,\t\nnotNULLandor", max_size=40))
@example("0x")
@example("1_")
@example("\x00")
@example("ſ = 1")
@example("a\ud800 = 1")
def test_random_text_is_taken_or_refused_and_nothing_else(text: str) -> None:
    assert actual(text, [{}], 1) in (None, [True], [False])


@settings(max_examples=300)
@given(st.text("ab%_", max_size=8), st.text("ab\n", max_size=8))
def test_patterns_match_as_a_regular_expression_does(pattern: str, text: str) -> None:
    message = {"a": text}
    assert actual(f"a LIKE '{pattern}'", [message], 0) == expected(f"a LIKE '{pattern}'", [message])
