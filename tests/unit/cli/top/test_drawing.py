"""The lines of the screen: what stands first, what is old, and that nothing is broader than the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from raybroker.cli.top.drawing import DrawnScreen, ScreenTerms, Size, attention, fit, picture, plain_rows, printable
from raybroker.cli.top.figures import Absence, Sight
from raybroker.cli.top.screen import Screen
from raybroker.cli.top.views import VIEWS

S = 1_000_000_000
NOW = 1000 * S
LONG = "a.queue.with.a.very.long.name.of.many.segments.for.the.orders.of.all.customers"


def row(name: str, seen_s: float = 0, **more: Any) -> dict[str, Any]:
    figures = {"messages": 12, "in_per_second": 1.5, "out_per_second": 0.0, "active_consumers": 1, "unacknowledged": 3}
    return {
        "name": name,
        "type": "queue",
        **figures,
        "redelivered": 0,
        "state": "RUNNING",
        "seen_ns": NOW - round(seen_s * S),
        **more,
    }


def sight(*rows: dict[str, Any], told_s: float = 0.2, **more: Any) -> Sight:
    brokers = [{"broker": "b1", "state": "UP"}, {"broker": "b2", "state": "DOWN", "master": ""}]
    told = {"destinations": NOW - round(told_s * S)}
    return Sight(rows={"destinations": rows, "brokers": brokers}, told_ns=told, **more)


def drawn(
    seen: Sight, screen: Screen | None = None, columns: int = 80, lines: int = 24, cluster: str = "c"
) -> DrawnScreen:
    return picture(screen or Screen(), seen, ScreenTerms(cluster, 1.0), Size(columns, lines), NOW)


def texts(found: DrawnScreen) -> list[str]:
    return [line.text for line in found.lines]


def test_the_first_line_says_what_is_shown_of_whom_and_how_old_it_is() -> None:
    first = drawn(sight(row("a"))).lines[0]
    assert first == ("raybroker destinations · 0.2 s ago · 1 of 2 brokers up · cluster c", "title")


def test_old_figures_are_marked() -> None:
    first = drawn(sight(row("a"), told_s=14)).lines[0]
    assert (first.text.split(" · ")[1], first.style) == ("OLD: 14 s ago", "critical")


def test_what_was_never_told_is_said_and_a_pause_too() -> None:
    assert "no answer yet" in texts(drawn(sight(), Screen().showing("consumers")))[0]
    assert texts(drawn(sight(row("a")), Screen(paused=True), columns=40))[0].startswith(
        "raybroker destinations · PAUSED · 0.2"
    )


def test_what_needs_attention_stands_above_the_table_the_worst_first() -> None:
    alarm = {"grade": "warning", "of": "b1/h1", "text": "the disk is slow"}
    note = {"grade": "note", "of": "queue a", "text": "it is PAUSED"}
    seen = sight(row("a"), absent={"b2": Absence(NOW - 12 * S, "it is lost")}, alarms=[alarm, note])
    lines = drawn(seen).lines
    assert lines[1] == ("UNKNOWN  b2: no answer for 12 s; what it has is old or left out (it is lost)", "critical")
    assert lines[2:4] == [("WARNING  b1/h1: the disk is slow", "warning"), ("NOTE     queue a: it is PAUSED", "")]
    assert lines[4].text.startswith("name")


def test_many_alarms_leave_room_for_the_table() -> None:
    alarms = [{"grade": "warning", "of": f"queue {n}", "text": "it is full"} for n in range(100)]
    found = drawn(sight(*(row(f"q{n}") for n in range(50)), alarms=alarms), lines=24)
    assert "and 93 more: raybroker audit" in texts(found)[8]
    assert (len(found.lines), found.page) == (24, 12)


def test_when_nothing_is_answered_the_last_figures_stay() -> None:
    found = drawn(sight(row("a"), told_s=30, failure=Absence(NOW - 29 * S, "the broker is gone")))
    assert texts(found)[1] == "UNKNOWN  nothing is answered for 29 s: the broker is gone"
    assert any(text.startswith("a ") for text in texts(found))


def test_a_row_that_is_old_says_so_and_the_others_do_not() -> None:
    found = texts(drawn(sight(row("new"), row("old", seen_s=65))))
    head = next(text for text in found if text.startswith("name"))
    assert head.endswith("seen")
    assert next(text for text in found if text.startswith("old")).endswith("65 s ago")
    assert next(text for text in found if text.startswith("new")).endswith("RUNNING")
    assert "seen" not in next(text for text in texts(drawn(sight(row("new")))) if text.startswith("name"))


def test_at_80_columns_the_figures_are_whole_and_a_long_name_is_cut() -> None:
    found = texts(drawn(sight(row(LONG, messages=1_234_567), row("b"))))
    head, line = found[1:3]
    assert "in/s▼" in head
    assert line.startswith("a.queue.with.a.very.lon")
    assert "1,234,567" in line
    assert max(map(cell_len, found)) <= 80


def test_a_broad_terminal_shows_all_columns_and_whole_names() -> None:
    found = texts(drawn(sight(row(LONG)), columns=200))
    assert found[2].startswith(LONG)
    assert found[1].split() == [
        "name",
        "type",
        "messages",
        "in/s▼",
        "out/s",
        "consumers",
        "unacked",
        "redelivered",
        "state",
    ]


def test_names_of_broad_characters_stay_in_their_columns() -> None:
    name = "日本語の請求書クライアント番号一二三四五六七八九"
    client = {"client_id": name, "user": "ann", "service": "jms", "host": "h:1", "producers": 1, "consumers": 0}
    found = drawn(Sight(rows={"connections": [client, {**client, "client_id": "b"}]}), Screen().showing("connections"))
    head, narrow, broad = (text for text in texts(found)[1:4])
    at = cell_len(head[: head.index("user")])
    assert cell_len(broad[: broad.index("ann")]) == cell_len(narrow[: narrow.index("ann")]) == at
    assert broad.startswith("日本語の請求書クライア")


def test_no_name_reaches_the_terminal_as_a_command() -> None:
    evil = {"client_id": "x\x1b[2J\x07\u202ey", "user": "a\r\nb"}
    seen = Sight(rows={"connections": [evil]}, absent={"b\x1b2": Absence(0, "z\x1b]0;t\x07")})
    found = texts(drawn(seen, Screen(filter="").showing("connections"), cluster="c\x1bc"))
    assert all(text.isprintable() for text in found)
    assert "x·[2J··y" in found[3]


def test_the_column_that_is_sorted_by_is_not_left_out() -> None:
    screen = Screen().sorted_by("redelivered")
    assert "redelivered▼" in texts(drawn(sight(row(LONG)), screen, columns=50))[1]


def test_an_id_is_no_figure() -> None:
    found = drawn(Sight(rows={"consumers": [{"id": 1099511627778, "destination": "a"}]}), Screen().showing("consumers"))
    assert "1099511627778" in texts(found)[2]


def test_a_filter_that_nothing_matches_and_no_rows_are_told_apart() -> None:
    assert "nothing matches the filter" in texts(drawn(sight(row("a")), Screen(filter="zzz")))
    assert "no destinations" in texts(drawn(sight()))


def test_the_filter_is_shown_while_it_is_typed_and_afterwards() -> None:
    assert texts(drawn(sight(row("a")), Screen(filter="or", typing=True)))[-1].startswith("filter: or_")
    assert texts(drawn(sight(row("orders")), Screen(filter="or")))[-2] == "1-1 of 1, by in/s, descending, with 'or'"


def test_help_takes_the_place_of_the_table() -> None:
    found = texts(drawn(sight(row("a")), Screen(helping=True)))
    assert any("turn the order round" in text for text in found)
    assert not any(text.startswith("name") for text in found)


def test_the_page_is_scrolled_to_and_its_rows_are_counted() -> None:
    seen = sight(*(row(f"q{n:02}") for n in range(40)))
    found = drawn(seen, replace(Screen().sorted_by("name"), first=1000), lines=14)
    assert found.page == 10
    assert texts(found)[2].startswith("q30")
    assert texts(found)[-2] == "31-40 of 40, by name, ascending"


@given(
    st.integers(1, 120),
    st.integers(1, 40),
    st.lists(st.text(max_size=40), max_size=8),
    st.sampled_from(list(VIEWS)),
    st.booleans(),
)
def test_no_line_is_broader_than_the_screen_and_no_more_are_drawn(
    columns: int, lines: int, names: list[str], view: str, helping: bool
) -> None:
    rows = [dict.fromkeys(VIEWS[view].columns, name) | {"seen_ns": 0} for name in names]
    seen = Sight(rows={view: rows}, absent={name: Absence(0, name) for name in names})
    found = drawn(seen, Screen(helping=helping).showing(view), columns, lines)
    assert len(found.lines) <= lines
    assert all(cell_len(text) <= columns and text.isprintable() for text in texts(found))


@pytest.mark.parametrize(
    ("text", "width", "cut"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…"), ("ab", 1, "…")]
)
def test_what_is_cut_says_so(text: str, width: int, cut: str) -> None:
    assert fit(text, width) == cut


def test_rows_for_programs_have_their_age() -> None:
    (found,) = plain_rows([{"name": "a", "in_per_second": 1.26, "out_per_second": None, "seen_ns": NOW - S}], NOW)
    assert found == {"name": "a", "in_per_second": 1.3, "out_per_second": None, "age_s": 1.0}


def test_attention_in_a_pipe_has_lines_of_their_own() -> None:
    lines = attention(sight(absent={"b2": Absence(NOW - 3 * S, "it is lost")}), NOW)
    assert [printable(line.text) for line in lines] == [line.text for line in lines]
    assert len(lines) == 1
