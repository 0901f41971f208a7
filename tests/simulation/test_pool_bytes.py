"""The simulation with quotas of a few bytes, and with quotas beside the limits of destinations themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count as numbers_from
from typing import Any

import pytest

from raybroker.core.admission import limits
from raybroker.core.admission.pool_share import Account, PoolShare
from raybroker.engine.path.blocked_sends import BlockedSends
from tests.simulation.mutant_features import dead_discarded, nothing_discarded, wrong_one_discarded
from tests.simulation.mutation import Patch
from tests.simulation.plan import DMQ, DestinationPlan
from tests.simulation.test_pool import Administrator, watch_order
from tests.simulation.world import World
from tests.sweep import Deadline, until

SEEDS = 3
"""What each test looks at; the sweep looks at more."""
HUNTED = 36
"""Within so many seeds each rule that is wrong is noticed."""
LARGEST = 12
"""Bytes of the largest message; others have none, or from 4 on."""
ENOUGH = 10_000
SEND_TIMEOUTS_MS = (0, 10, 300)
REJECT, SLOW, OLDEST, LOWEST = "REJECT_NEWEST", "FLOW_CONTROL", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"


def small(world: World) -> None:
    """Have all producers send messages of up to LARGEST bytes, so that a few of them fill a quota exactly."""
    for machine in world.plan.machines:
        machine.producers = [replace(one, body_bytes_max=LARGEST, mean_batch=1) for one in machine.producers]
        machine.transactors = [
            replace(one, sends_to=tuple(replace(to, body_bytes_max=LARGEST) for to in one.sends_to))
            for one in machine.transactors
        ]


def run_bytes(policy: str, shared: bool, seeds: range, most: int) -> tuple[Counter[str], Counter[str]]:
    """What happened in seeds with two quotas that change between nothing and ``most`` bytes, and the changes."""
    seen, changes = Counter[str](), Counter[str]()
    for seed in seeds:
        quota = {"BytesMaximum": most, "Policy": policy, "Shared": shared}
        world = World(seed, {}, {"one": quota, "other": quota})
        small(world)
        administrator = Administrator(world, seed, most, "BytesMaximum", ENOUGH)
        world.run()
        seen += world.watch.seen
        changes += administrator.changes
    return seen, changes


def vary_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the producers does not wait, and a third waits long."""
    send = BlockedSends.send
    monkeypatch.setattr(
        BlockedSends,
        "send",
        lambda self, one, timeout_ms: send(self, one, SEND_TIMEOUTS_MS[one.attachment.number % len(SEND_TIMEOUTS_MS)]),
    )


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_limit_of_the_bytes_of_a_few_messages_is_reached_exactly_and_never_passed(  # W-05, W-11 to W-13
    monkeypatch: pytest.MonkeyPatch, count: int, shared: bool, policy: str
) -> None:
    order = watch_order(monkeypatch)
    vary_timeouts(monkeypatch)
    seen, changes = run_bytes(policy, shared, range(SEEDS), count * LARGEST)
    wanted = ("bytes full", "over a lowered limit", "sends that wait", "larger than the pool", "refused by the pool")
    assert all(seen[what] for what in wanted), seen
    assert all(changes[what] for what in ("raised", "lowered", "repointed")), changes
    assert policy == "Preemptive" or not order["overtook"]


def _fits_by(more: int) -> Callable[..., bool]:
    def fits(share: PoolShare, messages: int, nbytes: int) -> bool:
        lease = share.lease
        return lease.bytes < 0 or share.used_bytes + share._owed.bytes + nbytes <= lease.bytes + more

    return fits


def _only_messages(account: Account, messages: int, nbytes: int) -> None:
    account.share.charge(messages - account.messages, 0)
    account.messages = messages


def _nothing(*args: Any) -> None: ...


