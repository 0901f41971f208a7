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
    "F-08",
    "F-18",
    "F-19",
    "F-20",
    "F-21",
    "F-22",
    "F-23",
    "F-24",
    "F-25",
    "B-05",
    "B-07",
    "B-08",
    "B-09",
    "B-21",
    "B-15",
    "B-16",
    "B-17",
    "B-22",
    "D-01",
    "D-02",
    "D-03",
    "D-06",
    "D-07",
    "D-08",
    "D-09",
    "D-10",
    "D-11",
    "D-12",
    "D-13",
    "D-14",
    "D-15",
    "D-16",
    "D-17",
    "D-18",
    "D-19",
    "D-22",
    "D-23",
    "D-24",
    "D-25",
    "D-26",
    "D-27",
    "R-07",
    "R-08",
    "R-09",
    "R-10",
    "R-11",
    "R-12",
    "K-06",
    "T-01",
    "T-02",
    "T-03",
    "T-04",
    "T-05",
    "T-06",
    "T-08",
    "T-09",
    "W-35",
    "W-57",
    "W-59",
    "W-60",
    "W-64",
    "W-65",
    "W-66",
    "W-67",
    "W-68",
    "W-69",
    "W-70",
    "W-71",
    "W-72",
    "W-74",
    "W-76",
    "W-79",
    "W-80",
    "W-81",
    "W-82",
    "W-83",
    "W-84",
    "W-85",
    "W-86",
    "W-87",
    "W-88",
    "W-89",
    "W-90",
    "W-91",
    "W-93",
    "W-94",
    "W-95",
    "W-96",
    "W-97",
    "W-98",
    "W-123",
    "W-124",
    "W-125",
    "modern-B6",
    "modern-B8",
    "modern-B9",
    "modern-B10",
    "modern-B11",
    "modern-B12",
    "modern-B14",
    "modern-B17",
    "modern-B20",
    "modern-B25",
)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_goes_as_it_is_told(name: str) -> None:
    path = HERE / name
    told = path.read_text()
    found = play(told)
    if os.environ.get("SCENARIOS_REWRITE"):
        path.write_text(found)
    else:
        assert found == told


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_checklist_has_its_story(row: str) -> None:
    assert any(name.partition("_")[0] == row.lower().replace("-", "") for name in STORIES)


def test_a_wrong_outcome_is_noticed() -> None:
    assert play("queue q -> something else\n") == f"{'queue q':44} -> ok\n"


def test_what_the_core_refuses_is_part_of_the_story() -> None:
    told = play("queue q maxNumActiveConsumers=1\nconsume a credit=1\nconsume b credit=1\n")
    assert told.splitlines()[2].endswith("-> refused: resource_allocation")
