"""The view of the brokers: suspicion, death, return, and who is the coordinator."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.cluster.membership import (
    DOWN_MS,
    EXCUSES_MAX,
    HEARTBEAT_MS,
    NEXT,
    SUSPECT_MS,
    BrokerState,
    Membership,
)
from raybroker.model.errors import StaleError


def view(me: str = "b1") -> Membership:
    return Membership(me, 5, ["b1", "b2", "b3"])


def test_a_silent_broker_is_suspect_and_then_down() -> None:
    here = view()
    here.heard("b2", 1, 1000, joined=7, operating=True)
    assert here.find_silent(1000 + SUSPECT_MS - 1) == []
    assert [moved.after for moved in here.find_silent(1000 + SUSPECT_MS)] == [BrokerState.SUSPECT]
    assert here.live() == ("b2",), "a suspect still counts"
    assert here.find_silent(1000 + DOWN_MS - 1) == []
    (moved,) = here.find_silent(1000 + DOWN_MS)
    assert (moved.before, moved.after) == (BrokerState.SUSPECT, BrokerState.DOWN)
    assert here.live() == ()


def test_three_missed_heartbeats_are_the_end() -> None:
    assert DOWN_MS == 3 * HEARTBEAT_MS


def test_a_broker_that_was_silent_very_long_is_down_at_one_look() -> None:
    here = view()
    here.heard("b2", 1, 1000, joined=7, operating=True)
    (moved,) = here.find_silent(100_000)
    assert (moved.before, moved.after) == (BrokerState.UP, BrokerState.DOWN)


def test_silence_while_this_broker_itself_stood_still_does_not_count() -> None:
    here = view()
    here.heard("b2", 1, 1000, joined=7, operating=True)
    here.excuse(100_000, 101_100)
    assert here.find_silent(101_000 + SUSPECT_MS - 1) == []
    assert [moved.after for moved in here.find_silent(101_000 + SUSPECT_MS)] == [BrokerState.SUSPECT]
    here.excuse(10_000_000, 120_000)
    assert here.next_ms() == 120_000 + DOWN_MS, "nobody was heard in the future"


def test_a_broker_that_always_stands_still_sees_in_the_end_that_another_is_lost() -> None:
    here, now_ms = view(), 1000
    for life in (1, 2):  # Who is heard is excused anew.
        here.heard("b2", life, now_ms, joined=7, operating=True)
        for _ in range(EXCUSES_MAX):
            now_ms += DOWN_MS
            here.excuse(DOWN_MS, now_ms)
            assert here.find_silent(now_ms) == []
    now_ms += DOWN_MS
    here.excuse(DOWN_MS, now_ms)
    (moved,) = here.find_silent(now_ms)
    assert moved.after is BrokerState.DOWN


def test_the_next_look_is_when_something_can_change() -> None:
    here = view()
    assert here.next_ms() is None
    here.heard("b2", 1, 1000, joined=7, operating=True)
    here.heard("b3", 1, 1100)
    assert here.next_ms() == 1000 + SUSPECT_MS
    here.find_silent(1000 + SUSPECT_MS)
    assert here.next_ms() == 1000 + DOWN_MS


def test_a_sign_of_life_ends_suspicion_and_death() -> None:
    here = view()
    here.heard("b2", 1, 1000, joined=7, operating=True)
    here.find_silent(1000 + SUSPECT_MS)
    here.heard("b2", 1, 2100, joined=7, operating=True)
    assert here.state("b2") is BrokerState.UP
    here.find_silent(9000)
    moved = here.heard("b2", 1, 9001, joined=7, operating=True)
    assert moved is not None
    assert (moved.before, moved.after) == (BrokerState.DOWN, BrokerState.UP)


def test_the_version_grows_with_what_the_view_shows_and_with_nothing_else() -> None:
    here = view()
    versions = [here.version]
    here.heard("b2", 1, 1000)
    versions.append(here.version)
    here.heard("b2", 1, 1400, number=12)
    assert here.version == versions[-1]
    assert here.broker_row("b2").number == 12
    here.heard("b2", 1, 1500, joined=3, operating=True)
    versions.append(here.version)
    here.find_silent(9000)
    versions.append(here.version)
    assert sorted(set(versions)) == versions


def test_an_older_instance_is_refused_and_changes_nothing() -> None:
    here = view()
    here.heard("b2", 4, 1000, joined=3, operating=True)
    before = here.broker_rows()
    with pytest.raises(StaleError, match="incarnation 3 is refused: incarnation 4 is known"):
        here.heard("b2", 3, 1001)
    with pytest.raises(StaleError):
        here.left("b2", 3)
    assert here.broker_rows() == before


def test_a_new_instance_begins_anew() -> None:
    here = view()
    here.heard("b2", 4, 1000, joined=3, operating=True, number=9, version=1)
    moved = here.heard("b2", 5, 1100)
    assert moved is not None
    assert moved.restarted
    assert (here.state("b2"), here.broker_row("b2").joined, here.broker_row("b2").number) == (BrokerState.JOINING, 0, 0)


def test_who_left_is_not_back_by_a_late_message() -> None:
    here = view()
    here.heard("b2", 4, 1000, joined=3, operating=True)
    here.left("b2", 4)
    assert here.heard("b2", 4, 1001, joined=3, operating=True) is None
    assert here.state("b2") is BrokerState.LEFT
    assert here.find_silent(99_000) == []
    here.heard("b2", 5, 99_001)
    assert here.state("b2") is BrokerState.JOINING


def test_a_message_that_was_overtaken_does_not_make_an_operating_broker_join_again() -> None:
    here = view()
    here.heard("b2", 4, 1000, joined=3, operating=True)
    assert here.heard("b2", 4, 1001) is None
    assert here.state("b2") is BrokerState.UP


def test_the_coordinator_is_the_live_broker_that_joined_first() -> None:
    here = view()
    assert here.coordinator() == ""
    here.heard("b2", 1, 1000, joined=50, operating=True)
    here.heard("b3", 1, 1000, joined=40, operating=True)
    assert here.coordinator() == "b3"
    here.operating(1000)
    assert here.coordinator() == "b3"
    here.left("b3", 1)
    assert here.coordinator() == "b2"
    here.find_silent(5000)
    assert here.coordinator() == "b1"


def test_a_newcomer_is_not_the_eldest_whatever_its_clock_says() -> None:
    late = view("b1")
    late.heard("b2", 1, 10, joined=90_000, operating=True)
    assert late.operating(10) == 90_001
    assert late.coordinator() == "b2"


def test_equal_numbers_are_told_apart_by_name() -> None:
    here = view("b3")
    here.heard("b2", 1, 10, joined=7, operating=True)
    here.heard("b1", 1, 10, joined=7, operating=True)
    assert here.live() == ("b1", "b2")


@given(st.permutations(list(itertools.product(["b1", "b2", "b3"], range(3)))))
def test_who_heard_the_same_sees_the_same_coordinator_in_whatever_order(order: list[tuple[str, int]]) -> None:
    here = Membership("b9", 1, [])
    for name, joined in order:
        here.heard(name, 1, 10, joined=joined * 10 + int(name[1]), operating=joined > 0)
    assert here.live() == ("b1", "b2", "b3")


def test_the_configured_names_are_shown_and_others_go_when_they_are_not_heard() -> None:  # K-17
    here = view()
    here.heard("b3", 1, 1000)
    here.expect(["b1", "b4"])
    assert [row.name for row in here.broker_rows()] == ["b1", "b3", "b4"]
    here.find_silent(9000)
    here.expect(["b1", "b4"])
    assert list(here) == ["b1", "b4"]


def test_incarnations_of_an_earlier_life_are_remembered() -> None:
    here = Membership("b1", 5, ["b1", "b2"], known={"b2": 9})
    with pytest.raises(StaleError):
        here.heard("b2", 8, 100)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(NEXT) == set(BrokerState)
    assert set().union(*NEXT.values()) == set(BrokerState)
