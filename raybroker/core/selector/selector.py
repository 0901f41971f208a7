"""A selector, ready to be asked about messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from raybroker.core.blocks.message_mask import indexes, of_indexes
from raybroker.core.selector.content import Content
from raybroker.core.selector.faults import SelectorFault, refusal
from raybroker.core.selector.limits import SELECTOR_CHARS_MAX
from raybroker.core.selector.names import KNOWN_OF_RUN, OF_DELIVERY

if TYPE_CHECKING:
    from raybroker.core.selector.compile import Sieve
    from raybroker.core.selector.traces import Traces

SELECTOR_CACHE_MAX: Final = 128
"""Compiled selectors that are kept; the longest take about a mebibyte each.

At the edge: the least recently used one is dropped, and compiled again on demand.
"""
_FEW: Final = 16
"""Up to so many messages, setting one bit after the other is faster than writing the mask as digits."""


class Selector:
    """A compiled selector; two of the same text are interchangeable.

    text          as given
    identifiers   the names used: headers, and properties of the application
    known_of_run  whether a delivery queue knows everything that is used without opening the block
    volatile      whether the answer may change when a message is delivered again
    """

    __slots__ = ("_sieve", "_traces", "identifiers", "known_of_run", "text", "volatile")

    def __init__(self, text: str, identifiers: frozenset[str], passes: Sieve, needed: Traces = frozenset()) -> None:
        self.text = text
        self.identifiers = identifiers
        self.known_of_run = identifiers <= KNOWN_OF_RUN
        self.volatile = not OF_DELIVERY.isdisjoint(identifiers)
        self._sieve = passes
        self._traces = needed

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, content: Content, index: int, attempts: int) -> bool:
        """Whether the message is wanted; ``attempts`` counts how often it was handed out before."""
        return bool(self._sieve(content, attempts, [index]))

    def pick(self, content: Content, mask: int, attempts: int) -> int:
        """Return those of the messages ``mask`` that are wanted; ``attempts`` holds for all of them."""
        if mask.bit_count() == 1:
            return mask if self._sieve(content, attempts, [mask.bit_length() - 1]) else 0
        if not all(map(content.may_have, self._traces)):
            return 0
        rows = indexes(mask)
        wanted = self._sieve(content, attempts, rows)
        if len(wanted) == len(rows):
            return mask
        return of_indexes(wanted) if len(wanted) <= _FEW else _mask(wanted, mask.bit_length())


def _mask(rows: Sequence[int], bits: int) -> int:
    digits = bytearray(b"0") * bits
    for row in rows:
        digits[~row] = 49
    return int(digits, 2)


def normalised(text: str | None) -> str | None:
    """The selector without blanks around it; None for no selector, which is also what a blank one means (JMS)."""
    stripped = (text or "").strip(" \t\f\r\n")
    return stripped or None


@lru_cache(maxsize=SELECTOR_CACHE_MAX)
def compile_selector(text: str) -> Selector:
    """The selector of a text that is not blank (see ``normalised``).

    Raises InvalidSelectorError, which says where the fault is, what was found there and what was expected.
    """
    # The import of the parser and of what comes after it takes 0.1 s, which a process without selectors does not spend.
    from raybroker.core.selector.check import check, names
    from raybroker.core.selector.compile import sieve
    from raybroker.core.selector.grammar import parse
    from raybroker.core.selector.traces import traces

    if len(text) > SELECTOR_CHARS_MAX:
        fault = SelectorFault(
            SELECTOR_CHARS_MAX, f"a selector of {len(text)} characters", f"at most {SELECTOR_CHARS_MAX}"
        )
        raise refusal(text, fault)
    try:
        tree = parse(text)
        check(tree)
        return Selector(text, frozenset(names(tree)), sieve(tree), traces(tree))
    except SelectorFault as fault:
        raise refusal(text, fault) from None
