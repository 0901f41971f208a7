"""Recurrence of schedules: cron expressions in a time zone, and plain intervals.

    minute hour day-of-month month day-of-week     0 8 * * MON-FRI, */15 9-17 * * *, 0 0 L * *
    @hourly @daily @midnight @weekly @monthly @yearly @annually
    @every 10s                                     also 500s, 1h30m, 2d; counted from when the schedule was made

Where clocks are put forward, an expression with a fixed hour and minute that falls into the gap is due right after it;
where they are put back, it is due once, the first time.  One whose hour or minute begins with ``*`` goes by the clock
on the wall: it has nothing in the gap, and the hour that comes twice counts twice.  (So does Debian's cron.)  If
neither day field begins with ``*``, either is enough.

Instants are milliseconds since 1970.  No clock is read here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol

from raybroker.model.errors import ConfigError

INTERVAL_MS_MIN: Final = 1_000
"""Shortest interval: a schedule costs a sync each time."""
INTERVAL_MS_MAX: Final = 3660 * 24 * 60 * 60 * 1000
EXPRESSION_CHARS_MAX: Final = 256
ZONE_CHARS_MAX: Final = 64
CRON_FIELDS: Final = 5
HALF_HOUR_MS: Final = 30 * 60 * 1000
CHANGE_MS: Final = 4 * HALF_HOUR_MS
"""No clocks are changed by more than this at a time."""

_EVERY: Final = re.compile(r"@every\s+((?:\d{1,9}[dhms])+)", re.ASCII | re.IGNORECASE)
_PART: Final = re.compile(r"(\d+)([dhms])", re.ASCII)
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Recurrence(Protocol):
    """The occurrences of one schedule, in order."""

    every_ms: int
    """The interval; 0 for one that goes by the calendar."""

    def after(self, ms: int) -> int | None:
        """The first occurrence later than ``ms``; None when there is none any more."""
        ...

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """The last occurrence later than ``after_ms`` and not later than ``until_ms``; None when there is none."""
        ...


def recurrence(text: str, zone: str = "UTC") -> Recurrence:
    """What an expression means in a time zone of the IANA database; raises ConfigError for what means nothing."""
    words = _checked("schedule", text, EXPRESSION_CHARS_MAX).strip()
    place = time_zone(zone)
    if words.lower().startswith("@every"):
        return Every(_interval_ms(words))
    expression = _NICKNAMES.get(words.lower(), words)
    if expression.startswith("@"):
        raise ConfigError(f"schedule {text!r}: known are @every, {', '.join(_NICKNAMES)}; {_HINT}")
    return Cron(expression, place)


def time_zone(name: str) -> tzinfo:
    """A time zone by its name in the IANA database; raises ConfigError."""
    from zoneinfo import ZoneInfo

    if _checked("timezone", name, ZONE_CHARS_MAX) == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # Not there, not a name, or a folder of names.
        raise ConfigError(f"timezone {name!r} is not known; write one such as Europe/Berlin, or UTC") from None


class Every:
    """A recurrence at the same interval again and again."""

    def __init__(self, every_ms: int) -> None:
        self.every_ms = every_ms

    def after(self, ms: int) -> int | None:
        return ms + self.every_ms

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        count = (until_ms - after_ms) // self.every_ms
        return after_ms + count * self.every_ms if count > 0 else None


class Cron:
    """A cron expression of five fields; raises ConfigError for one that is wrong or never comes."""

    every_ms = 0

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone
        if len(expression.split()) != CRON_FIELDS:
            raise ConfigError(f"schedule {expression!r} has {len(expression.split())} fields; {_HINT}")
        from cronsim import CronSim, CronSimError  # Few destinations have schedules.

        try:
            known = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
            next(known)
        except CronSimError as error:
            raise ConfigError(f"schedule {expression!r}: {str(error).lower()}; {_HINT}") from None
        except StopIteration:
            raise ConfigError(f"schedule {expression!r} never comes") from None

    def after(self, ms: int) -> int | None:
        first = self._first(ms, reverse=False)
        if first is None or self._offset(ms) == self._offset(first):
            return first
        # Going over a change of clocks by less than an hour, the library leaves out what comes right after it.
        change_ms = self._change(ms, first)
        for start_ms in range(change_ms, min(change_ms + CHANGE_MS, first), HALF_HOUR_MS):
            if (found := self._first(start_ms, reverse=False)) is not None:
                first = min(first, found)
        return first

    def _offset(self, ms: int) -> timedelta | None:
        return datetime.fromtimestamp(ms // 1000, self._zone).utcoffset()

    def _change(self, early_ms: int, late_ms: int) -> int:
        """Return when clocks are changed between two instants, to the second."""
        before = self._offset(early_ms)
        while late_ms - early_ms > 1000:
            middle_ms = (early_ms + late_ms) // 2
            if self._offset(middle_ms) == before:
                early_ms = middle_ms
            else:
                late_ms = middle_ms
        return late_ms

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        if (first := self.after(after_ms)) is None or first > until_ms:
            return None
        # Backwards the library leaves out what a change of clocks has moved: from there on it is counted forwards.
        found = max(self._first(until_ms + 1, reverse=True) or first, first)
        while (later := self.after(found)) is not None and later <= until_ms:
            found = later
        return found

    def _first(self, ms: int, *, reverse: bool) -> int | None:
        """The occurrence next to ``ms``; the hour that comes twice makes the library repeat itself."""
        from cronsim import CronSim

        start = datetime.fromtimestamp(ms // 1000, self._zone)
        try:
            for found in CronSim(self._expression, start, reverse=reverse):
                at_ms = round(found.timestamp()) * 1000
                if at_ms < ms if reverse else at_ms > ms:
                    return at_ms
        except (StopIteration, OverflowError, ValueError):  # No match for fifty years, or past the year 9999.
            return None
        return None


_HINT: Final = 'write five fields such as "0 8 * * MON-FRI", @daily, or @every 10s'


def _interval_ms(text: str) -> int:
    match = _EVERY.fullmatch(text)
    if match is None:
        raise ConfigError(f"schedule {text!r}: an interval is written such as @every 10s, 1h30m or 2d")
    span_ms = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(match[1].lower()))
    if not INTERVAL_MS_MIN <= span_ms <= INTERVAL_MS_MAX:
        raise ConfigError(
            f"schedule {text!r} is every {span_ms} ms; allowed are {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} ms"
        )
    return span_ms


def _checked(what: str, text: object, most: int) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= most:
        raise ConfigError(f"{what}={text!r}; it is a text of 1 to {most} characters")
    return text
