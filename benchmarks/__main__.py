"""``python -m benchmarks``: every system in turn, several rounds, one report.

Systems run one at a time, each with a fresh server and an empty folder, and the order turns by one with each round, so
that a slow minute of the machine does not fall on one system.  A system that cannot run here is in the report with the
reason; a system that fails in one round is too, and the others go on.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks import machine, report
from benchmarks.readings import FIGURE, OURS, SYSTEMS, Amounts, Reading, Skipped

BATCHES, WINDOWS = (1, 10, 100, 256, 1000), (4, 16, 64, 256)
QUICK_BATCHES, QUICK_WINDOWS = (1, 100, 1000), (8, 32)


class System(Protocol):
    """What the harness needs of a compared system; see :class:`benchmarks.peers.base.Peer`."""

    @property
    def name(self) -> str: ...
    @property
    def mark(self) -> str: ...
    def missing(self) -> str | None: ...
    def versions(self) -> list[str]: ...
    def settings(self) -> list[str]: ...
    def measure(self, amounts: Amounts, folder: Path, round_no: int) -> Iterator[Reading | Skipped]: ...


def build_systems(quick: bool) -> list[System]:
    """All systems in the order of the report."""
    from benchmarks.bare_pipe import BarePipe
    from benchmarks.ours import Raybroker
    from benchmarks.peers.activemq import ActiveMQ
    from benchmarks.peers.kafka import Kafka, KafkaFlush
    from benchmarks.peers.nats_jetstream import NatsCurrent, NatsJetStream
    from benchmarks.peers.rabbitmq import RabbitMQ
    from benchmarks.peers.ray_queue import RayQueue
    from benchmarks.peers.redis_streams import RedisStreams

    pipe = BarePipe(QUICK_BATCHES, QUICK_WINDOWS) if quick else BarePipe(BATCHES, WINDOWS)
    peers = [RabbitMQ(), RedisStreams(), NatsJetStream(), NatsCurrent(), ActiveMQ(), Kafka(), KafkaFlush()]
    return [pipe, Raybroker(), *peers, RayQueue()]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SYSTEMS, help=f"some of: {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=0, help="rounds, systems in turn within each (3; 1 with --quick)")
    parser.add_argument("--messages", type=int, default=0, help="messages a figure (100000; 20000 with --quick)")
    parser.add_argument("--singles", type=int, default=0, help="messages sent one at a time (3000; 1000 with --quick)")
    parser.add_argument("--backlog", type=int, default=0, help="stored messages (1000000; 100000 with --quick)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the report")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    options = parser.parse_args(arguments)
    quick = options.quick
    options.rounds = options.rounds or (1 if quick else 3)
    try:
        options.amounts = Amounts(
            messages=options.messages or (20_000 if quick else 100_000),
            singles=options.singles or (1_000 if quick else 3_000),
            backlog=options.backlog or (100_000 if quick else 1_000_000),
            size_bytes=options.size,
        )
    except ValueError as error:
        parser.error(str(error))
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def say(text: str = "") -> None:
    """Progress, at once."""
    print(text, flush=True)


def run_system(system: System, found: report.Report, scratch: Path, round_no: int) -> None:
    """One system in one round; its readings and failures go into the report."""
    folder = scratch / f"{round_no}-{system.name.replace('.', '-').replace(' ', '-')}"
    began = time.monotonic()
    try:
        for result in system.measure(found.amounts, folder, round_no):
            if isinstance(result, Skipped):
                found.skipped.append(result)
                say(f"    {result.figure}: skipped, {result.reason}")
                continue
            found.readings.append(result)
            figure = FIGURE.get(result.figure)
            title, unit = (figure.title, figure.unit) if figure else ("", "msg/s")
            say(f"    {title or result.note:46s} {report.number(result.value):>12s} {unit}")
    except Exception as error:  # noqa: BLE001 - one system's failure must not lose the others' figures; it is reported
        text = str(error).strip().splitlines() or [type(error).__name__]
        found.skipped.append(Skipped(system.name, f"failed in round {round_no}: {text[-1]}"))
        say(f"    FAILED\n{traceback.format_exc()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"    ({time.monotonic() - began:.1f} s)")


def collect(options: argparse.Namespace, scratch: Path) -> report.Report:
    """All rounds of all systems."""
    facts = machine.describe(scratch)
    taken_at = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    found = report.Report(taken_at, options.amounts, options.rounds, facts)
    sync, disk = facts["sync"][1], facts["file_system"]
    say(f"{facts['cpu']}, {facts['cpus']} cores, {facts['memory_gb']} GB; {facts['system']}; Python {facts['python']}")
    say(f"disk {disk}: write + fdatasync of 4 KiB {sync['median_ms']:.3f} ms, p99 {sync['p99_ms']:.3f} ms")
    if machine.in_memory(disk):
        say("WARNING: this folder is not on a disk, a sync costs nothing here; choose another one with --dir")
    systems: list[System] = []
    for system in build_systems(options.quick):
        if options.only and system.name not in options.only:
            found.skipped.append(Skipped(system.name, "not asked for (--only)"))
            continue
        if reason := system.missing():
            found.skipped.append(Skipped(system.name, reason))
            say(f"\n{system.name}: SKIPPED, {reason}")
            continue
        systems.append(system)
        found.systems[system.name] = {"versions": system.versions(), "settings": system.settings()}
        found.marks[system.name] = system.mark
        say(f"\n{system.name}: {'; '.join(system.versions())}")
        for text in system.settings():
            say(f"    {text}")
    for round_no in range(1, options.rounds + 1):
        turn = (round_no - 1) % max(1, len(systems))
        for system in systems[turn:] + systems[:turn]:
            say(f"\nround {round_no} of {options.rounds}: {system.name}")
            run_system(system, found, scratch, round_no)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when a report was written and nothing failed, 1 when a system failed; missed goals do not change it."""
    options = parse(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="rbb-", dir=options.dir))
    try:
        found = collect(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    report.write(found, options.out)
    try:
        from benchmarks.plot import draw

        draw(found, options.out / "report.png")
    except ImportError as error:
        say(f"\nno plot: {error} (pip install matplotlib)")
    say()
    for verdict in found.verdicts():
        value = "–" if verdict.value is None else report.number(verdict.value)
        sign = "≥" if verdict.goal.at_least else "≤"
        say(f"{verdict.word:>12s}  {verdict.goal.title:62s} {value:>10s}  ({sign} {verdict.goal.limit:g})")
    say(f"\nreport: {options.out}/report.md, report.json, report.png")
    failed = any(skip.reason.startswith("failed") or (skip.system == OURS and skip.figure) for skip in found.skipped)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
