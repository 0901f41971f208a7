"""What brokers told, look after look: rates, what is kept of those that do not answer, and what is not well."""

from __future__ import annotations

from typing import Any

from raybroker.cli.top.figures import Absence, TopFigures

S = 1_000_000_000


def queue(name: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "queue",
        "state": "RUNNING",
        "messages": 0,
        "messages_in": 0,
        "messages_out": 0,
        **more,
    }


def member(broker: str, messages_in: int, messages: int = 0) -> dict[str, Any]:
    return {"broker": broker, "state": "RUNNING", "messages": messages, "messages_in": messages_in, "messages_out": 0}


def rates(figures: TopFigures, view: str = "destinations") -> list[Any]:
    return [row["in_per_second"] for row in figures.sight(0).rows[view]]


def test_a_rate_is_the_change_of_a_counter_over_time() -> None:
    figures = TopFigures()
    for at, count in ((1, 100), (2, 200), (4, 500)):
        rows = [queue(messages_in=count), {"name": "b", "type": "queue", "state": "UNKNOWN"}]
        figures.tell("list_destinations", rows, at * S)
        assert rates(figures) == [{1: 0.0, 2: 100.0, 4: 150.0}[at], None]


def test_a_counter_that_began_anew_is_no_rate_below_zero() -> None:
    figures = TopFigures()
    figures.tell("list_destinations", [queue(messages_in=100)], 1 * S)
    figures.tell("list_destinations", [queue(messages_in=3)], 2 * S)
    assert rates(figures) == [0.0]


def test_a_broker_that_comes_back_is_no_burst() -> None:
    figures = TopFigures()
    both = [queue(members=[member("b1", 10), member("b2", 1000)])]
    figures.tell("list_destinations", both, 1 * S)
    figures.tell("list_destinations", [queue(members=[member("b1", 20)])], 2 * S, {"b2": "it is lost"})
    assert rates(figures) == [10.0]
    figures.tell("list_destinations", [queue(members=[member("b1", 30), member("b2", 1000)])], 3 * S)
    assert rates(figures) == [10.0]


def test_what_is_not_counted_has_no_rate() -> None:
    figures = TopFigures()
    figures.tell("list_connections", [{"id": "c", "messages_in": None, "messages_out": None, "broker": "b1"}], 1 * S)
    assert rates(figures, "connections") == [None]


def test_rows_of_a_broker_that_does_not_answer_stay_with_their_age() -> None:
    figures = TopFigures()
    rows = [{"id": "one", "broker": "b1"}, {"id": "two", "broker": "b2"}, {"id": "three", "broker": "b1"}]
    figures.tell("list_connections", rows, 1 * S)
    figures.tell("list_connections", rows[:1], 2 * S, {"b2": "it is lost"})
    figures.tell("list_connections", rows[:1], 5 * S, {"b2/h1": "it is lost"})
    sight = figures.sight(0)
    assert [(row["id"], row["seen_ns"]) for row in sight.rows["connections"]] == [("one", 5 * S), ("two", 1 * S)]
    assert sight.absent == {"b2/h1": Absence(5 * S, "it is lost")}
    figures.tell("list_connections", rows[:1], 6 * S)
    assert [row["id"] for row in figures.sight(0).rows["connections"]] == ["one"]
    assert figures.sight(0).absent == {}


def test_the_figures_of_a_destination_that_cannot_be_asked_stay_with_their_age() -> None:
    figures = TopFigures()
    figures.tell("list_destinations", [queue(messages=7)], 1 * S)
    figures.tell("list_destinations", [{"name": "a", "type": "queue", "state": "UNKNOWN"}], 2 * S, {"b1/h1": "gone"})
    (row,) = figures.sight(0).rows["destinations"]
    assert (row["state"], row["messages"], row["seen_ns"]) == ("UNKNOWN", 7, 1 * S)


