"""What metrics cost: time a message with and without histograms, and a scrape of many destinations.

    python -m benchmarks.metrics_cost

One loopback with a journal runs many short rounds, with histograms (W) and without (o), in the orders oWWo and WooW in
turn, so that what drifts falls on both alike.  Of each four rounds the difference is taken, in processor time of the
whole process, which depends less on who else uses the machine, and in time that passed, which is throughput.  The
median of these differences is told with its interval of 95 %: that is how much of it may be noise.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

import raybroker as rb
from raybroker.metrics.exposition import Families, Snapshot, families, page
from raybroker.model.settings.setting import PortRange
from raybroker.services.metrics.metrics_http import MetricsEndpoint

GOAL_PART = 0.03
GOAL_SCRAPE_S = 0.1
BATCHES = (1000, 100, 10, 1)
ROUND_MESSAGES = {1000: 40_000, 100: 15_000, 10: 2_000, 1: 250}
"""Each about a tenth of a second."""
ORDERS = ((False, True, True, False), (True, False, False, True))


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds a message without histograms, and what they add as a part of that, with the ends of its interval."""

    without_s: float
    part: float
    low: float
    high: float


def cost(fours: int, messages: int, body: int, batch: int) -> tuple[Cost, Cost]:
    """In processor time and in time that passed.

    Histograms are switched on and off in one running broker, so that both ways have the same memory and files.
    """
    found: list[list[tuple[float, float]]] = [[], []]
    with tempfile.TemporaryDirectory() as folder, rb.loopback(Path(folder) / "store") as connection:
        connection.admin().create_destination("queue", "q", hosting="shared")
        meters: Any = connection._core.directory._service.host.meters
        session = connection.session(ack="client")
        producer, consumer = session.producer("q"), session.consumer("q")
        bodies = [b"x" * body] * batch

        def one_round(timing: bool) -> tuple[float, float]:
            meters.timing = timing
            processor, passed = time.process_time(), time.perf_counter()
            for _ in range(messages // batch):
                producer.send_many(bodies)
                got = 0
                while got < batch:
                    taken = consumer.receive_many(max=max(batch // 2, 1), timeout=10)
                    got += len(taken)
                    taken[-1].acknowledge()
            return time.process_time() - processor, time.perf_counter() - passed

        for number in range(-2, fours):
            order = ORDERS[number % 2]
            rounds = [(timing, one_round(timing)) for timing in order]
            if number < 0:
                continue
            for clock, into in enumerate(found):
                without, timed = (sum(took[clock] for on, took in rounds if on is way) / 2 for way in (False, True))
                into.append((without, timed - without))
    processor, passed = (_cost(rows, messages // batch * batch) for rows in found)
    return processor, passed


def _cost(rows: list[tuple[float, float]], messages: int) -> Cost:
    without = statistics.median(one for one, _ in rows)
    low, middle, high = median(sorted(added for _, added in rows))
    return Cost(without / messages, middle / without, low / without, high / without)


def median(ordered: list[float]) -> tuple[float, float, float]:
    """The median between the ends of its interval of 95 %, which are ranks and assume no distribution."""
    count = len(ordered)
    aside = ceil(0.98 * sqrt(count))
    low, high = max(count // 2 - aside, 0), min((count - 1) // 2 + aside, count - 1)
    return ordered[low], statistics.median(ordered), ordered[high]


def scrape(destinations: int, rounds: int) -> tuple[float, float, int, int, list[float]]:
    """Seconds of a scrape of the default tier and of both, and their bytes; the processor
    time of writing the destination tier: by our writer, by the library's for text, and by its for OpenMetrics."""
    with rb.loopback(properties={"raybroker.metrics.cache_ms": 0}) as connection:
        session = connection.session()
        admin = connection.admin()
        for number in range(destinations):
            admin.create_destination("queue", f"q{number}", hosting="shared")
            session.producer(f"q{number}").send(b"one")

        def ask(names: str | None) -> Snapshot:
            (row,) = admin.metrics(names)
            row["own"]["info"] = {tuple(row["own"]["info"].values()): 1}
            return Snapshot(**row)

        endpoint = MetricsEndpoint(ask, list)
        url = endpoint.start("127.0.0.1", PortRange(0, 0))
        try:
            default, small = _timed(url, rounds)
            everything, large = _timed(f"{url}?tier=all", max(rounds // 4, 1))
        finally:
            endpoint.stop()
        snapshot = ask("*")
        writers = [
            _median_s(write, max(rounds // 4, 1), time.process_time)
            for write in (
                lambda: page(snapshot, ("destination",)),
                *(
                    lambda write=write: write(Families(families(snapshot, "destination")))
                    for write in (generate_latest, openmetrics.generate_latest)
                ),
            )
        ]
    assert len(page(Snapshot("c", "b", {}, {}, []))) < small
    return default, everything, small, large, writers


def _median_s(act: Callable[[], object], rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    took = []
    for _ in range(rounds):
        began = clock()
        act()
        took.append(clock() - began)
    return statistics.median(took)


def _timed(url: str, rounds: int) -> tuple[float, int]:
    sizes = []

    def read() -> None:
        with urllib.request.urlopen(url, timeout=60) as answer:
            sizes.append(len(answer.read()))

    return _median_s(read, rounds), sizes[-1]


def main() -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics_cost")
    parser.add_argument("--fours", type=int, default=80, help="four rounds so often, for each size of blocks")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--destinations", type=int, default=1000)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for batch in BATCHES:
        processor, passed = cost(given.fours, ROUND_MESSAGES[batch], given.size, batch)
        found[f"part_{batch}"], found[f"passed_part_{batch}"] = processor.part, passed.part
        print(
            f"{batch} at a time: {processor.without_s * 1e6:.3f} µs of processor a message, histograms add "
            f"{processor.part:+.1%} ({processor.low:+.1%} … {processor.high:+.1%}); {1 / passed.without_s:,.0f} "
            f"messages a second, {-passed.part:+.1%} ({-passed.high:+.1%} … {-passed.low:+.1%}) with them "
            f"(goal: {GOAL_PART:.0%})",
            flush=True,
        )
    default, everything, small, large, writers = scrape(given.destinations, 20)
    print(
        f"scrape of {given.destinations} destinations: {default * 1e3:.1f} ms, {small / 1024:.0f} KiB "
        f"(goal: {GOAL_SCRAPE_S * 1e3:.0f} ms); both tiers {everything * 1e3:.0f} ms, "
        f"{large / 1024:.0f} KiB; writing the destination tier takes our writer {writers[0]:.2f} s "
        f"of processor, the library's {writers[1]:.2f} s (text) and {writers[2]:.2f} s (OpenMetrics)"
    )
    return {**found, "scrape_s": default, "scrape_all_s": everything}


if __name__ == "__main__":
    main()
