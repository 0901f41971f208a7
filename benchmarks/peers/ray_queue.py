"""``ray.util.queue.Queue``, what programs in a Ray cluster use today: in memory, not durable, no acknowledgement.

The figure that counts is ``single``: one process puts one by one, another gets one by one, at once.  ``produce``,
``consume`` and ``through`` use its batch calls, as an extra.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks.peers.base import Address, Peer, Span, stream_of
from benchmarks.ray_head import RayHead, join
from benchmarks.readings import RAY_QUEUE, Amounts, Reading, Skipped
from benchmarks.workers import Team

BATCH = 100
NAMESPACE = "bench"


def _queue(address: Address, queue: str) -> Any:
    join(address, NAMESPACE)
    from ray.util.queue import Queue

    return Queue(
        actor_options={
            "name": queue,
            "namespace": NAMESPACE,
            "num_cpus": 0,
            "get_if_exists": True,
            "lifetime": "detached",
        }
    )


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """put_nowait_batch."""
    box, bodies = _queue(address, queue), list(stream_of(size, BATCH))
    box.size()
    job.ready()
    began = monotonic_ns()
    for left in range(count, 0, -BATCH):
        box.put_nowait_batch(bodies[:left])
    return {"began_ns": began, "ended_ns": monotonic_ns()}


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """get_nowait_batch of what is there, at most BATCH."""
    box = _queue(address, queue)
    box.size()
    job.ready()
    began, got = monotonic_ns(), 0
    while got < count:
        there = min(box.size(), BATCH)
        got += len(box.get_nowait_batch(there) if there else [box.get()])
    return {"began_ns": began, "ended_ns": monotonic_ns()}


def put_each(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """put, one by one."""
    box, bodies = _queue(address, queue), list(stream_of(size, 64))
    box.size()
    job.ready()
    began = monotonic_ns()
    for number in range(count):
        box.put(bodies[number & 63])
    return {"began_ns": began, "ended_ns": monotonic_ns()}


def get_each(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """get, one by one."""
    box = _queue(address, queue)
    box.size()
    job.ready()
    began = monotonic_ns()
    for _ in range(count):
        assert len(box.get()) == size
    return {"began_ns": began, "ended_ns": monotonic_ns()}


class RayQueue(Peer):
    """The queue of Ray's own utilities, in a Ray started for it."""

    name = RAY_QUEUE
    produce, consume, blocking = produce, consume, put_each
    share = 0.2

    def __init__(self) -> None:
        self._head = RayHead()

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("ray") else "ray is not installed"

    def versions(self) -> list[str]:
        return [f"ray {version('ray')}"]

    @property
    def mark(self) -> str:
        return "in memory"

    def settings(self) -> list[str]:
        return [
            "in the memory of one actor: NOT durable, no acknowledgement",
            f"single: put and get one by one; batches of {BATCH} elsewhere",
        ]

    def environment(self) -> dict[str, str]:
        return self._head.environment

    def start(self, folder: Path) -> Address:
        return self._head.start()

    def stop(self) -> None:
        self._head.stop()

    def figures(self, address: Address, amounts: Amounts, round_no: int) -> Iterator[Reading | Skipped]:
        with Team(self.environment()) as team:
            count, size = amounts.singles, amounts.size_bytes
            taker = team.start(get_each, address, "bench-single", count, size)
            putter = team.start(put_each, address, "bench-single", count, size)
            taker.wait_ready()
            putter.wait_ready()
            taker.go()
            putter.go()
            began = putter.result()["began_ns"]
            lasted = (taker.result()["ended_ns"] - began) / 1e9
        yield Reading(self.name, "single", count / lasted, round_no)
        yield from super().figures(address, amounts, round_no)