def test_absence_is_since_the_first_look_that_missed_somebody() -> None:
    figures = TopFigures()
    for at in (1, 2, 3):
        figures.tell("list_destinations", [], at * S, {"b2": f"no answer at {at}"})
        figures.tell("list_consumers", [], at * S, {"b2": f"no answer at {at}"})
    assert figures.sight(0).absent == {"b2": Absence(1 * S, "no answer at 3")}


def test_nothing_is_answered_since_a_time_until_something_is() -> None:
    figures = TopFigures()
    figures.tell("list_destinations", [queue()], 1 * S)
    figures.fail("gone", 2 * S)
    figures.fail("still gone", 3 * S)
    sight = figures.sight(0)
    assert (sight.failure, len(sight.rows["destinations"])) == (Absence(2 * S, "still gone"), 1)
    figures.tell("list_destinations", [queue()], 4 * S)
    assert figures.sight(0).failure is None


def test_who_has_not_the_right_to_a_list_is_told_so() -> None:
    figures = TopFigures()
    figures.refuse("list_connections", "user ann may not", 1 * S)
    assert figures.sight(0).absent == {"list connections": Absence(1 * S, "user ann may not")}


def test_a_broker_has_the_sums_of_its_destinations_and_the_worst_of_its_hosts() -> None:
    figures = TopFigures()
    rows = [queue(name, members=[member("b1", 10 * at, 5), member("b2", 0, 1)]) for at, name in ((1, "a"), (2, "c"))]
    figures.tell(
        "list_brokers", [{"broker": "b1", "state": "UP", "master": True}, {"broker": "b2", "state": "DOWN"}], S
    )
    figures.tell("list_destinations", [queue("a", members=[member("b1", 0)]), queue("c", members=[member("b1", 0)])], S)
    figures.tell("list_destinations", rows, 2 * S)
    checks = [
        {"broker": "b1", "check": "memory", "of": of, "grade": "ok", "text": "", "value": value}
        for of, value in (("b1/h1", 20.0), ("b1/h2", 70.0))
    ]
    figures.tell("check_broker", [*checks, {**checks[0], "check": "disk", "value": 12.5}], 2 * S)
    one, two = figures.sight(0).rows["brokers"]
    assert (one["messages"], one["in_per_second"], one["master"]) == (10, 30.0, "yes")
    assert (one["memory_percent"], one["disk_free_percent"]) == (70.0, 12.5)
    assert (two["messages"], two["state"], two.get("memory_percent")) == (2, "DOWN", None)


def test_the_only_broker_has_what_there_is() -> None:
    figures = TopFigures()
    figures.tell("list_brokers", [{"broker": "b1", "state": "UP", "master": False}], S)
    figures.tell("list_destinations", [queue(messages=4), queue("b", messages=5)], S)
    assert [row["messages"] for row in figures.sight(0).rows["brokers"]] == [9]


def test_what_hampers_a_host_is_an_alarm_and_the_worst_is_first() -> None:
    figures = TopFigures()
    slow = {"broker": "b1", "check": "disk_speed", "of": "b1/h2", "grade": "warning", "text": "the disk is slow"}
    red = {"broker": "b1", "check": "memory", "of": "b1/h2", "grade": "critical", "text": "memory level RED"}
    well = {"broker": "b1", "check": "broker", "of": "b1", "grade": "ok", "text": "broker b1 is UP"}
    figures.tell("check_broker", [slow, red, well], S)
    figures.tell("list_destinations", [queue("p", state="PAUSED"), queue("mq.sys.dmq", messages=3)], S)
    alarms = [(row["grade"], row["of"], row["text"]) for row in figures.sight(0).alarms]
    assert alarms == [
        ("critical", "b1/h2", "memory level RED"),
        ("warning", "queue mq.sys.dmq", "3 dead messages, and nobody reads them"),
        ("warning", "b1/h2", "the disk is slow"),
        ("note", "queue p", "it is PAUSED"),
    ]
