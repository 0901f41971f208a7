"""Messages of a lane that are dead or put aside, once it is settled what becomes of them (D-24, W-57)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.core import notes
from raybroker.core.backlog import Run
from raybroker.core.outcome import Outcome
from raybroker.core.withdrawing import overtaken

if TYPE_CHECKING:
    from raybroker.core.lane import Lane


def unbury(lane: Lane, ordinal: int, picks: int, out: Outcome) -> None:
    """They wait again, at their old place, or for their birth (W-65); what came after them in their units does too."""
    runs = _taken(lane, ordinal, picks)
    if lane.order is not None:
        for item in overtaken(lane.order, runs, out):
            lane.put_back(item.run)
    for run in reversed(runs):
        block = lane.home.ledger.held[ordinal]
        born, later = (run.picks, []) if run.attempts else block.by_birth(run.picks, lane.home.now_ms)
        for due_ms, unborn in later:
            lane.rest(due_ms, run._replace(picks=unborn))
        if born:
            lane.put_back(run._replace(picks=born))


def buried(lane: Lane, ordinal: int, picks: int, out: Outcome) -> None:
    """It is settled what became of dead messages."""
    parts = [(run.ordinal, run.picks) for run in _taken(lane, ordinal, picks)]
    if not parts:
        return
    block = lane.home.ledger.held[ordinal]
    told = block.buried & picks
    if told and block.stored:  # Other subscriptions owe it still, and must not tell it again after a restart.
        lane.home.note_rows(out, notes.BURIED, lane, [notes.Row(ordinal, told)])
    lane.home.settle(lane, parts, out)


def _taken(lane: Lane, ordinal: int, picks: int) -> list[Run]:
    """Those of the messages that are held for that, which are no longer; as they were."""
    picks &= lane.dying.get(ordinal, 0)
    if not picks:
        return []
    lane.dying[ordinal] &= ~picks
    if not lane.dying[ordinal]:
        del lane.dying[ordinal]
    lane.home.dying -= picks.bit_count()
    lane.home.dying_bytes -= lane.home.ledger.held[ordinal].bytes_of(picks)
    runs = lane.doomed.pop(ordinal)
    left = [run._replace(picks=run.picks & ~picks) for run in runs if run.picks & ~picks]
    if left:
        lane.doomed[ordinal] = left
    return [run._replace(picks=run.picks & picks) for run in runs if run.picks & picks]
