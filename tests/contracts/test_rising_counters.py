"""What only grows never falls at a scrape, whatever is destroyed: Prometheus takes a fall for a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

from raybroker.config import Config
from raybroker.engine.measuring.destination_meter import DestinationMeter
from raybroker.engine.measuring.samplers import Sampling
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.metrics.catalogue import QUANTITIES
from raybroker.model.histogram import PARTS
from raybroker.store.memory import MemoryStore
from raybroker.system.clock import SystemClock
from tests.contracts.conftest import ONE_FACE, MakeBroker

QUEUES = 12


def rising(row: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a row that only grows."""
    for key, value in row.items():
        quantity = QUANTITIES.get(key)
        if quantity is None or quantity.kind == "gauge":
            continue
        if quantity.kind == "histogram":
            counts, total = value
            yield f"{path}{key}_sum", total
            yield from ((f"{path}{key}_{bucket}", count) for bucket, count in enumerate(counts))
        elif isinstance(value, dict):
            yield from ((f"{path}{key} {label}", number) for label, number in value.items())
        else:
            yield f"{path}{key}", value


@ONE_FACE
def test_no_sum_falls_while_destinations_are_destroyed(make_broker: MakeBroker) -> None:
    random, connection = Random(7), make_broker(raybroker__metrics__cache_ms=0).connect()
    admin, session = connection.admin(), connection.session()
    connection.start()
    seen: dict[str, float] = {}
    for round_ in range(3):
        names = [f"q{round_}.{number}" for number in range(QUEUES)]
        for name in names:
            producer, consumer = session.producer(name), session.consumer(name)
            for _ in range(random.randrange(1, 6)):
                producer.send("x" * random.randrange(100))
            while consumer.receive_nowait() is not None:
                pass
            producer.close()
            consumer.close()
        random.shuffle(names)
        for name in names:
            found = admin.metrics()[0]
            rows = {"own": found["own"], **found["types"]}
            now = {key: number for part, row in rows.items() for key, number in rising(row, f"{part} ")}
            fallen = {key: (seen[key], now.get(key)) for key in seen if now.get(key, -1) < seen[key]}
            assert not fallen
            seen = now
            admin.destroy_destination("queue", name)
    assert any(key.endswith("seconds_sum") and number > 0 for key, number in seen.items())


def test_a_destination_that_goes_while_a_scrape_is_made_takes_nothing_away(monkeypatch: Any) -> None:
    monkeypatch.setattr("raybroker.hosting.ports.figures.METRICS_STEP", 1)

    async def work() -> None:
        service = HostService(HostStorage(MemoryStore()), SystemClock(), Config.from_values({}), token=b"t")
        await service.start(threaded=False)
        try:
            for number in range(4):
                await service.destinations.create("queue", f"q{number}", {}, False)
                meter = DestinationMeter(0, Sampling())
                meter.send_to_store_seconds.observe(0.5, 10)
                service.host.meters.destinations[service.host.registry.named("queue", f"q{number}").number] = meter
            for gone in reversed(range(4)):
                scrape = asyncio.ensure_future(service.figures.metrics(None))
                await asyncio.sleep(0)  # It has begun, and comes to this one last.
                await service.destinations.destroy("queue", f"q{gone}")
                for found in (await scrape, await service.figures.metrics(None)):
                    counts, total = found["types"]["queue"]["send_to_store_seconds"]
                    assert (sum(counts), total) == (40, 20 * PARTS)
        finally:
            await service.close()

    asyncio.run(work())
