"""The simulation with limits that destinations share: a twin accepts a refusal only while their pool is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

import pytest

from raybroker.core.admission.pool_share import Account, PoolShare
from raybroker.engine.path.blocked_sends import BlockedSends
from raybroker.model.definitions.quota import quota_of
from tests.simulation.plan import DMQ, MS
from tests.simulation.world import World
from tests.sweep import Deadline, until

MOST = 12
SEEDS = 3
"""What each test looks at; the sweeps look at more."""
HUNTED = (*range(4), *range(24, 36), *range(4, 24))
"""Within these seeds each rule that is switched off is noticed; first are those that notice most."""
CHANGE_MS = 150
"""Between two changes of quotas."""


OTHER = {"FIFO": "Preemptive", "Preemptive": "FIFO"}
_MUST_WAIT, _TAKE_NEXT = PoolShare.must_wait, PoolShare.take_next


def _exchanged(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of waiting that takes each policy for the other one."""

    def wrong(share: PoolShare, *args: Any) -> Any:
        meant = share.limits
        share.limits = meant._replace(policy=OTHER[meant.policy])
        try:
            return rule(share, *args)
        finally:
            share.limits = meant

    return wrong


def watch_order(
    monkeypatch: pytest.MonkeyPatch,
    must_wait: Callable[..., Any] = _MUST_WAIT,
    take_next: Callable[..., Any] = _TAKE_NEXT,
) -> Counter[str]:
    """Have every decision about who waits, and who is let in, compared with what the policy says; what there was."""
    seen: Counter[str] = Counter()

    def waits(share: PoolShare, messages: int, nbytes: int, key: int) -> bool:
        found: bool = must_wait(share, messages, nbytes, key)
        before = [waiter.key for waiter in share.waiting]
        held_back = bool(before) if share.limits.policy == "FIFO" else key in before
        assert found == (held_back or not share.fits(messages, nbytes)), (share.limits.policy, before, key)
        seen["overtook"] += bool(before) and not found
        seen["held back"] += found and share.fits(messages, nbytes)
        return found

    def takes(share: PoolShare, now_ms: int) -> Any:
        before = list(share.waiting)
        found = take_next(share, now_ms)
        entitled = before[:1]
        if share.limits.policy == "Preemptive":
            entitled = [one for at, one in enumerate(before) if one.key not in {other.key for other in before[:at]}]
        if found is None:
            assert not any(share.fits(one.messages, one.bytes) for one in entitled), "who may come in waits on"
            assert all(now_ms < one.deadline_ms for one in before), "somebody waits although the time for it is over"
        else:
            waiter, may = found
            assert may == any(one is waiter for one in entitled), (share.limits.policy, before, waiter)
            fits = share.fits(waiter.messages, waiter.bytes)
            assert fits or now_ms >= waiter.deadline_ms, "neither room nor the end of its time"
            seen["let in past others"] += may and fits and waiter is not before[0]
        return found

    monkeypatch.setattr(PoolShare, "must_wait", waits)
    monkeypatch.setattr(PoolShare, "take_next", takes)
    return seen


