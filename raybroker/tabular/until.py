"""Ends of a read: when there is nothing more, at a time, or when somebody says so."""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from raybroker.model.errors import ConfigError

EMPTY: Final = "empty"
STOPPED: Final = "stopped"
SECONDS_MAX: Final = 366 * 86_400

UntilArgument = str | float | datetime.timedelta | datetime.datetime
"""What users say: "empty", "stopped", seconds, a duration, or a time with its zone."""


class Until(NamedTuple):
    """The end of a read.

    empty    as soon as the queue is empty
    seconds  so long after its beginning
    at_ms    at that time, milliseconds since 1970
    """

    empty: bool = True
    seconds: float | None = None
    at_ms: int | None = None

    @property
    def endless(self) -> bool:
        """A stop or a bound ends it, and nothing else."""
        return not self.empty and self.seconds is None and self.at_ms is None

    def left_s(self, now_ms: int) -> float | None:
        """Seconds of a read that begins now; None: without an end by time."""
        return self.seconds if self.at_ms is None else max(0.0, (self.at_ms - now_ms) / 1000)


def parse_until(until: object) -> Until:
    """Raises ConfigError for what is no end of a read."""
    if until == EMPTY:
        return Until()
    if until == STOPPED:
        return Until(empty=False)
    if isinstance(until, datetime.datetime):
        if until.tzinfo is None:
            raise ConfigError(f"until={until!r} has no time zone: say which, as in datetime(…, tzinfo=timezone.utc)")
        return Until(empty=False, at_ms=round(until.timestamp() * 1000))
    seconds = until.total_seconds() if isinstance(until, datetime.timedelta) else until
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= SECONDS_MAX:
        raise ConfigError(
            f'until={until!r}; it is "empty", "stopped", seconds (more than 0, up to {SECONDS_MAX}), a timedelta, or a'
            " datetime with a time zone"
        )
    return Until(empty=False, seconds=float(seconds))
