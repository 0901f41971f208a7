"""Draws the boards from a Prometheus, without Grafana, as PNG files. Needs matplotlib."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

from raybroker.analysis.reports.plots import short
from raybroker.analysis.reports.ticks import shown, ticks
from raybroker.boards.queries import Prometheus, QueryError, Series, legend, substituted

POINTS = 240
UNIT_PX = 60
"""Width of one of the 24 columns, and twice the height of a row of the grid."""
DPI = 100
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#17becf")
"""Of the largest series of a chart, which its legend names; no two of them have the same."""
OTHERS = "#b0b0b0"
"""Of all further series, which the legend counts."""
EDGES_MAX = 14
LEGEND_COLUMNS_MAX = 4
LEGEND_WIDTH = 0.96
"""Part of the width of its panel that a legend may take; it has fewer columns where it would take more."""
FOOT_PX, TICKS_PX, LEFT_PX, RIGHT_PX, TITLE_PX = 6, 20, 58, 12, 24
"""Of a panel: below its legend, of the names of times, of the names at the left, at the right, and of its title."""


def _size(pair: tuple[str, Series]) -> tuple[float, str]:
    """The largest first, by the latest value; of equal ones by name."""
    name, series = pair
    return -abs(series.points[-1][1]), name


class Drawing:
    """One board. Numbers and tables are those of the moment at which its charts end."""

    def __init__(self, prometheus: Prometheus, variables: dict[str, str], start_s: float, end_s: float) -> None:
        self._prometheus = prometheus
        self._variables = variables
        self._start_s, self._end_s = start_s, end_s

    def draw(self, board: dict[str, Any], out: Path) -> None:
        """Write the picture."""
        self.figure(board).savefig(out)

    def figure(self, board: dict[str, Any]) -> Any:
        """The picture, as matplotlib has it."""
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
        width, height = 24 * UNIT_PX, rows * UNIT_PX // 2 + 60
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="#f4f5f7")
        FigureCanvasAgg(figure)
        figure.text(0.01, 1 - 30 / height, board["title"], fontsize=16, fontweight="bold", va="center")
        for panel in board["panels"]:
            place = panel["gridPos"]
            top = 60 + place["y"] * UNIT_PX / 2
            box = [
                place["x"] / 24,
                1 - (top + place["h"] * UNIT_PX / 2) / height,
                place["w"] / 24,
                place["h"] * UNIT_PX / 2 / height,
            ]
            if panel["type"] == "row":
                figure.text(0.01, box[1] + box[3] / 2, panel["title"], fontsize=11, color="#444", va="center")
            else:
                self._panel(figure, panel, box, width, height)
        return figure

    def _panel(self, figure: Any, panel: dict[str, Any], box: list[float], width: int, height: int) -> None:
        left, bottom, right, up = LEFT_PX / width, TICKS_PX / height, RIGHT_PX / width, TITLE_PX / height
        if panel["type"] in ("stat", "table"):
            left, bottom = 8 / width, 6 / height
        axes = figure.add_axes((box[0] + left, box[1] + bottom, box[2] - left - right, box[3] - bottom - up))
        axes.set_title(panel["title"], fontsize=9, loc="left", fontweight="bold")
        unit = panel["fieldConfig"]["defaults"]["unit"]
        try:
            getattr(self, f"_{panel['type']}")(axes, panel, unit)
        except QueryError as error:
            axes.text(0.5, 0.5, str(error), ha="center", va="center", fontsize=7, color="red", wrap=True)
        if axes.get_legend() is not None:
            self._legend_below(axes, box, height)

    def _series(self, panel: dict[str, Any], *, over: bool) -> list[tuple[str, Series]]:
        found = []
        for target in panel["targets"]:
            expr = substituted(target["expr"], self._variables)
            if over:
                step_s = max((self._end_s - self._start_s) / POINTS, 1.0)
                rows = self._prometheus.over(expr, self._start_s, self._end_s, step_s)
            else:
                rows = self._prometheus.instant(expr, self._end_s)
            found += [(short(legend(target["legendFormat"], row.labels)), row) for row in rows if row.points]
        return sorted(found, key=_size)

    def _timeseries(self, axes: Any, panel: dict[str, Any], unit: str) -> None:
        found = self._series(panel, over=True)
        custom = panel["fieldConfig"]["defaults"]["custom"]
        base: dict[float, float] = {}
        for number, (name, row) in enumerate(found):
            colour = COLOURS[number] if number < len(COLOURS) else OTHERS
            at = [datetime.fromtimestamp(when).astimezone() for when, _ in row.points]
            if custom["stacking"]["mode"] == "normal":
                low = [base.get(when, 0.0) for when, _ in row.points]
                high = [below + value for below, (_, value) in zip(low, row.points, strict=True)]
                axes.fill_between(at, low, high, alpha=0.35, label=name, linewidth=0.8, color=colour)
                base.update({when: above for (when, _), above in zip(row.points, high, strict=True)})
            else:
                axes.plot(
                    at,
                    [value for _, value in row.points],
                    label=name,
                    linewidth=1.1,
                    color=colour,
                    zorder=3 if number < len(COLOURS) else 1,
                )
        if not found:
            self._nothing(axes)
            return
        if "min" in panel["fieldConfig"]["defaults"]:
            axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.05)
        low, high = axes.get_ylim()
        values = ticks(low, high, unit)
        axes.set_yticks(values, [shown(value, unit) for value in values])
        self._time(axes)
        axes.grid(visible=True, alpha=0.25)
        self._legend(axes)

    @staticmethod
    def _legend(axes: Any) -> None:
        """The largest series by name, the others by their number."""
        lines, labels = axes.get_legend_handles_labels()
        named, others = len(COLOURS), len(labels) - len(COLOURS)
        if others > 0:
            lines, labels = [*lines[:named], lines[named]], [*labels[:named], f"{others} smaller"]
        axes.legend(lines, labels, fontsize=6, frameon=False)

    @staticmethod
    def _legend_below(axes: Any, box: list[float], height: int) -> None:
        """Put the legend at the foot of its panel, in so many rows as its width needs, and the chart above it."""
        figure, legend = axes.figure, axes.get_legend()
        lines, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
        renderer = figure.canvas.get_renderer()
        foot = (box[0] + box[2] / 2, box[1] + FOOT_PX / height)

        def placed(columns: int) -> Any:
            made = axes.legend(
                lines,
                labels,
                ncols=columns,
                fontsize=6,
                frameon=False,
                borderpad=0,
                borderaxespad=0,
                loc="lower center",
                bbox_to_anchor=foot,
                bbox_transform=figure.transFigure,
            )
            return made.get_window_extent(renderer).transformed(figure.transFigure.inverted())

        columns = LEGEND_COLUMNS_MAX
        while (extent := placed(columns)).width > LEGEND_WIDTH * box[2] and columns > 1:
            columns -= 1
        place = axes.get_position()
        bottom = extent.y1 + TICKS_PX / height
        axes.set_position((place.x0, bottom, place.width, place.y1 - bottom))

    def _heatmap(self, axes: Any, panel: dict[str, Any], unit: str) -> None:
        found = self._series(panel, over=True)
        found = sorted(found, key=lambda pair: float(pair[1].labels["le"]))
        times = sorted({when for _, row in found for when, _ in row.points})
        if not times:
            self._nothing(axes)
            return
        before = dict.fromkeys(times, 0.0)
        grid = []
        for _, row in found:
            now = {**dict.fromkeys(times, 0.0), **dict(row.points)}
            grid.append([max(now[when] - before[when], 0.0) for when in times])
            before = now
        at = [datetime.fromtimestamp(when).astimezone() for when in times]
        axes.pcolormesh(at, range(len(grid)), grid, cmap="Oranges", shading="nearest")
        edges = [float(row.labels["le"]) for _, row in found]
        names = [shown(edge, unit) if math.isfinite(edge) else "more" for edge in edges]
        every = 1 + len(names) // EDGES_MAX
        axes.set_yticks(range(0, len(names), every), names[::every], fontsize=6)
        self._time(axes)

    def _stat(self, axes: Any, panel: dict[str, Any], unit: str) -> None:
        found = self._series(panel, over=False)
        text = ", ".join(shown(row.points[-1][1], unit) for _, row in found) or "no data"
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        value = found[0][1].points[-1][1] if found else 0.0
        colour = next((s["color"] for s in reversed(steps) if s["value"] is None or value >= s["value"]), "black")
        axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=20, color=colour if found else "gray")
        axes.axis("off")

    def _table(self, axes: Any, panel: dict[str, Any], unit: str) -> None:
        found = self._series(panel, over=False)
        axes.axis("off")
        if not found:
            self._nothing(axes)
            return
        names = sorted({name for _, row in found for name in row.labels} - {"__name__", "job", "instance", "cluster"})
        cells = [[row.labels.get(name, "") for name in names] + [shown(row.points[-1][1], unit)] for _, row in found]
        table = axes.table(cellText=cells[:12], colLabels=[*names, "value"], loc="upper center", edges="horizontal")
        table.auto_set_font_size(False)
        table.set_fontsize(7)

    def _time(self, axes: Any) -> None:
        from matplotlib.dates import AutoDateLocator, DateFormatter

        span_s = self._end_s - self._start_s
        shape = "%H:%M:%S" if span_s < 1800 else "%H:%M" if span_s < 2 * 86400 else "%m-%d"
        axes.xaxis.set_major_locator(AutoDateLocator(maxticks=6))  # type: ignore[no-untyped-call]  # matplotlib
        zone = datetime.now().astimezone().tzinfo
        axes.xaxis.set_major_formatter(DateFormatter(shape, tz=zone))  # type: ignore[no-untyped-call]  # matplotlib
        axes.tick_params(labelsize=6)

    @staticmethod
    def _nothing(axes: Any) -> None:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", color="gray")
        axes.set_xticks([])
        axes.set_yticks([])
