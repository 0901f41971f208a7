"""What is drawn of a board without Grafana: the right name at the right line, and one moment for all numbers."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.analysis.reports.ticks import INTERVALS, shown, ticks
from raybroker.boards.catalogue import FLOW, OVERVIEW, boards
from raybroker.boards.drawing import COLOURS, OTHERS, Drawing
from raybroker.boards.queries import Series

START_S, END_S = 1_700_000_000.0, 1_700_000_900.0
PANEL = {
    "title": "Held",
    "type": "timeseries",
    "targets": [{"expr": "held", "legendFormat": "{{destination}}"}],
    "fieldConfig": {"defaults": {"unit": "short", "custom": {"stacking": {"mode": "none"}}}},
}
STACKED = {
    **PANEL,
    "fieldConfig": {"defaults": {"unit": "short", "custom": {"stacking": {"mode": "normal"}}, "min": 0}},
}


class Answers:
    """A Prometheus that has twelve queues, of which the last in the alphabet grows."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def over(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        steps = [start_s + number * step_s for number in range(10)]
        small = [Series({"destination": f"a{n:02}"}, [(at, 10.0 + n) for at in steps]) for n in range(11)]
        return [*small, Series({"destination": "zeta"}, [(at, 100.0 * n) for n, at in enumerate(steps)])]

    def instant(self, expr: str, at_s: float) -> list[Series]:
        self.moments.append(at_s)
        return [Series({"destination": name}, [(at_s, value)]) for name, value in (("a", 0.1), ("z", 0.9))]


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def axes() -> Any:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    return figure.add_subplot()


def colour_of(handle: Any) -> str:
    from matplotlib.colors import to_hex

    return str(to_hex(handle.get_facecolor() if hasattr(handle, "get_facecolor") else handle.get_color()))


def legend(axes: Any) -> dict[str, str]:
    """Name → colour, in the order of the legend."""
    found = axes.get_legend()
    return dict(zip((text.get_text() for text in found.get_texts()), map(colour_of, found.legend_handles), strict=True))


@pytest.mark.parametrize("panel", [PANEL, STACKED], ids=["lines", "stacked"])
def test_the_largest_series_are_named_and_each_has_a_colour_of_its_own(
    panel: dict[str, Any], answers: Answers, axes: Any
) -> None:
    Drawing(answers, {}, START_S, END_S)._timeseries(axes, panel, "short")  # type: ignore[arg-type]
    found = legend(axes)
    assert list(found) == ["zeta", "a10", "a09", "a08", "a07", "a06", "6 smaller"]
    if panel is PANEL:
        assert list(found.values()) == [*COLOURS, OTHERS]
        (grown,) = [line for line in axes.lines if line.get_ydata()[-1] == 900]
        assert colour_of(grown) == found["zeta"]
    assert len(set(found.values())) == len(found)


