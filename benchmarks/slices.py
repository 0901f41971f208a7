"""Alternating slices: which tracks take turns, how long a slice is, and what a ratio of neighbours is.  Pure.

A *track* is a figure of a system.  Goals that share a track are measured together: the shared one is the *pivot*, which
runs first, last and between any two rounds of the others, so that each slice of another track has the pivot's just
before and just after it.  A ratio compares it with the mean of these two, so that a machine that becomes slower for all
changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.goals import Goal, Spread, Verdict, spread_of

Track = tuple[str, str]
"""(system, figure)."""
Rates = Mapping[str, float]
"""Figure → messages a second, of one slice."""
Slice = tuple[Track, Rates]

BACKLOG: Final = "backlog"
"""The slice that gives two figures: a backlog is produced, then consumed."""
SLICE_OF: Final = {"produce": BACKLOG, "consume": BACKLOG}
"""Figure → the slice it is taken in, where that has another name."""

TRIAL: Final = 300
"""Messages of the first trial of a track."""
TRIAL_SECONDS: Final = 0.25
"""A trial that took less says little about the rate; the next one has GROWTH times the messages."""
GROWTH: Final = 8
SLICE_MESSAGES_MAX: Final = 500_000
"""Messages of a slice, whatever its length: a backlog of 1 KiB each has to fit into memory and on the disk."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tracks that take turns; the figures of goals are named as slices here."""

    pivot: Track
    others: tuple[Track, ...]


def _slice(track: Track) -> Track:
    return track[0], SLICE_OF.get(track[1], track[1])


def _tracks(goal: Goal) -> tuple[Track, Track]:
    if goal.over is None:
        raise ValueError(f"{goal.title!r} is no ratio")
    return _slice((goal.system, goal.figure)), _slice(goal.over)


def groups(goals: Iterable[Goal], available: Callable[[str], bool]) -> list[Group]:
    """Groups that together have a slice of each goal's tracks beside each other; goals with a missing system are left
    out."""
    left = [tracks for tracks in map(_tracks, goals) if all(available(system) for system, _ in tracks)]
    found = []
    while left:
        counts = Counter(track for tracks in dict.fromkeys(left) for track in tracks)
        pivot = max(counts, key=lambda track: counts[track])
        mine = [tracks for tracks in left if pivot in tracks]
        left = [tracks for tracks in left if pivot not in tracks]
        others = dict.fromkeys(track for tracks in mine for track in tracks if track != pivot)
        found.append(Group(pivot, tuple(others)))
    return found


def amount(rate: Callable[[int], float], length_s: float) -> int:
    """Messages of a slice of ``length_s``, by trials that grow until one took long enough to be believed."""
    messages = TRIAL
    while True:
        found = rate(messages)
        if messages / found >= TRIAL_SECONDS or messages >= SLICE_MESSAGES_MAX:
            return min(SLICE_MESSAGES_MAX, max(TRIAL, int(found * length_s)))
        messages = min(SLICE_MESSAGES_MAX, messages * GROWTH)


def turns(group: Group, slices: int) -> Iterator[Track]:
    """Who runs when."""
    yield group.pivot
    for _ in range(slices):
        yield from group.others
        yield group.pivot


def ratios(group: Group, taken: Sequence[Slice], goal: Goal) -> Spread | None:
    """Median and extremes of one goal's ratio in the slices of a group, None when the group does not have it."""
    top, bottom = _tracks(goal)
    if group.pivot not in (top, bottom) or not {top, bottom} <= {group.pivot, *group.others}:
        return None
    other = bottom if group.pivot == top else top
    assert goal.over is not None
    figures = {top: goal.figure, bottom: goal.over[1]}
    found: list[float] = []
    before: float | None = None
    between: list[float] = []
    for track, rates in taken:
        if track == group.pivot:
            now = rates[figures[track]]
            if before is not None:
                mean = (before + now) / 2
                found += (mean / rate if group.pivot == top else rate / mean for rate in between)
            before, between = now, []
        elif track == other:
            between.append(rates[figures[track]])
    return spread_of(found) if found else None


def verdict(goal: Goal, taken: Iterable[tuple[Group, Sequence[Slice]]]) -> Verdict:
    """What the slices say of a goal."""
    assert goal.over is not None
    spread = next((found for group, slices in taken if (found := ratios(group, slices, goal))), None)
    if spread is None:
        return Verdict(goal, None, against=goal.over[0])
    return Verdict(goal, spread.median, spread.low, spread.high, goal.over[0])
