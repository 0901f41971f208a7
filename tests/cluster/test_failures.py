"""Brokers, hosts, nodes and the path service are killed, stopped and killed at chosen steps, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import failures
from tests.cluster.failures import KILLS, STEPS, Work
from tests.cluster.load import Verdict
from tests.cluster.trial import Figures, Trial


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with failures.running_trial(tmp_path_factory.mktemp("trial"), seed=4) as found:
        yield found


def go_through(trial: Trial, folder: Path, name: str, plan: list[tuple[str, str]]) -> None:
    trial.figures = Figures()
    verdicts = failures.run(trial, Work(trial, folder, name), plan)
    print(f"{trial.figures}; {'; '.join(map(str, verdicts))}")
    assert all(verdict.acknowledged > 500 for verdict in verdicts)
    assert failures.faults(verdicts, trial.figures) == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_cost_no_message_and_are_noticed_and_taken_over(trial: Trial, tmp_path: Path) -> None:  # K-19
    go_through(trial, tmp_path, "killed", [("kills", kind) for kind in KILLS])
    assert len(trial.figures.detection) >= 4
    assert len(trial.figures.returned) == 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_stops_and_goes_on_later_costs_no_message(trial: Trial, tmp_path: Path) -> None:
    go_through(trial, tmp_path, "paused", [("pauses", kind) for kind in ("host", "node")])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_any_step_costs_no_message_and_no_change(trial: Trial, tmp_path: Path) -> None:
    go_through(trial, tmp_path, "stepped", [("steps", step) for step in STEPS])


# ---- the judges themselves -------------------------------------------------------------------------------------------


def test_what_took_too_long_is_a_fault() -> None:
    slow = Figures(detection=[1.0, 3.0, 3.0], failover=[0.5, 9.0])
    assert [text.split()[0] for text in failures.faults([Verdict()], slow)] == ["detection", "failover"]
    assert failures.faults([Verdict(lost={1})], Figures())
    assert failures.faults([Verdict()], Figures(detection=[1.5], failover=[1.9, 2.0])) == []


def test_a_gap_begins_with_the_failure(tmp_path: Path) -> None:
    notes = tmp_path / "producer.1"
    answers = [10.0, 10.1, 13.0, 13.1, 19.0]
    notes.write_text("".join(f"o {int(at * 1e9)} 1\n" for at in answers))
    assert failures._gap(notes, 11.0) == pytest.approx(2.0)
    assert failures._gap(notes, 9.5) == pytest.approx(2.9)
    assert failures._gap(notes, 20.0) == 0.0
