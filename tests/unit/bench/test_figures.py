"""The figures of README and manual: measured part by part, kept with their dates, and written between markers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import figure_pages, figures
from benchmarks.figure_pages import PAGES, ROOT, SECTIONS, Results, Taken
from benchmarks.figures import PARTS, QUICK, Amount, Step, Timed, goals, of_readings, run
from benchmarks.goals import Spread
from benchmarks.readings import OURS, PIPE, Reading

OLD, NEW = "2026-01-01", "2026-02-02"


def results(**found: float) -> Results:
    """Of a run of today, over older figures."""
    older = Results(date=OLD, commit="a" * 40)
    older.take({"through ÷ rabbitmq": Spread(15.0, 14.0, 16.0, 5), "receive": Spread(0.5, 0.5, 0.5, 1)})
    older.date, older.commit, older.machine, older.load = NEW, "b" * 40, {"processors": 2, "GB of memory": 8}, 0.25
    older.take({key.replace("_over_", " ÷ "): Spread(value, value, value, 1) for key, value in found.items()})
    return older


def text(section: str, found: Results) -> str:
    return "\n".join(SECTIONS[section](found))


def test_a_figure_that_is_older_than_the_run_has_its_date() -> None:
    shown = text("takes", results(loopback=120.0))
    assert "0.50 µs (2026-01-01) |" in shown
    assert "120 ms |" in shown
    assert "an idle dedicated host" not in shown, "what was never measured has no row"


def test_ratios_have_their_extremes_and_systems_that_were_never_measured_no_row() -> None:
    found = results(through_over_kafka=2.5, blocking_over_kafka=1.5)
    found.absent = {"rabbitmq": "rabbitmq-server is not installed"}
    shown = text("against", found)
    assert "| RabbitMQ | 15.0 [14.0 … 16.0] (2026-01-01) | – |" in shown
    assert "| Kafka (no fsync) | 2.50 | 1.50 |" in shown
    assert "Redis" not in shown
    assert "Taken 2026-02-02: commit bbbbbbbbbb, 2 processors, 8 GB of memory, load 0.2" in shown
    assert "Not measured by this run: RabbitMQ (rabbitmq-server is not installed)." in shown


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    assert figure_pages.load(path) == Results()
    figure_pages.save(found := results(loopback=120.0), path)
    assert figure_pages.load(path) == found
    assert text("against", figure_pages.load(path)) == text("against", found)
    assert set(json.loads(path.read_text())["machine"]) == {"processors", "GB of memory"}
    assert found.figures["receive"] == Taken(0.5, 0.5, 0.5, 1, "", OLD, "a" * 40)


def test_pages_are_written_between_their_markers_and_then_agree(tmp_path: Path) -> None:
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    found = results(loopback=123.0, through=150_000.0)
    assert figure_pages.rewrite(found, tmp_path) == list(PAGES)
    assert figure_pages.differing(found, tmp_path) == []
    assert "150,000 messages a second" in (tmp_path / "README.md").read_text()
    found.take({"loopback": Spread(99.0, 99.0, 99.0, 1)})
    assert figure_pages.differing(found, tmp_path) == ["raybroker/manual/performance.md"]


def test_a_page_without_a_marker_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"README\.md has 0 sections between '<!-- figures: summary -->'"):
        figure_pages.rewritten("README.md", "# raybroker\n", results())


def test_every_page_that_has_a_marker_is_known() -> None:
    marked = {
        str(path.relative_to(ROOT)) for path in ROOT.glob("raybroker/**/*.md") if "<!-- figures: " in path.read_text()
    }
    assert marked | {"README.md"} == set(PAGES)


def test_ours_is_divided_by_each_system_that_is_here_in_what_both_have() -> None:
    found = {goal.title for goal in goals(("through", "produce"), {"kafka", "redis-streams"})}
    assert {"through ÷ rabbitmq", "produce ÷ rabbitmq", f"through ÷ {PIPE}"} <= found
    assert not {title for title in found if title.endswith(("÷ kafka", "÷ redis-streams"))}
    assert f"produce ÷ {PIPE}" not in found


def test_a_feature_is_divided_by_the_plain_queue_of_its_own_round() -> None:
    readings = [
        Reading(OURS, figure, value, number)
        for number, rates in ((1, {"plain": 100.0, "selector": 50.0}), (2, {"plain": 400.0, "selector": 300.0}))
        for figure, value in rates.items()
    ]
    found = of_readings([*readings, Reading(OURS, "selector", 9.0, 3), Reading(OURS, "each", 1.0, 1)])
    assert found["selector ÷ plain"] == Spread(0.625, 0.5, 0.75, 2)
    assert set(found) == {"plain", "selector ÷ plain"}


def test_what_a_part_has_not_found_stays_and_is_named_and_all_is_kept_after_each_part() -> None:
    found, kept = results(), list[str]()
    answers: dict[str, Step] = {
        "own": ({"receive": Spread(0.4, 0.4, 0.4, 1)}, {}),
        "starts": ({}, {"part starts": "it had not ended after 120 s"}),
    }
    said: list[str] = []
    parts = {name: PARTS[name] for name in answers}
    run(
        found,
        parts,
        lambda name, most_s: answers[name],
        said.append,
        lambda: kept.append(found.figures["receive"].date),
    )
    assert found.figures["receive"].date == NEW
    assert kept == [NEW, NEW]
    assert found.absent == {"part starts": "it had not ended after 120 s"}
    assert "    absent: part starts: it had not ended after 120 s" in said


def test_a_run_of_all_parts_has_a_quarter_of_an_hour() -> None:
    assert sum(part.most_s for part in PARTS.values()) <= 900


def child(folder: Path, then: str) -> str:
    """A program in the place of a part's process, which finds one figure, and ``then`` does that."""
    program = folder / "python"
    found = {
        "found": {"import": {"median": 9, "low": 9, "high": 9, "rounds": 1, "note": ""}},
        "absent": {"kafka": "no jars"},
    }
    program.write_text(
        f'#!/bin/sh\nwhile [ "$1" != --out ]; do shift; done\necho \'{json.dumps(found)}\' > "$2/starts.json"\n{then}\n'
    )
    program.chmod(0o755)
    return str(program)


