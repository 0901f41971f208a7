"""Recurring schedules from the command line (B17)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.cli.conftest import Program


def created(raybroker: Program, *more: str) -> str:
    told = raybroker.output("create", "sch", "-d", "orders", "--when", "@every 1h", "hello", *more)
    match = re.fullmatch(r"created schedule (\w+)\n", told)
    assert match is not None, told
    return match[1]


def test_a_schedule_is_created_listed_shown_and_destroyed(raybroker: Program, broker: Any) -> None:
    assert raybroker("list", "sch").stderr == "no schedules\n"
    id_ = created(raybroker, "--repeat", "3", "-p", "n=5", "--timezone", "Europe/Berlin")
    (row,) = raybroker.json("list", "sch")
    assert (row["id"], row["destination"], row["repeat"], row["timezone"]) == (id_, "orders", 3, "Europe/Berlin")
    table = raybroker.output("list", "sch")
    assert id_ in table
    assert "0 of 3" in table
    assert raybroker.json("query", "sch", "-n", id_) == row
    shown = raybroker.output("query", "sch", "-n", id_)
    assert "@every 1h" in shown
    assert "_ms" not in shown.replace("ttl_ms", "").replace("delivery_delay_ms", "")
    assert raybroker.output("destroy", "sch", "-f", "-n", id_) == f"destroyed schedule {id_}\n"
    assert raybroker.json("list", "sch") == []


def test_only_those_of_one_destination_are_listed(raybroker: Program, broker: Any) -> None:
    id_ = created(raybroker)
    raybroker.output("create", "sch", "-d", "news", "-t", "t", "--when", "@daily", "x", "--catch-up")
    assert [row["id"] for row in raybroker.json("list", "sch", "-d", "orders")] == [id_]
    (topic,) = raybroker.json("list", "sch", "-t", "t")
    assert (topic["type"], topic["catch_up"]) == ("topic", True)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("destroy", "sch", "-f", "-n", "nobody"), 1, "no schedule"),
        (("query", "sch", "-n", "nobody"), 1, "no schedule"),
        (("create", "sch", "-d", "q", "--when", "often", "x"), 1, "fields"),
        (("create", "sch", "-d", "q", "--when", "@daily", "--timezone", "Nowhere", "x"), 1, "timezone"),
        (("create", "sch", "-d", "q", "x"), 2, "--when"),
        (("list", "sch", "-t", "z"), 2, "-t"),
    ],
)
def test_what_cannot_be_ends_with_its_code(
    raybroker: Program, broker: Any, arguments: tuple[str, ...], code: int, word: str
) -> None:
    result = raybroker(*arguments)
    assert result.exit_code == code
    assert word in result.output
