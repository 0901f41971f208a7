"""Brokers that are killed and come back under producers with units of order and consumers that give back: everything
that was stored is received, and what comes first of each unit comes in the order of sending (K-19, U1)."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import BrokerError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import until

NAMES = ("b1", "b2", "b3")
ROUNDS = 40
KILLS = 5
UNITS = 9


class Soak:
    """What was stored and what was received; ``rnd`` draws only what the threads do not share."""

    def __init__(self, rig: ClusterRig, seed: int) -> None:
        self.rig = rig
        self.seed = seed
        self.name = rig.name()
        self.sent: set[str] = set()
        self.got: dict[str, list[str]] = {}
        self.stored = threading.Event()
        self.over = threading.Event()
        self.faults: list[BaseException] = []

    def produce(self, home: str, *, units: bool) -> None:
        rnd = random.Random(f"{self.seed} {home}")
        producer = self.rig.connect(home).session().producer(self.name)
        number = 0
        for _ in range(ROUNDS):
            count = rnd.choice([1, 5, 50])
            some = [f"{home}-{number + n:06}" for n in range(count)]
            number += count
            producer.send_many(some, unit_of_order=[f"u{rnd.randrange(UNITS)}" for _ in some] if units else None)
            self.sent.update(some)

    def consume(self, home: str, prefetch: int, threshold: int | None) -> None:
        rnd = random.Random(f"{self.seed} {home} {prefetch}")
        connection = self.rig.connect(home)
        while not self.over.is_set():
            session = connection.session(ack="client")
            consumer = session.consumer(self.name, prefetch=prefetch, threshold=threshold)
            for _ in range(rnd.choice([50, 500])):
                message = consumer.receive(timeout=0.1)
                if message is not None:
                    self._settle(session, message, rnd.random())
                if self.over.is_set():
                    break
            session.close()

    def _settle(self, session: Any, message: Any, draw: float) -> None:
        try:
            if draw < 0.02:
                session.recover()
            elif draw < 0.04:
                message.fail(0)
            else:
                self.got.setdefault(str(message.unit_of_order), []).append(message.body)
                message.acknowledge_this()
        except BrokerError:
            pass  # Its broker is gone: whether that was acknowledged is not known, and it may come again.

    def run(self, *arguments: Any, **options: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                arguments[0](*arguments[1:], **options)
            except BaseException as error:  # noqa: BLE001 - told by the test
                self.faults.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def received(self) -> set[str]:
        return {body for bodies in list(self.got.values()) for body in list(bodies)}


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_units_stay_in_order_while_brokers_die(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    with ClusterRig(tmp_path, 3, raybroker__store__segment_bytes="1m") as rig:
        soak = Soak(rig, seed)
        rig.connect("b1").admin().create_destination("queue", soak.name, maxTotalMsgBytes=-1, maxNumMsgs=-1)
        producers = [soak.run(soak.produce, home, units=home != "b2") for home in NAMES]
        styles: tuple[tuple[int, int | None], ...] = ((3, None), (10, 50), (200, 0))
        consumers = [soak.run(soak.consume, home, *style) for home, style in zip(NAMES, styles, strict=True)]
        for _ in range(KILLS):
            before = len(soak.received())
            until(lambda n=before: len(soak.received()) >= n + 100 or not any(t.is_alive() for t in producers))
            name = rnd.choice(NAMES)
            rig.kill(name)
            rig.start(name)
        for thread in producers:
            thread.join(60)
        until(lambda: soak.faults or soak.sent <= soak.received(), "something that was stored did not come", 60)
        soak.over.set()
        for thread in consumers:
            thread.join(30)
        assert soak.faults == []
        assert not any(thread.is_alive() for thread in (*producers, *consumers))
        for unit in set(soak.got) - {"None"}:
            for home in NAMES:
                first = list(dict.fromkeys(body for body in soak.got[unit] if body.startswith(home)))
                assert first == sorted(first), unit
