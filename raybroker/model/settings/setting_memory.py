"""Properties of memory levels; see ``core/memory_level.py`` for what the levels do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, Literal

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import INT_MAX, Setting
from raybroker.model.sizes import MIB, SIZE_BYTES_MAX, UNLIMITED

PERCENT_MAX: Final = 100
_THRESHOLD: Final = (
    "Per cent of the memory of a broker (raybroker.memory.limit_bytes) from which the level is {}; it is left when "
    "less than 95 % of that are used. The highest level whose threshold is reached holds."
)
_COUNT: Final = "Messages that may come in to a host at level {} before it looks at the memory again{}."
_WAITS: Final = "; then producers wait, 0.1 s at most, until it has"


def _level(name: str, threshold: int, count: int, more: str, *, least: int) -> tuple[Setting, ...]:
    return (
        Setting(
            f"imq.{name}.threshold",
            "percent",
            threshold,
            "broker",
            _THRESHOLD.format(name),
            unit="%",
            low=0,
            high=PERCENT_MAX,
            reload="live",
        ),
        Setting(
            f"imq.{name}.count",
            "int",
            count,
            "broker",
            _COUNT.format(name, more),
            unit="messages",
            low=least,
            high=INT_MAX,
            reload="live",
        ),
    )


MEMORY: Final[tuple[Setting, ...]] = (
    Setting("raybroker.memory.limit_bytes", "size", UNLIMITED, "broker",
            "Memory that a broker may use: the resident memory of its process and those of its hosts, shared libraries "
            "counted once. Clients and Ray in the same container are not counted: leave room for them.", unit="bytes",
            low=MIB, high=SIZE_BYTES_MAX, unlimited=True,
            minus_one="what the control group allows, or the memory of the machine", reload="live"),
    *_level("green", 0, 5000, "", least=1),
    *_level("yellow", 80, 500, "", least=1),
    *_level("orange", 90, 50, _WAITS + "; 0: none come in", least=0),
    *_level("red", 98, 0, "; 0: none come in, producers wait, and what has left them is refused", least=0),
    Setting("imq.resource_state.threshold", "levels", "", "broker",
            "The thresholds of green, yellow, orange and red at once. That of a single level wins, unless it has its "
            "default.", low=0, high=PERCENT_MAX, example="0/80/90/98", reload="live"),
    Setting("imq.resource_state.count", "levels", "", "broker",
            "The counts of green, yellow, orange and red at once. That of a single level wins, unless it has its "
            "default. 0 at green and yellow counts as 1.", low=0, high=INT_MAX, example="5000/500/50/0", reload="live"),
)  # fmt: skip

LEVELS: Final = ("green", "yellow", "orange", "red")
_DEFAULTS: Final = {setting.name: setting.default for setting in MEMORY}


def by_level(value_of: Callable[[str], Any], what: Literal["threshold", "count"]) -> tuple[int, ...]:
    """Return the values of green, yellow, orange and red: imq.resource_state.… for all levels at once, and the
    properties of single levels, which win where they are not at their defaults."""
    together: str = value_of(f"imq.resource_state.{what}")
    found = []
    for level, part in zip(LEVELS, together.split("/") if together else [""] * len(LEVELS), strict=True):
        name = f"imq.{level}.{what}"
        value = int(value_of(name))
        found.append(int(part) if part and value == _DEFAULTS[name] else value)
    return tuple(found)


def check_memory_levels(value_of: Callable[[str], Any]) -> None:
    """Raises ConfigError where a level begins above the next one, which would never be at its own turn."""
    thresholds = by_level(value_of, "threshold")
    for (level, low), (next_level, high) in pairwise(zip(LEVELS, thresholds, strict=True)):
        if low > high:
            raise ConfigError(
                f"imq.{level}.threshold = {low} is more than imq.{next_level}.threshold = {high}: {level} comes before"
                f" {next_level}; lower one or raise the other"
            )
