"""Pools and replicas that scale by a promise are told the demand by the broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, IllegalStateError
from tests.contracts.handles import until

BROKER = "promise"


@pytest.fixture
def connection() -> Iterator[rb.Connection]:
    with rb.loopback(broker=BROKER) as found:
        yield found


def test_a_pool_with_a_promise_has_instances_when_something_waits(connection: rb.Connection) -> None:
    seen: list[Any] = []

    @rb.listener(queue="jobs")
    def work(message: rb.Message) -> None:
        seen.append(message.body)

    connection.admin().create_destination("queue", "jobs")
    with rb.deploy(work, loopback=BROKER, max=3, promise_s=5) as pool:
        assert pool.totals()["instances"] == 0
        connection.session().producer("jobs").send_many(range(20))
        until(lambda: len(seen) == 20)
        assert pool.totals()["instances"] >= 1
        assert "the pace of a worker is not known yet" in pool.reason or pool.reason.startswith("nothing waits")
        assert pool.scale(0) >= 1


def test_demand_is_told_each_second_and_not_at_the_interval_of_metrics(connection: rb.Connection) -> None:
    connection.session().producer("jobs").send_many(range(5))
    session = connection.session()
    demand = session.consumer("topic:mq.metrics.demand.queue.jobs")
    first, second = demand.receive(10), demand.receive(10)
    assert first is not None
    assert second is not None
    assert first.body.keys() == {
        "waiting",
        "unacknowledged",
        "delayed",
        "oldestAgeMs",
        "numMsgsIn",
        "numMsgsOut",
        "numActiveConsumers",
    }
    assert (second.body["waiting"], second.body["numMsgsIn"]) == (5, 5)
    assert second.body["oldestAgeMs"] > first.body["oldestAgeMs"]


def test_what_does_not_go_together_is_refused(connection: rb.Connection) -> None:
    queue, topic = rb.listener(queue="jobs")(print), rb.listener(topic="t", subscription="s", shared=True)(print)
    for listener, options, said in (
        (queue, {"max": 3, "promise_s": 5, "target_backlog": 10}, "two ways to scale"),
        (queue, {"promise_s": 5}, "max= is needed"),
        (queue, {"max": 3, "promise_s": -1}, "promise_s=-1"),
        (queue, {"max": 3, "min": 4, "promise_s": 5}, "they are to ascend"),
        (topic, {"max": 3, "promise_s": 5}, "is for a queue"),
    ):
        with pytest.raises(ConfigError, match=said):
            rb.deploy(listener, loopback=BROKER, **options)  # type: ignore[call-overload]
    with rb.deploy(queue, loopback=BROKER) as pool, pytest.raises(ConfigError, match="instances=0"):
        pool.scale(0)
    with pytest.raises(IllegalStateError):
        pool.scale(1)


def context(**options: Any) -> Any:
    """Stands in for the context that Serve gives to a policy: it has what the policy reads."""
    config = SimpleNamespace(get_target_ongoing_requests=lambda: 2.0)
    given = {"current_num_replicas": 0, "target_num_replicas": 4, "config": config}
    bounds = {"capacity_adjusted_min_replicas": 0, "capacity_adjusted_max_replicas": 6}
    return SimpleNamespace(**given | bounds | options)


def test_replicas_of_serve_follow_what_the_broker_tells(connection: rb.Connection) -> None:
    policy_of = rb.serve.RaybrokerAutoscalingPolicy
    with pytest.raises(ConfigError, match="promise_s=0"):
        policy_of("jobs", 0)
    by_length, by_promise = policy_of("jobs", loopback=BROKER), policy_of("jobs", 30, loopback=BROKER)
    unknown = by_length(context())
    assert unknown[0] == 4
    assert "not known" in unknown[1]["reason"]
    connection.session().producer("jobs").send_many(range(10))
    until(lambda: by_length(context())[1].get("backlog") == 10, timeout_s=30)
    assert by_length(context())[0] == 5
    until(lambda: by_promise(context())[1].get("backlog") == 10, timeout_s=30)
    assert by_promise(context())[0] == 1
    for policy in (by_length, by_promise):
        policy._feed.end_listening(5)
