"""Memory levels: how much of the memory that a broker may use is used, in four steps, and what follows from each.

    green   plenty
    yellow  getting low: cached copies of messages that are in the store are dropped, and bodies that are not stored
            go to paging files as they come, where there are any
    orange  low: producers send a few messages at a time, and wait in between
    red     out: nothing comes in, no message, no new producer, no new destination

Consuming, acknowledging, administration and closing go on at every level.  A level is reached when its threshold, per
cent of the limit, is used, and left when less than ``FALL_PERCENT`` of that threshold is: so a level does not change to
and fro.  It is the last of three protections, after the limits of destinations and those of the broker.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from raybroker.model.settings.setting_memory import by_level
from raybroker.model.settings.settings import ConfigView

FALL_PERCENT: Final = 95
"""A level is left when less than this part of its threshold is used."""


class Level(IntEnum):
    """The higher, the less memory is left."""

    GREEN = 0
    YELLOW = 1
    ORANGE = 2
    RED = 3


class Levels(NamedTuple):
    """The figures by level. ``thresholds``: per cent of the limit; ``counts``: messages that may come in before the
    level is looked at again, 0 for none."""

    thresholds: tuple[int, ...] = (0, 80, 90, 98)
    counts: tuple[int, ...] = (5000, 500, 50, 0)


class Actions(NamedTuple):
    """What a host does at a level.

    drops      no copies of what the store has are kept in memory
    throttles  producers that have used up the level's count wait until the memory is looked at again
    refuses    new producers, new destinations, and what other brokers hand over
    bars       messages of producers; they are refused, and producers are told to wait
    """

    drops: bool
    throttles: bool
    refuses: bool
    bars: bool


def level_of(used_bytes: int, limit_bytes: int, levels: Levels, before: Level = Level.GREEN) -> Level:
    """The highest level whose threshold is reached, or that holds still since ``before``; green without a limit."""
    if limit_bytes <= 0:
        return Level.GREEN
    for level in (Level.RED, Level.ORANGE, Level.YELLOW):
        part = FALL_PERCENT if level <= before else 100
        if used_bytes * 100 * 100 >= levels.thresholds[level] * part * limit_bytes:
            return level
    return Level.GREEN


def actions_at(level: Level, levels: Levels) -> Actions:
    """A count of 0 bars messages at orange and red; at the other levels there is memory, and 0 counts as 1."""
    throttles = level >= Level.ORANGE
    return Actions(level >= Level.YELLOW, throttles, level is Level.RED, throttles and not levels.counts[level])


def levels_of(config: ConfigView) -> Levels:
    """What a configuration says."""
    return Levels(by_level(config.__getitem__, "threshold"), by_level(config.__getitem__, "count"))
