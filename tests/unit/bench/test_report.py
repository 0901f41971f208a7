"""The benchmark report says what was measured, what not, and with which settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import parse
from benchmarks.goals import Spread
from benchmarks.readings import OURS, PIPE, RAY_QUEUE, Amounts, Reading, Skipped
from benchmarks.report import Report, as_json, cell, markdown, number, table, write

MACHINE = {
    "cpu": "a processor",
    "cpus": 2,
    "memory_gb": 8.0,
    "kernel": "6.1",
    "system": "Debian",
    "python": "3.11.7",
    "packages": {"redis": "8.1"},
    "file_system": "ext4",
    "sync": [{"size_bytes": size, "median_ms": 0.1, "p99_ms": 0.2} for size in (1024, 4096)],
}


def sample() -> Report:
    report = Report("2026-01-01 00:00 UTC", Amounts(), 2, MACHINE)
    for number_, (ours, pipe) in enumerate(((700.0, 1000.0), (500.0, 1000.0)), 1):
        report.readings += [
            Reading(OURS, "through", ours, number_),
            Reading(PIPE, "sweep", pipe, number_, "batch 100, window 8"),
            Reading(PIPE, "sweep", 10.0, number_, "batch 1, window 8"),
            Reading("nats-jetstream", "through", 100.0, number_),
            Reading(RAY_QUEUE, "single", 1.0, number_),
            Reading(OURS, "memory", 20.0, number_, "RSS"),
        ]
    report.systems = {"nats-jetstream": {"versions": ["2.9"], "settings": ["file storage"]}}
    report.marks = {"nats-jetstream": "no fsync"}
    report.skipped = [Skipped("rabbitmq", "not installed"), Skipped("rabbitmq", "not installed")]
    return report


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.123, "0.12"), (12.34, "12.3"), (123.4, "123"), (1234567.8, "1,234,568")]
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_cell_shows_the_range_only_when_there_is_one() -> None:
    assert cell(Spread(5, 5, 5, 1)) == "5.00"
    assert cell(Spread(500, 400, 600, 3)) == "500 [400 … 600]"
    assert cell(None) == "–"


def test_a_pipe_in_a_cell_does_not_break_the_table() -> None:
    assert table(("a", "b"), [("x|y", "z")])[2] == "| x\\|y | z |"


def test_the_markdown_holds_goals_rates_ratios_settings_and_what_was_skipped() -> None:
    text = markdown(sample())
    assert "against the bare pipe | 0.60 [0.50 … 0.70] | ≥ 0.35 | reached |" in text
    assert "the same against the best peer (nats-jetstream) | 6.00 [5.00 … 7.00] | ≥ 3 | reached |" in text
    assert "against ray.util.queue one by one | 600 [500 … 700] | ≥ 100 | reached |" in text
    assert "memory per queued persistent message, bytes | 20.0 | ≤ 32 | reached |" in text
    assert "RabbitMQ confirms | – | ≥ 2.5 | not measured |" in text
    assert "| nats-jetstream (no fsync) | 100 | 0.1 | 6.00 × |" in text
    assert "  * file storage" in text
    assert text.count("not installed") == 1


def test_the_json_holds_every_round_and_the_verdicts(tmp_path: Path) -> None:
    report = sample()
    write(report, tmp_path / "deep" / "results")
    found = json.loads((tmp_path / "deep" / "results" / "report.json").read_text())
    assert found == json.loads(json.dumps(as_json(report)))
    assert len(found["readings"]) == 12
    assert found["medians"][f"{OURS}/through"]["median"] == 600.0
    assert [goal["verdict"] for goal in found["goals"]].count("not measured") == 17


def test_a_run_without_any_reading_still_makes_a_report() -> None:
    text = markdown(Report("now", Amounts(), 1, MACHINE, skipped=[Skipped(OURS, "no broker")]))
    assert "not measured" in text
    assert "no broker" in text


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from benchmarks.plot import draw

    draw(sample(), tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_quick_means_one_small_round_and_words_on_the_command_line_win() -> None:
    quick = parse(["--quick", "--messages", "5000", "--only", "bare pipe", "rabbitmq"])
    assert (quick.rounds, quick.amounts.messages, quick.amounts.backlog) == (1, 5000, 100_000)
    assert quick.only == ["bare pipe", "rabbitmq"]
    assert (parse([]).rounds, parse([]).amounts.backlog) == (3, 1_000_000)


@pytest.mark.parametrize("wrong", [["--only", "kafkaesque"], ["--messages", "5"], ["--rounds", "-1"]])
def test_a_wrong_command_line_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(wrong)
