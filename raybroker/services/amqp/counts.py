"""Figures of the AMQP services of one broker: what their clients have, and what has passed.

They are counted on the loop of the gateways and read from that of the broker: each read is of one number, or of a set
as it is at that moment.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Protocol

from raybroker.wire.amqp.conditions import (
    DECODE_ERROR,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)

TOLD: Final = frozenset(
    {DECODE_ERROR, INTERNAL_ERROR, MESSAGE_SIZE_EXCEEDED, NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS}
)
"""Conditions with a number of their own; the others are counted together."""
OTHERS: Final = "other"
DIRECTIONS: Final = ("in", "out")


class CountedLink(Protocol):
    """A link of a client, in one of the two directions."""

    @property
    def credit(self) -> int:
        """Messages that may go over it now."""
        ...

    @property
    def unsettled(self) -> int:
        """Messages that went over it and are not settled."""
        ...


class AmqpCounts:
    """``connections``: that are open; ``links``: of them, by direction: *in* are those on which clients send."""

    def __init__(self) -> None:
        self.connections = 0
        self.links: dict[str, set[CountedLink]] = {name: set() for name in DIRECTIONS}
        self.transfers = dict.fromkeys(DIRECTIONS, 0)
        self._rejected: Counter[str] = Counter()

    def count_rejected(self, condition: str, count: int = 1) -> None:
        """Messages were rejected, or what they belong to was refused."""
        self._rejected[condition if condition in TOLD else OTHERS] += count

    def figures(self) -> dict[str, Any]:
        """Rows of the metrics' catalogue; from any thread."""
        links = {name: list(found) for name, found in self.links.items()}
        return {
            "amqp_connections": self.connections,
            "amqp_links": {name: len(found) for name, found in links.items()},
            "amqp_links_without_credit": {
                name: sum(link.credit == 0 for link in found) for name, found in links.items()
            },
            "amqp_unsettled_messages": {name: sum(link.unsettled for link in found) for name, found in links.items()},
            "amqp_transfers_total": dict(self.transfers),
            "amqp_rejected_total": {**dict.fromkeys((*sorted(TOLD), OTHERS), 0), **self._rejected},
        }
