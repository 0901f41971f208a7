"""``python -m benchmarks.latency``: end to end latencies at given rates, of every system by the same rules.

One producer and one consumer, processes of their own; persistent messages, the sync that each system promises.  A
latency counts from the moment a message was due (see :mod:`benchmarks.pace`).  The systems run in turn at each rate.  A
system that does not keep up at a rate is said not to; ``raybroker bench --rate`` measures a cluster the same way.

    python -m benchmarks.latency --rates 1000 10000 50000 --seconds 8
    python -m benchmarks.latency --rates 10000 --hog                  # beside a process that takes one core
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from benchmarks import machine, report
from benchmarks.hog import hog
from benchmarks.pace import HEAD_START_NS, Pace
from benchmarks.readings import OURS, PEERS
from benchmarks.systems import RunningPeer, running
from raybroker.bench.latency import LatencyCounts

RATES: Final = (1_000.0, 10_000.0, 50_000.0)
MEASURED: Final = (OURS, "rabbitmq", "redis-streams", "nats-current", "kafka", "kafka-flush")
SHOWN: Final = (50.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Latency:
    """What one system gave at one rate; ``fault`` when it gave nothing."""

    system: str
    rate: float
    due: LatencyCounts
    send: LatencyCounts
    hogged: bool = False
    fault: str = ""

    def ms(self, percent: float) -> float:
        """A percentile from the due time."""
        return self.due.percentile_us(percent) / 1000


def measure(system: RunningPeer, pace: Pace, hogged: bool = False) -> Latency:
    """One system at one rate, with a queue of its own."""
    name, paced = system.peer.name, type(system.peer).paced
    try:
        if paced is None:
            raise ValueError("it is not measured at a rate")
        queue = system.queue(f"paced-{pace.rate:.0f}-{int(hogged)}")
        args = (system.address, queue, pace)
        _, found = system.together([(paced[0], args), (paced[1], args)], lambda: monotonic_ns() + HEAD_START_NS)
        return Latency(name, pace.rate, found["due"], found["send"], hogged)
    except Exception as error:  # noqa: BLE001 - one system's failure must not lose the others; it is reported
        fault = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return Latency(name, pace.rate, LatencyCounts(), LatencyCounts(), hogged, fault)


def take(systems: Mapping[str, Any], paces: Iterable[Pace], hogs: Iterable[bool]) -> Iterator[Latency]:
    """Every system at every rate, alone and beside a hog as asked."""
    hogged = list(hogs)
    for pace in paces:
        for beside in hogged:
            for system in systems.values():
                if isinstance(system, RunningPeer):
                    with hog(beside):
                        yield measure(system, pace, beside)


def rows(found: Iterable[Latency]) -> Iterator[tuple[str, ...]]:
    """One row a system and rate: percentiles from the due time, and the p99 from the send beside them."""
    for one in found:
        head = (f"{one.rate:,.0f} msg/s" + ", hog" * one.hogged, one.system)
        if one.fault:
            yield (*head, *("–" for _ in SHOWN), "–", one.fault)
            continue
        cells = (f"{one.ms(percent):.2f}" for percent in SHOWN)
        yield (*head, *cells, f"{one.send.percentile_us(99.0) / 1000:.2f}", f"{one.due.total:,} messages")


def lowest_p99(found: Iterable[Latency], rate: float, synced: Iterable[str]) -> str:
    """Whether ours has the lowest p99 of the systems that sync, at a rate; in words."""
    wanted = set(synced)
    at = {one.system: one.ms(99.0) for one in found if one.rate == rate and not one.fault and not one.hogged}
    peers = {name: value for name, value in at.items() if name in wanted and name != OURS}
    if OURS not in at or not peers:
        return f"p99 at {rate:,.0f} msg/s against synced peers: not measured"
    best = min(peers, key=lambda name: peers[name])
    word = "reached" if at[OURS] < peers[best] else "missed"
    return f"p99 at {rate:,.0f} msg/s {at[OURS]:.2f} ms, the best synced peer ({best}) {peers[best]:.2f} ms: {word}"


def synced(systems: Mapping[str, Any]) -> list[str]:
    """Those of the running systems that answer when the disk has the message."""
    return [name for name, one in systems.items() if isinstance(one, RunningPeer) and not one.peer.mark]


HEAD: Final = ("rate", "system", *(f"p{percent:g} ms" for percent in SHOWN), "p99 from the send", "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 1 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES), metavar="N", help="messages a second")
    parser.add_argument("--only", nargs="+", choices=[OURS, *PEERS], default=list(MEASURED))
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time (8)")
    parser.add_argument("--warmup", type=float, default=2.0, help="time before it (2)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--hog", action="store_true", help="each rate once more beside a process that takes one core")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--json", type=Path, default=None, help="file for the counts")
    options = parser.parse_args(arguments)
    if min(options.rates) <= 0 or options.seconds <= 0 or options.warmup < 0:
        parser.error("rates and times must be more than 0")
    scratch = Path(tempfile.mkdtemp(prefix="rbl-", dir=options.dir))
    found: list[Latency] = []
    try:
        with ExitStack() as stack:
            facts = machine.describe(scratch)
            systems = running(options.only, scratch, options.size, stack)
            paces = [Pace(rate, options.seconds, options.warmup, options.size) for rate in options.rates]
            for one in take(systems, paces, [False, True] if options.hog else [False]):
                found.append(one)
                print("  ".join(next(iter(rows([one])))), flush=True)
            quick = synced(systems)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("\n" + "\n".join(report.table(HEAD, rows(found))))
    for rate in options.rates:
        print(lowest_p99(found, rate, quick))
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": facts, "latencies": as_json(found)}, indent=1) + "\n")
    return 0 if any(not one.fault for one in found) else 1


def as_json(found: Iterable[Latency]) -> list[dict[str, Any]]:
    """Everything as plain values."""
    return [
        {
            "system": one.system,
            "rate": one.rate,
            "hog": one.hogged,
            "fault": one.fault,
            "due": one.due.to_json(),
            "send": one.send.to_json(),
        }
        for one in found
    ]


if __name__ == "__main__":
    sys.exit(main())