def test_few_series_are_all_named(answers: Answers, axes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Answers.over
    monkeypatch.setattr(Answers, "over", lambda *args: whole(*args)[9:])
    Drawing(answers, {}, START_S, END_S)._timeseries(axes, PANEL, "short")  # type: ignore[arg-type]
    assert list(legend(axes)) == ["zeta", "a10", "a09"]


@pytest.mark.parametrize("kind", ["stat", "table"])
def test_numbers_are_of_the_moment_at_which_charts_end(kind: str, answers: Answers, axes: Any) -> None:
    panel = {**PANEL, "type": kind}
    getattr(Drawing(answers, {}, START_S, END_S), f"_{kind}")(axes, panel, "percentunit")  # type: ignore[arg-type]
    assert answers.moments == [END_S]
    if kind == "stat":
        assert [text.get_text() for text in axes.texts] == ["90 %, 10 %"]
    else:
        assert [cell.get_text().get_text() for (row, _), cell in axes.tables[0].get_celld().items() if row] == [
            "z",
            "90 %",
            "a",
            "10 %",
        ]


@pytest.mark.parametrize("board", [OVERVIEW, FLOW])
def test_the_fullest_destinations_are_named(board: Any) -> None:
    panels = [panel for row in board.rows for panel in row.panels if panel.title.startswith("Fullest")]
    named = [query for panel in panels for query in panel.queries if "by (destination" in query.expr]
    assert named
    assert all("raybroker_destination_quota_used_ratio" in query.expr for query in named)


class EveryDay(Answers):
    """Answers every query with series of all that legends name, with long names and names that are no plain text."""

    def over(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        steps = [start_s + number * step_s for number in range(10)]
        if " le)" in expr or "(le)" in expr:
            return [Series({"le": edge}, [(at, 5.0) for at in steps]) for edge in ("0.001", "0.1", "+Inf")]
        names = ("orders", "_inner", "$price of $goods", "a.destination.with.a.name.that.is.as.long.as.they.come")
        return [
            Series(
                {"broker": f"b{n}", "destination": name, "type": "queue", "state": "active", "quota": name, "of": "x"},
                [(at, 31.7 * (n + 1)) for at in steps],
            )
            for n, name in enumerate((*names, *names))
        ]

    def instant(self, expr: str, at_s: float) -> list[Series]:
        return [Series({"destination": "orders", "broker": "b1"}, [(at_s, 31.7)])]


@pytest.mark.parametrize("name", sorted(boards()))
def test_no_text_of_a_panel_covers_another_one(name: str) -> None:
    pytest.importorskip("matplotlib")
    figure = Drawing(EveryDay(), {}, START_S, END_S).figure(boards()[name])  # type: ignore[arg-type]
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    titles, others = [], [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts]
    for axes in figure.axes:
        title = axes.get_title(loc="left")
        titles.append((title, axes._left_title.get_window_extent(renderer)))
        if (legend := axes.get_legend()) is not None:
            others.append((f"legend of {title}", legend.get_window_extent(renderer)))
            assert axes.get_window_extent(renderer).height > 60, title
            labels = [label for label in (*axes.get_xticklabels(), *axes.get_yticklabels()) if label.get_text()]
            assert len(labels) > 4
            others += [(label.get_text(), label.get_window_extent(renderer)) for label in labels]
    assert any(name.startswith("legend") for name, _ in others)
    assert [(name, title) for name, box in others for title, of in titles if box.overlaps(of)] == []
    assert [name for name, box in (*others, *titles) if box.x0 < 0 or box.x1 > figure.bbox.width or box.y0 < 0] == []


@pytest.mark.parametrize(
    ("unit", "high", "expected"),
    [
        ("Bps", 512_000, ["0 B/s", "100 kB/s", "200 kB/s", "300 kB/s", "400 kB/s", "500 kB/s"]),
        ("bytes", 80 << 20, ["0 B", "16 MiB", "32 MiB", "48 MiB", "64 MiB", "80 MiB"]),
        ("bytes", 1_000_000, ["0 B", "256 KiB", "512 KiB", "768 KiB"]),
        ("s", 0.0028, ["0 s", "500 µs", "1 ms", "1.5 ms", "2 ms", "2.5 ms"]),
        ("s", 200, ["0 s", "60 s", "2 min", "3 min"]),
        ("s", 7 * 3600, ["0 s", "2 h", "4 h", "6 h"]),
        ("percentunit", 1.05, ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        ("percentunit", 56.1, ["0 %", "1,000 %", "2,000 %", "3,000 %", "4,000 %", "5,000 %"]),
        ("cps", 1e5, ["0/s", "20 k/s", "40 k/s", "60 k/s", "80 k/s", "100 k/s"]),
        ("short", 1e6, ["0", "200 k", "400 k", "600 k", "800 k", "1 M"]),
    ],
)
def test_ticks_are_as_people_write_them(unit: str, high: float, expected: list[str]) -> None:
    assert [shown(value, unit) for value in ticks(0, high, unit)] == expected


@pytest.mark.parametrize("unit", ["Bps", "bytes", "s", "cps", "short", "percentunit"])
@pytest.mark.parametrize("low", [0, -3.7, 99.0])
def test_every_axis_has_some_different_ticks(unit: str, low: float) -> None:
    for power in range(-6, 14):
        for high in (low + 1.1 * 10**power, low + 4.7 * 10**power):
            found = ticks(low, high, unit)
            slack = 1e-8 * (high - low)
            assert all(low - slack <= value <= high + slack for value in found), (high, found)
            if low == 0 and (unit != "bytes" or high > 4):
                assert 3 <= len(found) <= INTERVALS + 1, (high, found)
                assert len({shown(value, unit) for value in found}) == len(found), (high, found)


def test_the_axis_of_a_chart_has_these_ticks(answers: Answers, axes: Any) -> None:
    Drawing(answers, {}, START_S, END_S)._timeseries(axes, STACKED, "Bps")  # type: ignore[arg-type]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "0 B/s",
        "200 B/s",
        "400 B/s",
        "600 B/s",
        "800 B/s",
        "1 kB/s",
    ]


def test_colours_of_named_series_are_distinct() -> None:
    assert len({*COLOURS, OTHERS}) == len(COLOURS) + 1
