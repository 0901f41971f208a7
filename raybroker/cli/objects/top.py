"""``top``: the destinations of a cluster with their rates, renewed while one looks."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.grid_words import Cluster, Json
from raybroker.model.sizes import MIB
from raybroker.system.clock import SystemClock

COLUMNS: Final = output.columns(
    "name, type, messages, in_per_second: in/s, out_per_second: out/s, active_consumers: consumers, "
    "unacknowledged: unacked, redelivered"
)


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", metavar="S", help="Between looks.", min=0.05)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print one table, end.")] = False,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show destinations live: messages, rates in and out, consumers, unacknowledged. End with Ctrl-C.

    Below them stands what hampers a host: its disk is slow or nearly full, memory is low.
    """
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
                    for line in alarms(admin.query_broker()):
                        output.say(line)
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
                table = output.rich_table(rows, COLUMNS, title=f"cluster {cluster}")
                table.caption = "\n".join(alarms(looks.admin.query_broker())) or None
                live.update(table, refresh=True)
        except KeyboardInterrupt:
            return


def alarms(broker: dict[str, Any]) -> list[str]:
    """What hampers the hosts of a broker, a line each; ``broker``: what query bkr has."""
    lines = []
    for host in broker["hosts"]:
        level = host.get("memory_level", "GREEN")
        if host.get("disk_slow"):
            lines.append(f"host {host['host']}: the disk is slow, one of a hundred commits takes longer than 100 ms")
        if host.get("disk_low"):
            free, total = host["disk_free_bytes"] // MIB, host["disk_total_bytes"] // MIB
            lines.append(f"host {host['host']}: the disk is nearly full, {free} of {total} MiB are free")
        if level != "GREEN":
            used, limit = host["memory_used_bytes"] // MIB, host["memory_limit_bytes"] // MIB
            lines.append(f"host {host['host']}: memory level {level}, {used} of {limit} MiB are used")
    return lines


class Looks:
    """Counts of destinations, one look after the other; rates are what changed between two."""

    def __init__(self, admin: Any) -> None:
        self.admin = admin
        self._clock = SystemClock()
        self._before: dict[tuple[Any, str], tuple[int, dict[str, Any]]] = {}

    def take(self) -> list[dict[str, Any]]:
        """One row a destination, with ``in_per_second`` and ``out_per_second`` since the last look."""
        now_ns = self._clock.monotonic_ns()
        rows = []
        for row in self.admin.list_destinations():
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
