"""``metrics dst|svc|cxn|bkr``, and ``discover`` for Prometheus.

ttl: totals, rts: rates a second, con: consumers, dsk: disk (dst alone), cxn: connections (svc), with memory and threads
(bkr).  Rates are what changed between two looks.  Those of svc and cxn are of clients that came in through connection
services; what handles inside the Ray cluster send is in those of bkr alone.
"""

from __future__ import annotations

import json as json_text
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Cluster, Json, Name, Type
from raybroker.cli.groups import as_command
from raybroker.metrics.block import look as counted
from raybroker.metrics.discovery import target_groups
from raybroker.metrics.messages import destination_body
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import ConfigError, InvalidDestinationError, NoClusterError
from raybroker.model.settings.setting_services import INSIDE, SERVICE_KINDS
from raybroker.system.clock import SystemClock

SERVICE: Final = "jms"
_MESSAGES: Final = output.columns(
    "numMsgsIn: msgs in, numMsgsOut: msgs out, msgBytesIn: bytes in, msgBytesOut: bytes out"
)
_PACKETS: Final = output.columns(
    "numPktsIn: pkts in, numPktsOut: pkts out, pktBytesIn: pkt bytes in, pktBytesOut: pkt bytes out"
)
_HELD: Final = output.columns(
    "numMsgs: msgs, peakNumMsgs: peak, avgNumMsgs: avg, totalMsgBytes: bytes, peakTotalMsgBytes: peak bytes, "
    "avgTotalMsgBytes: avg bytes, peakMsgBytes: largest"
)
_CONSUMERS: Final = output.columns(
    "numActiveConsumers: active, peakNumActiveConsumers: peak active, avgNumActiveConsumers: avg active, "
    "numBackupConsumers: backup, peakNumBackupConsumers: peak backup, avgNumBackupConsumers: avg backup"
)
_DISK: Final = output.columns("diskReserved: reserved, diskUsed: used, diskUtilizationRatio: used %")
_CONNECTIONS: Final = output.columns(
    "numConnections: connections, totalMemory: memory, freeMemory: free, maxMemory: most, threads"
)
DESTINATION_KINDS: Final = {"ttl": {**_MESSAGES, **_HELD}, "rts": _MESSAGES, "con": _CONSUMERS, "dsk": _DISK}
BROKER_KINDS: Final = {"ttl": {**_MESSAGES, **_PACKETS}, "rts": {**_MESSAGES, **_PACKETS}, "cxn": _CONNECTIONS}

_CARRIED: Final = output.columns(
    "messages_in: msgs in, messages_out: msgs out, message_bytes_in: bytes in, message_bytes_out: bytes out, "
    "packets_in: pkts in, packets_out: pkts out, packet_bytes_in: pkt bytes in, packet_bytes_out: pkt bytes out"
)
_CLIENTS: Final = output.columns("state, connections, connections_max: at most, accepted, refused")
SERVICE_KINDS_SHOWN: Final = {"ttl": _CARRIED, "rts": _CARRIED, "cxn": _CLIENTS}
CONNECTION_KINDS: Final = {
    "ttl": _CARRIED,
    "rts": _CARRIED,
    "cxn": output.columns("producers: prod, consumers: cons"),
}

Interval = Annotated[
    float, typer.Option("-int", "--interval", metavar="S", help="Between looks.", min=0.05, max=86_400)
]
Samples = Annotated[
    int, typer.Option("-msp", "--samples", metavar="N", help="How many looks; -1: until Ctrl-C.", min=-1)
]
Kind = Annotated[str, typer.Option("-m", "--metrics", metavar="KIND", help="What to show.")]


