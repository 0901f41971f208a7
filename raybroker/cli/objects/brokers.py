"""Brokers on the command line: list, query and update bkr, which ask Ray and the settings as well."""

from __future__ import annotations

import textwrap
from contextlib import nullcontext
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, show_one, without
from raybroker.cli.checks import checked_properties, properties_help
from raybroker.cli.command import command
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Cluster, Json, attributes
from raybroker.cli.groups import as_command
from raybroker.cli.outside import way
from raybroker.cli.watching import Watch, watched
from raybroker.client.admin.admin import Admin
from raybroker.model.settings.setting_services import PORT_MAPPER
from raybroker.model.settings.settings import lookup

NOT_UP: Final = frozenset({"DOWN", "LEFT", "UNKNOWN", "FAILED", "STOPPED"})
"""States of a broker that is not there, or does nothing: what it stores waits."""


HELP_CHARS: Final = 76


Broker = Annotated[str | None, typer.Option("-b", "--broker", metavar="NAME", help="This broker alone.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="PROPERTY=VALUE", help="Such as imq.log.level=WARNING. Repeatable."),
]


@as_command("list", "bkr")
def list_bkr(cluster: Cluster = "default", json: Json = False, watch: Watch = None) -> None:
    """List the brokers of the cluster: state, whether it is the master, node, process.

    Where queues have copies: how many a broker keeps, leads, and has behind, and of how many nothing is confirmed.

    Those that are not up are named on standard error with the reason, and the exit status is 3.
    """
    watched(watch, nullcontext, lambda _: _list(cluster, json=json), json=json)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    ready = ((row.get(f"standby_{kind}s", 0), kind) for kind in ("broker", "host"))
    return {
        **row,
        "pid": str(row.get("pid", "-")),
        "role": "yes" if row.get("is_master") else "-",
        "draining": _drain(row),
        "standby": ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for count, kind in ready if count) or "-",
    }


def _drain(row: dict[str, Any]) -> str:
    if "drain" not in row:
        return "-"
    return f"{row['drain']}, leads {row['leads']}" if row["leads"] else str(row["drain"])


def _list(cluster: str, *, json: bool) -> None:
    rows = connecting.brokers(cluster)
    stored = (
        ", store_state: store, tenure, taken_by: taken by, standby: standby"
        if any("store_state" in row for row in rows)
        else ""
    )
    copied = (
        ", copies, copies_led: led, copies_behind: behind, copies_unconfirmed: no majority"
        if any("copies" in row for row in rows)
        else ""
    )
    drained = ", draining: drain" if any("drain" in row for row in rows) else ""
    show_list(
        rows,
        f"broker, cluster, state, role: master{stored}{copied}{drained}, pid, address: ray",
        empty="no brokers",
        json=json,
        shown=_shown,
    )
    absent = [row for row in rows if row["state"] in NOT_UP]
    for row in absent:
        why = row.get("refusal") or row.get("store_reason") or row.get("reason")
        output.error(f"broker {row['broker']} is {row['state']}" + (f": {why}" if why else ""))
    if absent:
        raise typer.Exit(Exit.UNREACHABLE)


@command("query", "bkr")
def query_bkr(
    admin: Admin,
    broker: Broker = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Each property: its value and origin, what it means, what may be set, and whether while brokers run.",
        ),
    ] = False,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show the broker: destinations, hosts, messages, stores; or its configuration."""
    if explain:
        rows = connecting.explain(cluster, broker)
        if json:
            output.as_json(rows)
        for row in () if json else rows:
            _explain(row)
        return
    found = admin.query_broker()
    show_one(
        found,
        json=json,
        shown=lambda row: without(row, "hosts"),
        changed="changed by update bkr",
        limits="limits of the broker",
        thresholds="thresholds of the broker",
    )
    for host in found["hosts"] if not json else ():
        output.fields(without(host, "host"), title=f"host {host['host']}")


def _explain(row: dict[str, Any]) -> None:
    output.say(f"{row['property']} = {output.plain(row['value']) or '(empty)'}  ({row['origin']})")
    if "meaning" in row:
        when = "update bkr changes it while brokers run" if row["live"] else "read when a broker starts"
        default = lookup(row["property"], "broker").format(row["default"]) or "none"
        for line in textwrap.wrap(f"{row['meaning']} Default {default}; {row['allowed']}; {when}.", HELP_CHARS):
            output.say(f"    {line}")


@command("update", "bkr", epilog=properties_help)
def update_bkr(admin: Admin, broker: Broker = None, option: Properties = None) -> None:
    """Change properties while brokers run, of one or all: raybroker update bkr -o imq.log.level=WARNING

    They hold at once and after the next start too, until the configuration itself says something else than it does
    now. query bkr --explain shows them; one set to what the configuration says is as if it had not been changed.

    The port of the port mapper is changed of one broker: of the one that is named, or that -b host:port reaches.
    """
    changes = checked_properties(attributes(option, such_as="imq.log.level=WARNING"))
    if not changes:
        raise UsageError("update bkr: nothing to change; give -o property=value")
    if broker is None and PORT_MAPPER in changes and way.get() is not None:
        broker = admin.query_broker()["broker"]
    found = admin.update_broker(changes, broker)
    shown = ", ".join(f"{key}={value}" for key, value in changes.items())
    for name, row in sorted(found["brokers"].items()):
        output.say(f"updated broker {name}: {shown}")
        for host in row["unreached"]:
            output.error(f"host {host} does not answer; it takes the change when it does")
    for name in found["down"]:
        output.error(f"broker {name} is not up and keeps what it had; then: raybroker update bkr -b {name} …")
