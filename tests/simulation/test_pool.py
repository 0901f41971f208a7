"""The simulation with a limit of the whole broker: a twin accepts a refusal only while the pool is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.core.admission.pool_share import Account, PoolShare
from tests.simulation.world import World

MOST = 12
SEEDS = 12


def run(policy: str, seeds: range) -> Counter[str]:
    """What happened in seeds with a small pool."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, {"imq.system.max_count": MOST, "raybroker.system.blockingSendPolicy": policy})
        world.run()
        seen += world.watch.seen
    return seen


@pytest.mark.parametrize("policy", ["FIFO", "Preemptive"])
def test_the_broker_is_never_over_its_limit_and_refuses_only_when_it_is_full(policy: str) -> None:
    assert run(policy, range(SEEDS))["pool full"] > SEEDS


def _nothing(*args: Any) -> None: ...


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        pytest.param(Account, "charge", _nothing, id="what is held is charged"),
        pytest.param(PoolShare, "fits", lambda self, messages, nbytes: True, id="what does not fit waits"),
        pytest.param(PoolShare, "fits", lambda self, messages, nbytes: False, id="what fits is taken"),
    ],
)
def test_a_rule_that_is_switched_off_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        run("FIFO", range(SEEDS))
