"""What is set for a destination: its attributes, what its host adds to them, and what an administrator has paused."""

from __future__ import annotations

from raybroker.model.settings import DestinationAttributes


class Policy:
    """One object for as long as the destination is there; an update changes it.

    message_bytes_max  largest message that the host takes; -1: the attribute alone holds
    rollbacks_max      after so many failures a message is dead, whatever redeliveryLimit says; 0: it alone
                       counts
    paused             "production", "consumption" or "insertion" → until when, milliseconds; 0 until told otherwise
    """

    __slots__ = ("attributes", "message_bytes_max", "paused", "rollbacks_max")

    def __init__(self, attributes: DestinationAttributes) -> None:
        self.attributes = attributes
        self.message_bytes_max = -1
        self.rollbacks_max = 0
        self.paused: dict[str, int] = {}

    @property
    def insertion_paused(self) -> bool:
        return "insertion" in self.paused

    @property
    def failures_max(self) -> int:
        """A message with more failures is dead; -1: none is."""
        limit = self.attributes.redeliveryLimit
        if self.rollbacks_max > 0 and not 0 <= limit < self.rollbacks_max:
            return self.rollbacks_max - 1
        return limit
