"""One broker's copy of one log: what it begins with, whom it tells where the others are, when somebody is to lead."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.broker.copies.own_copy import AFTER_MS, FIRST_MS, FRESH_MS, OwnCopy, held_copies
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.replicas.copy_takeover import AskCopies, StartAt
from raybroker.errors import ConfigError

PLACED = PlacedLog(("queue", "orders"), "b1/r1", ("b1", "b2", "b3"), ("c1", "c2", "c3"), 0)


def row(copy: str, **more: Any) -> dict[str, Any]:
    found = {
        "copy": copy,
        "role": "FOLLOWER",
        "leader": "",
        "led": False,
        "linked": False,
        "elects": False,
        "fit": True,
        "serves": False,
        "term": 1,
        "end": (1, 7, 5),
        "index": 5,
        "voted_ms_ago": -1,
        "voters": ("c1", "c2", "c3"),
        "learners": (),
        "address": ("127.0.0.1", 1000 + int(copy[1:])),
        "pid": 10,
        "trouble": "",
    }
    return {**found, **more}


def own(me: str = "b1") -> OwnCopy:
    copy = OwnCopy(me, PLACED, port=None)  # type: ignore[arg-type]  # nobody is asked here
    copy.row = row(f"c{me[1:]}")
    return copy


def test_the_record_gives_back_what_was_placed() -> None:
    assert PlacedLog.of_record(("queue", "orders"), PLACED.attributes()) == PLACED


def test_a_copy_founds_the_log_only_while_it_is_new_and_one_of_those_that_begin_it() -> None:
    new: dict[str, Any] = {"voters": (), "index": 0}
    copy = own()
    assert copy.founding() == ()
    copy.row = row("c1", **new)
    assert copy.founding() == PLACED.ids
    copy.row = row("c9", **new)  # The disk is another one: it has to learn.
    assert copy.founding() == ()


def test_addresses_are_told_once_and_again_to_another_process() -> None:
    copy = own()
    copy.said("b2", row("c2"), 0)
    assert copy.addresses_to_tell(0) == {"c1": ("127.0.0.1", 1001), "c2": ("127.0.0.1", 1002)}
    assert copy.addresses_to_tell(0) == {}
    copy.row = row("c1", pid=11)
    assert "c2" in copy.addresses_to_tell(0)
    copy.forget_addresses()
    assert "c2" in copy.addresses_to_tell(0)


def test_the_first_broker_that_is_up_asks_and_the_best_copy_is_told() -> None:
    copy = own("b2")
    copy.said("b3", row("c3", end=(1, 7, 6)), 0)
    assert copy.due(0) == []
    (ask,) = copy.due(AFTER_MS)
    assert isinstance(ask, AskCopies)
    assert copy.takeovers.answered(ask, "b2", held_copies(PLACED.log, copy.row)) == []
    (start,) = copy.takeovers.answered(ask, "b3", held_copies(PLACED.log, row("c3", end=(1, 7, 6))))
    assert isinstance(start, StartAt)
    assert start.peer == "b3"


def test_of_a_new_log_the_broker_that_made_it_asks_first() -> None:
    found: dict[str, list[int]] = {}
    for me in ("b1", "b2"):
        copy = own(me)
        copy.row = row(f"c{me[1:]}", term=0, end=(0, 0, 0), index=0)
        found[me] = [at_ms for at_ms in (0, AFTER_MS, FIRST_MS, FIRST_MS + AFTER_MS) if copy.due(at_ms)]
    assert found["b1"][0] == AFTER_MS
    assert found["b2"] == [FIRST_MS + AFTER_MS], "the others do when it does not"


def test_another_broker_that_is_up_before_it_asks_instead() -> None:
    copy = own("b2")
    copy.said("b1", row("c1"), 0)
    assert copy.due(0) == copy.due(AFTER_MS) == []
    copy.said("b1", row("c1"), AFTER_MS)
    assert copy.due(AFTER_MS + FRESH_MS + 1) != [], "what it said longer ago does not count"


def test_an_administrators_word_ends_the_wait_between_two_changes_of_leader() -> None:
    """It is given to the broker that asks, and the copies decide as ever."""
    changed = {"voted_ms_ago": 6_000, "term": 2, "end": (2, 7, 5)}
    copy = own("b2")
    copy.row = row("c2", **changed)
    copy.said("b3", row("c3", **changed), 0)
    other = own("b3")
    other.row = row("c3", **changed)
    other.said("b2", row("c2", **changed), 0)
    assert not other.urge(0), "the first of those that are up asks"
    copy.due(0)
    (ask,) = copy.due(AFTER_MS)
    assert isinstance(ask, AskCopies)
    answers = [(name, held_copies(PLACED.log, row(f"c{name[1:]}", **changed))) for name in ("b2", "b3")]
    assert [copy.takeovers.answered(ask, *answer) for answer in answers] == [[], []]
    assert copy.urge(AFTER_MS)
    assert [type(one) for one in copy.takeovers.answered(ask, *answers[1])] == [StartAt]
    copy.row = row("c2", led=True)
    assert not copy.urge(AFTER_MS), "somebody leads"


def test_nobody_asks_while_a_leader_is_heard() -> None:
    copy = own()
    copy.row = row("c1", led=True, leader="c2")
    assert copy.due(0) == copy.due(10 * AFTER_MS) == []
    assert copy.why() == ""


def test_only_changes_of_leader_are_apart() -> None:
    """The first leader of all is no change, nor is a promise that has made none."""
    quiet = [
        held_copies("l", row("c1", voted_ms_ago=5, term=term, end=(last, 7, 5)))["l"].quiet_ms
        for term, last in ((1, 1), (2, 1), (2, 2))
    ]
    assert quiet == [None, None, 5]
    assert held_copies("l", {}) == {}


def test_copies_are_placed_once_and_go_with_their_destination() -> None:
    """Of two that make a destination of one name at a time, the second does not replace the copies of the first."""
    record = RecordState()
    record.apply(Change("place_copies", PLACED.key, PLACED.attributes()))
    with pytest.raises(ConfigError, match="exists already"):
        record.make(Change("place_copies", PLACED.key, {**PLACED.attributes(), "log": "b2/r2"}))
    record.apply(Change("create_destination", PLACED.key, {"replicas": 3}))
    record.apply(Change("move_copies", PLACED.key, {"ids": ["c1", "c2", "c9"]}))
    assert PlacedLog.of_record(PLACED.key, record.copies[PLACED.key]).ids == ("c1", "c2", "c9")
    assert RecordState.from_canonical(record.canonical()) == record
    record.apply(Change("destroy_destination", PLACED.key))
    assert record.copies == {}
    assert "copies" not in record.canonical()


def leader(*copies: dict[str, Any]) -> OwnCopy:
    """Broker b1's copy, which leads; ``copies``: what it knows of the others."""
    copy = own()
    copy.row = row("c1", role="LEADER", serves=True, led=True, copies=[one_of("c1"), *copies])
    copy.said("b2", row("c2"), 0)
    copy.said("b3", row("c3"), 0)
    return copy


def one_of(copy: str, **more: Any) -> dict[str, Any]:
    return {"copy": copy, "voter": True, "connected": True, "trouble": "", **more}


def test_a_log_is_handed_over_to_a_broker_that_stays_and_whose_copy_can_lead() -> None:
    copy = leader(one_of("c2"), one_of("c3"))
    assert copy.heir({"b1", "b2"}, 0) == ("b3", "c3")
    assert copy.heir({"b1", "b3"}, 0) == ("b2", "c2")
    assert copy.heir({"b1"}, 0)[0] in ("b2", "b3")
    assert copy.heir({"b1", "b2", "b3"}, 0) == ("", "")
    assert copy.heir({"b1"}, FRESH_MS + 1) == ("", ""), "nobody was heard lately"


@pytest.mark.parametrize("fault", [{"voter": False}, {"connected": False}, {"trouble": "it is full"}])
def test_a_copy_that_cannot_lead_is_no_heir(fault: dict[str, Any]) -> None:
    assert leader(one_of("c2", **fault), one_of("c3")).heir({"b1"}, 0) == ("b3", "c3")
    assert leader(one_of("c2", **fault)).heir({"b1"}, 0) == ("", "")
