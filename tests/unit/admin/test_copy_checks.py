"""What is said of copies: grades, why a send waits, and figures."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.admin.checks import Grade
from raybroker.admin.copy_checks import (
    BEHIND_MAX,
    drain_figures,
    figures_of,
    figures_of_log,
    is_short,
    led_at,
    needed,
    of_brokers,
    of_copies,
    reached,
    waiting_text,
)


def copy(broker: str, **other: Any) -> dict[str, Any]:
    return {
        "broker": broker,
        "copy": f"id-{broker}",
        "voter": True,
        "connected": True,
        "behind": 0,
        "index": 0,
        "answered_ms_ago": 0,
        "trouble": "",
        **other,
    }


def shown(*copies: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"leader": "b1", "why": "", "min_in_sync": 0, "index": 0, "copies": list(copies), **other}


THREE = (copy("b1"), copy("b2"), copy("b3"))


@pytest.mark.parametrize(
    ("found", "grade", "text"),
    [
        (shown(*THREE), Grade.OK, "3 copies are there, led at broker b1"),
        (
            shown(copy("b1"), copy("b2"), copy("b3", connected=False)),
            Grade.WARNING,
            "the copy at broker b3 is not there",
        ),
        (shown(copy("b1"), copy("b2", behind=BEHIND_MAX + 1), copy("b3")), Grade.WARNING, "b2 lacks 1,001 entries"),
        (shown(copy("b1"), copy("b2", behind=BEHIND_MAX), copy("b3")), Grade.OK, "3 copies"),
        (shown(copy("b1"), copy("b2"), copy("b3", voter=False)), Grade.WARNING, "b3 has no vote yet"),
        (shown(copy("b1"), copy("b2", trouble="its disk is full"), copy("b3")), Grade.WARNING, "its disk is full"),
        (
            shown(copy("b1"), copy("b2", connected=False), copy("b3", connected=False)),
            Grade.CRITICAL,
            "reaches 1 of the 2 that have to have it; not there: broker b2, broker b3",
        ),
        (shown(*THREE[:2], copy("b3", connected=False), min_in_sync=3), Grade.CRITICAL, "reaches 2 of the 3"),
        (shown(leader="", why="2 of 3 copies have promised"), Grade.CRITICAL, "no copy leads: 2 of 3 copies"),
        ({}, Grade.CRITICAL, "no broker that keeps a copy could be asked"),
    ],
)
def test_copies_are_graded(found: dict[str, Any], grade: Grade, text: str) -> None:
    (row,) = of_copies("queue orders", found)
    assert (row["check"], row["of"], row["grade"]) == ("copies", "queue orders", str(grade))
    assert text in row["text"]


def test_a_learner_is_no_help_to_a_send() -> None:
    found = shown(copy("b1"), copy("b2", connected=False), copy("b3", connected=False), copy("b4", voter=False))
    assert (reached(found), needed(found), is_short(found)) == (1, 2, True)


def test_figures_count_what_is_led_here() -> None:
    led = shown(copy("b1"), copy("b2", behind=5), copy("b3", behind=1))
    short = shown(copy("b1"), copy("b2", connected=False, behind=9), copy("b3", connected=False))
    followed = {**shown(), "leader": "b2"}
    leaderless = {**shown(), "leader": ""}
    assert figures_of("b1", [led, short, followed, leaderless], 4) == {
        "copied_logs": {"led": 2, "followed": 1, "leaderless": 1},
        "copied_logs_short": 1,
        "copy_behind_entries": {"b2": 9, "b3": 1},
        "leader_changes_total": 4,
    }
    assert figures_of("b1", [], 0)["copied_logs"] == {"led": 0, "followed": 0, "leaderless": 0}


@pytest.mark.parametrize(
    ("heirs", "drained", "left"),
    [
        (["b2", "", "b3"], True, {"handing_over": 2, "stuck": 1}),
        ([], True, {"handing_over": 0, "stuck": 0}),
        (["b2", ""], False, {"handing_over": 0, "stuck": 0}),
    ],
)
def test_figures_say_what_a_drained_broker_leads_still(
    heirs: list[str], *, drained: bool, left: dict[str, int]
) -> None:
    assert drain_figures(heirs, drained=drained) == {"drained": int(drained), "drained_logs": left}


def at(broker: str, index: int, answered_ms_ago: int = 10, **other: Any) -> dict[str, Any]:
    return copy(broker, index=index, answered_ms_ago=answered_ms_ago, **other)


@pytest.mark.parametrize(
    ("second", "third", "text"),
    [
        (at("b2", 9), at("b3", 3, 9000), ""),
        (at("b2", 7), at("b3", 3, 9000), ""),
        (
            at("b2", 7, 3200),
            at("b3", 3, 9000),
            "waits for a second copy: 2 entries are in fewer than the 2 that have to have them; the copy at broker b2",
        ),
        (at("b2", 7, trouble="its disk is full"), at("b3", 3, 9000), "b2 answered 0.0 s ago: its disk is full"),
        (at("b2", 0, -1), at("b3", 0, -1), "the copy at broker b2 has answered nothing yet"),
    ],
)
def test_a_send_waits_for_a_copy_that_is_there_and_does_not_answer(
    second: dict[str, Any], third: dict[str, Any], text: str
) -> None:
    found = shown(at("b1", 9, 0), second, third, index=9)
    said = waiting_text(found)
    assert text in said
    assert bool(said) == bool(text)
    (row,) = of_copies("queue orders", found)
    assert (row["grade"] == Grade.CRITICAL) == bool(text)


def test_a_set_that_wants_all_waits_for_the_third() -> None:
    found = shown(at("b1", 9, 0), at("b2", 9), at("b3", 3, 9000), index=9, min_in_sync=3)
    assert "waits for a third copy: 6 entries" in waiting_text(found)


def test_figures_of_a_queue_are_told_where_its_log_is_led() -> None:
    led = shown(copy("b1"), copy("b2", behind=5), copy("b3"), copy("", behind=7), term=4)
    assert figures_of_log("b1", led) == {"copy_lag_entries": {"b2": 5, "b3": 0}, "leader_term": 4}
    assert figures_of_log("b2", led) == {}
    assert figures_of_log("b1", {}) == {}


def counts(copies: int, led: int, behind: int, unconfirmed: int) -> dict[str, int]:
    return {
        "copies": copies,
        "copies_led": led,
        "copies_behind": behind,
        "copies_unconfirmed": unconfirmed,
    }


def test_brokers_have_counts_of_what_they_keep_lead_and_lack() -> None:
    placed = {"one": ("b1", "b2", "b3"), "two": ("b2", "b3", "b4"), "nobody's": ("b3", "b4", "b5")}
    at_b1 = led_at(
        [{**shown(copy("b1"), copy("b2", behind=BEHIND_MAX + 1), copy("b3", connected=False)), "log": "one"}]
    )
    away = (copy("b3", connected=False), copy("b4", connected=False))
    at_b2 = led_at([{**shown(copy("b2"), *away), "leader": "b2", "log": "two"}])
    assert of_brokers(placed, {"b1": at_b1, "b2": at_b2}, all_told=True) == {
        "b1": counts(1, 1, 0, 0),
        "b2": counts(2, 1, 1, 1),
        "b3": counts(3, 0, 2, 2),
        "b4": counts(2, 0, 1, 2),
        "b5": counts(1, 0, 0, 1),
    }
    assert of_brokers(placed, {"b1": at_b1}, all_told=False)["b5"] == counts(1, 0, 0, 0)
    assert of_brokers({}, {"b1": led_at([])}, all_told=True) == {}
