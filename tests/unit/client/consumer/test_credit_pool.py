"""The law of the credit pool, whatever hosts, the network and the application do (F-05 … F-20 over several brokers)."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raybroker.client.consumer.prefetch.credit_pool import STANDS_AFTER, CreditPool, Share

BACKLOG = 1 << 40
"""A host with so many messages never runs out."""


class Host:
    """What a host does with the credit of one member: the rules of the drain, prefetch and credit windows, by counts.

    ``sent``: frames to the host on their way; ``coming``: frames to the client. Both are lines.
    """

    def __init__(self, credit_pool: CreditPool, limit: int, most: int) -> None:
        self.share: Share = credit_pool.join()
        self.credit_pool = credit_pool
        self.limit = limit
        self.most = most
        self.backlog = 0
        self.drained = credit_pool.shared
        self.credit = 0 if self.drained else limit
        self.unacked = 0
        self.armed = True
        self.sent: deque[tuple[str, int]] = deque()
        self.coming: deque[tuple[str, int]] = deque()
        credit_pool.opened(self.share, limit, drained=self.drained)

    @property
    def room(self) -> int:
        if self.credit_pool.style == "prefetch" and not self.drained and self.limit > 0:
            return self.limit - self.unacked
        return self.credit if self.credit >= 0 else BACKLOG

    def take(self) -> None:
        """Process one frame of the client."""
        what, count = self.sent.popleft()
        void = 0
        if what == "drain":
            void = max(self.credit, 0) if not self.drained else 0
            if not self.drained:
                self.drained, self.credit = True, 0
            self.credit += count
            self.armed = True
        elif what == "credit":
            self.credit = count if self.drained else self.credit + count
            self.drained = False
        elif what == "ack":
            self.unacked -= count
        elif what == "release":
            self.backlog += self.unacked
            self.unacked = 0
            self.coming = deque(row for row in self.coming if row[0] == "never")
            self.credit = count
            self.coming.append(("released", 0))
            self.armed = True
        self.dispatch()
        if what == "drain" and (self.credit or void or not count):
            self.coming.append(("drained", self.credit + void))
            self.credit = 0
        self.arm()

    def dispatch(self) -> None:
        count = min(self.backlog, self.room, self.most)
        while count > 0:
            self.coming.append(("deliver", count))
            self.backlog -= count
            self.unacked += count
            if self.credit > 0 and (self.limit == 0 or self.drained or self.credit_pool.style == "credit"):
                self.credit -= count
            count = min(self.backlog, self.room, self.most)

    def arm(self) -> None:
        if self.drained and self.armed and not self.credit and self.backlog:
            self.armed = False
            self.coming.append(("ready", 0))

    def put(self, count: int) -> None:
        self.backlog += count
        self.dispatch()
        self.arm()

    @property
    def owed(self) -> int:
        """What may still arrive for what was granted: with the host, on its way there, and on its way here."""
        whats = [what for what, _ in self.sent]
        if "release" in whats:  # Everything before it is void.
            after = list(self.sent)[whats.index("release") :]
            return sum(count for what, count in after if what != "ack")
        grants = sum(count for what, count in self.sent if what in ("drain", "credit"))
        came = sum(count for what, count in self.coming if what == "deliver")
        return max(self.room, 0) + grants + came


class Member:
    """A host, and what its messages at the client are doing."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.buffered = 0
        self.held = 0
        self.releasing = False

    @property
    def share_stands(self) -> bool:
        return self.host.share.standing


