"""Plots of answers as SVG, drawn with matplotlib; without it the report has its tables alone.

A line breaks where nothing is known.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Sequence
from typing import Any, Final

from raybroker.analysis.reports.answer import Bars, Lines, Matrix, Plot, number
from raybroker.analysis.reports.ticks import shown, ticks

COLOURS: Final = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96", "#1864ab", "#f08c00")
WIDTH_IN: Final = 9.0
POINTS_MAX: Final = 1500
SPAN_DAYS: Final = 60 / 86_400
"""The time that an axis shows at least."""
NAME_CHARS_MAX: Final = 36
_UNITS: Final = {"ms": ("s", 1e-3, "")}
"""A unit that the ticks say: theirs, how much of it one of the plot's is, and what stands at the axis."""


def prepare() -> None:
    """Import matplotlib, which takes a second, before the first plot; nothing when it is not installed."""
    with contextlib.suppress(ImportError):
        import matplotlib.dates
        import matplotlib.figure  # noqa: F401


def svg(plot: Plot) -> str | None:
    """The plot as an SVG element; None when there is nothing to draw, or matplotlib is not installed."""
    if empty(plot):
        return None
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    import matplotlib as mpl

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "raybroker",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#adb5bd",
        "axes.labelcolor": "#495057",
        "xtick.color": "#495057",
        "ytick.color": "#495057",
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(WIDTH_IN, _height(plot)), layout="constrained")
        axes = figure.add_subplot()
        if isinstance(plot, Lines):
            _lines(axes, plot)
        elif isinstance(plot, Bars):
            _bars(axes, plot)
        else:
            _matrix(figure, axes, plot)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def empty(plot: Plot) -> bool:
    """Whether there is nothing to see."""
    if isinstance(plot, Lines):
        return not any(value for points in plot.series.values() for _, value in points)
    if isinstance(plot, Bars):
        return not any(plot.values.values())
    return not any(any(row) for row in plot.values)


def _height(plot: Plot) -> float:
    if isinstance(plot, Bars):
        return 0.9 + 0.24 * len(plot.values)
    return 2.8 if isinstance(plot, Lines) else min(7.0, 1.6 + 0.3 * len(plot.rows))


def _lines(axes: Any, plot: Lines) -> None:
    import datetime

    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    plotted: set[datetime.datetime] = set()

    for (name, points), colour in zip(plot.series.items(), COLOURS * 8, strict=False):
        every = max(1, len(points) // POINTS_MAX)
        drawn = [(ts, math.nan if value is None else value) for ts, value in points[::every]]
        if not all(math.isnan(value) for _, value in drawn):
            times = [datetime.datetime.fromtimestamp(ts / 1000, datetime.UTC) for ts, _ in drawn]
            values = [value for _, value in drawn]
            plotted.update(times)
            axes.plot(
                times,
                values,
                label=short(name),
                color=colour,
                linewidth=1.2,
                marker="o",
                markersize=3,
                markevery=alone(values),
            )
    low, high = axes.get_xlim()
    if plotted and high - low < SPAN_DAYS:  # A single point would stand on an axis of years.
        middle = (low + high) / 2
        axes.set_xlim(middle - SPAN_DAYS / 2, middle + SPAN_DAYS / 2)
    elif len(plotted) == 1:
        at = date2num(*plotted)  # type: ignore[no-untyped-call]  # matplotlib
        axes.set_xlim(at - SPAN_DAYS / 2, at + SPAN_DAYS / 2)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # matplotlib
    low, high = axes.get_ylim()
    low, high = min(0.0, low), high + 0.05 * (high - min(0.0, low))
    axes.set_ylim(bottom=low, top=high)
    unit, scale, label = _UNITS.get(plot.unit, ("short", 1.0, plot.unit))
    axes.set_ylabel(label)
    at = ticks(low * scale, high * scale, unit)
    axes.set_yticks([value / scale for value in at], [shown(value, unit) for value in at])
    axes.grid(axis="y", color="#e9ecef")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def alone(values: Sequence[float]) -> list[int]:
    """Positions of values without a neighbour to draw a line to."""
    padded = [math.nan, *values, math.nan]
    return [
        at
        for at, value in enumerate(values)
        if not math.isnan(value) and math.isnan(padded[at]) and math.isnan(padded[at + 2])
    ]


def _bars(axes: Any, plot: Bars) -> None:
    labels = [short(name) for name in plot.values]
    values = list(plot.values.values())
    bars = axes.barh(range(len(values)), values, color=COLOURS[0], height=0.7)
    axes.set_yticks(range(len(values)), labels)
    axes.invert_yaxis()
    axes.bar_label(bars, fmt=number, padding=3, fontsize=8, color="#495057")
    axes.set_xlabel(plot.unit)
    axes.margins(x=0.12)
    low, high = axes.get_xlim()
    at = ticks(low, high, "short")
    axes.set_xticks(at, [shown(value, "short") for value in at])


def _matrix(figure: Any, axes: Any, plot: Matrix) -> None:
    image = axes.imshow(plot.values, cmap="GnBu", aspect="auto", vmin=0)
    axes.set_xticks(range(len(plot.columns)), [short(name) for name in plot.columns], rotation=90)
    axes.set_yticks(range(len(plot.rows)), [short(name) for name in plot.rows])
    figure.colorbar(image, ax=axes, label=plot.unit)


def short(name: str) -> str:
    """A name as it is drawn: not too long, and without what matplotlib would take for a formula or for nothing."""
    kept = name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "…"
    return kept.replace("$", r"\$").lstrip("_") or name
