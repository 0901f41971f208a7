"""What clients are told of an outcome, and deliveries that wait until a connection can take more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.outcome import (
    Acked,
    CheckpointKept,
    Deliver,
    Drained,
    Effect,
    Gate,
    Promoted,
    Ready,
    Recall,
    Refused,
    Released,
    SendAnswered,
    Withdrawn,
)
from raybroker.engine.path.client_effects import ClientEffects
from raybroker.engine.sessions.attachments import Attachment, Attachments, Outbox
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer, text_of

HANDLE = 11


class Peer(RecordingPeer):
    """``fits``: so many messages go at once; 0 for any number."""

    fits = 0

    def room(self) -> int:
        return self.fits


class Telling(Desk):
    """One attachment, and a held block of messages a, b and c. ``usage``: what was counted."""

    def __init__(self, *, eager: bool = False) -> None:
        super().__init__()
        self.usage: list[tuple[Any, ...]] = []
        self.executor.undisturbed = lambda action: action()
        self.destination = self.add()
        self.ordinal = self.put(self.destination, "a", "b", "c")
        self.peer = Peer()
        self.attachments = Attachments(1)
        self.one: Attachment = self.attachments.attach(self.destination, self.peer, HANDLE, Outbox(), eager=eager)
        self.held: set[int] = set()
        self.effects = ClientEffects(
            self.executor,
            self.attachments,
            self.executor,
            self,  # type: ignore[arg-type]
            lambda number: "low_memory" if number in self.held else "",
        )
        self.handlers: dict[type[Effect], Callable[..., None]] = self.effects.handlers()

    def stored(self, attachment: Attachment, *counted: int) -> None:
        self.usage.append(("stored", *counted))

    def delivered(self, attachment: Attachment, *counted: int) -> None:
        self.usage.append(("delivered", *counted))

    def tell(self, effect: Effect) -> list[tuple[Any, ...]]:
        """What the client hears."""
        self.handlers[type(effect)](self.destination, effect)
        return self.peer.take()

    def deliver(self, tag: int, mask: int) -> list[tuple[int, str]]:
        return self.got(self.tell(Deliver(self.one.number, tag, self.ordinal, mask, 1)))

    def got(self, told: list[tuple[Any, ...]]) -> list[tuple[int, str]]:
        """(tag, messages) of deliveries."""
        return [(tag, "".join(text_of(b, i) for i in range(b.count))) for _, _, tag, _, b in told]

    def writable(self) -> list[tuple[Any, ...]]:
        self.effects.writable(self.one.outbox)
        return self.peer.take()

    def missed(self) -> list[int]:
        found = [c.messages for batch in self.executor.batches for c in batch if isinstance(c, cmd.Missed)]
        self.executor.batches.clear()
        return found


def test_each_effect_is_told_with_the_handle_of_its_client() -> None:
    world = Telling()
    number, refused = world.one.number, (Refused(0, 1, "full", "no room"),)
    assert world.tell(SendAnswered(number, 4, 2, refused)) == [("sent", HANDLE, 4, 2, refused)]
    assert world.tell(Acked(number, 9, 1)) == [("acked", 9, 1)]
    assert world.tell(Gate(number, "open", 0)) == [("gate", HANDLE, "open", 0)]
    assert world.tell(Promoted(number)) == [("promoted", HANDLE)]
    assert world.tell(Drained(number, 3, 1)) == [("drained", HANDLE, number, 3)]
    assert world.tell(Ready(number, 1)) == [("ready", HANDLE, number)]
    assert world.usage == [("stored", 4, 2)]


def test_a_producer_that_is_to_wait_is_not_told_to_go_on() -> None:
    world = Telling()
    number = world.one.number
    world.held.add(number)
    assert world.tell(Gate(number, "open", 0)) == [("gate", HANDLE, "low_memory", 0)]
    world.destination.policy.paused["production"] = 5
    assert world.tell(Gate(number, "paused", 5)) == [("gate", HANDLE, "paused", 5)]
    world.destination.policy.paused.clear()
    world.held.clear()
    assert world.tell(Gate(number, "open", 0)) == [("gate", HANDLE, "open", 0)]


def test_a_producer_is_told_what_holds_now_though_the_change_has_waited_for_the_disk() -> None:
    """Messages that are sent back fill a destination, and it has room again before they are durable."""
    world = Telling()
    number = world.one.number
    assert world.tell(Gate(number, "open", 0)) == [("gate", HANDLE, "open", 0)]
    assert world.tell(Gate(number, "slow", 0)) == [("gate", HANDLE, "open", 0)], "the older one comes last"
    world.destination.admission.slow = True
    assert world.tell(Gate(number, "open", 0)) == [("gate", HANDLE, "slow", 0)]


def test_every_effect_for_a_client_that_has_gone_is_dropped() -> None:
    world = Telling()
    number = world.one.number
    world.attachments.by_number.clear()
    effects: list[Effect] = [
        SendAnswered(number, 1, 1, ()),
        Deliver(number, 1, world.ordinal, 1, 1),
        Acked(number, 1, 0),
        CheckpointKept(number, 1),
        Released(number, 1, 2),
        Drained(number, 1, 1),
        Ready(number, 1),
        Withdrawn(number, ((1, 1),)),
        Promoted(number),
        Gate(number, "open"),
        Recall(number, ((1, 1),)),
    ]
    assert {type(effect) for effect in effects} == set(world.handlers)
    assert [told for effect in effects for told in world.tell(effect)] == []


def test_messages_of_a_block_leave_together() -> None:
    world = Telling()
    assert world.deliver(1, 0b101) == [(1, "ac")]
    assert world.usage == [("delivered", world.ordinal, 1, 0b101, 1)]


def test_a_full_connection_gets_its_deliveries_later_and_in_order() -> None:
    world = Telling()
    world.peer.full = True
    assert world.deliver(1, 0b001) == []
    assert world.tell(Drained(world.one.number, 5, 2)) == []
    assert world.writable() == [], "it is still full"
    world.peer.full = False
    assert world.deliver(2, 0b010) == [], "it does not overtake what waits"
    told = world.writable()
    assert [row[0] for row in told] == ["deliver", "drained", "deliver"]
    assert world.got([told[0], told[2]]) == [(1, "a"), (2, "b")]
    assert world.one.outbox.waiting == []


def test_an_eager_delivery_does_not_wait() -> None:
    world = Telling(eager=True)
    world.peer.full = True
    assert world.deliver(1, 0b1) == [(1, "a")]


def test_no_more_leaves_than_there_is_room_for() -> None:
    world = Telling()
    world.peer.fits = 2
    assert world.deliver(5, 0b111) == [(5, "ab")]
    assert world.got(world.writable()) == [(7, "c")]
    assert [row[1:4] for row in world.usage] == [(world.ordinal, 5, 0b011), (world.ordinal, 7, 0b100)]


def test_what_was_settled_while_it_waited_is_not_sent() -> None:
    world = Telling()
    world.peer.full = True
    world.deliver(1, 0b111)
    world.executor.perform(world.destination, cmd.Purge())
    world.peer.full = False
    assert world.writable() == []


def test_a_released_client_gets_nothing_that_was_decided_before() -> None:
    world = Telling()
    world.peer.full = True
    world.deliver(1, 0b001)
    assert world.tell(Released(world.one.number, 8, 4)) == [("released", HANDLE, 8, 4)]
    world.peer.full = False
    assert world.writable() == []
    assert world.deliver(3, 0b010) == []
    assert world.tell(Ready(world.one.number, 3)) == []
    assert world.deliver(4, 0b010) == [(4, "b")]


@pytest.mark.parametrize(
    ("void", "sent", "told", "missed"),
    [
        ([(2, 2)], [(1, "a"), (3, "c")], [], [1]),
        ([(1, 3)], [], [], [3]),
        ([(3, 3), (9, 10)], [(1, "ab")], [(9, 10)], [1]),
    ],
)
def test_a_withdrawn_delivery_that_waits_does_not_leave_and_gives_its_credit_back(
    void: list[tuple[int, int]], sent: list[tuple[int, str]], told: list[tuple[int, int]], missed: list[int]
) -> None:
    world = Telling()
    world.peer.full = True
    world.deliver(1, 0b111)
    world.executor.batches.clear()
    heard = world.tell(Withdrawn(world.one.number, tuple(void)))
    assert heard == ([("withdrawn", HANDLE, world.one.number, told)] if told else [])
    assert world.missed() == missed
    world.peer.full = False
    assert world.got(world.writable()) == sent


@pytest.mark.parametrize(
    ("asked", "given", "told", "last"),
    [
        ([(2, 2)], [(2, 2)], [], True),
        ([(2, 9)], [(2, 3)], [(4, 9)], False),
        ([(7, 9)], [], [(7, 9)], None),
    ],
)
def test_what_is_asked_back_and_has_not_left_comes_back_at_once(
    asked: list[tuple[int, int]], given: list[tuple[int, int]], told: list[tuple[int, int]], last: bool | None
) -> None:
    world = Telling()
    world.peer.full = True
    world.deliver(1, 0b111)
    world.executor.batches.clear()
    heard = world.tell(Recall(world.one.number, tuple(asked)))
    assert heard == ([("recall", HANDLE, world.one.number, told)] if told else [])
    answers = [c for batch in world.executor.batches for c in batch if isinstance(c, cmd.Recalled)]
    assert answers == ([] if last is None else [cmd.Recalled(world.one.number, given, last=last)])


def test_a_leased_delivery_that_was_taken_back_gives_its_credit_back() -> None:
    world = Telling()
    world.one.leased = True
    world.executor.batches.clear()
    assert world.deliver(1, 0b11) == [], "its consumer does not have it any more"
    assert world.missed() == [2]


def test_a_block_that_cannot_be_read_is_not_delivered() -> None:
    world = Telling()
    world.executor.blocks.clear()
    assert world.deliver(1, 0b1) == []
    assert world.usage == []
