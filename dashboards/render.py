"""Draws the boards from a Prometheus, without Grafana, as PNG files.

    python -m dashboards.render --prometheus http://localhost:9090 --out pictures [--cluster C] [--minutes 15] [BOARD …]

Needs matplotlib: pip install 'raybroker[bench]'.
"""

from __future__ import annotations

import argparse
import math
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from dashboards.queries import Prometheus, QueryError, Series, boards, legend, substituted
from raybroker.analysis.asking import Asking
from raybroker.security.tls import client_context

POINTS = 240
UNIT_PX = 60
"""Width of one of the 24 columns, and twice the height of a row of the grid."""
DPI = 100
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#17becf")
"""Of the largest series of a chart, which its legend names; no two of them have the same."""
OTHERS = "#b0b0b0"
"""Of all further series, which the legend counts."""
EDGES_MAX = 14
_SCALES = {"bytes": 1024.0, "Bps": 1024.0}
_ENDINGS = {"s": " s", "bytes": "B", "Bps": "B/s", "cps": "/s"}


def shown(value: float, unit: str) -> str:
    """A number as a board shows it."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"
    if unit == "s" and abs(value) >= 120:
        return f"{value / 3600:.3g} h" if abs(value) >= 7200 else f"{value / 60:.3g} min"
    scale = _SCALES.get(unit, 1000.0)
    ending = _ENDINGS.get(unit, "")
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < scale or prefix == "P":
            gap = " " if unit in _SCALES or prefix else ""
            return f"{value:.{3 if abs(value) < 1000 else 4}g}{gap}{prefix}{ending}"
        value /= scale
    return f"{value:.3g}"


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
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib.figure import Figure

        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
        width, height = 24 * UNIT_PX, rows * UNIT_PX // 2 + 60
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="#f4f5f7")
        figure.text(0.01, 1 - 30 / height, board["title"], fontsize=16, fontweight="bold", va="center")
        for panel in board["panels"]:
            place = panel["gridPos"]
            top = 60 + place["y"] * UNIT_PX / 2
            box = [place["x"] / 24, 1 - (top + place["h"] * UNIT_PX / 2) / height, place["w"] / 24,
                   place["h"] * UNIT_PX / 2 / height]  # fmt: skip
            if panel["type"] == "row":
                figure.text(0.01, box[1] + box[3] / 2, panel["title"], fontsize=11, color="#444", va="center")
            else:
                self._panel(figure, panel, box, width, height)
        figure.savefig(out)

    def _panel(self, figure: Any, panel: dict[str, Any], box: list[float], width: int, height: int) -> None:
        left, bottom, right, up = 55 / width, 38 / height, 12 / width, 24 / height
        if panel["type"] in ("stat", "table"):
            left, bottom = 8 / width, 6 / height
        axes = figure.add_axes((box[0] + left, box[1] + bottom, box[2] - left - right, box[3] - bottom - up))
        axes.set_title(panel["title"], fontsize=9, loc="left", fontweight="bold")
        unit = panel["fieldConfig"]["defaults"]["unit"]
        try:
            getattr(self, f"_{panel['type']}")(axes, panel, unit)
        except QueryError as error:
            axes.text(0.5, 0.5, str(error), ha="center", va="center", fontsize=7, color="red", wrap=True)

    def _series(self, panel: dict[str, Any], *, over: bool) -> list[tuple[str, Series]]:
        found = []
        for target in panel["targets"]:
            expr = substituted(target["expr"], self._variables)
            if over:
                step_s = max((self._end_s - self._start_s) / POINTS, 1.0)
                rows = self._prometheus.over(expr, self._start_s, self._end_s, step_s)
            else:
                rows = self._prometheus.instant(expr, self._end_s)
            found += [(legend(target["legendFormat"], row.labels), row) for row in rows if row.points]
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
                axes.plot(at, [value for _, value in row.points], label=name, linewidth=1.1, color=colour,
                          zorder=3 if number < len(COLOURS) else 1)  # fmt: skip
        if not found:
            self._nothing(axes)
            return
        axes.yaxis.set_major_formatter(lambda value, _: shown(value, unit))
        if "min" in panel["fieldConfig"]["defaults"]:
            axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.05)
        self._time(axes)
        axes.grid(visible=True, alpha=0.25)
        self._legend(axes)

    @staticmethod
    def _legend(axes: Any) -> None:
        """The largest series by name, the others by their number."""
        lines, labels = axes.get_legend_handles_labels()
        shown, others = len(COLOURS), len(labels) - len(COLOURS)
        if others > 0:
            lines, labels = [*lines[:shown], lines[shown]], [*labels[:shown], f"{others} smaller"]
        axes.legend(lines, labels, fontsize=6, loc="upper center", ncols=3 if others <= 0 else 4,
                    bbox_to_anchor=(0.5, -0.1), frameon=False)  # fmt: skip

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
        axes.xaxis.set_major_locator(AutoDateLocator(maxticks=6))
        axes.xaxis.set_major_formatter(DateFormatter(shape, tz=datetime.now().astimezone().tzinfo))
        axes.tick_params(labelsize=6)

    @staticmethod
    def _nothing(axes: Any) -> None:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", color="gray")
        axes.set_xticks([])
        axes.set_yticks([])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dashboards.render", description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="with the token that the server asks for")
    parser.add_argument("--trust", type=Path, metavar="FILE", help="of https: certificates that are accepted, as PEM")
    parser.add_argument("--cluster", default="default")
    parser.add_argument("--broker", default=".*", help="regular expression")
    parser.add_argument("--destination", default=".*", help="regular expression")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--window", default="1m", help="what rates are over")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("board", nargs="*")
    given = parser.parse_args(arguments)
    found = boards()
    unknown = [name for name in given.board if name not in found]
    if unknown:
        parser.error(f"there is no board {unknown[0]}; there are {', '.join(found)}")
    token_file: Path | None = given.token_file
    asking = Asking(
        (lambda: token_file.read_text(encoding="utf-8").strip()) if token_file is not None else str,
        client_context(trust=given.trust) if given.trust is not None else None,
    )
    end_s = datetime.now().astimezone().timestamp()
    variables = {
        "cluster": given.cluster, "broker": given.broker, "destination": given.destination,
        "__rate_interval": given.window,
    }  # fmt: skip
    drawing = Drawing(Prometheus(given.prometheus, asking), variables, end_s - given.minutes * 60, end_s)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.board or found:
        path = given.out / f"{name}.png"
        drawing.draw(found[name], path)
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
