"""Keys, and what becomes of the screen by them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.cli.exits import UsageError
from raybroker.cli.top.screen import FILTER_CHARS_MAX, Screen, keys
from raybroker.cli.top.views import FALLING, VIEWS, chosen

ROWS: list[dict[str, Any]] = [
    {"name": "b", "messages": 10, "state": "RUNNING"},
    {"name": "a", "messages": 10, "state": "PAUSED"},
    {"name": "c", "messages": None},
    {"name": "D", "messages": 200, "state": "RUNNING"},
]


def after(text: str, screen: Screen | None = None, page: int = 10) -> Screen:
    found = screen or Screen()
    for key in keys(text):
        found = found.pressed(key, page)
    return found


def test_keys_are_characters_and_names() -> None:
    assert list(keys("a\x1b[A\x1bOB\x1b[5~\x1b\r\x7f\t注")) == [
        "a",
        "up",
        "down",
        "page up",
        "esc",
        "enter",
        "backspace",
        "tab",
        "注",
    ]


def test_a_key_that_nothing_is_known_of_is_nothing() -> None:
    assert list(keys("\x1b[15~x\x1b[1;5Cy")) == ["x", "y"]


@given(st.text(max_size=30), st.integers(1, 50))
def test_any_keys_lead_to_a_screen(text: str, page: int) -> None:
    screen = after(text, page=page)
    assert screen.view in VIEWS
    assert screen.sort[0] in screen.table.columns
    assert screen.first >= 0


def test_numbers_and_tab_choose_what_is_shown() -> None:
    assert [after(text).view for text in ("2", "3", "4", "1", "\t", "\t\t\t\t", "\x1b[Z")] == [
        "brokers",
        "connections",
        "consumers",
        "destinations",
        "brokers",
        "destinations",
        "consumers",
    ]


def test_the_column_to_sort_by_is_chosen_and_turned_round_for_each_view() -> None:
    assert Screen().sort == ("in_per_second", True)
    assert after(">").sort == ("out_per_second", True)
    assert after("\x1b[D\x1b[D").sort == ("type", False)
    assert after("r").sort == ("in_per_second", False)
    assert after("<<<<").sort == ("state", False)
    assert after("r2r").sort == ("broker", True)
    assert after("r2r1").sort == ("in_per_second", False)


def test_a_filter_is_typed_mended_ended_and_cleared() -> None:
    assert (after("/ordq").filter, after("/ordq").typing, after("/ordq").ended) == ("ordq", True, False)
    assert after("/ordq\x7f\r").filter == "ord"
    assert after("/注文\rq").ended
    assert after("/ord\x1b").filter == ""
    assert after("/ord\r\x1b").filter == ""
    assert after("/ord\x15x").filter == "x"
    assert len(after("/" + "x" * 1000).filter) == FILTER_CHARS_MAX


def test_a_pause_ends_with_the_next_p_or_another_view() -> None:
    assert [after(text).paused for text in ("p", " ", "pp", "p2")] == [True, True, False, False]


def test_help_goes_with_any_key_and_q_ends() -> None:
    assert after("?").helping
    assert not after("?x").helping
    assert after("?q").ended
    assert after("q").ended


def test_rows_are_gone_through_and_not_beyond_the_last() -> None:
    assert [after(text).first for text in ("jj", "\x1b[6~", "jjk", "k", "jg")] == [2, 10, 1, 0, 0]
    assert after("G").within(35, 10).first == 25
    assert after("G").within(5, 10).first == 0


def test_rows_are_sorted_with_those_that_have_no_value_last() -> None:
    def names(key: str, falling: bool) -> list[object]:
        return [row["name"] for row in chosen(ROWS, VIEWS["destinations"], (key, falling), "")]

    assert names("messages", True) == ["D", "a", "b", "c"]
    assert names("messages", False) == ["a", "b", "D", "c"]
    assert names("name", False) == ["a", "b", "c", "D"]
    assert names("state", True) == ["b", "D", "a", "c"]


def test_rows_are_chosen_by_a_text_in_any_column() -> None:
    def names(text: str) -> list[object]:
        return [row["name"] for row in chosen(ROWS, VIEWS["destinations"], ("name", False), text)]

    assert (names("paus"), names("d"), names("200"), names("nothing")) == (["a"], ["a", "D"], ["D"], [])


def test_a_column_is_named_by_its_key_or_its_title_and_a_wrong_one_is_refused() -> None:
    view = VIEWS["destinations"]
    assert (view.column("in/s"), view.column("Unacked"), view.column("messages")) == (
        "in_per_second",
        "unacknowledged",
        "messages",
    )
    with pytest.raises(UsageError, match=r"--sort mesages: .*did you mean messages\?.* name, type, messages"):
        view.column("mesages")


def test_each_view_is_sorted_by_a_column_of_its_own() -> None:
    for view in VIEWS.values():
        assert view.sort in view.columns
        assert set(view.less) < set(view.columns)
    assert {key for view in VIEWS.values() for key in view.columns} >= FALLING
