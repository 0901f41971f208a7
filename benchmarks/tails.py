"""``python -m benchmarks.tails``: the tail of confirmed sends at a rate, beside the bare pipe at the same rate.

Slices take turns: the pipe, which has the disk's and the scheduler's part of the tail, then a host of ours without Ray
whose sends are traced (``raybroker.bench.timeline``).  The column ``slowest`` of the trace is the mean of the slowest
hundredth of the sends, part by part: it says what the 99th percentile is made of.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing as mp
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import bare_pipe
from benchmarks.bare_pipe import Pipe
from benchmarks.cpu_budget import connect_to, host
from benchmarks.workers import Team
from raybroker.bench import LoadPlan, LoadReport, run_load
from raybroker.bench.latency import LatencyCounts

HEAD_START_NS = 200_000_000
PERCENTS = (50.0, 99.0, 99.9)


def paced_pipe_sends(job: Any, pipe: Pipe, port: int, rate: float) -> LatencyCounts:
    """One confirmed frame after the other, each when it is due; latencies from the due time, in microseconds."""
    found = LatencyCounts()
    with bare_pipe.dial(port) as sock:
        sock.sendall(b"P")
        assert sock.recv(1) == b"G"
        body = bytes(pipe.size_bytes)
        job.ready()
        start_ns = time.monotonic_ns() + HEAD_START_NS
        for number in range(1, pipe.frames + 1):
            due_ns = start_ns + int((number - 1) * 1e9 / rate)
            while (left_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns / 1e9)
            sock.sendall(bare_pipe.HEADER.pack(pipe.size_bytes, number) + body)
            answer = b""
            while len(answer) < bare_pipe.NUMBER.size:
                answer += sock.recv(bare_pipe.NUMBER.size - len(answer))
            found.record((time.monotonic_ns() - due_ns) // 1000)
    return found


def pipe_slice(pipe: Pipe, rate: float, folder: Path) -> LatencyCounts:
    """Let the pipe run for a slice; see :func:`bare_pipe.run_pipe`."""
    with Team() as team:
        middle = team.start(bare_pipe.run_middle, pipe, str(folder))
        port = middle.wait_ready()
        consumer = team.start(bare_pipe.run_consumer, pipe, port)
        producer = team.start(paced_pipe_sends, pipe, port, rate)
        middle.go()
        consumer.wait_ready()
        producer.wait_ready()
        consumer.go()
        producer.go()
        found: LatencyCounts = producer.result()
        consumer.result()
        middle.result()
    for path in folder.glob("pipe-*.log"):
        path.unlink()
    return found


def _connect(port: int, _plan: LoadPlan) -> Any:
    return connect_to(port)


def our_slice(plan: LoadPlan, folder: Path) -> LoadReport:
    """Let a host of ours run for a slice, in a process of its own."""
    context = mp.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=host, args=(theirs, str(folder)), daemon=True)
    process.start()
    try:
        report = run_load(plan, connect=functools.partial(_connect, mine.recv()))
        mine.send("end")
        return report
    finally:
        process.join(10.0)
        if process.is_alive():
            process.kill()
        shutil.rmtree(folder / "store", ignore_errors=True)


def _shown(name: str, counts: LatencyCounts) -> str:
    return f"{name:10s}" + "".join(f"{counts.percentile_us(percent) / 1000:>10.3f}" for percent in PERCENTS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tails", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second")
    parser.add_argument("--slices", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a slice")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rbt-", dir=options.dir))
    pipe = Pipe(1, 1, int(options.rate * options.seconds), options.size)
    plan = LoadPlan(
        queue="q",
        size_bytes=options.size,
        rate_per_second=options.rate,
        duration_seconds=options.seconds,
        warmup_seconds=1.0,
        trace=True,
    )
    bare, ours = LatencyCounts(), LoadReport(plan)
    try:
        for _ in range(options.slices):
            bare.merge(pipe_slice(pipe, options.rate, folder))
            report = our_slice(plan, folder)
            ours.timeline.merge(report.timeline)
            ours.latencies["confirm_intended"].merge(report.latencies["confirm_intended"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"confirmed, from the due time, at {options.rate:,.0f} a second; load {os.getloadavg()[0]:.1f}")
    print(f"{'ms':10s}" + "".join(f"{f'p{percent:g}':>10s}" for percent in PERCENTS))
    print(_shown("bare pipe", bare))
    print(_shown("raybroker", ours.latencies["confirm_intended"]))
    print("\n" + "\n".join(ours.timeline.lines()))


if __name__ == "__main__":
    main()
