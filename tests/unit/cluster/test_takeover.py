"""Who takes a lost broker over, and when: the decision of one broker, look by look (K-21)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybroker.cluster.takeover import APART_MS, Takeover, Takeovers, TakeoverSettings, TakeoverStep
from raybroker.errors import ConfigError, IllegalStateError
from raybroker.model.shared_store import MEANT_TO_RUN, SharedRow, SharedView, StoreState

NOW_MS = 10 * APART_MS
OPERATING = StoreState.OPERATING


class Looks:
    """One broker that looks at the rows of b1, b2 and b3 each second."""

    def __init__(self, me: str = "b1", **lost: object) -> None:
        self.machine = Takeovers(me, TakeoverSettings(1000, 2))
        self.ms = 0
        self.rows = {name: SharedRow(name, OPERATING, tenure=1, beats=1) for name in ("b1", "b2", "b3")}
        self.rows["b3"] = replace(self.rows["b3"], **lost)  # type: ignore[arg-type]

    def view(self) -> SharedView:
        return SharedView(NOW_MS + self.ms, tuple(self.rows.values()))

    def look(self, live: str = "b1 b2", heard: str = "b1 b2", *, silent: str = "b3") -> Takeover | None:
        self.ms += 1000
        for name, row in self.rows.items():
            if name not in silent:
                self.rows[name] = replace(row, beats=row.beats + 1, beat_ms=NOW_MS + self.ms)
        return self.machine.looked(self.view(), live.split(), heard.split(), self.ms)

    def until(self, most: int = 20, **how: str) -> int | None:
        """How many looks it takes until there is something to do; None: nothing in ``most``."""
        return next((n for n in range(1, most + 1) if self.look(**how) is not None), None)


def test_the_eldest_takes_over_after_so_many_looks_without_a_sign_of_life() -> None:
    looks = Looks()
    assert [looks.look() for _ in range(2)] == [None, None]
    assert looks.look() == Takeover("b3", 1, 1, TakeoverStep.TAKE)
    assert looks.look() is None, "one at a time"


def test_the_next_broker_waits_as_long_again() -> None:
    assert Looks("b2").until() == 5
    assert Looks("b2").until(live="b2", heard="b2") == 3, "there is no elder one"
    assert Looks("b2").until(live="b1 b3", heard="b1") is None, "it does not operate itself"


@pytest.mark.parametrize("state", StoreState)
def test_only_what_is_meant_to_run_is_taken_over(state: StoreState) -> None:
    assert (Looks(state=state).until() is not None) is (state in MEANT_TO_RUN)


def test_whoever_is_heard_or_shows_a_sign_of_life_is_left_alone() -> None:
    assert Looks().until(heard="b1 b2 b3") is None, "its way to the store may be cut"
    assert Looks().until(silent="") is None, "its way to the others may be cut"
    looks = Looks()
    looks.look()
    looks.look()
    looks.rows["b3"] = replace(looks.rows["b3"], tenure=2)
    assert looks.until() == 3, "another tenure is a sign of life as well"


def test_a_look_that_failed_counts_for_nobody() -> None:
    looks = Looks()
    looks.look()
    looks.look()
    looks.machine.missed()
    assert looks.until() == 3
    quick = Looks()
    for _ in range(9):
        quick.look()
        quick.machine.work = None
        quick.ms -= 990
    assert not quick.machine.silent("b3") or quick.ms >= 1000, "looks that follow each other at once are one"


def test_takeovers_of_one_broker_are_apart() -> None:
    looks = Looks(taken_ms=NOW_MS - APART_MS + 8000)
    assert looks.until() == 8


def test_the_steps_follow_each_other_and_the_taker_answers_for_the_broker_meanwhile() -> None:
    looks = Looks()
    looks.until()
    take = looks.machine.work
    assert take is not None
    answered_for = [looks.machine.vicarious]
    hand_over = looks.machine.done(take)
    assert hand_over == replace(take, step=TakeoverStep.HAND_OVER)
    answered_for.append(looks.machine.vicarious)
    assert looks.machine.done(take) is None, "an answer that comes twice changes nothing"
    start = looks.machine.done(hand_over)
    assert start is not None
    assert start.step is TakeoverStep.START
    assert looks.machine.done(start) is None
    answered_for.append(looks.machine.vicarious)
    assert answered_for == [None, ("b3", 2), None]


def test_a_takeover_that_goes_no_further_is_tried_again() -> None:
    looks = Looks()
    looks.until()
    work = looks.machine.work
    assert work is not None
    looks.machine.ended(replace(work, tenure=7))
    assert looks.look() is None, "that was another one"
    looks.machine.ended(replace(work, step=TakeoverStep.START))
    assert looks.look() == work


def test_an_administrator_may_have_it_sooner_but_not_of_what_lives() -> None:
    looks = Looks(taken_ms=NOW_MS - 1, beat_ms=NOW_MS - 5000)
    assert looks.machine.request_takeover("b3", looks.view(), {"b1"}) == Takeover("b3", 1, 1, TakeoverStep.TAKE)
    with pytest.raises(IllegalStateError, match="b1 takes over b3 now"):
        looks.machine.request_takeover("b3", looks.view(), {"b1"})
    looks.machine.work = None
    with pytest.raises(IllegalStateError, match=r"b3 is up, and nobody takes over what lives: raybroker shutdown bkr"):
        looks.machine.request_takeover("b3", looks.view(), {"b3"})
    with pytest.raises(ConfigError, match="has no broker 'b9'; it has b1, b2, b3"):
        looks.machine.request_takeover("b9", looks.view(), ())
    looks.rows["b3"] = SharedRow("b3", StoreState.TAKEOVER_STARTED, 1, 1, beat_ms=NOW_MS - 400, taker="b2")
    with pytest.raises(IllegalStateError, match="sign of life 400 ms ago, and is TAKEOVER_STARTED; b2 takes it over"):
        looks.machine.request_takeover("b3", looks.view(), ())
    looks.rows["b3"] = SharedRow("b3", StoreState.UNKNOWN, beat_ms=0)
    with pytest.raises(IllegalStateError, match="never started: raybroker up"):
        looks.machine.request_takeover("b3", looks.view(), ())
    looks.rows["b3"] = SharedRow("b3", StoreState.BROKER_DOWN, 1, 1, beat_ms=NOW_MS)
    assert looks.machine.request_takeover("b3", looks.view(), ()).step is TakeoverStep.TAKE, (
        "what was stopped gives no more signs"
    )
