"""``top``: the destinations of a cluster with their rates, renewed while one looks."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.objects import Cluster, Json
from raybroker.system.clock import SystemClock

COLUMNS: Final = {
    "name": "name", "type": "type", "messages": "messages", "in_per_second": "in/s", "out_per_second": "out/s",
    "active_consumers": "consumers", "unacknowledged": "unacked", "redelivered": "redelivered",
}  # fmt: skip


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", metavar="S", help="Between looks.", min=0.05)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print one table, end.")] = False,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show destinations live: messages, rates in and out, consumers, unacknowledged. End with Ctrl-C."""
    with connecting.administering(cluster) as admin:
        looks = Looks(admin)
        looks.take()
        pause = threading.Event()
        if once or json or not output.is_terminal():
            while True:
                pause.wait(interval)
                rows = looks.take()
                if json:
                    output.as_json(rows)
                else:
                    output.table(rows, COLUMNS, empty="no destinations")
                if once:
                    return
        _live(looks, interval, pause, cluster)


def _live(looks: Looks, interval: float, pause: threading.Event, cluster: str) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        try:
            while True:
                pause.wait(interval)
                rows = sorted(looks.take(), key=lambda row: -(row["in_per_second"] + row["out_per_second"]))
                live.update(output.rich_table(rows, COLUMNS, title=f"cluster {cluster}"), refresh=True)
        except KeyboardInterrupt:
            return


class Looks:
    """Counts of destinations, one look after the other; rates are what changed between two."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin
        self._clock = SystemClock()
        self._before: dict[tuple[Any, str], tuple[int, dict[str, Any]]] = {}

    def take(self) -> list[dict[str, Any]]:
        """One row a destination, with ``in_per_second`` and ``out_per_second`` since the last look."""
        now_ns = self._clock.monotonic_ns()
        rows = []
        for row in self._admin.list_destinations():
            rates = {"in_per_second": 0.0, "out_per_second": 0.0}
            key = row.get("type"), row["name"]
            before = self._before.get(key)
            if before is not None and "messages_in" in row:
                seconds = (now_ns - before[0]) / 1e9
                for rate, counter in (("in_per_second", "messages_in"), ("out_per_second", "messages_out")):
                    rates[rate] = round(max(0, row[counter] - before[1].get(counter, 0)) / seconds, 1)
            self._before[key] = (now_ns, row)
            rows.append({**row, **rates})
        return rows
