"""Grades of what a look at a broker shows."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.admin import checks
from raybroker.admin.checks import EXIT_CODES, OF_BROKER, OF_DESTINATION, OF_SERVICES, Grade, Limits, failing, worst
from raybroker.errors import ConfigError

BROKER = {
    "broker": "b1",
    "state": "UP",
    "memory_level": "GREEN",
    "memory_used_bytes": 50,
    "memory_limit_bytes": 100,
    "thresholds": {},
}
HOST = {
    "host": "b1/h1",
    "failure": None,
    "disk_low": False,
    "disk_free_bytes": 40,
    "disk_total_bytes": 100,
    "disk_slow": False,
}
CLUSTER = {
    "broker": "b1",
    "state": "OPERATING",
    "operating": True,
    "master": "b1",
    "refusal": "",
    "contradiction": "",
    "faults": [],
    "brokers": [{"broker": "b1", "state": "UP"}, {"broker": "b2", "state": "UP"}],
}
QUEUE = {
    "type": "queue",
    "name": "q",
    "state": "RUNNING",
    "messages": 80,
    "bytes": 10,
    "dead": 2,
    "active_consumers": 1,
    "producers": 0,
    "attributes": {"maxNumMsgs": 100, "maxTotalMsgBytes": -1},
}
SERVICE = {
    "service": "ssljms",
    "state": "RUNNING",
    "port": 7,
    "refusal": "",
    "connections": 1,
    "connections_max": 100,
    "certificate_days": 90,
}
NONE: dict[str, float] = {}


def graded(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Check → the worst of its grades."""
    return {row["check"]: str(worst(other for other in rows if other["check"] == row["check"])) for row in rows}


def of_broker(warn: Any = None, critical: Any = None, host: Any = None, **changed: Any) -> dict[str, str]:
    limits = Limits(OF_BROKER, warn, critical)
    return graded(checks.of_broker({**BROKER, **changed}, [{**HOST, **(host or {})}], limits))


def test_grades_have_the_exit_codes_of_nagios_and_the_worst_counts() -> None:
    assert [EXIT_CODES[grade] for grade in Grade] == [0, 1, 2, 3]
    rows = [{"grade": grade} for grade in ("ok", "warning", "unknown", "critical")]
    assert [str(worst(rows[:count])) for count in (1, 2, 3, 4)] == ["ok", "warning", "unknown", "critical"]
    assert [failing(rows[:count]) for count in (1, 2, 3, 4)] == [False, False, True, True]
    assert worst([]) is Grade.UNKNOWN
    assert failing([])


def test_a_broker_that_is_well_is_ok() -> None:
    assert set(of_broker().values()) == {"ok"}
    assert set(of_broker()) == {"broker", "hosts", "memory", "disk", "disk_speed", "loops"}


@pytest.mark.parametrize(
    ("changed", "check", "grade"),
    [
        ({"state": "STOPPING"}, "broker", "warning"),
        ({"memory_level": "YELLOW"}, "memory", "warning"),
        ({"memory_level": "ORANGE"}, "memory", "warning"),
        ({"memory_level": "RED"}, "memory", "critical"),
        ({"memory_level": "PURPLE"}, "memory", "unknown"),
        ({"host": {"failure": "gone"}}, "hosts", "critical"),
        ({"host": {"disk_low": True}}, "disk", "warning"),
        ({"host": {"disk_free_bytes": 0}}, "disk", "critical"),
        ({"host": {"disk_low": True, "disk_critical": True}}, "disk", "critical"),
        ({"host": {"disk_slow": True}}, "disk_speed", "warning"),
        ({"thresholds": {"messages": 9, "bytes": 1, "over": ["messages"]}}, "load", "warning"),
        ({"thresholds": {"messages": 9, "bytes": 1, "over": []}}, "load", "ok"),
        ({"warn": {"memory_percent": 50}}, "memory", "warning"),
        ({"warn": {"memory_percent": 51}}, "memory", "ok"),
        ({"critical": {"disk_free_percent": "40.1"}}, "disk", "critical"),
        ({"critical": {"disk_free_percent": 40}}, "disk", "ok"),
    ],
)
def test_what_is_wrong_with_a_broker_has_its_grade(changed: dict[str, Any], check: str, grade: str) -> None:
    assert of_broker(**changed)[check] == grade