@as_command("metrics", "dst")
def metrics_dst(
    name: Name,
    type: Type = "q",
    kind: Kind = "ttl",
    interval: Interval = 5.0,
    samples: Samples = -1,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show counts of one destination, again and again: raybroker metrics dst -t q -n orders -m rts"""
    columns = _columns(kind, DESTINATION_KINDS)

    def look(admin: Any) -> dict[str, dict[str, Any]]:
        found = {
            row["broker"]: destination_body(one)
            for row in admin.metrics(name)
            for one in row["destinations"]
            if (one["type"], one["name"]) == (type, name)
        }
        if not found:
            raise InvalidDestinationError(f"{type} {name!r} does not exist")
        return found

    _show(look, kind, columns, interval, samples, cluster, json)


@as_command("metrics", "bkr")
def metrics_bkr(
    broker: Annotated[str | None, typer.Option("-n", "--name", metavar="BROKER", help="Only this one.")] = None,
    kind: Kind = "ttl",
    interval: Interval = 5.0,
    samples: Samples = -1,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show counts of the brokers, again and again: raybroker metrics bkr -m cxn"""
    columns = _columns(kind, BROKER_KINDS)

    def look(admin: Any) -> dict[str, dict[str, Any]]:
        rows = [row for row in admin.metrics() if broker in (None, row["broker"])]
        if not rows:
            raise NoClusterError(f"broker {broker} of cluster {cluster!r} is not running")
        return {row["broker"]: _broker(row) for row in rows}

    _show(look, kind, columns, interval, samples, cluster, json)


@as_command("metrics", "svc")
def metrics_svc(
    name: Annotated[str, typer.Option("-n", "--name", metavar="SERVICE", help="A connection service.")] = SERVICE,
    kind: Kind = "ttl",
    interval: Interval = 5.0,
    samples: Samples = -1,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show counts of a connection service: raybroker metrics svc -n jms -m ttl

    Messages and packets are those of its clients, since the hosts were started; -m cxn: how many clients it has.
    """
    columns = _columns(kind, SERVICE_KINDS_SHOWN)
    if name not in SERVICE_KINDS:
        raise UsageError(f"metrics svc -n {name}: there are {', '.join(SERVICE_KINDS)}")

    def look(admin: Any) -> dict[str, dict[str, Any]]:
        rows = {row["broker"]: row for row in admin.list_services() if row["service"] == name}
        if not rows:
            raise ConfigError(f"no broker of cluster {cluster!r} has connection services (imq.service.activelist)")
        return rows

    _show(look, kind, columns, interval, samples, cluster, json)


@as_command("metrics", "cxn")
def metrics_cxn(
    id: Annotated[
        str | None, typer.Option("-n", "--id", metavar="ID", help="The id that list cxn shows; without it: all.")
    ] = None,
    kind: Kind = "ttl",
    interval: Interval = 5.0,
    samples: Samples = -1,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show what clients of connection services send and get: raybroker metrics cxn -n ID -m rts

    What clients inside the Ray cluster carry is not counted one by one: metrics bkr has all of it.
    """
    columns = _columns(kind, CONNECTION_KINDS)

    def look(admin: Any) -> dict[str, dict[str, Any]]:
        rows = {
            row["id"]: row for row in admin.list_connections() if id in (None, row["id"]) and row["service"] != INSIDE
        }
        if id is not None and not rows:
            raise InvalidDestinationError(f"there is no connection {id!r}; list cxn shows those there are")
        return rows

    _show(look, kind, {"id": "id", "user": "user", **columns}, interval, samples, cluster, json)


def _broker(row: dict[str, Any]) -> dict[str, Any]:
    found = counted(Snapshot(**row), 0.0)
    return {**found.counts, "threads": found.threads}


def _columns(kind: str, kinds: dict[str, dict[str, str]]) -> dict[str, str]:
    if kind not in kinds:
        raise UsageError(f"-m {kind}: choose one of {', '.join(kinds)}")
    return {"broker": "broker", **kinds[kind]}


def _show(
    look: Callable[[Any], dict[str, dict[str, Any]]],
    kind: str,
    columns: dict[str, str],
    interval: float,
    samples: int,
    cluster: str,
    json: bool,
) -> None:
    """One table a look; rates begin with the second."""
    clock, pause = SystemClock(), threading.Event()
    with connecting.administering(cluster) as admin:
        before, since_ns = look(admin), clock.monotonic_ns()
        first = True
        while samples:
            if kind == "rts" or not first:
                pause.wait(interval)
                found, now_ns = look(admin), clock.monotonic_ns()
            else:
                found, now_ns = before, since_ns
            rows = [{"broker": name, **row} for name, row in sorted(found.items())]
            if kind == "rts":
                rows = [
                    _rates(row, before.get(name, {}), (now_ns - since_ns) / 1e9, columns)
                    for name, row in zip(sorted(found), rows, strict=True)
                ]
            if json:
                output.as_json([{key: row.get(key) for key in columns} for row in rows])
            else:
                output.table(rows, columns, empty="no broker answers" if "id" not in columns else "no connections")
            before, since_ns, first = found, now_ns, False
            samples -= samples > 0


_NAMES: Final = ("broker", "id", "user")


def _rates(row: dict[str, Any], before: dict[str, Any], seconds: float, columns: dict[str, str]) -> dict[str, Any]:
    rates = {
        key: round(max(row[key] - before.get(key, row[key]), 0) / max(seconds, 1e-3), 1)
        for key in columns
        if key not in _NAMES
    }
    return {**{key: row[key] for key in _NAMES if key in row}, **rates}


def discover(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file, for file_sd_configs of Prometheus.")],
    every: Annotated[float | None, typer.Option("--every", metavar="S", help="Write it again and again.")] = None,
    cluster: Cluster = "default",
) -> None:
    """Write down where the metrics of all brokers are: raybroker discover --out brokers.json

    Prometheus reads the file whenever it changes. A broker that is down keeps its last address in it.
    """
    pause, known = threading.Event(), {}
    while True:
        for row in connecting.brokers(cluster):
            if row.get("metrics_url"):
                known[row["broker"]] = str(row["metrics_url"])
        write_targets(out, cluster, known)
        output.say(f"{out}: {len(known)} brokers of cluster {cluster}")
        if every is None:
            return
        pause.wait(every)


def write_targets(out: Path, cluster: str, urls: dict[str, str]) -> None:
    """Write the file in one step: Prometheus never sees half of it."""
    made = out.with_name(f".{out.name}.{os.getpid()}")
    made.write_text(json_text.dumps(target_groups(cluster, urls), indent=2) + "\n", encoding="utf-8")
    made.replace(out)
