"""``python -m benchmarks.load``: the load generator against a cluster that runs, or against one of its own.

The generator itself is :mod:`raybroker.bench`; this is only its command line here, for a source tree without the
installed program ``raybroker bench``.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raybroker.bench import LoadError, LoadPlan, LoadReport, Progress, run_load
from raybroker.model.errors import ConfigError


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line."""
    defaults = LoadPlan()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--queue", default=defaults.queue)
    parser.add_argument("--size", type=int, default=defaults.size_bytes, help="bytes of a body")
    parser.add_argument("--batch", type=int, default=defaults.batch, help="messages handed over together")
    parser.add_argument("--window", type=int, default=defaults.window, help="batches a producer may have unconfirmed")
    parser.add_argument("--producers", type=int, default=defaults.producers)
    parser.add_argument("--consumers", type=int, default=defaults.consumers)
    parser.add_argument("--persistent", action=argparse.BooleanOptionalAction, default=defaults.persistent)
    parser.add_argument("--prefetch", type=int, default=None, help="consumer's limit (the queue's own)")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second in all (0: as fast as it goes)")
    parser.add_argument("--duration", type=float, default=defaults.duration_seconds, help="measured seconds")
    parser.add_argument("--warmup", type=float, default=defaults.warmup_seconds, help="seconds before, not measured")
    parser.add_argument(
        "--hdr", type=Path, default=None, metavar="FILE", help="latencies in HdrHistogram's text format"
    )
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="everything as JSON")
    parser.add_argument("--trace", action="store_true", help="where the time of each send goes, part by part")
    parser.add_argument("--address", default=None, help="mq://… of a broker, from outside Ray")
    parser.add_argument("--cluster", default=defaults.cluster, help="name of the cluster, inside Ray")
    parser.add_argument("--own", action="store_true", help="start a Ray and a broker for this run, end them afterwards")
    options = parser.parse_args(arguments)
    try:
        options.plan = LoadPlan(
            queue=options.queue,
            size_bytes=options.size,
            batch=options.batch,
            window=options.window,
            producers=options.producers,
            consumers=options.consumers,
            persistent=options.persistent,
            prefetch=options.prefetch,
            rate_per_second=options.rate,
            duration_seconds=options.duration,
            warmup_seconds=options.warmup,
            cluster=options.cluster,
            address=options.address,
            trace=options.trace,
        )
    except ConfigError as error:
        parser.error(str(error))
    return options


def show(progress: Progress) -> None:
    """One line, overwritten."""
    text = f"\r{progress.seconds:6.1f} s   sent {progress.sent:>12,}   received {progress.received:>12,}"
    print(text, end="", file=sys.stderr, flush=True)


def _connect_own(address: dict[str, Any], _plan: LoadPlan) -> Any:
    from benchmarks.ours_connection import connect

    return connect(address)


def _run_own(plan: LoadPlan) -> LoadReport:
    from benchmarks.ours import Raybroker

    broker, folder = Raybroker(), Path(tempfile.mkdtemp(prefix="rbb-"))
    try:
        address = broker.start(folder)
        broker.prepare(address, plan.queue)
        os.environ.update(broker.environment())  # the workers are started by the generator, not by this harness
        return run_load(plan, connect=functools.partial(_connect_own, address), progress=show)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the run came to its end, 1 when it failed."""
    options = parse(arguments)
    try:
        report = _run_own(options.plan) if options.own else run_load(options.plan, progress=show)
    except LoadError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(f"\n{report.text()}")
    if options.json:
        report.write_json(options.json)
    if options.hdr:
        report.write_hgrm(options.hdr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
