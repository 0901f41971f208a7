"""Ray Serve with its task processors in raybroker: a real application, whose replica and broker are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.examples import serve_tasks
from tests.cluster import rays
from tests.contracts.handles import until
from tests.ports import free_port

serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed")

pytestmark = pytest.mark.timeout(300)
TASKS = 200


@pytest.fixture
def serving(cluster: Any) -> Iterator[Any]:
    yield cluster
    serve.shutdown()


def test_the_example_loses_nothing_with_a_replica(serving: Any) -> None:
    found = serve_tasks.run(60, free_port())
    assert found == {"documents": 60, "right": 60, "failed": "FAILURE", "dead": [[""]]}


@pytest.mark.long
def test_tasks_outlive_the_broker_and_its_host(serving: Any) -> None:
    from ray.serve.schema import TaskProcessorConfig
    from ray.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler

    from raybroker.serve import RaybrokerTaskProcessor

    config = TaskProcessorConfig(queue_name="squares", adapter=RaybrokerTaskProcessor, adapter_config={})

    @serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0})
    @task_consumer(task_processor_config=config)
    class Squares:
        @task_handler
        async def square(self, number: int) -> int:
            return number * number

    serve.start(http_options={"port": free_port()})
    serve.run(Squares.bind(), name="squares", route_prefix=None)
    processor = instantiate_adapter_from_config(task_processor_config=config)
    ids = [processor.enqueue_task_sync("square", [number]).id for number in range(TASKS // 2)]
    for pid in set(serving.pids().values()):
        os.kill(pid, signal.SIGKILL)
    while len(ids) < TASKS:
        try:
            ids.append(processor.enqueue_task_sync("square", [len(ids)]).id)
        except rb.errors.BrokerError:  # It is not known whether it was stored: its number is sent again.
            time.sleep(0.1)

    def results() -> list[Any] | None:
        try:
            found = [processor.get_task_status_sync(one) for one in ids]
        except rb.errors.BrokerError:
            return None
        return [one.result for one in found] if all(one.status == "SUCCESS" for one in found) else None

    assert until(results, "not all tasks have results", timeout_s=120) == [number**2 for number in range(TASKS)]
    processor.disconnect()


@pytest.mark.long
def test_replicas_come_from_none_when_the_broker_tells_of_a_task(serving: Any) -> None:
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
    from ray.serve.schema import TaskProcessorConfig
    from ray.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler

    from raybroker.serve import RaybrokerAutoscalingPolicy, RaybrokerTaskProcessor

    config = TaskProcessorConfig(queue_name="seldom", adapter=RaybrokerTaskProcessor, adapter_config={})
    scaling = AutoscalingConfig(
        min_replicas=0,
        initial_replicas=0,
        max_replicas=2,
        upscale_delay_s=0,
        policy=AutoscalingPolicy(
            policy_function=RaybrokerAutoscalingPolicy, policy_kwargs={"queue_name": "seldom", "promise_s": 5}
        ),
    )

    @serve.deployment(autoscaling_config=scaling, ray_actor_options={"num_cpus": 0})
    @task_consumer(task_processor_config=config)
    class Seldom:
        @task_handler
        def double(self, number: int) -> int:
            return number * 2

    serve.start(http_options={"port": free_port()})
    serve.run(Seldom.bind(), name="seldom", route_prefix=None)
    assert running("seldom") == 0
    processor = instantiate_adapter_from_config(task_processor_config=config)
    task = processor.enqueue_task_sync("double", [4])
    until(lambda: processor.get_task_status_sync(task.id).status == "SUCCESS", "no replica came", timeout_s=120)
    assert processor.get_task_status_sync(task.id).result == 8
    processor.disconnect()


def running(name: str) -> int:
    """How many replicas an application has."""
    found = serve.status().applications[name].deployments
    return sum(count for one in found.values() for state, count in one.replica_states.items() if state == "RUNNING")


@pytest.mark.long
def test_results_are_found_on_whichever_broker_they_are(own_ray: str, tmp_path: Path) -> None:
    from ray.serve.schema import TaskProcessorConfig

    from raybroker.serve import RaybrokerTaskProcessor

    pair = rb.start("pair", brokers=2, config=rays.small_store(tmp_path))
    try:
        config = TaskProcessorConfig(
            queue_name="pairs", adapter=RaybrokerTaskProcessor, adapter_config={"cluster": "pair"}
        )
        processor = RaybrokerTaskProcessor(config)
        processor.initialize(4)
        processor.register_task_handle(abs)
        processor.start_consumer()
        ids = [processor.enqueue_task_sync("abs", [-number]).id for number in range(30)]
        for number, one in enumerate(ids):
            until(lambda one=one: processor.get_task_status_sync(one).status == "SUCCESS", timeout_s=60)
            assert processor.get_task_status_sync(one).result == number
        processor.disconnect()
    finally:
        pair.stop()