def test_a_short_run_measures_in_processes_of_their_own_and_changes_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "sys", SimpleNamespace(executable=child(tmp_path, "exit 0")))
    before = (ROOT / "README.md").read_text()
    assert figures.main(["--quick", "--only", "starts", "--out", str(tmp_path)]) == 0
    assert "1 of 1: starts, at most 120 s" in capsys.readouterr().out
    found = figure_pages.load(tmp_path / "figures.json")
    assert set(found.figures) == {"sync", "import"}
    assert (found.absent, found.commit != "") == ({"kafka": "no jars"}, True)
    assert (ROOT / "README.md").read_text() == before
    with pytest.raises(SystemExit):
        figures.main(["--quick"])


@pytest.mark.parametrize(
    ("then", "why"), [("exec sleep 60", "it had not ended after 0.5 s"), ("exit 3", "it failed with status 3")]
)
def test_a_part_that_does_not_end_well_is_named_and_what_it_found_by_then_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, why: str
) -> None:
    monkeypatch.setattr(figures, "sys", SimpleNamespace(executable=child(tmp_path, then)))
    found, absent = figures.carried_out("starts", 0.5, True, tmp_path)
    assert found == {"import": Spread(9, 9, 9, 1)}
    assert absent == {"kafka": "no jars", "part starts": why}


def test_the_process_of_a_part_leaves_what_each_step_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(amount: Amount, scratch: Path) -> Iterator[Step]:
        assert amount is QUICK
        yield {"import": Spread(9, 9, 9, 1)}, {"kafka": "no jars"}
        raise RuntimeError("the second step fails")

    monkeypatch.setitem(PARTS, "starts", Timed(steps, 1.0))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        figures.main(["--part", "starts", "--quick", "--out", str(tmp_path)])
    saved = json.loads((tmp_path / "starts.json").read_text())
    assert (list(saved["found"]), saved["absent"]) == (["import"], {"kafka": "no jars"})
    assert [path.name for path in tmp_path.iterdir()] == ["starts.json"]
