"""The room that the consumers of one client of a gateway share, for messages that come ahead of it."""

from __future__ import annotations

from typing import Final

from raybroker.model.sizes import KIB

SHARE_BYTES_MIN: Final = 16 * KIB
"""A consumer has so much at least, and one message at least, whatever the others have."""


class PrefetchRoom:
    """``most``: bytes. A share is half of what is left at most, so that those who come later get some too."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take_share(self, most: int) -> int:
        """A share of at most so many bytes."""
        share = max(min(most, self._left // 2), SHARE_BYTES_MIN)
        self._left -= share
        return share

    def give_back(self, share: int) -> None:
        self._left += share
