"""Units of order, one rule after the other: W-76 … W-93 and the invariants U1 … U11, U15 … U18 of one destination."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.outcome import Deliver, Outcome, Withdrawn
from raybroker.model.errors import TransactionRolledBackError
from tests.unit.core.driven_destination import DrivenDestination, columns, of

TXN = 77


class Queue(DrivenDestination):
    """Messages are named: ``a1`` is message 1 of unit a, ``-1`` has no unit; ``got`` says who has been given what."""

    def __init__(self, kind: str = "queue", **attributes: Any) -> None:
        super().__init__(kind, **attributes)
        self.names: dict[tuple[int, int], str] = {}
        self.tags: dict[tuple[int, str], int] = {}
        self.me = self.producer()

    def put(self, text: str, *, priority: Sequence[int] | None = None, **more: Any) -> Outcome:
        """A block of messages."""
        words = text.split()
        units = [None if word[0] == "-" else word[0] for word in words]
        layout = columns(
            len(words),
            units=units,
            priorities=priority,
            delay=more.pop("delay", 0),
            ttl=more.pop("ttl", 0),
            now_ms=self.now_ms,
        )
        ordinal = self.core.block_index.next_ordinal
        self.names |= {(ordinal, index): word for index, word in enumerate(words)}
        more.setdefault("properties", [{"name": word} for word in words])
        return self.send(self.me, [1] * len(words), columns=layout, **more)

    def take(self, limit: int = -1, owner: str = "", **more: Any) -> tuple[int, str]:
        """A consumer, and what it gets."""
        if self.core.kind == "topic":
            raise AssertionError("subscribe instead")
        number, out = self.open(limit, owner=owner, **more)
        return number, self.got(out, number)

    def got(self, out: Outcome, number: int | None = None) -> str:
        rows = []
        for effect in (*out.immediate, *out.after_durable):
            if isinstance(effect, Deliver) and number in (None, effect.attachment):
                for tag, index in enumerate(pk.indexes(effect.mask), effect.tag):
                    name = self.names[effect.ordinal, index]
                    rows.append((effect.attachment, tag, name + ("!" if effect.attempt > 1 else "")))
                    self.tags[effect.attachment, name] = tag
        return " ".join(name for _, _, name in sorted(rows))

    def ranges(self, number: int, text: str) -> list[tuple[int, int]]:
        return [(self.tags[number, name],) * 2 for name in text.split()]

    def acked(self, number: int, text: str) -> str:
        return self.got(self.do(cmd.Acknowledge(number, self.ranges(number, text), 1)))

    def settled(self, number: int, outcome: str, text: str, **more: Any) -> Outcome:
        return self.do(cmd.Settle(number, self.ranges(number, text), 1, outcome, **more))

    def void(self, out: Outcome) -> dict[int, str]:
        """Consumer → names of its deliveries that are void."""
        names = {(number, tag): name for (number, name), tag in self.tags.items()}
        found: dict[int, list[str]] = {}
        for e in of(out, Withdrawn):
            tags = [tag for a, b in e.ranges for tag in range(a, b + 1)]
            found.setdefault(e.attachment, []).extend(names[e.attachment, tag] for tag in tags)
        return {attachment: " ".join(sorted(bodies)) for attachment, bodies in found.items()}

    def again(self, *, checkpoint: bool = False) -> Queue:
        """After a restart."""
        destination = self.crash(checkpoint=checkpoint)
        other = Queue.__new__(Queue)
        other.__dict__ |= destination.__dict__
        other.tags = {}
        return other


# ---- whose messages are they -----------------------------------------------------------------------------------------


def test_a_unit_is_with_one_session_and_another_one_gets_other_units() -> None:  # W-76, W-81, U2, U8
    destination = Queue()
    destination.put("a1 a2 b1 a3")
    one, got = destination.take(2)
    assert got == "a1 a2"
    two, got = destination.take()
    assert got == "b1", "a3 is for the session that has a1 and a2"
    assert destination.got(destination.do(cmd.Grant(one, 5)), one) == "a3"
    assert destination.got(destination.put("b2 a4")) == "a4 b2"
    assert (two, "b2") in destination.tags


def test_messages_without_a_unit_go_to_anybody() -> None:  # U8
    destination = Queue()
    destination.put("a1 -1 a2 -2")
    assert destination.take(1)[1] == "a1"
    assert destination.take()[1] == "-1 -2"


def test_several_messages_of_a_unit_may_be_on_their_way_to_one_session() -> None:  # W-89
    destination = Queue()
    destination.put("a1 a2 a3")
    assert destination.take()[1] == "a1 a2 a3"


def test_two_consumers_of_a_session_share_its_units_and_others_do_not() -> None:  # W-81
    destination = Queue()
    destination.put("a1 a2 a3")
    assert destination.take(1, owner="s")[1] == "a1"
    assert destination.take(1, owner="t")[1] == ""
    assert destination.take(1, owner="s")[1] == "a2"


def test_once_all_is_settled_the_next_goes_to_whoever_comes_first() -> None:  # W-83, U7
    destination = Queue()
    destination.put("a1 a2 a3")
    one, _ = destination.take(1)
    two, _ = destination.take(1)
    assert destination.acked(one, "a1") == "a2"
    assert (two, "a2") in destination.tags


def test_an_acknowledged_prefix_keeps_the_rest_with_the_session() -> None:  # U18
    destination = Queue()
    destination.put("a1 a2 a3")
    one, _ = destination.take(2)
    two, _ = destination.take(5)
    assert destination.acked(one, "a1") == ""
    assert destination.acked(one, "a2") == "a3"
    assert (two, "a3") in destination.tags


def test_without_acknowledgements_the_delivery_is_the_end() -> None:  # W-84
    destination = Queue()
    destination.put("a1 a2 a3")
    assert destination.take(2, no_ack=True)[1] == "a1 a2"
    assert destination.take(2)[1] == "a3"


# ---- coming back -----------------------------------------------------------------------------------------------------


def test_what_comes_back_is_next_for_anybody_from_the_first_on() -> None:  # W-82, U6
    destination = Queue()
    destination.put("a1 a2 a3")
    one, _ = destination.take(2)
    two, _ = destination.take()
    out = destination.do(cmd.Release(one, 0, 1))
    assert destination.got(out, two) == "a1! a2! a3"


def test_closing_a_consumer_frees_its_units() -> None:  # W-85, U16
    destination = Queue()
    destination.put("a1 a2 b1")
    one, got = destination.take(3)
    assert got == "a1 a2 b1"
    two, _ = destination.take()
    assert destination.got(destination.do(cmd.DetachConsumer(one)), two) == "a1! a2! b1!"


@pytest.mark.parametrize("outcome", ["release", "fail"])
def test_a_message_that_goes_back_takes_the_later_ones_of_its_unit_with_it(outcome: str) -> None:  # U3, U6
    destination = Queue()
    destination.put("a1 b1 a2 a3 b2")
    one, _ = destination.take(5)
    two, _ = destination.take()
    out = destination.settled(one, outcome, "a2")
    assert destination.void(out) == {one: "a3"}
    assert destination.got(out, two) == "", "a1 is still with the first"
    assert destination.acked(one, "a1") == "a2! a3!"
    assert destination.acked(one, "b1 b2") == ""


def test_it_takes_them_from_the_other_consumers_of_the_session_too() -> None:
    destination = Queue()
    destination.put("a1 a2")
    one, _ = destination.take(1, owner="s")
    other, got = destination.take(1, owner="s")
    assert got == "a2"
    out = destination.settled(one, "release", "a1")
    assert destination.void(out) == {other: "a2"}


def test_a_rejected_message_leaves_the_others_where_they_are() -> None:  # U11
    destination = Queue()
    destination.put("a1 a2 a3")
    one, _ = destination.take(2)
    out = destination.settled(one, "reject", "a1")
    assert destination.void(out) == {}
    assert destination.acked(one, "a2") == ""
    assert destination.got(destination.do(cmd.Grant(one, 1))) == "a3"


def test_a_message_that_rests_holds_back_its_unit_and_no_other() -> None:  # W-86, U5, U8
    destination = Queue()
    destination.put("a1 a2 b1")
    one, _ = destination.take(2)
    two, got = destination.take()
    assert got == "b1"
    out = destination.settled(one, "fail", "a1", delay_ms=100)
    assert destination.void(out) == {one: "a2"}
    assert destination.got(out) == ""
    assert destination.got(destination.put("a3 b2")) == "b2"
    assert destination.got(destination.tick(100), two) == "a1! a2! a3"


def test_a_message_that_is_kept_too_long_takes_the_later_ones_back() -> None:  # U16
    destination = Queue()
    destination.put("a1")
    one, _ = destination.take(5, lease_ms=100)
    destination.tick(60)
    assert destination.got(destination.put("a2")) == "a2"
    two, _ = destination.take()
    out = destination.tick(50)
    assert destination.void(out) == {one: "a1 a2"}
    assert destination.got(out, two) == "a1! a2!"


def test_a_message_over_its_limit_dies_and_the_next_is_first() -> None:  # U11
    destination = Queue(redeliveryLimit=0)
    destination.put("a1 a2")
    one, _ = destination.take(1)
    two, _ = destination.take(1)
    out = destination.settled(one, "fail", "a1")
    assert destination.got(out, two) == "a2"


# ---- what holds a unit back ------------------------------------------------------------------------------------------


def test_a_message_that_is_not_born_holds_back_what_came_after_it() -> None:  # W-86
    destination = Queue()
    destination.put("a1 b1", delay=[100, 0])
    destination.put("a2 b2")
    one, got = destination.take()
    assert got == "b1 b2"
    assert destination.got(destination.tick(100), one) == "a1 a2"


def test_an_open_transaction_holds_back_what_came_after_its_messages() -> None:  # W-86
    destination = Queue()
    destination.put("a1", txn=TXN)
    destination.put("a2 b1")
    one, got = destination.take()
    assert got == "b1"
    assert destination.got(destination.do(cmd.Decide(TXN, True)), one) == "a1 a2"


def test_a_send_that_is_rolled_back_leaves_its_place() -> None:  # U11
    destination = Queue()
    destination.put("a1", txn=TXN)
    destination.put("a2")
    one, _ = destination.take()
    assert destination.got(destination.do(cmd.Decide(TXN, False)), one) == "a2"


def test_hidden_messages_keep_their_places() -> None:  # U5
    destination = Queue()
    destination.put("a1")
    one, _ = destination.take(1)
    destination.do(cmd.Pause("insertion"))
    destination.settled(one, "release", "a1")
    two, _ = destination.take()
    assert destination.got(destination.do(cmd.Resume("insertion")), two) == "a1!"


def test_a_head_that_matches_nobody_blocks_its_unit() -> None:  # W-88, U10
    destination = Queue()
    red, _ = destination.take(selector="name <> 'a2'")
    assert destination.got(destination.put("a1 a2 a3 b1")) == "a1 b1"
    assert destination.acked(red, "a1 b1") == ""
    rest, got = destination.take(1)
    assert got == "a2"
    assert destination.acked(rest, "a2") == "a3"


def test_a_new_selector_is_compared_with_what_a_session_could_have_next() -> None:  # W-88
    destination = Queue()
    destination.put("a1 a2")
    assert destination.take(1, owner="s", selector="name <> 'b1'")[1] == "a1"
    assert destination.take(1, owner="s", selector="name = 'a1'")[1] == ""
    assert destination.take(1, owner="s", selector="name = 'a2'")[1] == "a2"


def test_priorities_order_units_and_nothing_within_one() -> None:  # W-87, U9
    destination = Queue()
    destination.put("a1 a2 b1 c1", priority=[4, 9, 7, 5])
    assert destination.take(1)[1] == "b1"
    assert destination.take(1)[1] == "c1"
    one, got = destination.take(1)
    assert got == "a1"
    assert destination.got(destination.do(cmd.Grant(one, 1))) == "a2"


def test_pauses_hold_back_everything() -> None:  # U4
    destination = Queue()
    destination.do(cmd.Pause("consumption"))
    destination.put("a1 a2")
    one, got = destination.take()
    assert got == ""
    assert destination.got(destination.do(cmd.Resume("consumption")), one) == "a1 a2"


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_what_a_transaction_has_consumed_is_its_until_it_ends() -> None:  # W-81, U18
    destination = Queue()
    destination.put("a1 a2 a3 a4")
    one, _ = destination.take(2)
    two, _ = destination.take()
    destination.do(cmd.StageAcks(TXN, one, destination.ranges(one, "a1 a2")))
    assert destination.got(destination.do(cmd.Grant(one, 5))) == "", "not even for the session that began it"
    assert destination.got(destination.do(cmd.Decide(TXN, True))) == "a3 a4"
    assert two


def test_a_rollback_brings_back_all_of_it_in_order() -> None:  # W-82, U18
    destination = Queue()
    destination.put("a1 a2 a3")
    one, _ = destination.take(2)
    two, _ = destination.take()
    destination.do(cmd.StageAcks(TXN, one, destination.ranges(one, "a1 a2")))
    destination.do(cmd.DetachConsumer(one))
    assert destination.got(destination.do(cmd.Decide(TXN, False)), two) == "a1! a2! a3"


def test_two_transactions_cannot_have_one_unit() -> None:  # W-81
    destination = Queue()
    destination.put("a1 a2 b1")
    one, _ = destination.take()
    destination.do(cmd.StageAcks(TXN, one, destination.ranges(one, "a1")))
    with pytest.raises(TransactionRolledBackError, match="unit of order 'a'"):
        destination.do(cmd.StageAcks(TXN + 1, one, destination.ranges(one, "a2")))
    destination.do(cmd.StageAcks(TXN + 1, one, destination.ranges(one, "b1")))
    destination.do(cmd.StageAcks(TXN, one, destination.ranges(one, "a2")))


# ---- leaving ---------------------------------------------------------------------------------------------------------


def test_an_expired_message_leaves_and_the_others_keep_their_order() -> None:  # U11
    destination = Queue()
    destination.put("a1 a2 a3", ttl=[50, 0, 0])
    destination.tick(60)
    assert destination.take()[1] == "a2 a3"


@pytest.mark.parametrize("name", ["a1", "a2", "a3"])
def test_an_administrator_removes_one_and_only_that_one_goes(name: str) -> None:  # W-91, U11
    destination = Queue()
    destination.put("a1 a2 a3 b1")
    destination.do(cmd.Remove({1: 1 << int(name[1]) - 1}))
    assert destination.take()[1] == " ".join(n for n in ("a1", "a2", "a3", "b1") if n != name)


def test_what_was_put_aside_comes_back_to_its_place() -> None:  # W-91
    destination = Queue()
    destination.put("a1 a2")
    destination.do(cmd.Remove({1: 0b01}, aside=True))
    one, got = destination.take()
    assert got == "a2"
    out = destination.do(cmd.ReturnDeadLetters(0, 1, 0b01))
    assert destination.void(out) == {one: "a2"}
    assert destination.got(out, one) == "a1 a2!"


def test_a_purge_takes_what_waits_and_not_what_is_with_a_session() -> None:
    destination = Queue()
    destination.put("a1", txn=TXN)
    destination.put("b1 b2 c1")
    one, _ = destination.take(1)
    destination.do(cmd.Purge())
    assert destination.acked(one, "b1") == ""
    destination.put("a2")
    assert destination.got(destination.do(cmd.Grant(one, 5))) == "", "the place of the open transaction is still there"
    assert destination.got(destination.do(cmd.Decide(TXN, True))) == "a1 a2"


@pytest.mark.parametrize(("behavior", "left"), [("REMOVE_OLDEST", "a2 b1 a3"), ("REMOVE_LOW_PRIORITY", "a1 b1 a3")])
def test_limits_remove_the_oldest_or_the_least_important(behavior: str, left: str) -> None:
    destination = Queue(maxNumMsgs=3, limitBehavior=behavior)
    destination.put("a1 a2 b1", priority=[4, 3, 4])
    destination.put("a3")
    assert sorted(destination.take()[1].split()) == sorted(left.split())


# ---- topics, restarts ------------------------------------------------------------------------------------------------


def test_every_subscription_has_an_order_of_its_own() -> None:  # W-90
    destination = Queue("topic")
    slow = destination.subscriber(1)
    fast = destination.subscriber()
    out = destination.put("a1 a2")
    assert destination.got(out, slow) == "a1"
    assert destination.got(out, fast) == "a1 a2"


def test_a_subscription_that_comes_while_a_transaction_is_open_keeps_its_order() -> None:  # W-86
    destination = Queue("topic")
    destination.subscriber()
    destination.put("a1", txn=TXN)
    late = destination.subscriber()
    assert destination.got(destination.put("a2"), late) == ""
    assert destination.got(destination.do(cmd.Decide(TXN, True)), late) == "a1 a2"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_after_a_restart_persistent_messages_are_in_order(checkpoint: bool) -> None:  # U15, U17
    destination = Queue()
    destination.put("a1 b1")
    destination.put("a2", persistent=False)
    destination.put("a3 b2")
    one, _ = destination.take(1)
    destination.do(cmd.DetachConsumer(one))
    destination = destination.again(checkpoint=checkpoint)
    assert destination.take(1)[1] == "a1!"
    assert destination.take()[1] == "b1 b2"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_after_a_restart_a_prepared_transaction_still_has_its_units(checkpoint: bool) -> None:  # U15, U18
    destination = Queue()
    destination.put("a1 a2 b1")
    one, _ = destination.take(1)
    destination.do(cmd.StageAcks(TXN, one, destination.ranges(one, "a1")))
    destination.put("b2", txn=TXN)
    destination.do(cmd.Prepare(TXN))
    destination.put("b3")
    destination = destination.again(checkpoint=checkpoint)
    one, got = destination.take()
    assert got == "b1"
    assert destination.got(destination.do(cmd.Decide(TXN, False)), one) == "a1! a2 b3"


def test_the_queue_forgets_its_units_when_they_have_no_messages() -> None:
    destination = Queue()
    destination.put("a1")
    one, _ = destination.take()
    destination.acked(one, "a1")
    destination.put("-1")
    assert destination.queue.pending is destination.queue.plain


# ---- all together ----------------------------------------------------------------------------------------------------


class Sessions:
    """Sessions that acknowledge, give back, fail, roll back and close; what is done for good is written down."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.destination = Queue(redeliveryLimit=-1)
        self.units = self.rng.choice(("a", "ab", "abcdefgh"))
        self.even = self.rng.random() < 0.5
        """All messages have one priority and none waits: what the sessions have room for later is dealt out before."""
        self.next = dict.fromkeys(self.units, 0)
        self.done: dict[str, list[int]] = {unit: [] for unit in self.units}
        self.mine: dict[int, dict[int, str]] = {}
        """Consumer → tag → message."""
        self.txn = 0
        for _ in range(self.rng.choice((1, 2, 3))):
            self.come()

    def hear(self, out: Outcome) -> None:
        for effect in (*out.immediate, *out.after_durable):
            if isinstance(effect, Deliver):
                for tag, index in enumerate(pk.indexes(effect.mask), effect.tag):
                    self.mine[effect.attachment][tag] = self.destination.names[effect.ordinal, index]
            elif isinstance(effect, Withdrawn):
                for first, last in effect.ranges:
                    for tag in range(first, last + 1):
                        del self.mine[effect.attachment][tag]

    def come(self) -> None:
        rng = self.rng
        self.destination._next += 1
        number = self.destination._next
        self.mine[number] = {}
        self.hear(
            self.destination.do(
                cmd.AttachConsumer(
                    number,
                    rng.choice(("credit", "prefetch")),
                    rng.choice((1, 3, 10, 50)),
                    False,
                    False,
                    owner=rng.choice(("", "s", "t")),
                )
            )
        )

    def send(self) -> None:
        words = []
        for _ in range(self.rng.randrange(1, 12)):
            unit = self.rng.choice(self.units)
            self.next[unit] += 1
            words.append(f"{unit}{self.next[unit]}")
        mixed = not self.even
        priority = [self.rng.randrange(10) for _ in words] if mixed and self.rng.random() < 0.3 else None
        delay = [self.rng.choice((0, 0, 50)) for _ in words] if mixed and self.rng.random() < 0.2 else 0
        self.hear(self.destination.put(" ".join(words), priority=priority, delay=delay))

    def act(self) -> None:
        rng = self.rng
        number = rng.choice(list(self.mine))
        tags = sorted(self.mine[number])
        some = self.in_turn(number, tags[: rng.randrange(len(tags) + 1)])
        ranges = [(tag, tag) for tag in some]
        words = [self.mine[number].pop(tag) for tag in some]
        roll = rng.randrange(10)
        if roll < 4:
            self.finish(words)
            self.hear(self.destination.do(cmd.Acknowledge(number, ranges, 0)))
            self.hear(self.destination.do(cmd.Grant(number, len(ranges))))
        elif roll < 6:
            outcome = rng.choice(("release", "fail"))
            self.hear(self.destination.do(cmd.Settle(number, ranges, 0, outcome, rng.choice((0, 30)))))
            self.hear(self.destination.do(cmd.Grant(number, len(ranges))))
        elif roll < 8:
            self.txn += 1
            self.hear(self.destination.do(cmd.StageAcks(self.txn, number, ranges)))
            commit = rng.random() < 0.5
            if commit:
                self.finish(words)
            self.hear(self.destination.do(cmd.Decide(self.txn, commit)))
            self.hear(self.destination.do(cmd.Grant(number, len(ranges))))
        elif roll == 8:
            self.mine[number].clear()
            self.hear(self.destination.do(cmd.Release(number, 5, 1)))
        else:
            del self.mine[number]
            self.hear(self.destination.do(cmd.DetachConsumer(number)))
            self.come()

    def in_turn(self, number: int, tags: list[int]) -> list[int]:
        """The first of these messages that come before all others of their units, wherever the session has those."""
        found = []
        for tag in tags:
            word = self.mine[number][tag]
            others = (w for n, mine in self.mine.items() if n != number for w in mine.values())
            if any(other[0] == word[0] and int(other[1:]) < int(word[1:]) for other in others):
                break
            found.append(tag)
        return found

    def finish(self, words: list[str]) -> None:
        for word in words:
            self.done[word[0]].append(int(word[1:]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_unit_is_done_in_order_whatever_its_sessions_do(seed: int) -> None:  # U1, U6, U9, U16, U18
    world = Sessions(seed)
    for _ in range(60):
        world.rng.choice((world.send, world.act, world.act))()
        if world.rng.random() < 0.2:
            world.hear(world.destination.tick(20))
    for _ in range(10_000):
        if not world.destination.core.block_index.messages:
            break
        world.hear(world.destination.tick(50))
        for number in list(world.mine):
            tags = world.in_turn(number, sorted(world.mine[number]))
            ranges = [(tag, tag) for tag in tags]
            world.finish([world.mine[number].pop(tag) for tag in tags])
            world.hear(world.destination.do(cmd.Acknowledge(number, ranges, 0)))
            world.hear(world.destination.do(cmd.Grant(number, max(len(ranges), 1))))
    assert world.done == {unit: list(range(1, last + 1)) for unit, last in world.next.items()}