@pytest.mark.parametrize(
    ("changed", "check", "grade"),
    [
        ({}, "members", "ok"),
        ({"brokers": [{"broker": "b2", "state": "DOWN", "reason": "its disk is full"}]}, "members", "critical"),
        ({"brokers": [{"broker": "b2", "state": "SUSPECT"}]}, "members", "warning"),
        ({"brokers": [{"broker": "b1", "state": "UP"}, {"broker": "b2", "state": "LEFT"}]}, "members", "warning"),
        ({"state": "MASTER_LOST"}, "master", "critical"),
        ({"operating": False, "refusal": "it waits"}, "master", "critical"),
        ({"master": None}, "master", "ok"),
        ({"contradiction": "two masters"}, "record", "critical"),
        ({"faults": ["x"]}, "record", "critical"),
    ],
)
def test_what_is_wrong_with_a_cluster_has_its_grade(changed: dict[str, Any], check: str, grade: str) -> None:
    assert graded(checks.of_cluster({**CLUSTER, **changed}))[check] == grade


@pytest.mark.parametrize(
    ("changed", "warn", "critical", "check", "grade"),
    [
        ({}, None, None, "messages", "ok"),
        ({"state": "PAUSED"}, None, None, "state", "warning"),
        ({"state": "HALTED"}, None, None, "state", "critical"),
        ({}, {"messages": 80}, {"messages": 100}, "messages", "warning"),
        ({}, {"messages": 10}, {"messages": 80}, "messages", "critical"),
        ({}, {"full_percent": 80}, None, "full_percent", "warning"),
        ({}, None, {"consumers": 1}, "consumers", "ok"),
        ({"active_consumers": 0}, None, {"consumers": 1}, "consumers", "critical"),
        ({}, {"producers": 1}, None, "producers", "warning"),
        ({}, {"dead": 1}, None, "dead", "warning"),
        ({}, {"oldest_s": 60}, {"oldest_s": 3600}, "oldest_s", "warning"),
    ],
)
def test_a_destination_is_judged_by_the_thresholds_that_are_given(
    changed: dict[str, Any], warn: Any, critical: Any, check: str, grade: str
) -> None:
    rows = checks.of_destination({**QUEUE, **changed}, 100.0, Limits(OF_DESTINATION, warn, critical))
    assert graded(rows)[check] == grade


def test_a_destination_of_which_nothing_is_known_is_critical_and_what_has_no_figure_is_left_out() -> None:
    limits = Limits(OF_DESTINATION, None, None)
    rows = checks.of_destination({"type": "queue", "name": "q", "state": "UNKNOWN"}, None, limits)
    assert graded(rows) == {"state": "critical"}
    rows = checks.of_destination({**QUEUE, "attributes": {"maxNumMsgs": -1}}, None, limits)
    assert not {"oldest_s", "full_percent"} & graded(rows).keys()


@pytest.mark.parametrize(
    ("changed", "check", "grade"),
    [
        ({}, "listener", "ok"),
        ({"state": "PAUSED"}, "state", "warning"),
        ({"refusal": "refused"}, "listener", "critical"),
        ({"connections": 90}, "clients", "warning"),
        ({"connections": 100}, "clients", "critical"),
        ({"certificate_days": 29}, "certificate", "warning"),
        ({"certificate_days": 6}, "certificate", "critical"),
        ({"certificate_days": -1}, "certificate", "critical"),
    ],
)
def test_what_is_wrong_with_a_service_has_its_grade(changed: dict[str, Any], check: str, grade: str) -> None:
    assert graded(checks.of_services([{**SERVICE, **changed}], Limits(OF_SERVICES, None, None)))[check] == grade


def test_who_gives_a_threshold_has_no_default_beside_it() -> None:
    limits = Limits(OF_SERVICES, {"certificate_days": 5}, None)
    (row,) = [
        row for row in checks.of_services([{**SERVICE, "certificate_days": 6}], limits) if row["check"] == "certificate"
    ]
    assert (row["grade"], row["warn"], "critical" in row) == ("ok", 5, False)
    without = checks.of_services([{**SERVICE, "certificate_days": None}], limits)
    assert "certificate" not in graded(without)


@pytest.mark.parametrize(
    ("warn", "critical", "told"),
    [
        ({"mesages": 1}, None, "did you mean messages"),
        (None, {"messages": "many"}, "it is a number from 0"),
        ({"messages": True}, None, "it is a number"),
        ({"messages": -1}, None, "it is a number"),
        ({"messages": "nan"}, None, "it is a number"),
        ({"messages": 10}, {"messages": 5}, "nothing would be a warning"),
        ({"consumers": 1}, {"consumers": 2}, "nothing would be a warning"),
    ],
)
def test_thresholds_that_cannot_be_right_are_refused(warn: Any, critical: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Limits(OF_DESTINATION, warn, critical)
    Limits(OF_DESTINATION, {"messages": 5, "consumers": 2}, {"messages": 5, "consumers": 1})
