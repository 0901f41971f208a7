"""Index of the selectors that the consumers of a delivery queue have, and of which of them a message matches.

Each different selector has a number; the *signature* of a message is the set of numbers that it matches, and messages
with one signature share a bucket of the backlog.  Consumers with the same selector share its evaluation.

A message that waits is opened once for a selector that names any header but JMSPriority, JMSRedelivered and
JMSXDeliveryCount.  Others, such as JMSCorrelationID, could be kept in memory, as WebLogic does: an id of 36 characters
would more than double the 28 bytes that a waiting message takes, for every message of every queue; opening it costs
1.8 µs of processor time, for those queues alone whose consumers select.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.run import Run, own_priority
from raybroker.core.selector import Selector, compile_selector
from raybroker.core.selector.content import Content
from raybroker.core.selector.names import PRIORITY
from raybroker.model.errors import ResourceAllocationError

SELECTORS_MAX: Final = 64
"""Different selectors of the consumers of one queue: every message is compared with each of them."""
SORT_MESSAGES_MAX: Final = 2_048
"""Messages of a backlog that are compared with a new selector in one step; the rest has to wait for the next."""

Peek = Callable[[int], Content | None]
"""Headers of a held block by ordinal; None when its bytes cannot be trusted."""


CONTENTS_MAX: Final = 8
"""Blocks whose headers are kept where messages are looked at one by one, not by block."""


class Contents:
    """The headers of the blocks that were asked for last: they are decoded once."""

    __slots__ = ("_kept", "_peek")

    def __init__(self, peek: Peek) -> None:
        self._peek = peek
        self._kept: dict[int, Content | None] = {}

    def content_of(self, ordinal: int) -> Content | None:
        if ordinal not in self._kept:
            if len(self._kept) >= CONTENTS_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[ordinal] = self._peek(ordinal)
        return self._kept[ordinal]


class RunContent:
    """What a delivery queue knows of the messages of a run without opening their block, for selectors of that alone."""

    __slots__ = ("_priority",)

    def __init__(self, priority: int) -> None:
        self._priority = own_priority(priority)

    def properties(self, index: int) -> Mapping[str, Any]:
        return {}

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return [None] * len(rows)

    def header(self, index: int, name: str) -> Any:
        return self._priority if name == PRIORITY else None

    def may_have(self, trace: bytes) -> bool:
        return True

    def dedup_ids(self) -> None:
        return None


class SelectorIndex:
    """``selectors``: number → selector; ``users``: text → how many consumers have it."""

    __slots__ = ("peek", "selectors", "users")

    def __init__(self, peek: Peek) -> None:
        self.peek = peek
        self.selectors: dict[int, Selector] = {}
        self.users: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.selectors)

    def number_of(self, text: str) -> int:
        for number, selector in self.selectors.items():
            if selector.text == text:
                return number
        return ANY

    def join(self, text: str | None) -> tuple[int, bool]:
        """A consumer comes: the number of its selector, and whether that is a new one.

        Raises InvalidSelectorError, and ResourceAllocationError when there are SELECTORS_MAX others.
        """
        if text is None:
            return ANY, False
        selector = compile_selector(text)
        number = self.number_of(text)
        new = number == ANY
        if new:
            if len(self.selectors) >= SELECTORS_MAX:
                raise ResourceAllocationError(
                    f"the queue's consumers have {SELECTORS_MAX} different selectors already; use one of those"
                )
            number = next(n for n in range(SELECTORS_MAX) if n not in self.selectors)
            self.selectors[number] = selector
        self.users[text] = self.users.get(text, 0) + 1
        return number, new

    def leave(self, number: int) -> None:
        """A consumer with that selector is gone."""
        if number == ANY:
            return
        text = self.selectors[number].text
        self.users[text] -= 1
        if not self.users[text]:
            del self.users[text]
            del self.selectors[number]

    def classify(self, run: Run, content: Content | None = None) -> list[tuple[int, int]]:
        """A run as (signature, messages)."""
        if not self.selectors:
            return [(0, run.mask)]
        if content is None:
            known = all(selector.known_of_run for selector in self.selectors.values())
            content = RunContent(run.priority) if known else self.peek(run.ordinal)
        if content is None:
            return [(0, run.mask)]
        groups = [(0, run.mask)]
        for number, selector in self.selectors.items():
            chosen = selector.pick(content, run.mask, run.attempts)
            if chosen == run.mask:
                groups = [(signature | 1 << number, mask) for signature, mask in groups]
            elif chosen:
                split = [(signature | 1 << number, mask & chosen) for signature, mask in groups]
                split += [(signature, mask & ~chosen) for signature, mask in groups]
                groups = [group for group in split if group[1]]
        return groups
