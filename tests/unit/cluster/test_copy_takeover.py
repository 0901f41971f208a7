"""Who leads a lost broker's logs, and when: the decision of one broker, answer by answer."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raybroker.cluster.replicas.copy_takeover import (
    AGAIN_SOON_MS,
    APART_MS,
    SETTLED_MS,
    TELLS_MAX,
    AskCopies,
    CopyAction,
    CopyTakeovers,
    HeldCopy,
    LevelCopy,
    LogEnd,
    StartAt,
)
from raybroker.errors import ConfigError, IllegalStateError

AFTER_MS = 3000


class Looks:
    """Broker b1, with b3 lost since 0; b1 and b2 have copies of its logs."""

    def __init__(self, me: str = "b1") -> None:
        self.machine = CopyTakeovers(me, AFTER_MS)
        self.machine.sets = {"b3": ("b1", "b2"), "b1": ("b2", "b3")}
        self.ms = 0

    def look(self, ms: int = AFTER_MS, live: str = "b1 b2", heard: str = "b2", lost: str = "b3") -> list[CopyAction]:
        self.ms += ms
        return self.machine.looked(live.split(), heard.split(), dict.fromkeys(lost.split(), 0), self.ms)

    def ask(self) -> AskCopies:
        (found,) = self.look()
        assert isinstance(found, AskCopies)
        return found


def copies(led: bool = False, fit: bool = True, quiet_ms: int | None = None, **ends: int) -> dict[str, HeldCopy]:
    return {log: HeldCopy(fit, (1, 7, end), led, quiet_ms) for log, end in ends.items()}


def test_the_coordinator_asks_after_a_silence_and_has_it_started_where_its_copy_may_lead() -> None:
    looks = Looks()
    assert looks.look(AFTER_MS - 1) == []
    (ask,) = looks.look(1)
    assert ask == AskCopies("b3", 1, ("b3", "b1", "b2"))
    assert isinstance(ask, AskCopies)
    assert looks.machine.answered(ask, "b1", copies(h1=8)) == []
    assert "h1 1 more are needed; silent: b2; led: none" in looks.machine.why("b3")
    assert looks.machine.answered(ask, "b2", copies(h1=9)) == [StartAt("b3", 1, "b2")]
    assert looks.machine.why("b3") == "it starts at broker b2"
    assert looks.look() == [], "it is under way"
    looks.machine.ended(ask)
    assert looks.machine.why("b3") == ""


@pytest.mark.parametrize("how", [{"live": "b2 b1"}, {"heard": "b2 b3"}, {"lost": "b2"}])
def test_others_begin_nothing_and_nothing_is_begun_of_others(how: dict[str, str]) -> None:
    assert Looks().look(**how) == []  # type: ignore[arg-type]


def test_a_broker_whose_copies_hear_it_goes_on() -> None:
    """The coordinator alone does not."""
    looks = Looks()
    ask = looks.ask()
    assert looks.machine.answered(ask, "b1", copies(h1=8)) == []
    assert looks.machine.answered(ask, "b2", copies(h1=8, led=True)) == []
    assert "led: b2" in looks.machine.why("b3")


def test_copies_are_asked_again_until_there_is_a_majority() -> None:
    looks = Looks()
    ask = looks.ask()
    assert looks.machine.answered(ask, "b1", copies(h1=8)) == []
    (again,) = looks.look()
    assert isinstance(again, AskCopies)
    assert looks.machine.answered(again, "b2", copies(h1=8)) == [], "what b1 said is old"
    assert looks.machine.answered(ask, "b1", copies(h1=8)) == [], "and so is what comes late"
    assert looks.machine.answered(again, "b1", copies(h1=8)) == [StartAt("b3", 2, "b2")]


def test_a_copy_that_still_hears_its_leader_is_asked_again_soon() -> None:
    looks = Looks()
    ask = looks.ask()
    looks.machine.answered(ask, "b1", copies(h1=8))
    assert looks.look(AGAIN_SOON_MS) == []
    looks.machine.answered(ask, "b2", copies(h1=8, led=True))
    assert len(looks.look(1)) == 1


def test_a_leader_that_has_ended_at_once_was_no_change_but_not_for_ever() -> None:
    """The takeover that has told it to lead tells again, without waiting APART_MS."""
    looks = Looks()
    for tells in range(TELLS_MAX + 1):
        (ask,) = looks.look(1000 if tells else AFTER_MS)
        assert isinstance(ask, AskCopies)
        quiet_ms = 900 if tells else None
        looks.machine.answered(ask, "b1", copies(h1=8, quiet_ms=quiet_ms))
        told = looks.machine.answered(ask, "b2", copies(h1=8))
        assert len(told) == (tells < TELLS_MAX)
        looks.machine.ended(ask)
    (ask,) = looks.look(SETTLED_MS)
    assert isinstance(ask, AskCopies)
    looks.machine.answered(ask, "b1", copies(h1=8, quiet_ms=SETTLED_MS + 900))
    assert looks.machine.answered(ask, "b2", copies(h1=8)) == []
    assert f"in {APART_MS - SETTLED_MS - 900} ms" in looks.machine.why("b3")


def test_a_copy_without_a_vote_is_none() -> None:
    looks = Looks()
    ask = looks.ask()
    looks.machine.answered(ask, "b1", copies(h1=8, fit=False))
    assert looks.machine.answered(ask, "b2", copies(h1=9)) == []
    assert looks.machine.missing("b3") == {"h1": 1}


def test_logs_that_the_chosen_peer_is_behind_with_are_led_elsewhere_first() -> None:
    looks = Looks()
    ask = looks.ask()
    looks.machine.answered(ask, "b1", copies(h1=9, h2=5, h3=1))
    (level,) = looks.machine.answered(ask, "b2", copies(h1=8, h2=9, h3=2))
    assert level == LevelCopy("b3", 1, "h1", leader="b1", peer="b2")
    assert isinstance(level, LevelCopy)
    assert "of broker b2 are brought up to date: h1" in looks.machine.why("b3")
    assert looks.machine.levelled(level) == [StartAt("b3", 1, "b2")]


def test_the_term_counts_before_the_length() -> None:
    looks = Looks()
    ask = looks.ask()
    longer: Mapping[str, LogEnd] = {"b1": (1, 7, 90), "b2": (2, 3, 4)}
    looks.machine.answered(ask, "b1", {"h1": HeldCopy(True, longer["b1"])})
    assert looks.machine.answered(ask, "b2", {"h1": HeldCopy(True, longer["b2"])}) == [StartAt("b3", 1, "b2")]


def test_a_leader_that_has_just_changed_is_left_for_a_while_but_not_by_an_administrator() -> None:
    looks = Looks()
    ask = looks.ask()
    looks.machine.answered(ask, "b1", copies(h1=8, quiet_ms=100))
    assert looks.machine.answered(ask, "b2", copies(h1=8)) == []
    assert f"in {APART_MS - 100} ms" in looks.machine.why("b3")
    looks.machine.ended(ask)
    looks.machine.request_takeover("b3", ("b2",), looks.ms)
    ask = looks.ask()
    looks.machine.answered(ask, "b1", copies(h1=8, quiet_ms=100))
    assert looks.machine.answered(ask, "b2", copies(h1=8)) == [StartAt("b3", 2, "b2")]


def test_an_administrator_takes_over_what_was_stopped_and_nothing_that_lives() -> None:
    looks = Looks()
    with pytest.raises(ConfigError, match=r"'b9' has no copies .*; those that do: b1, b3"):
        looks.machine.request_takeover("b9", (), 0)
    with pytest.raises(IllegalStateError, match="b3 is up"):
        looks.machine.request_takeover("b3", ("b3",), 0)
    looks.machine.request_takeover("b3", (), 0)
    with pytest.raises(IllegalStateError, match="is being taken over: no majority"):
        looks.machine.request_takeover("b3", (), 0)
    (ask,) = looks.look(0, live="b2 b1", lost="")
    assert ask == AskCopies("b3", 1, ("b3", "b1", "b2")), "whoever is asked does it"


def test_a_broker_that_starts_on_its_own_node_asks_too_and_leads_again() -> None:
    looks = Looks()
    looks.machine.starting = True
    (ask,) = looks.look(0, live="", lost="")
    assert ask == AskCopies("b1", 1, ("b1", "b2", "b3"))
    assert isinstance(ask, AskCopies)
    looks.machine.answered(ask, "b1", copies(h1=8))
    (level,) = looks.machine.answered(ask, "b2", copies(h1=9, quiet_ms=5))
    assert level == LevelCopy("b1", 1, "h1", leader="b2", peer="b1"), "a takeover came to nothing"
    assert isinstance(level, LevelCopy)
    assert looks.machine.levelled(level) == [StartAt("b1", 1, "b1")]


def test_a_broker_whose_own_disk_is_empty_is_started_where_its_messages_are() -> None:
    looks = Looks()
    looks.machine.starting = True
    (ask,) = looks.look(0, live="", lost="")
    assert isinstance(ask, AskCopies)
    looks.machine.answered(ask, "b1", copies(h1=0, fit=False))
    looks.machine.answered(ask, "b2", copies(h1=9))
    assert looks.machine.answered(ask, "b3", copies(h1=9)) == [StartAt("b1", 1, "b3")]


def test_whoever_comes_back_meanwhile_is_left_alone() -> None:
    looks = Looks()
    ask = looks.ask()
    assert looks.look(1, heard="b2 b3") == []
    assert looks.machine.answered(ask, "b2", copies(h1=9)) == []
