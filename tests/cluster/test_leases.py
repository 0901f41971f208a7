"""Deliveries that are tied to the life of an actor, over a real Ray; examples of the manual."""

from __future__ import annotations

import time
from typing import Any

import pytest
import ray

import raybroker as rb
from raybroker.errors import IllegalStateError
from raybroker.examples import agents, batch_inference, rollouts, spot_batch, stale_rollouts, warm_models
from tests.contracts.handles import create, take


@ray.remote(num_cpus=0)
class Worker:
    def work(self, message: rb.Message, seconds: float) -> tuple[int, int]:
        time.sleep(seconds)
        return message.body, message.fence


def test_a_message_goes_back_when_the_actor_that_works_on_it_dies(cluster: Any) -> None:
    """Also while the actor is busy, and when Ray restarts it, long before the deadline"""
    with rb.connect() as connection:
        name = create(connection, "leased")
        connection.session().producer(name).send_many(range(2))
        consumer = connection.session(ack="client").consumer(name, ack_timeout_ms=60_000, fenced=True)
        for options in ({}, {"max_restarts": 3}):
            worker = Worker.options(**options).remote()
            (message,) = take(consumer, 1)
            message.lease_to(worker)
            assert ray.get(worker.work.remote(message, 0.0)) == (message.body, message.fence)
            worker.work.remote(message, 60.0)
            began = time.monotonic()
            ray.kill(worker, no_restart=not options)
            again = next(one for one in iter(lambda: consumer.receive(timeout=10), None) if one.body == message.body)
            assert time.monotonic() - began < 30, "it does not wait for the deadline"
            assert again.redelivered
            assert again.fence > message.fence
            with pytest.raises(IllegalStateError, match="actor"):
                message.acknowledge_this()
            again.acknowledge_this()


def test_the_example_of_agents_loses_nothing_when_one_dies(cluster: Any) -> None:
    found = agents.run(conversations=6, agents=3, tool_s=0.02)
    assert found["steps"] == 6 * agents.STEPS
    assert found["in_order"]
    assert found["deaths"] == 1
    assert found["again"] >= 1


@pytest.mark.long
def test_the_example_of_spot_nodes_loses_no_good_work(cluster: Any) -> None:
    """N8: by far more preemptions than redeliveryLimit allows failures"""
    found = spot_batch.run(documents=20, calls=3)
    assert found["small"] == 18
    assert found["large"] == 2
    assert found["taken_away"] >= 5
    assert found["dead"] == 0


@pytest.mark.long
def test_the_example_of_rollouts_repeats_hardly_a_step(cluster: Any) -> None:
    """N7: what was done is not done again"""
    found = rollouts.run(rollouts=3, kills=2)
    assert found == {"finished": 3, "killed": 2, "resumed": 2, "steps": 3 * rollouts.STEPS, "twice": 0}


def test_the_example_of_batch_inference_loses_no_prompt(cluster: Any) -> None:
    """N11"""
    with rb.connect() as connection:
        found = batch_inference.run(connection, prompts=60, bad=1)
    assert (found["answered"], found["dead"], found["mixed"], found["over"]) == (59, 1, 0, 0)


def test_the_example_of_warm_models_loads_less_with_affinity(cluster: Any) -> None:
    """N2"""
    with rb.connect() as connection:
        found = warm_models.run(connection, requests=40, models=3)
    assert found["answered"] == 40
    assert found["with"] < found["without"]


def test_the_example_of_stale_rollouts_trains_on_nothing_that_is_too_old(cluster: Any) -> None:
    """N9"""
    with rb.connect() as connection:
        found = stale_rollouts.run(connection, steps=6, workers=4)
    assert (found["trained"], found["too_old"], found["broken"]) == (6, 0, 0)
    assert found["stale"] > 0
