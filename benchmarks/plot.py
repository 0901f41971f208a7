"""report.png: bars on a log scale, one panel for the pipelined rate and one for one send at a time."""

from __future__ import annotations

from pathlib import Path

from benchmarks.goals import Spread
from benchmarks.readings import OURS, PIPE, RAY_QUEUE, SYSTEMS
from benchmarks.report import Report, number, plural

_COLOURS = {OURS: "#1b7837", PIPE: "#888888", RAY_QUEUE: "#c2a5cf"}
_OTHER = "#4477aa"


def _bars(report: Report, keys: tuple[str, ...]) -> list[tuple[str, Spread]]:
    spreads = report.spreads()
    found = []
    for system in SYSTEMS:
        key = next((key for key in keys if (system, key) in spreads), None)
        if key:
            in_batches = system == RAY_QUEUE and key == "through"
            found.append((f"{system} (batches)" if in_batches else report.label(system), spreads[system, key]))
    if "single" not in keys and (RAY_QUEUE, "single") in spreads and "through" in keys:
        found.append((f"{RAY_QUEUE} (one by one)", spreads[RAY_QUEUE, "single"]))
    return found


def draw(report: Report, path: Path) -> None:
    """Draws the report; needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = [
        ("producer → consumer → ack, messages a second", _bars(report, ("through",))),
        ("one confirmed send at a time, messages a second", _bars(report, ("blocking",))),
    ]
    panels = [(title, bars) for title, bars in panels if bars]
    if not panels:
        return
    heights = [len(bars) + 1.2 for _, bars in panels]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(9, 0.42 * sum(heights) + 1.2),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axis, (title, bars) in zip(axes[:, 0], panels, strict=True):
        names = [name for name, _ in bars]
        medians = [spread.median for _, spread in bars]
        reach = [[m.median - m.low for _, m in bars], [m.high - m.median for _, m in bars]]
        colours = [_COLOURS.get(name.split(" (")[0], _OTHER) for name in names]
        whiskers = (
            {"xerr": reach, "error_kw": {"ecolor": "#222222", "capsize": 3, "lw": 1}} if report.rounds > 1 else {}
        )
        axis.barh(names, medians, color=colours, **whiskers)
        axis.set_xscale("log")
        axis.set_xlim(min(medians) / 4, max(spread.high for _, spread in bars) * 4)
        axis.invert_yaxis()
        axis.set_title(title, loc="left", fontsize=11)
        axis.grid(axis="x", which="major", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        for at, (_, spread) in enumerate(bars):
            axis.annotate(
                number(spread.median), (spread.high, at), (6, 0), textcoords="offset points", va="center", fontsize=9
            )
    machine = report.machine
    sync, rounds = machine["sync"][1]["median_ms"], plural(report.rounds, "round")
    title = f"{report.amounts.size_bytes} B bodies, {machine['cpus']} cores, sync of 4 KiB {sync:.2f} ms"
    figure.suptitle(f"{title}; median of {rounds}, lowest … highest", fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=130)
    plt.close(figure)
