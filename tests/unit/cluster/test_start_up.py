"""Whom a broker follows when it starts, by its configuration and what it saved."""

from __future__ import annotations

import pytest

from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.events import Note
from raybroker.cluster.master import Master
from raybroker.cluster.member_state import MemberContext, MemberSettings
from raybroker.cluster.record_application import Applier
from raybroker.cluster.saved_record import Saved, SavedOffer
from raybroker.cluster.start_up import begin
from raybroker.cluster.term import Leadership
from tests.unit.cluster.parts import NOW, Parts, queue


def record(name: str = "r", term: int = 1) -> ChangeRecord:
    found = ChangeRecord(name, "c", term)
    found.propose(queue("q1"))
    return found


class Starting(Parts):
    """Broker b1 has decided, with what it saved, and nothing is on disk yet."""

    def __init__(self, found: Saved, *, master: str = "b1", table: str = "") -> None:
        self.life = MemberContext("b1", MemberSettings("c", ("b1", "b2"), master, table), found, NOW)
        self.applier = Applier(self.life)
        begin(self.life, Master(self.life, self.applier, lambda: None), found, "new")


@pytest.mark.parametrize(
    ("saved", "claim"),
    [
        (Saved(), Leadership(1, "b1", "new")),
        (Saved(claim=Leadership(0, "", "")), Leadership(1, "b1", "new")),
        (Saved(claim=Leadership(7, "", "r"), record=record()), Leadership(1000, "b1", "new")),
    ],
)
def test_the_configured_master_begins_a_record_and_reigns_once_it_is_on_disk(saved: Saved, claim: Leadership) -> None:
    start = Starting(saved)
    assert (start.life.claim, start.life.is_master) == (claim, False)
    start.write()
    assert (start.life.is_master, start.life.durable.record) == (True, "new")
    assert start.life.agreed.destinations.keys() == (record().state.destinations.keys() if saved.record else set())


def test_a_master_goes_on_with_its_record() -> None:
    start = Starting(Saved(claim=Leadership(1, "b1", "r"), configured="b1", record=record()))
    assert (start.life.is_master, start.life.claim) == (True, Leadership(1, "b1", "r"))


def test_a_master_without_its_record_waits_for_a_backup() -> None:
    start = Starting(Saved(claim=Leadership(2, "b1", "r"), configured="b1", record=record(term=1)))
    assert not start.life.is_master
    assert "record r is missing on its master b1: restore a backup" in start.life.trouble


def test_a_record_that_was_offered_for_this_term_is_taken_over() -> None:
    claim = Leadership(2, "b1", "r")
    saved = Saved(claim=claim, configured="b1", record=record(), offer=SavedOffer(claim, record()))
    start = Starting(saved)
    start.write()
    assert (start.life.is_master, start.life.record.term, start.life.trouble) == (True, 2, "")


@pytest.mark.parametrize(("term", "kept"), [(1, False), (2, False), (3, True)])
def test_an_offer_of_an_earlier_term_is_dropped(term: int, kept: bool) -> None:
    claim = Leadership(2, "b2", "r")
    offer = SavedOffer(Leadership(term, "b1", "r"), record())
    start = Starting(Saved(claim=claim, configured="b2", record=record(), offer=offer), master="b2")
    assert ((start.life.offer is not None), start.life.claim) == (kept, claim)


def test_one_that_was_the_master_and_is_not_configured_any_more_waits_for_who_is() -> None:
    start = Starting(Saved(claim=Leadership(1, "b1", "r"), configured="b1", record=record()), master="b2")
    assert (start.life.is_master, start.life.held is not None) == (False, True)
    assert "it waits for b2" in start.life.trouble
    assert start.life.held is not None
    assert start.life.held[0] == "b2"
    start.life.held[1]()
    assert (start.life.is_master, start.life.trouble) == (True, "")


def test_a_configured_name_does_not_beat_the_record_and_is_noted() -> None:
    start = Starting(Saved(claim=Leadership(3, "b2", "r"), configured="b2", record=record()))
    assert (start.life.claim.master, start.life.is_master) == ("b2", False)
    (note,) = start.took(Note)
    assert note.warning
    assert "its record was not restored here: broker b2 stays the master" in note.text


def test_one_that_never_heard_of_a_master_follows_the_configured_one() -> None:
    start = Starting(Saved(), master="b2")
    assert (start.life.claim, start.write()) == (Leadership(0, "b2", ""), [])


def test_a_copy_goes_on_under_another_id_without_a_master_and_a_record_of_its_own_as_it_is() -> None:
    start = Starting(Saved(claim=Leadership(4, "b2", "r"), configured="b2", record=record()), master="")
    assert (start.life.claim, start.life.record.id) == (Leadership(4, "", ""), "new")
    assert list(start.life.agreed.destinations) == [("queue", "q1")]
    assert start.write() != []
    start = Starting(Saved(claim=Leadership(4, "", ""), record=record("own", 4)), master="")
    assert (start.life.record.id, start.write()) == ("own", [])


def test_a_copy_of_a_table_is_gone_on_with_and_that_of_a_master_is_not() -> None:
    for master, term in (("", 4), ("b2", 0)):
        start = Starting(Saved(claim=Leadership(4, master, "r"), record=record()), master="", table="t")
        assert start.life.claim.term == term
