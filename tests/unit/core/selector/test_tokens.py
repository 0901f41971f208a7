"""Words of a selector's text, without its grammar."""

from __future__ import annotations

import pytest

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.limits import NESTING_MAX
from raybroker.core.selector.tokens import LONG_END, Word, number_of, text_of, words


def kinds(text: str) -> list[tuple[str, str]]:
    return [(word.kind, word.text) for word in words(text)]


def test_words_have_their_kind_and_their_offset() -> None:
    assert list(words(" a >=-1.5")) == [
        Word("NAME", "a", 1),
        Word("COMPARE", ">=", 3),
        Word("SIGN", "-", 5),
        Word("NUMBER", "1.5", 6),
    ]


def test_reserved_words_are_kinds_of_their_own_in_either_case() -> None:
    assert kinds("a In ('x,y') aNd NOT b") == [
        ("NAME", "a"),
        ("IN", "In"),
        ("OPEN", "("),
        ("TEXT", "'x,y'"),
        ("CLOSE", ")"),
        ("AND", "aNd"),
        ("NOT", "NOT"),
        ("NAME", "b"),
    ]


def test_a_doubled_quote_is_part_of_the_text() -> None:
    (word,) = words("'it''s'")
    assert text_of(word.text) == "it's"


def test_an_exponent_takes_its_sign_and_a_sum_does_not() -> None:
    assert [text for _, text in kinds("1e-3+1-3*.5")] == ["1e-3", "+", "1", "-", "3", "*", ".5"]
    assert [text for _, text in kinds("0x1p-2 0x1E-2")] == ["0x1p-2", "0x1E", "-", "2"]


@pytest.mark.parametrize(
    ("text", "at", "found"),
    [
        ("a = 'x", 4, "a text without its end"),
        ('a = "x"', 4, 'the sign "'),
        ("a != 1", 2, "the sign !"),
        ("a && b", 2, "the sign &"),
        ("a || b", 2, "the sign |"),
        ("a # b", 2, "the character '#'"),
    ],
)
def test_what_is_no_word_is_a_fault_at_its_place(text: str, at: int, found: str) -> None:
    with pytest.raises(SelectorFault) as fault:
        list(words(text))
    assert (fault.value.at, fault.value.found) == (at, found)


def test_parentheses_are_counted_where_they_are_open_at_once() -> None:
    assert len(kinds("()" * (NESTING_MAX + 1))) == 2 * (NESTING_MAX + 1)
    assert len(kinds("(" * NESTING_MAX)) == NESTING_MAX
    with pytest.raises(SelectorFault, match=f"at most {NESTING_MAX}") as fault:
        list(words("(" * (NESTING_MAX + 1)))
    assert fault.value.at == NESTING_MAX


@pytest.mark.parametrize(
    ("word", "value"),
    [("0", 0), ("1_0L", 10), ("0x1f", 31), ("0b11", 3), ("017", 15), ("1.5e1", 15.0), ("2f", 2.0), ("0x1p3", 8.0)],
)
def test_numbers_are_read_as_java_writes_them(word: str, value: float) -> None:
    found = number_of(word, 3)
    assert found == value
    assert type(found) is type(value)


def test_the_digits_of_the_smallest_integer_come_through() -> None:
    assert number_of(str(LONG_END), 0) == LONG_END


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (str(LONG_END + 1), "an integer that is too large"),
        ("1e999", "a number that is too large"),
        ("0x1p99999", "a number that is too large"),
        ("1x", "1x, which is no number"),
    ],
)
def test_numbers_that_cannot_be_are_faults(word: str, found: str) -> None:
    with pytest.raises(SelectorFault) as fault:
        number_of(word, 3)
    assert (fault.value.at, fault.value.found) == (3, found)
