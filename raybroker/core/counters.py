"""Totals of a destination since its host started."""

from __future__ import annotations


class Counters:
    """Totals since the host started; bytes are body bytes; ``slow_since_ms``: of the latest time of slow producers.

    ``moved_in``: messages that came from elsewhere, see command.Send; those of a transaction count when it commits.
    ``removed``: messages that REMOVE_OLDEST or REMOVE_LOW_PRIORITY discarded; ``refusals``: code → messages refused
    for that reason, and the text of the latest refusal.
    """

    __slots__ = (
        "bytes_in", "bytes_out", "dead", "duplicates", "expired", "messages_in", "messages_out", "moved_in",
        "redelivered", "refusals", "refused", "removed", "slow_ms", "slow_since_ms", "slowed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.redelivered = self.refused = 0
        self.dead = self.duplicates = self.expired = self.removed = self.moved_in = 0
        self.slowed = self.slow_ms = self.slow_since_ms = 0
        self.refusals: dict[str, tuple[int, str]] = {}

    def take(self, messages: int, nbytes: int, *, moved: bool) -> None:
        """Messages are here for good."""
        if moved:
            self.moved_in += messages
        else:
            self.messages_in += messages
            self.bytes_in += nbytes

    def refuse(self, code: str, count: int, text: str) -> None:
        """``count`` messages were not taken."""
        self.refused += count
        self.refusals[code] = self.refusals.get(code, (0, ""))[0] + count, text