def run(policy: str, seeds: Iterable[int]) -> Counter[str]:
    """What happened in seeds with a small pool."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, {"imq.system.max_count": MOST, "raybroker.system.blockingSendPolicy": policy})
        world.run()
        seen += world.watch.seen
    return seen


class Administrator:
    """Changes one limit of quotas, and which quota destinations refer to, while everything goes on.

    ``most``: it is between nothing and this; in the end ``enough``.
    """

    def __init__(
        self, world: World, seed: int, most: int = MOST, limit: str = "MessagesMaximum", enough: int = MOST
    ) -> None:
        self._world = world
        self._rng = Random(seed)
        self._most = most
        self._limit = limit
        self._enough = enough
        self.changes: Counter[str] = Counter()
        world.loop.after(CHANGE_MS * MS, self._change)

    def _change(self) -> None:
        world, rng = self._world, self._rng
        if world.healing:
            for quota in world.quotas.values():
                quota.update(quota_of({self._limit: self._enough}, quota))
            if world.running is not None:
                world.running.pools.define(world.quotas)
        else:
            world.loop.after(rng.randrange(2 * CHANGE_MS) * MS, self._change)
            if rng.random() < 0.5:
                name = rng.choice(sorted(world.quotas))
                most, before = rng.randint(0, self._most), int(str(world.quotas[name][self._limit]))
                world.quotas[name] = quota_of({self._limit: most}, world.quotas[name])
                self.changes["raised" if most > before else "lowered"] += 1
                if world.running is not None:
                    world.running.pools.define(world.quotas)
            else:
                self._repoint(rng.randrange(len(world.plan.destinations)))
        if world.healing and world.running is None:
            world.loop.after(MS, self._change)

    def _repoint(self, index: int) -> None:
        world, host = self._world, self._world.running
        plan = world.plan.destinations[index]
        if host is None or plan.name == DMQ or plan.key not in host.registry.destinations:
            return
        world.named[index] = self._rng.choice(sorted(world.quotas))
        host.administration.update(plan.name, {"quota": world.named[index]}, lambda: None, plan.kind)
        self.changes["repointed"] += 1


def run_quotas(policy: str, shared: bool, seeds: Iterable[int], most: int = MOST) -> tuple[Counter[str], Counter[str]]:
    """What happened in seeds with two small quotas that change between nothing and ``most``, and the changes."""
    seen, changes = Counter[str](), Counter[str]()
    for seed in seeds:
        quota = {"MessagesMaximum": most, "Policy": policy, "Shared": shared}
        world = World(seed, {}, {"one": quota, "other": quota})
        administrator = Administrator(world, seed, most)
        world.run()
        seen += world.watch.seen
        changes += administrator.changes
    return seen, changes


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
def test_the_broker_is_never_over_its_limit_and_refuses_only_when_it_is_full(policy: str) -> None:
    assert run(policy, range(SEEDS))["pool full"] > SEEDS


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("shared", [True, False])
def test_no_quota_is_exceeded_while_quotas_and_what_refers_to_them_change(policy: str, shared: bool) -> None:
    seen, changes = run_quotas(policy, shared, range(SEEDS))
    assert all(seen[what] for what in ("pool full", "over a lowered limit", "sends that wait")), seen
    assert all(changes[what] for what in ("raised", "lowered", "repointed")), changes


@pytest.mark.parametrize("shared", [True, False])
def test_who_waits_is_let_in_by_the_policy_whoever_dies_meanwhile(  # W-09, W-10
    monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    seen = watch_order(monkeypatch)
    run_quotas("FIFO", shared, range(SEEDS))
    assert seen["held back"]
    assert not seen["overtook"]
    assert not seen["let in past others"]
    run_quotas("Preemptive", shared, range(SEEDS))
    assert seen["overtook"]
    assert seen["let in past others"]


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_limit_of_a_few_messages_is_reached_and_never_passed(
    monkeypatch: pytest.MonkeyPatch, most: int, shared: bool, policy: str
) -> None:
    """Most blocks have no room at all by then: every send comes upon the limit, and senders die while they wait."""
    order = watch_order(monkeypatch)
    seen, changes = run_quotas(policy, shared, range(SEEDS), most)
    assert all(seen[what] for what in ("pool full", "over a lowered limit", "sends that wait")), seen
    assert all(changes[what] for what in ("raised", "lowered", "repointed")), changes
    assert policy == "Preemptive" or not order["overtook"]


@pytest.mark.sweep
@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
def test_many_seeds_of_quotas_are_like_the_first(
    monkeypatch: pytest.MonkeyPatch, policy: str, sweep_seconds: float
) -> None:
    order = watch_order(monkeypatch)
    for seed in until(Deadline(sweep_seconds), count(SEEDS)):
        run(policy, range(seed, seed + 1))
        for shared in (True, False):
            run_quotas(policy, shared, range(seed, seed + 1), (1, 2, 3, MOST)[seed % 4])
    assert policy == "Preemptive" or not order["overtook"]


def _fits_by(share: PoolShare, messages: int, nbytes: int, more: int) -> bool:
    lease = share.lease
    return lease.messages < 0 or share.used_messages + share._owed.messages + messages <= lease.messages + more


@pytest.mark.parametrize("more", [1, -1], ids=["one too many is taken", "the last place stays empty"])
@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_limit_that_is_wrong_by_one_message_is_noticed(
    monkeypatch: pytest.MonkeyPatch, shared: bool, policy: str, more: int
) -> None:
    monkeypatch.setattr(PoolShare, "fits", lambda share, messages, nbytes: _fits_by(share, messages, nbytes, more))
    with pytest.raises(AssertionError):
        run_quotas(policy, shared, HUNTED, 2)


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("rule", ["must_wait", "take_next"])
def test_a_policy_that_is_taken_for_the_other_one_is_noticed(
    monkeypatch: pytest.MonkeyPatch, policy: str, rule: str
) -> None:
    wrong = {rule: _exchanged(_MUST_WAIT if rule == "must_wait" else _TAKE_NEXT)}
    watch_order(monkeypatch, **wrong)
    with pytest.raises(AssertionError):
        run_quotas(policy, True, HUNTED)


def _nothing(*args: Any) -> None: ...


RULES = [
    pytest.param(Account, "charge", _nothing, id="what is held is charged"),
    pytest.param(PoolShare, "fits", lambda self, messages, nbytes: True, id="what does not fit waits"),
    pytest.param(PoolShare, "fits", lambda self, messages, nbytes: False, id="what fits is taken"),
]


@pytest.mark.parametrize(("owner", "name", "wrong"), RULES)
def test_a_rule_that_is_switched_off_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        run("FIFO", HUNTED)


def _overtakes(share: PoolShare, messages: int, nbytes: int, key: int) -> bool:
    return not share.fits(messages, nbytes)


WAITING = [
    pytest.param({(PoolShare, "must_wait"): _overtakes}, id="blocks of one producer stay in order"),
    pytest.param({(PoolShare, "_over"): lambda *args: False}, id="waiting ends by time"),
    pytest.param({(Account, "close"): _nothing}, id="a destination that is charged elsewhere is charged there alone"),
    pytest.param({(BlockedSends, "turn_away"): _nothing}, id="who waits for room of another quota is refused"),
    pytest.param(
        {(BlockedSends, "gone"): _nothing, (BlockedSends, "left"): _nothing}, id="who is gone waits no longer"
    ),
    pytest.param({(BlockedSends, "puts_off"): lambda *args: False}, id="a commit waits for what was sent before it"),
]


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("wrong", WAITING)
def test_a_rule_of_waiting_that_is_switched_off_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[tuple[type, str], Callable[..., Any]], policy: str
) -> None:
    for (owner, name), instead in wrong.items():
        monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        run_quotas(policy, True, HUNTED)


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [*RULES, pytest.param(BlockedSends, "serve", _nothing, id="who waits is let in")],
)
def test_a_rule_of_quotas_that_is_switched_off_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        run_quotas("FIFO", True, HUNTED)
