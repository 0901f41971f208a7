"""``bench``: arguments to a LoadPlan of ``raybroker.bench``, and its report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Cluster
from raybroker.model.errors import ConfigError

QUEUE: Final = "raybroker_bench"


def bench(
    size: Annotated[int, typer.Option("--size", metavar="BYTES", help="Length of each body.")] = 1024,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Messages handed over together.")] = 1,
    window: Annotated[int, typer.Option("--window", metavar="N", help="Batches a producer may have unconfirmed.")] = 1,
    producers: Annotated[int, typer.Option("--producers", metavar="N", help="Producer processes.")] = 1,
    consumers: Annotated[int, typer.Option("--consumers", metavar="N", help="Consumer processes.")] = 1,
    persistent: Annotated[bool, typer.Option("--persistent/--non-persistent", help="Confirmed when stored.")] = True,
    prefetch: Annotated[int | None, typer.Option("--prefetch", metavar="N", help="Consumer's limit.")] = None,
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Messages a second; 0: as fast as it goes.")] = 0.0,
    duration: Annotated[float, typer.Option("--duration", metavar="S", help="Measured time.")] = 10.0,
    warmup: Annotated[float, typer.Option("--warmup", metavar="S", help="Time before it, not measured.")] = 2.0,
    trace: Annotated[bool, typer.Option("--trace", help="Where the time of each send goes, part by part.")] = False,
    hdr: Annotated[Path | None, typer.Option("--hdr", metavar="FILE", help="Latencies as HdrHistogram text.")] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="The whole report as JSON.")] = None,
    cluster: Cluster = "default",
) -> None:
    """Measure the cluster: producers and consumers in processes of their own, on a queue of their own.

    With --rate, latencies count from the moment a message was due, so a broker that stalls cannot hide it (coordinated
    omission); the delay of the sends themselves is shown beside them.  With --trace each send is stamped in the client
    and in its host, and the parts between the stamps, which add up to the whole, are shown.
    """
    from raybroker.bench import LoadError, LoadPlan, run_load

    try:
        plan = LoadPlan(
            queue=QUEUE,
            size_bytes=size,
            batch=batch,
            window=window,
            producers=producers,
            consumers=consumers,
            persistent=persistent,
            prefetch=prefetch,
            rate_per_second=rate,
            duration_seconds=duration,
            warmup_seconds=warmup,
            cluster=cluster,
            trace=trace,
        )
    except ConfigError as error:
        raise UsageError(str(error)) from None
    with connecting.administering(cluster) as admin:
        admin.create_destination("queue", QUEUE)
        try:
            report = run_load(plan, progress=_show if sys.stderr.isatty() else None)
        except LoadError as error:
            output.error(str(error))
            raise typer.Exit(Exit.REFUSED) from None
        finally:
            admin.destroy_destination("queue", QUEUE)
    output.say(report.text())
    if json is not None:
        report.write_json(json)
    if hdr is not None:
        report.write_hgrm(hdr)


def _show(progress: Any) -> None:
    text = f"\r{progress.seconds:6.1f} s   sent {progress.sent:>12,}   received {progress.received:>12,}"
    print(text, end="\r", file=sys.stderr, flush=True)
