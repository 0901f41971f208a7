"""The ledger of a pool with the shares of its hosts, over a network that loses, doubles and delays what they say."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from raybroker.broker.destinations.pool_ledger import WAITS_MS, PoolLedger
from raybroker.core.admission.pool_share import PoolLimits, PoolRoom, PoolShare, PoolWaiter
from raybroker.engine.destinations.pools import VERSION_BITS

MOST = 6


def ledger_of(messages: int = MOST, nbytes: int = -1, policy: str = "FIFO") -> PoolLedger:
    return PoolLedger(PoolLimits(messages, nbytes, policy))


def test_a_host_that_is_alone_gets_everything_at_once() -> None:
    ledger = ledger_of(10, 100)
    ledger.hear("a", 1, PoolRoom(0, 0))
    assert ledger.grant("a", PoolRoom(1, 5), 1, 0, waits=True) == (PoolRoom(10, 100), PoolRoom(9, 95), PoolRoom(0, 0))


def test_one_of_several_gets_what_it_needs_and_a_part_of_the_rest() -> None:
    ledger = ledger_of(10)
    for host in "ab":
        ledger.hear(host, 1, PoolRoom(0, -1))
    assert ledger.grant("a", PoolRoom(2, 0), 2, 0, waits=True).lease == PoolRoom(4, -1)
    assert ledger.grant("b", PoolRoom(7, 0), 2, 0, waits=True) == (PoolRoom(6, -1), PoolRoom(0, 0), PoolRoom(1, 0))
    assert ledger.leased() == PoolRoom(10, -1)


def test_nothing_is_granted_while_it_is_not_known_what_a_host_has() -> None:
    ledger = ledger_of(10)
    ledger.hear("a", 1, PoolRoom(0, -1))
    assert ledger.unknown(["a", "b"]) == ["b"]
    assert ledger.grant("a", PoolRoom(1, 0), 2, 0, waits=True, sure=False).lacking == PoolRoom(1, 0)
    ledger.hear("b", 1, PoolRoom(-1, -1))  # It was not told of the limit yet.
    assert ledger.unknown(["a", "b"]) == ["b"]
    assert ledger.grant("a", PoolRoom(1, 0), 2, 0, waits=True).lacking == PoolRoom(1, 0)


def test_limits_below_what_is_leased_grant_nothing_until_it_has_fallen() -> None:
    ledger = ledger_of(10)
    ledger.hear("a", 1, PoolRoom(8, -1))
    ledger.limits = PoolLimits(5, -1)
    assert ledger.grant("a", PoolRoom(1, 0), 1, 0, waits=True).lacking == PoolRoom(1, 0)
    ledger.hear("a", 2, PoolRoom(4, -1))
    assert ledger.grant("a", PoolRoom(1, 0), 1, 0, waits=True).lease == PoolRoom(5, -1)


def test_the_host_that_waits_first_comes_first_as_long_as_it_asks() -> None:
    ledger = ledger_of(4)
    for host in "ab":
        ledger.hear(host, 1, PoolRoom(2, -1))
    assert ledger.grant("a", PoolRoom(2, 0), 2, 0, waits=True).lacking == PoolRoom(2, 0)
    ledger.hear("b", 2, PoolRoom(1, -1))
    assert not ledger.is_first("b", 10)
    assert ledger.grant("b", PoolRoom(1, 0), 2, 10, waits=True).lacking == PoolRoom(1, 0)
    assert ledger.grant("b", PoolRoom(1, 0), 2, WAITS_MS, waits=True).lacking == PoolRoom(0, 0)


def test_preemptive_grants_to_whoever_fits() -> None:
    ledger = ledger_of(4, policy="Preemptive")
    ledger.hear("a", 1, PoolRoom(3, -1))
    ledger.hear("b", 1, PoolRoom(0, -1))
    assert ledger.grant("b", PoolRoom(1, 0), 2, 10, waits=True).lacking == PoolRoom(0, 0)


def test_what_an_ended_process_said_is_not_heard_after_its_successor() -> None:
    ledger = ledger_of(10)
    assert ledger.hear("a", 105, PoolRoom(4, -1))
    assert ledger.hear("a", 201, PoolRoom(2, -1))
    assert not ledger.hear("a", 106, PoolRoom(0, -1))
    assert (ledger.leased(), ledger.version("a")) == (PoolRoom(2, -1), 201)


def test_a_host_that_is_dropped_leaves_its_room_to_the_others() -> None:
    ledger = ledger_of(10)
    ledger.hear("a", 1, PoolRoom(10, -1))
    ledger.hear("b", 1, PoolRoom(0, -1))
    ledger.retain({"b"})
    assert ledger.grant("b", PoolRoom(10, 0), 1, 0, waits=True).lacking == PoolRoom(0, 0)


class World:
    """Hosts with shares, a ledger, and a network; every choice is that of ``random``."""

    def __init__(self, seed: int, policy: str, *, clocks_go_back: bool = False) -> None:
        self.clocks_go_back = clocks_go_back
        self.random = random.Random(seed)
        self.limits = PoolLimits(MOST, -1, policy)
        self.hosts = ["a", "b", "c"]
        self.now = 0
        self.ledger = PoolLedger(self.limits)
        self.share = {host: self.started() for host in self.hosts}
        self.network: list[Callable[[], None]] = []
        self.let_in = 0

    def step(self) -> None:
        self.now += self.random.randint(0, 20)
        host = self.random.choice(self.hosts)
        action = self.random.choice(
            [
                self.send,
                self.send,
                self.send,
                self.consume,
                self.consume,
                self.ask,
                self.ask,
                self.recall,
                self.arrive,
                self.arrive,
                self.arrive,
                self.arrive,
                self.lose,
                self.double,
                self.crash,
                self.restart_broker,
            ]
        )
        action(host)
        held = sum(share.used_messages for share in self.share.values())
        assert held <= MOST, f"{held} messages are held of {MOST}"

    def send(self, host: str, timeout_ms: int = 30) -> None:
        share, count = self.share[host], self.random.randint(1, 3)
        share.wait(PoolWaiter(count, 0, self.now, self.now + timeout_ms, 1, None))
        self.serve(host)

    def serve(self, host: str) -> None:
        share = self.share[host]
        while (found := share.take_next(self.now)) is not None:
            waiter, first = found
            count = max((n for n in range(waiter.messages + 1) if share.fits(n, 0)), default=0) if first else 0
            self.let_in += count == waiter.messages
            share.charge(count, 0)

    def consume(self, host: str) -> None:
        if self.share[host].used_messages:
            self.share[host].charge(-1, 0)
            self.serve(host)

    def ask(self, host: str) -> None:
        """As broker.pools does, but for the recall, which comes by itself."""
        share = self.share[host]
        if not share.wants_more(self.now):
            return
        said = share.begin_question(self.now)

        def at_the_broker() -> None:
            if not self.ledger.hear(host, said.version, said.lease):
                newest = self.ledger.version(host)
                self.network.append(lambda: share.surpass(newest))
                return
            sure = not self.ledger.unknown(self.hosts)
            grant = self.ledger.grant(host, said.need, len(self.hosts), self.now, waits=bool(said.waiting), sure=sure)
            short = sure and grant.lacking != (0, 0)

            def back() -> None:
                if self.share[host] is share:
                    share.granted(said.version, grant.lease, grant.ahead, short=short, now_ms=self.now)
                    self.serve(host)

            self.network.append(back)

        self.network.append(at_the_broker)

    def recall(self, host: str) -> None:
        share = self.share[host]
        share.surrender()
        version, lease = share.version, share.lease
        self.network.append(lambda: self.ledger.hear(host, version, lease) and None)

    def arrive(self, host: str) -> None:
        if self.network:
            self.network.pop(self.random.randrange(len(self.network)))()

    def lose(self, host: str) -> None:
        if self.network:
            self.network.pop(self.random.randrange(len(self.network)))
            for share in self.share.values():
                share.unanswered(self.now)

    def double(self, host: str) -> None:
        if self.network:
            self.network.append(self.random.choice(self.network))

    def crash(self, host: str) -> None:
        """The host comes back with what it holds; who waited there is gone."""
        held = self.share[host].used_messages
        self.now += 1
        share = self.share[host] = self.started()
        share.charge(held, 0)
        share.cover()

    def started(self) -> PoolShare:
        """Of a process that starts now, as engine.pools makes it."""
        clock = self.now - self.random.randint(0, 500) if self.clocks_go_back else self.now
        return PoolShare("p", self.limits, alone=False, version=clock << VERSION_BITS)

    def restart_broker(self, host: str) -> None:
        """Answers of the old process end with it."""
        self.network.clear()
        self.ledger = PoolLedger(self.limits)
        for share in self.share.values():
            share.unanswered(self.now)


@given(st.integers(0, 1 << 32), st.sampled_from(["FIFO", "Preemptive"]))
@settings(max_examples=40, deadline=None)
def test_the_hosts_never_hold_more_than_the_pool_whatever_is_lost_doubled_or_killed(seed: int, policy: str) -> None:
    world = World(seed, policy)
    for _ in range(120):
        world.step()


@given(st.integers(0, 1 << 32), st.sampled_from(["FIFO", "Preemptive"]), st.booleans())
@example(457, "FIFO", False)
@example(495, "FIFO", False)
@settings(max_examples=20, deadline=None)
def test_nobody_waits_for_ever_once_the_network_is_whole_and_there_is_room(
    seed: int, policy: str, clocks_go_back: bool
) -> None:
    world = World(seed, policy, clocks_go_back=clocks_go_back)
    for _ in range(80):
        world.step()
    for host in world.hosts:
        for _ in range(3):
            world.send(host, timeout_ms=10**9)
    for _ in range(40):
        for host in world.hosts:
            world.now += 10
            world.consume(host)
            for other in world.hosts:
                if other != host:
                    world.recall(other)
            world.ask(host)
            while world.network:
                world.network.pop(0)()
        if not any(share.waiting for share in world.share.values()):
            return
    raise AssertionError({host: share.statement() for host, share in world.share.items()})
