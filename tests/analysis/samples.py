"""The recording that lakes are made of: scrapes of two real brokers under load, five seconds apart."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from raybroker.analysis import names
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.export import LakeWriter
from raybroker.analysis.lake.lake import ScrapeFrame
from tests.analysis.generate import Line, Recording, record

FOLDER: Final = Path(__file__).parent / "recordings"
START_MS: Final = 1_789_948_800_000
"""Midnight of 2026-09-21, UTC: where made lakes begin."""
BROKERS: Final = ("b1", "b2")


@cache
def scrapes(broker: str = "b1") -> tuple[ScrapeFrame, ...]:
    """The recorded scrapes of a broker."""
    text, whole = layout.content(str(FOLDER / f"{broker}.prom.gz"))
    assert whole
    return tuple(one for one in layout.frames(text, broker) if isinstance(one, ScrapeFrame))


def real_lake(path: Path, rotate_ms: int = layout.DAY_MS) -> Path:
    """The recording as a lake."""
    for broker in BROKERS:
        writer = LakeWriter(path, broker, rotate_ms=rotate_ms)
        for one in scrapes(broker):
            writer.write(one.ts, one.body)
        writer.close()
    return path


@cache
def recording() -> Recording:
    """The first broker, and series that its load did not have: units of order and the path service."""
    frames = scrapes()
    made = record(frames[0].body, frames[-1].body, (frames[-1].ts - frames[0].ts) / 1000)
    help_of = {line.metric: line.comment for line in made.lines}
    return Recording(
        [
            *made.lines,
            *(_line(names.UNITS, "payments", 5.0, help_of, unit=unit) for unit in ("u1", "u2")),
            *(_line(names.PATH_UNITS, "", 0.0, help_of, level=10.0, member=member) for member in ("b1", "b2", "b3")),
            *(_line(names.ROUTED, "", 3.0, help_of, consumer_broker=home) for home in ("b2", "b3")),
            _line(names.QUOTA_MESSAGES, "orders", 0.0, help_of, level=100_000.0),
            _line(names.CLOCK, "", 0.0, help_of),
            _line(names.LEADER_TERM, "orders", 0.0, help_of),
            *(_line(names.COPY_LAG, "orders", 0.0, help_of, copy=copy) for copy in ("b2", "b3")),
            *(_line(names.COPY_BEHIND, "", 0.0, help_of, copy=copy) for copy in ("b2", "b3")),
            *(_line(names.COPIED_LOGS, "", 0.0, help_of, state=state) for state in ("led", "followed", "leaderless")),
            _line(names.COPIED_SHORT, "", 0.0, help_of),
        ],
        made.destinations,
    )


KEPT_HISTOGRAMS: Final = ("send_to_store", "service", "prefetch_occupancy", "round_trip", "commit_seconds")


@cache
def small_recording() -> Recording:
    """The same with a few histograms only, which are most of a scrape."""
    whole = recording()
    return Recording(
        [line for line in whole.lines if not line.suffix or any(word in line.metric for word in KEPT_HISTOGRAMS)],
        whole.destinations,
    )


def _line(
    metric: str, destination: str, rate: float, help_of: dict[str, str], level: float = 0.0, **labels: str
) -> Line:
    own = {"destination": destination, "type": "queue"} if destination else {}
    rising = metric.endswith("_total")
    comment = help_of.get(metric, f"# TYPE {metric} {'counter' if rising else 'gauge'}\n")
    return Line(metric, "", {**own, **labels}, rising, rate, level, comment)
