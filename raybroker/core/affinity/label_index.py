"""Index of the labels that the consumers of a delivery queue have, and of the one that a message asks for.

A message asks for the label that stands in one of its properties.  Labels that a consumer has are numbered, and the
number is in the upper bits of a message's signature, so that messages which ask for one label share a bucket of the
backlog.  Messages that ask for none, or for one that nobody has, have number 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SELECTORS_MAX, Peek, SelectorIndex
from raybroker.core.selector.content import Content
from raybroker.model.errors import ResourceAllocationError

LABELS_MAX: Final = 1_024
"""Different labels of the consumers of one queue: a message is in the bucket of one of them."""


class LabelIndex(SelectorIndex):
    """``key``: the property that has the label; ``numbers``: label → its number; ``users``: number → how many consumers
    have it; ``labels_of``: attachment → the numbers of its labels."""

    __slots__ = ("consumers_of", "key", "labels_of", "numbers")

    def __init__(self, peek: Peek, key: str) -> None:
        super().__init__(peek)
        self.key = key
        self.numbers: dict[str, int] = {}
        self.consumers_of: dict[int, int] = {}
        """Number of a label → how many consumers have it."""
        self.labels_of: dict[int, frozenset[int]] = {}

    def join_labels(self, attachment: int, labels: Iterable[str]) -> bool:
        """A consumer with these labels comes; returns whether one of them is new. Raises ResourceAllocationError when
        there are LABELS_MAX others."""
        wanted = set(labels)
        fresh = sorted(wanted - self.numbers.keys())
        if len(self.numbers) + len(fresh) > LABELS_MAX:
            raise ResourceAllocationError(
                f"the queue's consumers have {len(self.numbers)} different labels, and there can be {LABELS_MAX}"
            )
        for label in fresh:
            self.numbers[label] = next(n for n in range(1, LABELS_MAX + 1) if n not in self.consumers_of)
            self.consumers_of[self.numbers[label]] = 0
        found = self.labels_of[attachment] = frozenset(self.numbers[label] for label in wanted)
        for number in found:
            self.consumers_of[number] += 1
        return bool(fresh)

    def leave_labels(self, attachment: int) -> None:
        """A consumer is gone. The number of a label that nobody has is given to another one only when all messages are
        looked at again."""
        for number in self.labels_of.pop(attachment, ()):
            self.consumers_of[number] -= 1
            if not self.consumers_of[number]:
                del self.consumers_of[number]
                self.numbers = {label: one for label, one in self.numbers.items() if one != number}

    def classify(self, run: Run, content: Content | None = None) -> list[tuple[int, int]]:
        """A run as (signature, messages)."""
        if not self.numbers:
            return super().classify(run, content)
        content = content if content is not None else self.peek(run.ordinal)
        groups = super().classify(run, content)
        if content is None:
            return groups
        by_label: dict[int, int] = {}
        indexes = pk.indexes(run.mask)
        for index, value in zip(indexes, content.column(self.key, indexes), strict=True):
            number = self.numbers.get(label_of(value), 0) if value is not None else 0
            by_label[number] = by_label.get(number, 0) | 1 << index
        return [
            (signature | number << SELECTORS_MAX, mask & chosen)
            for signature, mask in groups
            for number, chosen in by_label.items()
            if mask & chosen
        ]


def label_of(value: Any) -> str:
    """The label that a property says: texts as they are, others as they are written."""
    return value if isinstance(value, str) else str(value)
