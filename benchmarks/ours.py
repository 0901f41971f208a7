"""raybroker as one of the compared systems, through its public names only: durable queue, sync on, one broker.

The size and time figures (memory, restart, idle queues, …) are in :mod:`benchmarks.ours_scale`; what features cost
against this plain queue is in :mod:`benchmarks.ours_features`.
"""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks import ours_features, ours_scale, selector_cost
from benchmarks.ours_connection import CLUSTER, PATIENCE_SECONDS, PREFETCH, TAKE, WARM_UP_BYTES, WARM_UPS, connect
from benchmarks.pace import Pace, Receiver, Sender, send_all
from benchmarks.peers.base import Address, Peer, Span, bodies_of, stream_of
from benchmarks.ray_head import RayHead, join
from benchmarks.readings import OURS, Amounts, Reading, Skipped
from benchmarks.workers import Team, WorkerError

CONFIG = {"imq.persist.store": "file", "imq.persist.file.sync.enabled": "true"}

PACED_WINDOW = 50_000
"""Sends without an answer at a given rate: a second of the highest one."""
PACED_ACK_WINDOW = 1_000
"""Messages at a given rate whose acknowledgement is not confirmed yet."""


def _boot(job: Any, address: Address, folder: str, more: dict[str, str]) -> None:
    join(address, CLUSTER)
    import raybroker as rb

    rb.start(name=CLUSTER, brokers=1, config={**CONFIG, **more, "raybroker.store.dir": folder})
    job.ready()


def _create(job: Any, address: Address, queue: str, hosting: str) -> None:
    with connect(address) as connection:
        admin = connection.admin()
        admin.create_destination("queue", queue, hosting=hosting, consumerFlowLimit=-1)
        with connection.session().producer(queue) as producer:
            for _ in range(WARM_UPS):
                producer.send_many(stream_of(65536, WARM_UP_BYTES // 65536))
                admin.purge_destination("queue", queue)
    job.ready()


def produce(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """One send_many, which returns when the store has everything."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(session.queue(queue), persistent=True)
        bodies = list(stream_of(size, count))
        job.ready()
        began = monotonic_ns()
        producer.send_many(bodies)
        return {"began_ns": began, "ended_ns": monotonic_ns()}


def consume(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """receive_many of what is there, at most TAKE, then one client acknowledgement of all of it."""
    with connect(address) as connection:
        session = connection.session(ack="client")
        destination = session.queue(queue)
        job.ready()
        began, got = monotonic_ns(), 0
        consumer = session.consumer(destination, prefetch=PREFETCH)
        while got < count:
            messages = consumer.receive_many(max=min(TAKE, count - got), timeout=PATIENCE_SECONDS)
            if not messages:
                raise TimeoutError(f"{got} of {count} messages came")
            for message in messages:
                assert len(message.body) == size
            got += len(messages)
            messages[-1].acknowledge()
        return {"began_ns": began, "ended_ns": monotonic_ns()}


def blocking(job: Any, address: Address, queue: str, count: int, size: int) -> Span:
    """send, which returns when the store has the message, then the next."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(session.queue(queue), persistent=True)
        bodies = bodies_of(size)
        job.ready()
        began = monotonic_ns()
        for number in range(count):
            producer.send(bodies[number & 63])
        return {"began_ns": began, "ended_ns": monotonic_ns()}


def paced_produce(job: Any, address: Address, queue: str, pace: Pace) -> None:
    """send_async of what is due; a failure of any of them is raised."""
    with connect(address) as connection:
        session = connection.session()
        producer = session.producer(session.queue(queue), persistent=True)
        sender, flying = Sender(pace, job.ready()), deque[Any]()
        send = producer.send_async

        def publish(bodies: list[bytes]) -> None:
            flying.extend(map(send, bodies))
            while len(flying) > PACED_WINDOW or (flying and flying[0].done()):
                flying.popleft().result()

        send_all(sender, publish)
        while flying:
            flying.popleft().result()


def paced_consume(job: Any, address: Address, queue: str, pace: Pace) -> Any:
    """receive_many of what is there, acknowledged within a window: as the peers, it waits for no acknowledgement."""
    with connect(address) as connection:
        session = connection.session(ack="auto", ack_window=PACED_ACK_WINDOW)
        consumer = session.consumer(session.queue(queue), prefetch=PREFETCH)
        receiver = Receiver(pace, job.ready())
        while not receiver.over:
            messages = consumer.receive_many(max=TAKE, timeout=0.5)
            now = monotonic_ns()
            for message in messages:
                receiver.take(message.body, now)
        return receiver.found()


class Raybroker(Peer):
    """One broker in a Ray of its own; each queue in a dedicated host, unless ``hosting`` says otherwise."""

    name = OURS
    hosting = "dedicated"
    produce, consume, blocking = produce, consume, blocking
    paced = (paced_produce, paced_consume)

    def __init__(self, more: dict[str, str] | None = None) -> None:
        self.head = RayHead()
        self.more = more or {}
        """Properties of the broker beside CONFIG."""

    def missing(self) -> str | None:
        for needed in ("ray", "raybroker"):
            if not importlib.util.find_spec(needed):
                return f"{needed} is not installed"
        import raybroker as rb

        return None if hasattr(rb, "connect") else "this raybroker has no connect()"

    def versions(self) -> list[str]:
        try:
            mine = version("raybroker")
        except PackageNotFoundError:
            mine = "(not installed, from the source tree)"
        return [f"raybroker {mine}", f"ray {version('ray')}"]

    def settings(self) -> list[str]:
        return [
            ", ".join(f"{name}={value}" for name, value in CONFIG.items()) + f", hosting={self.hosting}",
            f"send_many persistent; receive_many of at most {TAKE}, prefetch {PREFETCH}, client ack of each; warmed up",
        ]

    def environment(self) -> dict[str, str]:
        source = str(Path(__file__).resolve().parent.parent)
        given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        path = os.pathsep.join(dict.fromkeys([source, *given]))
        return {**self.head.environment, "PYTHONPATH": path}

    def start(self, folder: Path) -> Address:
        self.head.environment["PYTHONPATH"] = self.environment()["PYTHONPATH"]
        address = {**self.head.start(), "root": os.getpid()}
        self.run(_boot, address, str(folder / "store"), self.more)
        return address

    def stop(self) -> None:
        self.head.stop()

    def prepare(self, address: Address, queue: str) -> None:
        self.run(_create, address, queue, self.hosting)

    def run(self, work: Any, *args: Any) -> Any:
        """One worker alone; what its function returns."""
        with Team(self.environment()) as team:
            worker = team.start(work, *args)
            worker.wait_ready()
            worker.go()
            return worker.result()

    def figures(self, address: Address, amounts: Amounts, round_no: int) -> Iterator[Reading | Skipped]:
        yield from super().figures(address, amounts, round_no)
        yield from ours_features.figures(self, address, amounts, round_no)
        for keys, work in {**ours_scale.FIGURES, ("selector_eval",): selector_cost.evaluation}.items():
            try:
                found = self.run(work, address, amounts)
            except WorkerError as error:
                yield from (Skipped(self.name, str(error).strip().splitlines()[-1], key) for key in keys)
                continue
            for key, (value, note) in found.items():
                yield Reading(self.name, key, value, round_no, note)
