"""What others see of a member machine: its state, its master, and why it takes no clients or changes yet."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.cluster.handshake import Peers
from raybroker.cluster.master import Master
from raybroker.cluster.member_state import MemberEvent, MemberState
from raybroker.cluster.member_view import Shown
from raybroker.cluster.term import Leadership
from raybroker.model.errors import MasterUnavailableError
from tests.unit.cluster.parts import NOW, Parts, queue


class Viewed(Parts):
    """Broker b1, whose master is b2 unless said otherwise."""

    def __init__(self, *, master: str = "b2", **settings: Any) -> None:
        super().__init__(master=master, **settings)
        self.peers = Peers(self.life, lambda claim: None)
        self.master = Master(self.life, self.applier, self.peers.beat)
        self.view = Shown(self.life, self.applier, self.peers, self.master)

    def operate(self) -> None:
        for event in (MemberEvent.CATCH_UP, MemberEvent.EXCHANGE):
            self.life.happens(event)


def test_it_shows_what_the_parts_have() -> None:
    world = Viewed()
    world.life.record.propose(queue("q"))
    world.life.entries_durable(world.life.record.entries)
    view = world.view
    assert (view.name, view.cluster, view.claim, view.is_master) == ("b1", "c", Leadership(1, "b2", "r"), False)
    assert (view.incarnation, view.membership) == (world.life.incarnation, world.life.membership)
    assert (view.record.number, view.durable.number, view.applied) == (1, 1, -1)
    assert list(view.agreed.destinations) == [("queue", "q")]
    world.carry_out()
    assert view.applied == 1


def test_clients_are_taken_once_it_operates_and_while_the_master_is_lost() -> None:
    world = Viewed()
    assert not world.view.opened
    world.operate()
    assert (world.view.opened, world.view.refusal) == (True, "")
    world.life.happens(MemberEvent.MISS)
    assert (world.view.state, world.view.opened) == (MemberState.MASTER_LOST, True)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (None, "it replays the configuration record"),
        (MemberEvent.MISS, "it waits for the master broker b2"),
        (MemberEvent.CATCH_UP, "it gets to know the consumers of the other brokers"),
        (MemberEvent.END, "it has stopped"),
    ],
)
def test_the_refusal_says_in_which_state_it_is(event: MemberEvent | None, why: str) -> None:
    world = Viewed()
    if event is not None:
        world.life.happens(event)
    assert world.view.refusal == f"broker b1 takes no clients yet: {why}"


def test_the_refusal_names_everything_that_stands_in_the_way() -> None:
    world = Viewed()
    world.life.trouble, world.peers.refused["b3"] = "another record", "b3 has other properties"
    world.applier.failure = "queue q was not made"
    assert world.view.faults == ("another record", "b3 has other properties")
    assert world.view.refusal.endswith("; another record; b3 has other properties; queue q was not made")


def test_a_configured_master_that_is_not_the_master_is_a_contradiction() -> None:
    world = Viewed()
    assert world.view.contradiction == ""
    world.life.claim = Leadership(4, "b3", "r")
    assert "imq.cluster.masterbroker is b2, and the master is b3 since term 4" in world.view.contradiction
    assert "raybroker changemaster cls -o imq.cluster.masterbroker=b2" in world.view.contradiction
    assert Viewed(master="").view.contradiction == ""


def test_changes_need_a_master_that_is_heard() -> None:
    world = Viewed()
    with pytest.raises(MasterUnavailableError, match="the master broker b2 cannot be reached; destinations"):
        world.view.check_change()
    world.greeted("b2")
    world.view.check_change()
    world.life.trouble = "another record"
    with pytest.raises(MasterUnavailableError, match="cannot be reached: another record"):
        world.view.check_change()


def test_a_master_takes_changes_itself_but_not_while_it_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Viewed(master="b1")
    world.life.is_master = True
    world.view.check_change()
    monkeypatch.setattr(Master, "frozen", True)
    with pytest.raises(MasterUnavailableError, match="getting another master"):
        world.view.check_change()


def test_changes_need_the_table_where_the_record_is_in_one() -> None:
    world = Viewed(master="", table="sqlite")
    with pytest.raises(MasterUnavailableError, match="the table sqlite cannot be used: it has not been read yet"):
        world.view.check_change()
    world.life.table_heard = True
    world.view.check_change()


def test_without_master_and_table_changes_are_free() -> None:
    Viewed(master="").view.check_change()


def test_it_wants_to_be_woken_for_its_next_heartbeat() -> None:
    world = Viewed(heartbeat_ms=100)
    world.peers.beat()
    assert world.view.wake_at_ms == NOW + 100
    world.life.now_ms += 500
    assert world.view.wake_at_ms == NOW + 500
