"""What is drawn of a board without Grafana: the right name at the right line, and one moment for all numbers."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.boards import FLOW, OVERVIEW
from dashboards.queries import Series
from dashboards.render import COLOURS, OTHERS, Drawing

START_S, END_S = 1_700_000_000.0, 1_700_000_900.0
PANEL = {
    "title": "Held", "type": "timeseries", "targets": [{"expr": "held", "legendFormat": "{{destination}}"}],
    "fieldConfig": {"defaults": {"unit": "short", "custom": {"stacking": {"mode": "none"}}}},
}  # fmt: skip
STACKED = {
    **PANEL, "fieldConfig": {"defaults": {"unit": "short", "custom": {"stacking": {"mode": "normal"}}, "min": 0}}
}  # fmt: skip


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
            "z", "90 %", "a", "10 %",
        ]  # fmt: skip


@pytest.mark.parametrize("board", [OVERVIEW, FLOW])
def test_the_fullest_destinations_are_named(board: Any) -> None:
    panels = [panel for row in board.rows for panel in row.panels if panel.title.startswith("Fullest")]
    named = [query for panel in panels for query in panel.queries if "by (destination" in query.expr]
    assert named
    assert all("raybroker_destination_quota_used_ratio" in query.expr for query in named)


def test_colours_of_named_series_are_distinct() -> None:
    assert len({*COLOURS, OTHERS}) == len(COLOURS) + 1
