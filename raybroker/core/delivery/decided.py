"""Decisions of a delivery queue, for the destination to write down and to settle."""

from __future__ import annotations

from typing import NamedTuple

from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import RecordRow
from raybroker.model.causes import ERROR


class Formed(NamedTuple):
    """A batch of so many messages was handed out, of which the oldest had waited for ``waited_ms``."""

    messages: int
    waited_ms: int
    full: bool


class Dispatched:
    """What was handed out.

    recorded     runs with a consumer whose attempts are written down
    settled      deliveries to consumers that acknowledge by receiving
    before       what comes before these, as pairs of such lists: with units of order every such delivery is settled
                 by itself, as the next of its unit follows
    dead         what turned out to be dead instead
    redelivered  messages that were handed out before
    batches      what of it went as batches
    """

    __slots__ = ("batches", "before", "dead", "recorded", "redelivered", "settled")

    def __init__(self) -> None:
        self.before: list[tuple[list[Run], list[Delivery]]] = []
        self.recorded: list[Run] = []
        self.settled: list[Delivery] = []
        self.dead: list[Dead] = []
        self.redelivered = 0
        self.batches: list[Formed] = []


class FailedDeliveries(NamedTuple):
    """What became of failed deliveries: rows to write down, and those that are dead; so many ``messages`` failed by
    ``cause``."""

    rows: list[RecordRow]
    dead: list[Dead]
    messages: int = 0
    cause: str = ERROR
