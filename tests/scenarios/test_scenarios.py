"""Every story in this folder is told as it is written.

``SCENARIOS_REWRITE=1 python -m pytest tests/scenarios`` writes down what the core does now; commit that only when you
understand each line that changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.story import play

HERE = Path(__file__).parent
STORIES = sorted(path.name for path in HERE.glob("*.txt"))
ROWS = (
    "F-08", "F-18", "F-19", "F-20", "F-21", "F-22", "F-23", "F-24", "F-25", "B-07", "D-06", "D-07", "D-08", "D-13",
    "D-15", "D-16", "D-17", "D-22", "R-10", "R-11",
)  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_a_story_goes_as_it_is_told(name: str) -> None:
    path = HERE / name
    told = path.read_text()
    found = play(told)
    if os.environ.get("SCENARIOS_REWRITE"):
        path.write_text(found)
    assert found == told or os.environ.get("SCENARIOS_REWRITE")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_checklist_has_its_story(row: str) -> None:
    assert any(name.startswith(row.lower().replace("-", "")) for name in STORIES)


def test_a_wrong_outcome_is_noticed() -> None:
    assert play("queue q -> something else\n") == f"{'queue q':44} -> ok\n"


def test_what_the_core_refuses_is_part_of_the_story() -> None:
    told = play("queue q maxNumActiveConsumers=1\nconsume a credit=1\nconsume b credit=1\n")
    assert told.splitlines()[2].endswith("-> refused: resource_allocation")
