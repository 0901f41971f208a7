"""A broker as the table of a shared store has it (``imq.cluster.ha``): its state, and who may write its messages.

``tenure`` counts the times that a broker was given its messages: at each start, and at each takeover.  Whoever has
another tenure than the row has lost them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class StoreState(StrEnum):
    """State of a broker in the shared store, with the names of MQ's enhanced clusters.

    UNKNOWN              it has a row and was never started, or is starting for the first time in this tenure
    OPERATING            it takes clients
    QUIESCE_STARTED      its services take no new clients, and its end was asked for
    QUIESCE_COMPLETE     its clients have finished, and it ends
    SHUTDOWN_STARTED     it closes its stores
    BROKER_DOWN          it was stopped in order; what it stores waits for its next start
    TAKEOVER_STARTED     another broker has its messages now, and takes them from whoever wrote them
    TAKEOVER_COMPLETE    nobody else can write them any more; the broker starts in its new place
    TAKEOVER_FAILED      it could not be started in its new place; ``reason`` says why
    """

    UNKNOWN = "UNKNOWN"
    OPERATING = "OPERATING"
    QUIESCE_STARTED = "QUIESCE_STARTED"
    QUIESCE_COMPLETE = "QUIESCE_COMPLETE"
    SHUTDOWN_STARTED = "SHUTDOWN_STARTED"
    BROKER_DOWN = "BROKER_DOWN"
    TAKEOVER_STARTED = "TAKEOVER_STARTED"
    TAKEOVER_COMPLETE = "TAKEOVER_COMPLETE"
    TAKEOVER_FAILED = "TAKEOVER_FAILED"


MEANT_TO_RUN: Final = frozenset(
    {
        StoreState.OPERATING,
        StoreState.QUIESCE_STARTED,
        StoreState.QUIESCE_COMPLETE,
        StoreState.TAKEOVER_STARTED,
        StoreState.TAKEOVER_COMPLETE,
        StoreState.TAKEOVER_FAILED,
    }
)
"""States of a broker that is taken over by itself when it shows no sign of life; one that was stopped, or was never
seen to work, waits for somebody who starts it."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One broker.  Times are milliseconds since 1970 by the clock of the database.

    beats      grows with each sign of life that it gives the database; ``beat_ms``: when it did last
    state_ms   since when it has the state
    taken_ms   when it was taken over last, 0 for never; ``takeovers``: how often
    node       of Ray, where it was started last
    taker      the broker that took it over last, "" for none
    reason     why it is in that state, "" where there is nothing to say
    """

    name: str
    state: StoreState = StoreState.UNKNOWN
    tenure: int = 0
    beats: int = 0
    beat_ms: int = 0
    state_ms: int = 0
    taken_ms: int = 0
    takeovers: int = 0
    node: str = ""
    taker: str = ""
    reason: str = ""


class SharedView(NamedTuple):
    """All brokers at one moment ``now_ms`` of the database's clock."""

    now_ms: int
    rows: tuple[SharedRow, ...]

    def row_of(self, name: str) -> SharedRow | None:
        return next((row for row in self.rows if row.name == name), None)
