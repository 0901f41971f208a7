"""What metrics cost: processor time a message with and without histograms, and a scrape of many destinations.

    python -m benchmarks.metrics_cost

Processor time of a whole loopback with a journal is compared: it depends less on who else uses the machine than
throughput does, and includes client and store.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import raybroker as rb
from raybroker.metrics.exposition import Snapshot, page
from raybroker.model.setting import PortRange
from raybroker.services.metrics_http import Endpoint

GOAL_PART = 0.03
GOAL_SCRAPE_S = 0.1


def cost(rounds: int, messages: int, body: int, batch: int) -> tuple[float, float]:
    """Median seconds of processor a message without histograms, and the median of what they add in a pair of rounds.

    Histograms are switched on and off in one running broker, so that both ways have the same memory and files.
    """
    without, added = [], []
    with tempfile.TemporaryDirectory() as folder, rb.loopback(Path(folder) / "store") as connection:
        connection.admin().create_destination("queue", "q", hosting="shared")
        meters: Any = connection._core.directory._service.host.meters
        session = connection.session(ack="client")
        producer, consumer = session.producer("q"), session.consumer("q")
        bodies = [b"x" * body] * batch

        def one_round(timing: bool) -> float:
            meters.timing = timing
            began = time.process_time()
            for _ in range(messages // batch):
                producer.send_many(bodies)
                got = 0
                while got < batch:
                    taken = consumer.receive_many(max=max(batch // 2, 1), timeout=10)
                    got += len(taken)
                    taken[-1].acknowledge()
            return (time.process_time() - began) / (messages // batch * batch)

        one_round(True)
        for number in range(rounds):
            found = {timing: one_round(timing) for timing in ((False, True) if number % 2 else (True, False))}
            without.append(found[False])
            added.append(found[True] - found[False])
    return statistics.median(without), statistics.median(added)


def scrape(destinations: int, rounds: int) -> tuple[float, float, int, int]:
    """Seconds of a scrape of the default tier and of both, and their bytes."""
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

        endpoint = Endpoint(ask, list)
        url = endpoint.start("127.0.0.1", PortRange(0, 0))
        try:
            default, small = _timed(url, rounds)
            everything, large = _timed(f"{url}?tier=all", max(rounds // 4, 1))
        finally:
            endpoint.stop()
    assert len(page(Snapshot("c", "b", {}, {}, []))) < small
    return default, everything, small, large


def _timed(url: str, rounds: int) -> tuple[float, int]:
    took, size = [], 0
    for _ in range(rounds):
        began = time.perf_counter()
        with urllib.request.urlopen(url, timeout=60) as answer:
            size = len(answer.read())
        took.append(time.perf_counter() - began)
    return statistics.median(took), size


def main() -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics_cost")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--destinations", type=int, default=1000)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for batch, messages in ((1000, given.messages), (100, given.messages // 4), (1, given.messages // 100)):
        without, added = cost(given.rounds, messages, given.size, batch)
        found[f"part_{batch}"] = part = added / without
        print(f"{batch} at a time: {without * 1e6:.3f} µs a message, histograms add {added * 1e6:.3f} µs: "
              f"{part:+.1%} (goal: {GOAL_PART:.0%})", flush=True)  # fmt: skip
    default, everything, small, large = scrape(given.destinations, 20)
    print(f"scrape of {given.destinations} destinations: {default * 1e3:.1f} ms, {small / 1024:.0f} KiB "
          f"(goal: {GOAL_SCRAPE_S * 1e3:.0f} ms); both tiers {everything * 1e3:.0f} ms, "
          f"{large / 1024:.0f} KiB")  # fmt: skip
    return {**found, "scrape_s": default, "scrape_all_s": everything}


if __name__ == "__main__":
    main()
