"""Numbers with their units, and the values of the ticks of an axis, as people write them: 100 kB/s, not 97.7 kB/s."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

INTERVALS: Final = 6
"""An axis has about so many, at most."""
_PREFIXES: Final = {"bytes": (1024.0, ("", "Ki", "Mi", "Gi", "Ti", "Pi"))}
_THOUSANDS: Final = (1000.0, ("", "k", "M", "G", "T", "P"))
_ENDINGS: Final = {"bytes": "B", "Bps": "B/s", "cps": "/s"}
_TIMES_S: Final = (
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    10800.0,
    21600.0,
    43200.0,
    86400.0,
)
"""Steps of an axis of times, from a second to a day."""


def shown(value: float, unit: str) -> str:
    """A number in one of Grafana's units: short, percentunit (1 is 100 %), s, cps (a second), bytes, Bps."""
    if unit == "percentunit":
        return f"{_digits(value * 100)} %"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"
    if unit == "s":
        for least, scale, name in ((172_800.0, 86_400.0, "days"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min")):
            if abs(value) >= least:
                return f"{_digits(value / scale)} {name}"
        return f"{_digits(value)} s"
    base, prefixes = _PREFIXES.get(unit, _THOUSANDS)
    at = 0
    while abs(value) >= base and at < len(prefixes) - 1:
        value, at = value / base, at + 1
    prefix, ending = prefixes[at], _ENDINGS.get(unit, "")
    gap = " " if prefix or ending.startswith("B") else ""
    return f"{_digits(value)}{gap}{prefix}{ending}"


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def ticks(low: float, high: float, unit: str) -> list[float]:
    """Values from ``low`` to ``high`` for an axis of a unit of ``shown``: multiples of one step that is round in it."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    step = _step((high - low) / INTERVALS, unit)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _step(least: float, unit: str) -> float:
    """The smallest round step that is not smaller."""
    if unit == "bytes":
        return float(2 ** max(math.ceil(math.log2(least)), 0))
    if unit == "s" and least > 0.5:
        if least > _TIMES_S[-1]:
            return 86_400 * _step(least / 86_400, "short")
        return _TIMES_S[bisect_left(_TIMES_S, least)]
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= least * (1 - 1e-9))
