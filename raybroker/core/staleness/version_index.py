"""Index of the versions of messages, beside the selectors: messages of one version share a bucket of the backlog.

The number of a version is in the upper bits of a message's signature.  Versions that are stale already have one number
together, and so have those that are far ahead of the published one: these are looked at again when the next version is
published.  Until the first one is published, nothing is stale, and no headers are read.
"""

from __future__ import annotations

from typing import Any, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SELECTORS_MAX, Peek, SelectorIndex
from raybroker.core.selector.content import Content
from raybroker.model.staleness import version_of

AHEAD_MAX: Final = 64
"""Versions ahead of the published one that are told apart: each has a bucket."""
NONE, STALE, FAR = range(3)
"""Numbers of messages without a version, of stale ones, and of those that are far ahead; then those of versions."""
_FIRST: Final = FAR + 1


class VersionIndex(SelectorIndex):
    """``key``: the property that has the version; ``published``: the current version, None before there is one;
    ``bound``: how many versions behind it messages may be, -1 for any number.

    ``news``: there may be stale messages in the buckets; ``far``: there may be some that were not looked at, or that
    are far ahead.
    """

    __slots__ = ("bound", "far", "key", "news", "published")

    def __init__(self, peek: Peek, key: str, bound: int) -> None:
        super().__init__(peek)
        self.key = key
        self.bound = bound
        self.published: int | None = None
        self.news, self.far = False, True

    @property
    def oldest(self) -> int:
        """The oldest version that is not stale."""
        return self.published - self.bound if self.published is not None and self.bound >= 0 else 0

    def number_of_version(self, value: Any) -> int:
        version = version_of(value)
        if version is None:
            return NONE
        if version < self.oldest:
            self.news = True
            return STALE
        if self.published is None or version > self.published + AHEAD_MAX:
            self.far = True
            return FAR
        return _FIRST + version

    def is_stale(self, signature: int) -> bool:
        """Whether the messages of a bucket are stale by now."""
        number = signature >> SELECTORS_MAX
        return number == STALE or _FIRST <= number < _FIRST + self.oldest

    def classify(self, run: Run, content: Content | None = None) -> list[tuple[int, int]]:
        """A run as (signature, messages)."""
        if self.published is None or self.bound < 0:
            self.far = True
            return [(signature | FAR << SELECTORS_MAX, mask) for signature, mask in super().classify(run, content)]
        content = content if content is not None else self.peek(run.ordinal)
        groups = super().classify(run, content)
        if content is None:
            return groups
        by_version: dict[int, int] = {}
        indexes = pk.indexes(run.mask)
        for index, value in zip(indexes, content.column(self.key, indexes), strict=True):
            number = self.number_of_version(value)
            by_version[number] = by_version.get(number, 0) | 1 << index
        return [
            (signature | number << SELECTORS_MAX, mask & chosen)
            for signature, mask in groups
            for number, chosen in by_version.items()
            if mask & chosen
        ]


SAME_SELECTORS: Final = (1 << SELECTORS_MAX) - 1
"""What of a signature says which selectors match."""
