"""A queue: every message goes to exactly one consumer and stays until that consumer acknowledged it (D-01)."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.lane import Lane
from raybroker.core.outcome import Outcome
from raybroker.core.selector.content import Content
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.settings import DestinationAttributes


class Queue(Destination):
    """One lane, which is always there; every message is its."""

    kind = "queue"

    def __init__(
        self, number: int, name: str, attributes: DestinationAttributes, *, reap_ms: int | None = None
    ) -> None:
        super().__init__(number, name, attributes, reap_ms=reap_ms)
        self.lane = self.lanes[0] = Lane(0, self)

    def lane_for(self, command: cmd.AttachConsumer, out: Outcome) -> Lane:
        if command.subscription is not None:
            raise InvalidDestinationError(f"queue {self.name} has no subscriptions; those are for topics")
        return self.lane

    def claims(self, picks: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        return {0: picks}

    def left_by(self, lane: Lane, out: Outcome) -> None:
        """The lane of a queue stays."""

    def clear_lane(self, lane: Lane, ordinal: int, picks: int) -> tuple[int, bool]:
        return picks, self.ledger.held[ordinal].left == picks.bit_count()
