"""Figures of destinations for the console: what they hold, and how fast messages come and go.

Nothing is asked of the broker unless somebody looks: a request takes the rows of the last one who asked, or asks anew
when these are older than ``every_s``.  That grows with what asking costs, so that it costs at most SHARE of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from raybroker.model.listing import Listing, Row

EVERY_S: Final = 2.0
SHARE: Final = 0.005
"""Of the time, that asking for the rows may take."""
_LEAN: Final = (
    "name",
    "type",
    "state",
    "paused",
    "messages",
    "bytes",
    "waiting",
    "unacknowledged",
    "delayed",
    "producers",
    "active_consumers",
    "backup_consumers",
    "dead",
    "refused",
    "expired",
    "messages_in",
    "messages_out",
    "over_threshold",
    "throttled",
    "auto_created",
    "temporary",
    "host",
)
"""What is shown of a destination in a list of many."""
NUMBERS: Final = frozenset(
    {"messages", "bytes", "waiting", "unacknowledged", "delayed", "producers", "active_consumers", "dead", "refused"}
    | {"expired", "messages_in", "messages_out", "in_rate", "out_rate", "full_percent"}
)
SORTS: Final = tuple(sorted(NUMBERS | {"name", "type", "state"}))

Latest = Callable[[tuple[str, str]], tuple[float | None, float | None]]
"""(type, name) → in and out each second."""
Ask = Callable[[], Awaitable[Any]]
"""Asks for all destinations, as one of the users."""


def _unknown(key: tuple[str, str]) -> tuple[None, None]:
    return None, None


class Sampled(NamedTuple):
    """``rows``: one a destination, with rates; ``every_s``: how long they are told again."""

    rows: list[Row]
    missing: Mapping[str, str]
    at_ms: int
    every_s: float


class Figures:
    """The figures of one service. ``now_s``: a clock that never goes back; ``now_ms()``: milliseconds since 1970;
    ``latest``: the last rates that are known of a destination, for one that nobody has asked for before."""

    def __init__(self, now_s: Callable[[], float], now_ms: Callable[[], int], latest: Latest = _unknown) -> None:
        self._latest = latest
        self._now_s = now_s
        self._now_ms = now_ms
        self._asking = asyncio.Lock()
        self._last: Sampled | None = None
        self._last_s = 0.0
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}
        """(messages in, messages out) when the rows were asked for the last time."""
        self._counted_s = 0.0

    def changed(self) -> None:
        """Something was changed: the next one who asks gets new rows."""
        self._last = None

    async def sample(self, ask: Ask) -> Sampled:
        """The rows; raises what asking raises."""
        async with self._asking:
            last = self._last
            if last is not None and self._now_s() - self._last_s < last.every_s:
                return last
            began_s = self._now_s()
            answer = await ask()
            now_s = self._now_s()
            rows = self._lean(answer, now_s)
            missing = answer.missing if isinstance(answer, Listing) else {}
            self._last_s = now_s
            self._last = Sampled(rows, missing, self._now_ms(), max(EVERY_S, (now_s - began_s) / SHARE))
            return self._last

    def _lean(self, answer: Any, now_s: float) -> list[Row]:
        seconds = now_s - self._counted_s
        before, self._counted, self._counted_s = self._counted, {}, now_s
        rows = []
        for row in answer:
            key = (row["type"], row["name"])
            lean = {name: row.get(name) for name in _LEAN}
            counted = (row.get("messages_in") or 0, row.get("messages_out") or 0)
            self._counted[key] = counted
            was = before.get(key)
            if was is None or seconds <= 0:
                lean["in_rate"], lean["out_rate"] = self._latest(key)
            else:
                for name, now, then in zip(("in_rate", "out_rate"), counted, was, strict=True):
                    lean[name] = round(max(0, now - then) / seconds, 2)
            lean["full_percent"] = _full_percent(row)
            rows.append(lean)
        return rows


def _full_percent(row: Row) -> float | None:
    """What it holds of its limits, whichever is more; None where it has none."""
    attributes = row.get("attributes") or {}
    found = [
        100 * row[held] / limit
        for held, name in (("messages", "maxNumMsgs"), ("bytes", "maxTotalMsgBytes"))
        if (limit := attributes.get(name, -1)) and limit > 0 and isinstance(row.get(held), int)
    ]
    return round(max(found), 1) if found else None


def page(
    rows: list[Row], *, type: str, text: str, sort: str, falling: bool, start: int, most: int
) -> tuple[int, list[Row]]:
    """(how many fit, those of one page): of a type, with a text in the name, sorted."""
    wanted = text.casefold()
    found = [
        row for row in rows if (not type or row["type"] == type) and (not wanted or wanted in row["name"].casefold())
    ]
    if sort in NUMBERS:
        found.sort(key=lambda row: -1 if row[sort] is None else row[sort], reverse=falling)
    else:
        found.sort(key=lambda row: (str(row[sort]).casefold(), row["name"]), reverse=falling)
    return len(found), found[start : start + most]