BYTES: list[Any] = [
    pytest.param({(PoolShare, "fits"): _fits_by(1)}, id="a byte more than the quota does not fit"),
    pytest.param({(PoolShare, "fits"): _fits_by(-1)}, id="the last byte is there to be used"),
    pytest.param({(PoolShare, "fits"): _fits_by(ENOUGH)}, id="bytes count"),
    pytest.param({(Account, "charge"): _only_messages}, id="bytes are charged"),
    pytest.param(
        {(PoolShare, "configure"): lambda share, other: setattr(share, "limits", other)}, id="a change counts at once"
    ),
    pytest.param(
        {(BlockedSends, "gone"): _nothing, (BlockedSends, "left"): _nothing}, id="who is gone waits no longer"
    ),
    pytest.param({(PoolShare, "_over"): lambda *args: False}, id="waiting ends by time"),
]


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
@pytest.mark.parametrize("wrong", BYTES)
def test_a_rule_of_bytes_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[tuple[type, str], Callable[..., Any]], policy: str
) -> None:
    watch_order(monkeypatch)
    vary_timeouts(monkeypatch)
    for (owner, name), instead in wrong.items():
        monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        run_bytes(policy, True, range(HUNTED), 2 * LARGEST)


# ---- beside the limits of destinations -----------------------------------------------------------------------------


def limited(world: World, behavior: str, limit: str, most: int, *, use_dmq: bool) -> None:
    """Give every destination that behavior and limit, and a queue for what they remove."""
    own = {"limitBehavior": behavior, limit: most, "useDMQ": use_dmq}
    kept = ("maxNumMsgs", "maxTotalMsgBytes")
    destinations = [plan for plan in world.plan.destinations if plan.name != DMQ]
    world.plan.destinations[:] = [
        replace(plan, attributes={**{k: v for k, v in plan.attributes.items() if k not in kept}, **own})
        for plan in destinations
    ]
    if use_dmq:
        world.plan.destinations.append(DestinationPlan("queue", DMQ, {"useDMQ": False}, auto_created=False))


def run_limited(
    behavior: str,
    seeds: range,
    *,
    own: tuple[str, int] = ("maxNumMsgs", 3),
    quota: tuple[str, int],
    policy: str = "FIFO",
    use_dmq: bool = True,
) -> Counter[str]:
    """What happened in seeds whose destinations have limits of their own, and a quota that changes."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        limits = {quota[0]: quota[1], "Policy": policy}
        world = World(seed, {}, {"one": limits, "other": limits})
        small(world)
        limited(world, behavior, *own, use_dmq=use_dmq)
        Administrator(world, seed, quota[1], quota[0], ENOUGH)
        world.run()
        seen += world.watch.seen
    return seen


OWN = [("maxNumMsgs", 3), ("maxTotalMsgBytes", 2 * LARGEST)]
QUOTAS = [("MessagesMaximum", 6), ("BytesMaximum", 4 * LARGEST)]


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("behavior", [REJECT, SLOW, OLDEST, LOWEST])
def test_a_quota_counts_beside_the_limits_of_a_destination_and_each_once(  # D-09, W-05, W-07
    behavior: str, own: tuple[str, int], quota: tuple[str, int]
) -> None:
    """The twin says of every message whose limit refuses it, or what goes for it; the checkers, that nothing else is
    lost and that what goes is in mq.sys.dmq."""
    seen = run_limited(behavior, range(SEEDS), own=own, quota=quota)
    assert seen["refused by the pool"], "removing makes no room before a message is taken"
    assert seen["sends that wait"]
    assert bool(seen["refused by the destination"]) == (behavior == REJECT)
    assert bool(seen["OLDEST"]) == (behavior == OLDEST)
    assert bool(seen["LOW_PRIORITY"]) == (behavior == LOWEST)


@pytest.mark.sweep
@pytest.mark.parametrize("behavior", [REJECT, SLOW, OLDEST, LOWEST])
def test_many_seeds_of_bytes_are_like_the_first(behavior: str, sweep_seconds: float) -> None:
    for seed in until(Deadline(sweep_seconds), numbers_from(SEEDS)):
        seeds = range(seed, seed + 1)
        run_bytes("FIFO" if seed % 2 else "Preemptive", seed % 4 < 2, seeds, (1 + seed % 3) * LARGEST)
        for own in OWN:
            for quota in QUOTAS:
                run_limited(behavior, seeds, own=own, quota=quota)


@pytest.mark.parametrize("behavior", [OLDEST, LOWEST])
def test_what_a_limit_removes_without_a_dead_message_queue_leaves_the_quota(behavior: str) -> None:
    seen = run_limited(behavior, range(SEEDS), quota=QUOTAS[0], policy="Preemptive", use_dmq=False)
    assert seen["OLDEST"] + seen["LOW_PRIORITY"]
    assert seen["refused by the pool"]


def test_a_producer_goes_on_though_what_was_sent_back_had_filled_its_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message that filled it was gone before it was durable: the producer heard of room, and then of none."""
    vary_timeouts(monkeypatch)
    run_limited(SLOW, range(1176, 1177), quota=QUOTAS[0])