class World:
    """One consumer over several hosts."""

    def __init__(self, style: str, limit: int, percent: int, most: int = 7) -> None:
        self.limit = limit
        self.most = most
        self.by_acks = style == "prefetch" and limit != 0
        self.credit_pool = CreditPool(style, percent, by_acks=self.by_acks, due=self.due)
        self.told = False
        self.members: list[Member] = []
        self.received = 0

    def due(self) -> None:
        self.told = True

    def join(self) -> Member:
        self.members.append(Member(Host(self.credit_pool, self.limit, self.most)))
        return self.members[-1]

    def lose(self, index: int) -> None:
        member = self.members.pop(index)
        self.credit_pool.leave(member.host.share)

    def give(self) -> None:
        """Carry out what the credit pool says, as the IO thread does some time after ``due``."""
        self.told = False
        by_share = {member.host.share: member.host for member in self.members}
        for grant in self.credit_pool.grants():
            by_share[grant.share].sent.append(("credit" if grant.stands else "drain", grant.credit))

    def ask(self, member: Member, credit: int) -> None:
        if credit:
            member.host.sent.append(("credit", credit))

    def take(self, member: Member) -> None:
        """One frame of a host arrives."""
        share = member.host.share
        what, count = member.host.coming.popleft()
        if what == "released":
            member.releasing = False
            self.credit_pool.resumed(share)
        elif member.releasing:
            return
        elif what == "deliver":
            member.buffered += count
            self.ask(member, share.arrived(count))
        elif what == "drained":
            self.credit_pool.drained(share)
        else:
            self.credit_pool.ready(share)

    def consume(self, member: Member, count: int) -> None:
        count = min(count, member.buffered)
        if count and not member.releasing:
            member.buffered -= count
            member.held += count
            self.received += count
            self.ask(member, member.host.share.consumed(count))

    def acknowledge(self, member: Member, count: int) -> None:
        count = min(count, member.held)
        if count and not member.releasing:
            member.held -= count
            member.host.share.settled(count)
            member.host.sent.append(("ack", count))

    def recover(self, member: Member) -> None:
        if member.releasing:
            return
        share = member.host.share
        if self.credit_pool.pause(share):
            member.host.sent.append(("drain", 0))
        member.host.sent.append(("release", self.limit if share.standing else 0))
        member.releasing = True
        member.buffered = member.held = 0

    def check_law(self) -> None:
        if self.limit <= 0:
            return
        used = sum(m.buffered + (m.held if self.by_acks else 0) for m in self.members)
        owed = sum(m.host.owed for m in self.members)
        assert used + owed <= self.limit, (used, owed)

    def quiet(self) -> None:
        """The application takes and acknowledges everything, until nothing happens any more."""
        left = sum(member.host.backlog + member.host.unacked for member in self.members)
        for _ in range(100 + 4 * left):
            busy = self.told
            self.give()
            for member in self.members:
                while member.host.sent:
                    busy = True
                    member.host.take()
                while member.host.coming:
                    busy = True
                    self.take(member)
                busy = busy or member.buffered > 0 or member.held > 0
                self.consume(member, member.buffered)
                self.acknowledge(member, member.held)
            self.credit_pool.poll()
            self.check_law()
            if not busy and not self.told:
                return
        raise AssertionError("it never becomes quiet")


class Law(RuleBasedStateMachine):
    @initialize(
        style=st.sampled_from(["credit", "prefetch"]),
        limit=st.sampled_from([-1, 0, 1, 2, 5, 100]),
        percent=st.sampled_from([0, 50, 100]),
        members=st.integers(1, 3),
    )
    def begin(self, style: str, limit: int, percent: int, members: int) -> None:
        self.world = World(style, 3 if style == "credit" and limit == 0 else limit, percent)
        for _ in range(members):
            self.world.join()

    def some(self, data: st.DataObject) -> Member:
        return data.draw(st.sampled_from(self.world.members))

    @rule(data=st.data(), count=st.integers(1, 30))
    def put(self, data: st.DataObject, count: int) -> None:
        self.some(data).host.put(count)

    @rule(data=st.data())
    def host_takes(self, data: st.DataObject) -> None:
        member = self.some(data)
        if member.host.sent:
            member.host.take()

    @rule(data=st.data())
    def client_takes(self, data: st.DataObject) -> None:
        member = self.some(data)
        if member.host.coming:
            self.world.take(member)

    @rule()
    def give(self) -> None:
        if self.world.told:
            self.world.give()

    @rule(data=st.data(), count=st.integers(1, 10))
    def consume(self, data: st.DataObject, count: int) -> None:
        self.world.consume(self.some(data), count)

    @rule(data=st.data(), count=st.integers(1, 10))
    def acknowledge(self, data: st.DataObject, count: int) -> None:
        self.world.acknowledge(self.some(data), count)

    @rule()
    def poll(self) -> None:
        self.world.credit_pool.poll()

    @rule(data=st.data())
    def recover(self, data: st.DataObject) -> None:
        self.world.recover(self.some(data))

    @precondition(lambda self: len(self.world.members) < 4)
    @rule()
    def join(self) -> None:
        self.world.join()

    @precondition(lambda self: len(self.world.members) > 1)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.world.lose(self.world.members.index(self.some(data)))

    @invariant()
    def the_law_holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check_law()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.quiet()
            assert [member.host.backlog for member in self.world.members] == [0] * len(self.world.members)
            assert [m.host.share.used for m in self.world.members] == [0] * len(self.world.members)


TestLaw = Law.TestCase
TestLaw.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def opened(style: str, limit: int, members: int, percent: int = 50) -> World:
    """A consumer whose members have told what they have to give back, so that it begins in quiet."""
    world = World(style, limit, percent, most=limit if limit > 0 else 100)
    for _ in range(members):
        world.join()
    world.quiet()
    return world


