"""Thresholds of a whole broker, which slow producers; those of one destination are among its attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import INT_MAX, Setting
from raybroker.model.sizes import SIZE_BYTES_MAX, UNLIMITED

OF: Final = ("messages", "bytes")
"""What there are thresholds of."""


def _pair(of: str, kind: Literal["int", "size"], most: int, what: str) -> tuple[Setting, ...]:
    return (
        Setting(
            f"raybroker.system.{of}ThresholdHigh",
            kind,
            UNLIMITED,
            "broker",
            f"{what} of all destinations of a broker together, above which producers are slowed on all of them as "
            "FlowControlEnabled, FlowMaximum and FlowMinimum say. The broker looks about once a second. "
            "mq.sys.dmq and metrics topics do not count.",
            unit=of,
            low=0,
            high=most,
            unlimited=True,
            minus_one="producers are not slowed",
            reload="live",
        ),
        Setting(
            f"raybroker.system.{of}ThresholdLow",
            kind,
            UNLIMITED,
            "broker",
            f"{what} of all destinations together below which raybroker.system.{of}ThresholdHigh slows nobody any "
            "more. At most as much as that.",
            unit=of,
            low=0,
            high=most,
            unlimited=True,
            minus_one="the same as High",
            reload="live",
        ),
    )


THRESHOLDS: Final[tuple[Setting, ...]] = (
    *_pair("messages", "int", INT_MAX, "Messages"),
    *_pair("bytes", "size", SIZE_BYTES_MAX, "Bytes of message bodies"),
)


def system_thresholds(config: Any) -> dict[str, tuple[int, int]]:
    """messages and bytes → High, -1 for none, and Low."""
    found = {}
    for of in OF:
        high, low = (config[f"raybroker.system.{of}Threshold{end}"] for end in ("High", "Low"))
        found[of] = (high, high if low < 0 else low)
    return found


_LIMITS: Final = {"messages": "imq.system.max_count", "bytes": "imq.system.max_size"}
"""What the broker may hold at all."""


def check_system_thresholds(value_of: Callable[[str], Any]) -> None:
    """Raises ConfigError where Low is more than High, and where High is more than the broker may hold."""
    for of in OF:
        high_name, low_name = (f"raybroker.system.{of}Threshold{end}" for end in ("High", "Low"))
        high, low = value_of(high_name), value_of(low_name)
        if low > high >= 0:
            raise ConfigError(f"{low_name} = {low} is more than {high_name} = {high}; set it to {high} or less")
        most = value_of(_LIMITS[of])
        if 0 <= most < high:
            raise ConfigError(
                f"{high_name} = {high} would never be reached: {_LIMITS[of]} is {most}; lower one or raise the other"
            )