_ADMIT, _REFUSAL = limits.admit, PoolShare.refusal


def _twice(name: str, own: limits.DestinationLimits, *args: Any) -> Any:
    found = _ADMIT(name, own, *args)
    pool = args[4] if len(args) > 4 else None
    if pool is not None:
        pool.refused += sum(row.end - row.start for row in found[1] if row.code == "quota_exceeded")
    return found


def _removing_needs_no_room(name: str, own: limits.DestinationLimits, *args: Any) -> Any:
    return _ADMIT(name, own, *args[:4]) if own.messages_max < 0 and own.bytes_max < 0 else _ADMIT(name, own, *args)


def _quota_alone(name: str, own: limits.DestinationLimits, *args: Any) -> Any:
    pooled = len(args) > 4 and args[4] is not None
    return _ADMIT(name, own._replace(messages_max=-1, bytes_max=-1) if pooled else own, *args)


def _both_at_the_quota(share: PoolShare, *args: int) -> str:
    return _REFUSAL(share, *args).replace("MessagesMaximum=", "maxNumMsgs=")


BESIDE: list[Any] = [
    pytest.param(limits, "admit", _twice, REJECT, id="a refusal is counted once"),
    pytest.param(limits, "admit", _quota_alone, REJECT, id="a quota is beside the destination's limits"),
    pytest.param(limits, "admit", _removing_needs_no_room, OLDEST, id="a removing limit makes no room in the quota"),
    pytest.param(limits, "admit", _removing_needs_no_room, SLOW, id="a slowing limit makes no room in the quota"),
    pytest.param(PoolShare, "refusal", _both_at_the_quota, REJECT, id="a refusal names the limit that it is for"),
]


@pytest.mark.parametrize(("owner", "name", "wrong", "behavior"), BESIDE)
def test_a_rule_of_both_limits_that_is_wrong_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Callable[..., Any], behavior: str
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        run_limited(behavior, range(HUNTED), quota=QUOTAS[0])


@pytest.mark.parametrize("apply", [dead_discarded, nothing_discarded, wrong_one_discarded])
def test_a_removal_that_is_wrong_beside_a_quota_is_noticed(apply: Callable[[Patch], None]) -> None:
    patch = Patch()
    apply(patch)
    try:
        with pytest.raises(AssertionError):
            run_limited(OLDEST, range(HUNTED), quota=QUOTAS[0])
    finally:
        patch.undo()


@pytest.mark.parametrize("behavior", [OLDEST, LOWEST])
def test_what_is_removed_and_stays_charged_is_noticed(monkeypatch: pytest.MonkeyPatch, behavior: str) -> None:
    def grows(account: Account, messages: int, nbytes: int) -> None:
        more, more_bytes = max(messages, account.messages), max(nbytes, account.bytes)
        account.share.charge(more - account.messages, more_bytes - account.bytes)
        account.messages, account.bytes = more, more_bytes

    monkeypatch.setattr(Account, "charge", grows)
    with pytest.raises(AssertionError):
        run_limited(behavior, range(SEEDS), quota=QUOTAS[0])
