"""What comes in and what is refused is counted by where it comes from and why."""

from __future__ import annotations

from raybroker.core.counters import LASTING, Counters


def test_all_begin_at_nothing() -> None:
    counters = Counters()
    rows, parts = ("refusals", "recovered", "base", "failed"), ("formed", "slow")
    assert {getattr(counters, name) for name in counters.__slots__ if name not in (*rows, *parts)} == {0}
    assert {getattr(one, name) for one in (counters.formed, counters.slow) for name in one.__slots__} == {0}
    assert [getattr(counters, name) for name in rows] == [{}, {}, {}, {}]


def test_lasting_totals_go_on_and_what_came_since_the_start_is_told_apart() -> None:
    counters = Counters()
    counters.count_received(3, 30, moved=False)
    again = Counters()
    again.restore(counters.lasting(), {"messages_in": 2}, 77)
    again.recovered = again.lasting()
    again.count_received(4, 5, moved=False)
    assert (again.messages_in, again.bytes_in, again.since_start("messages_in"), again.since_ms) == (7, 35, 4, 77)
    assert again.lasting().keys() == set(LASTING)
    assert again.base == {"messages_in": 2}


def test_what_was_moved_here_is_not_sent_again() -> None:
    counters = Counters()
    counters.count_received(3, 30, moved=False)
    counters.count_received(2, 20, moved=True)
    counters.count_received(1, 5, moved=False)
    assert (counters.messages_in, counters.bytes_in, counters.moved_in) == (4, 35, 2)


def test_refusals_are_counted_by_code_with_the_latest_text() -> None:
    counters = Counters()
    for code, count, text in (("a", 2, "first"), ("b", 1, "other"), ("a", 3, "second")):
        counters.refuse(code, count, text)
    assert (counters.refused, counters.refusals) == (6, {"a": (5, "second"), "b": (1, "other")})
