"""The words of pauses: what of a destination can be paused, as administrators say it and as the core does.

Administrators, the configuration change record, definition files and metrics say *producers*, *consumers* and
*insertion*; destinations, their journals and their attributes say which work stops: *production*, *consumption* and
*insertion*.  A verb takes *all* as well.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

from raybroker.model.errors import ConfigError

PRODUCTION: Final = "production"
CONSUMPTION: Final = "consumption"
INSERTION: Final = "insertion"

WORK: Final = {"producers": PRODUCTION, "consumers": CONSUMPTION, "insertion": INSERTION}
"""What of a destination can be paused by itself → the work that stops."""
PRODUCING: Final = (INSERTION, PRODUCTION)
"""Each of these makes producers wait."""
ALL: Final = "all"
BY_DESTINATION: Final = "default"
"""Of a property that pauses all destinations at the start: each as its attribute says."""
WORDS: Final = ("producers", "consumers", ALL, "insertion")
"""What a verb may be told to pause or resume."""


def paused_by(which: str) -> tuple[str, ...]:
    """What a verb pauses that is told ``which`` of WORDS: all are producers and consumers."""
    return ("producers", "consumers") if which == ALL else (which,)


def resumed_by(which: str) -> tuple[str, ...]:
    """What a verb resumes that is told ``which`` of WORDS: all is everything."""
    return tuple(WORK) if which == ALL else (which,)


def check_pause(which: str, until_ms: int, done: str) -> None:
    """Raises ConfigError for what cannot be paused, and for a time that is none."""
    if which not in WORDS:
        raise ConfigError(f"which = {which!r} cannot be {done}; allowed: {', '.join(WORDS)}")
    if until_ms < 0:
        raise ConfigError(f"until_ms = {until_ms}; it is a time in milliseconds since 1970, or 0")


def at_startup(work: str) -> str:
    """The attribute of a destination that stops this work at each start."""
    return f"{work}PausedAtStartup"


def of_broker(work: str) -> str:
    """The property of a broker that stops this work of all destinations at each start, or of none."""
    return f"raybroker.system.{at_startup(work)}"


def starting(attribute: Callable[[str], Any], config: Callable[[str], Any]) -> tuple[str, ...]:
    """The work of a destination that stops at each start of its host: as the broker says it of all, or as the attribute
    does where the broker's property is ``default``."""
    return tuple(
        work
        for work in WORK.values()
        if (said := config(of_broker(work))) == "true" or (said == BY_DESTINATION and attribute(at_startup(work)))
    )


def figures(stopped: Container[str]) -> dict[str, int]:
    """Word → 1 when its work is among those ``stopped``, else 0."""
    return {word: int(work in stopped) for word, work in WORK.items()}
