"""Numbers, axes and forecasts of the report are as people read them."""

from __future__ import annotations

import re

import pytest

from raybroker.analysis.jobs.forecast import _outlook
from raybroker.analysis.reports.answer import Bars, Lines, Plot, percent
from raybroker.analysis.reports.plots import svg
from raybroker.analysis.reports.report import Facts, page

START_MS = 1_795_000_000_000


@pytest.mark.parametrize(("part", "text"), [(56.1, "5,610 %"), (0.0325, "3.25 %"), (1.2, "120 %"), (None, "–")])
def test_a_part_is_written_without_powers_of_ten(part: float | None, text: str) -> None:
    assert percent(part) == text


@pytest.mark.parametrize("points", [[(START_MS, 3.0)], [(START_MS, 1.0), (START_MS + 11_000, 2.0)]])
def test_a_short_time_has_an_axis_of_a_minute(points: list[tuple[float, float | None]]) -> None:
    pytest.importorskip("matplotlib")
    drawn = svg(Lines("in", "msg/s", {"in": points}))
    assert drawn is not None
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert "2026-Nov-18 11:07" in labels
    assert not {"2025", "2027", "2028", "2029"} & set(labels)


def test_without_enough_time_nothing_is_said_of_days_to_come() -> None:
    row = {"what": "memory", "unit": "part", "now": 0.1, "per_day": 50.0, "r2": 0.99, "fitted": 0.1}
    assert _outlook(row, enough=True)["days_left"] == pytest.approx(0.018)
    told = _outlook(row, enough=False)
    assert (told["per_day"], told["days_left"], told["growth_part"]) == (None, None, None)


@pytest.mark.parametrize(
    ("clusters", "title"),
    [
        (["shop"], "Report of the cluster shop"),
        (["depot", "shop"], "Report of the clusters depot, shop"),
        ([], "Report of the cluster in lake-7"),
    ],
)
def test_the_report_names_the_cluster_and_not_a_folder(clusters: list[str], title: str) -> None:
    facts = Facts("/tmp/of-a-run/lake-7", START_MS, START_MS + 11_000, 2, 1.0, 1.0, 1.0, {"reading": 0.1}, clusters)
    text = page(facts, [])
    head, _, foot = text.partition("<main>")
    assert f"<h1>{title}</h1>" in head
    assert "/tmp" not in head
    assert "/tmp/of-a-run/lake-7" in foot


@pytest.mark.parametrize(
    ("plot", "expected"),
    [
        (Lines("in", "msg/s", {"in": [(START_MS, 1.0), (START_MS + 60_000, 1.2e6)]}), {"0", "250 k", "1.25 M"}),
        (Lines("slow", "ms", {"q": [(START_MS, 1.0), (START_MS + 60_000, 150_000.0)]}), {"0 s", "30 s", "2 min"}),
        (Bars("in", "msg/s", {"b1": 1_234_567.0, "b2": 3.0}), {"250 k", "1 M", "1.23 M", "3"}),
    ],
)
def test_axes_have_round_numbers_with_their_unit(plot: Plot, expected: set[str]) -> None:
    pytest.importorskip("matplotlib")
    drawn = svg(plot)
    assert drawn is not None
    labels = set(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    assert expected <= labels
    assert not any("1e" in label for label in labels)