def step(world: World) -> None:
    """Everything that is on its way arrives; the application does nothing."""
    world.give()
    for member in world.members:
        while member.host.sent:
            member.host.take()
        while member.host.coming:
            world.take(member)


def test_what_is_free_is_split_evenly_among_those_who_have_something() -> None:
    world = opened("credit", 10, 3)
    for member in world.members[:2]:
        member.host.put(BACKLOG)
    for _ in range(4):
        step(world)
    assert [member.buffered for member in world.members] == [5, 5, 0]


@pytest.mark.parametrize(("style", "limit"), [("credit", 1), ("prefetch", 1), ("credit", 2), ("credit", 100)])
def test_nobody_starves_beside_members_that_never_run_out(style: str, limit: int) -> None:
    world = opened(style, limit, 3)
    world.members[0].host.put(BACKLOG)
    world.members[1].host.put(BACKLOG)
    for round_ in range(60):
        step(world)
        if round_ == 20:
            world.members[2].host.put(1)
        for member in world.members:
            world.consume(member, member.buffered)
            world.acknowledge(member, member.held)
        world.check_law()
        if round_ > 40:
            assert world.members[2].host.backlog == 0
    given = [BACKLOG - member.host.backlog for member in world.members[:2]]
    assert min(given) > 5
    assert max(given) - min(given) <= max(given) // 4


def test_a_member_without_messages_holds_no_credit() -> None:
    world = opened("credit", 10, 2)
    assert [member.host.credit for member in world.members] == [0, 0]
    world.members[0].host.put(3)
    step(world)
    step(world)
    assert (world.members[0].buffered, world.members[0].host.credit, world.credit_pool.granted) == (3, 0, 0)


def test_the_credit_of_the_only_one_that_has_messages_stands_until_another_has_some() -> None:
    world = opened("credit", 10, 2)
    first, second = world.members
    for _ in range(STANDS_AFTER + 3):
        first.host.put(1)
        step(world)
        step(world)
        world.consume(first, 1)
    assert first.share_stands
    assert first.host.credit > 0
    asked = len(first.host.sent)
    first.host.put(1)
    assert first.host.coming, "it is sent without being asked for"
    assert len(first.host.sent) == asked
    step(world)
    second.host.put(1)
    for _ in range(4):
        step(world)
    assert second.buffered == 1
    assert not first.share_stands
    assert first.host.credit == 0


def test_one_member_alone_is_as_without_a_credit_pool() -> None:
    world = opened("credit", 4, 1, percent=25)
    only = world.members[0]
    only.host.put(BACKLOG)
    step(world)
    assert only.buffered == 4
    world.consume(only, 2)
    step(world)
    assert only.buffered == 2
    world.consume(only, 1)
    step(world)
    assert only.buffered == 4


def test_below_a_full_prefetch_more_comes_without_an_acknowledgement() -> None:  # F-18
    world = opened("prefetch", 10, 2)
    first, second = world.members
    first.host.put(6)
    step(world)
    step(world)
    world.consume(first, 6)
    second.host.put(9)
    step(world)
    step(world)
    assert (first.held, second.buffered) == (6, 4)
    world.acknowledge(first, 4)
    step(world)
    assert second.buffered == 4, "full until half is acknowledged"
    world.acknowledge(first, 1)
    step(world)
    assert second.buffered == 9


def test_a_limit_of_zero_asks_for_one_message_when_the_application_waits() -> None:  # F-20
    world = opened("prefetch", 0, 2)
    world.credit_pool.poll()
    for member in world.members:
        member.host.put(5)
    for _ in range(6):
        step(world)
    assert sorted(member.buffered for member in world.members) == [0, 1]
    for member in world.members:
        world.consume(member, 1)
    for _ in range(6):
        step(world)
    assert [member.buffered for member in world.members] == [0, 0]
    world.credit_pool.poll()
    for _ in range(6):
        step(world)
    assert sorted(member.buffered for member in world.members) == [0, 1]


def test_without_a_limit_everything_comes_at_once() -> None:
    world = opened("credit", -1, 2)
    for member in world.members:
        member.host.put(5000)
    for _ in range(4):
        step(world)
    assert [member.buffered for member in world.members] == [5000, 5000]


def test_the_smallest_limit_of_all_brokers_holds() -> None:
    world = World("credit", 9, 50)
    world.join()
    world.limit = 4
    other = world.join()
    assert world.credit_pool.limit == 4
    world.lose(world.members.index(other))
    assert world.credit_pool.limit == 9
