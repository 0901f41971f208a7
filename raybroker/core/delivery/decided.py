"""What a delivery queue has decided, for the destination to write down and to settle."""

from __future__ import annotations

from dataclasses import dataclass, field

from raybroker.core.delivery.backlog import Run
from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.durable.records import Row


@dataclass(slots=True)
class Dispatched:
    """What was handed out.

    recorded     runs with a consumer whose attempts are written down
    settled      deliveries to consumers that acknowledge by receiving
    dead         what turned out to be dead instead
    redelivered  messages that were handed out before
    """

    recorded: list[Run] = field(default_factory=list)
    settled: list[Delivery] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    redelivered: int = 0


@dataclass(slots=True)
class Failed:
    """What became of failed deliveries: rows to write down, and those that are dead."""

    rows: list[Row] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
