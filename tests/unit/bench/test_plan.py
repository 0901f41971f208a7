"""Load plans that cannot be carried out are refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from raybroker.bench import LoadPlan
from raybroker.model.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"size_bytes": 23}, "size"),
        ({"size_bytes": (70 << 20) + 1}, "size"),
        ({"batch": 0}, "batch"),
        ({"window": 0}, "window"),
        ({"batch": 1001, "window": 1000}, "1,000,000"),
        ({"producers": -1}, "negative"),
        ({"producers": 0, "consumers": 0}, "1 to 256"),
        ({"producers": 200, "consumers": 57}, "1 to 256"),
        ({"prefetch": -2}, "prefetch"),
        ({"duration_seconds": 0}, "duration"),
        ({"warmup_seconds": -1}, "times"),
        ({"rate_per_second": float("nan")}, "finite"),
        ({"producers": 0, "rate_per_second": 1}, "rate"),
        ({"queue": ""}, "queue"),
        ({"trace": True, "window": 2}, "trace"),
        ({"trace": True, "batch": 2}, "trace"),
        ({"trace": True, "persistent": False}, "trace"),
        ({"trace": True, "producers": 0}, "trace"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        LoadPlan(**given)


def test_the_interval_shares_the_rate_among_producers_and_batches() -> None:
    assert LoadPlan(rate_per_second=1000, producers=2, batch=5).interval_ns == 10_000_000


def test_without_a_rate_there_is_no_interval() -> None:
    assert LoadPlan().interval_ns == 0


def test_the_measured_time_follows_the_warmup() -> None:
    plan = LoadPlan(warmup_seconds=1, duration_seconds=3)
    assert (plan.measured_from_ns, plan.ends_ns) == (1_000_000_000, 4_000_000_000)


def test_a_plan_travels_to_another_process() -> None:
    plan = LoadPlan(queue="orders", prefetch=5)
    assert pickle.loads(pickle.dumps(plan)) == plan
