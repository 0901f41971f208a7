"""The verbs of the grid for dst, bkr, con and stores: create, list, query, update, destroy, purge, pause, compact, …

Each command is its arguments, one call of ``conn.admin()``, and what is printed.
"""

from __future__ import annotations

import textwrap
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, show_one, things, without
from raybroker.cli.checks import attributes_help, checked_attributes, checked_name, checked_properties, properties_help
from raybroker.cli.command import command
from raybroker.cli.exits import Exit, UsageError, end_of_list
from raybroker.cli.grid_words import (
    AnyType,
    Attributes,
    Cluster,
    Force,
    Json,
    Name,
    Type,
    ask,
    attributes,
    destination_type,
    moment,
    until_ms,
)
from raybroker.cli.groups import groups
from raybroker.client.admin.admin import Admin
from raybroker.model.definitions.pauses import WORDS
from raybroker.model.naming.names import DestinationType
from raybroker.model.settings.settings import lookup

DESTINATION_COLUMNS: Final = {
    "name": "name",
    "type": "type",
    "state": "state",
    "messages": "messages",
    "unacknowledged": "unacked",
    "active_consumers": "cons",
    "producers": "prod",
    "messages_in": "in",
    "messages_out": "out",
}
EFFECTIVE_COLUMNS: Final = {"attribute": "attribute", "value": "value", "origin": "origin"}
STORED_COLUMNS: Final = {"type": "type", "name": "name", "blocks": "blocks", "bytes": "bytes"}
COMPACTED_COLUMNS: Final = {
    "host": "host",
    "freed_bytes": "given back",
    "reserved_bytes": "reserved",
    "used_bytes": "used",
    "garbage_before": "garbage before",
    "garbage_bytes": "garbage",
    "ratio": "ratio %",
}
CONSUMER_COLUMNS: Final = {
    "id": "id",
    "destination": "destination",
    "active": "active",
    "flow": "flow",
    "limit": "limit",
    "granted": "granted",
    "unacknowledged": "unacked",
    "sent": "sent",
}
NOT_UP: Final = frozenset({"DOWN", "LEFT", "UNKNOWN", "FAILED", "STOPPED"})
"""States of a broker that is not there, or does nothing: what it stores waits."""
BROKER_COLUMNS: Final = {
    "broker": "broker",
    "cluster": "cluster",
    "state": "state",
    "role": "master",
    "pid": "pid",
    "address": "ray",
}


HELP_CHARS: Final = 76


class IfExists(StrEnum):
    """What create dst does with a destination that is there."""

    error = "error"
    keep = "keep"
    update = "update"


PAUSES: Final = tuple(map(str.upper, WORDS))
PausedName = Annotated[str | None, typer.Option("-n", "--name", metavar="NAME", help="This one; without it: all.")]
Broker = Annotated[str | None, typer.Option("-b", "--broker", metavar="NAME", help="This broker alone.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="PROPERTY=VALUE", help="Such as imq.log.level=WARNING. Repeatable."),
]
Which = Annotated[str, typer.Option("-pst", "--pause-type", metavar="|".join(PAUSES), help="What of it.")]


@command("create", "dst", epilog=attributes_help())
def create_dst(
    admin: Admin,
    name: Name,
    type: Type = "q",
    option: Attributes = None,
    if_exists: Annotated[
        IfExists, typer.Option("--if-exists", help="Refuse, leave it as it is, or give it the attributes.")
    ] = IfExists.error,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="The same as --if-exists keep.")] = False,
) -> None:
    """Create a destination: raybroker create dst -t q -n JMSQueue -o consumerFlowLimit=20

    All attributes stand below with their defaults and bounds.
    """
    given = checked_attributes(attributes(option), type)
    checked_name("-n", name)
    if idempotent and if_exists is IfExists.update:
        raise UsageError("--idempotent is --if-exists keep; give one of them")
    what: Literal["error", "keep", "update"] = "keep" if idempotent else if_exists.value
    done = admin.create_destination(type, name, if_exists=what, **given)
    output.say(f"{done} {type} {name}")


@command("list", "dst")
def list_dst(
    admin: Admin,
    type: AnyType = None,
    temporary: Annotated[bool, typer.Option("-tmp", "--temporary", help="Show temporary ones as well.")] = False,
    json: Json = False,
) -> None:
    """List destinations with their counts."""
    rows = admin.list_destinations(type, temporary=temporary)
    show_list(rows, DESTINATION_COLUMNS, empty="no destinations", json=json)


@command("query", "dst")
def query_dst(
    admin: Admin,
    name: Name,
    type: Type = "q",
    effective: Annotated[
        bool, typer.Option("--effective", help="What holds of each attribute, and where the value comes from.")
    ] = False,
    json: Json = False,
) -> None:
    """Show attributes, state and counts of one destination; with --effective what policies make of its attributes."""
    found = admin.query_destination(type, name)
    if effective:
        origins = found["origins"]
        rows = [
            {"attribute": key, "value": value, "origin": origins.get(key, "default")}
            for key, value in found["effective"].items()
        ]
        show_list(rows, EFFECTIVE_COLUMNS, empty="no attributes", json=json)
        return
    show_one(found, json=json, shown=lambda row: without(row, "effective", "origins"), attributes="attributes")


@command("update", "dst", epilog=attributes_help())
def update_dst(admin: Admin, name: Name, type: Type = "q", option: Attributes = None) -> None:
    """Change attributes, all or none: raybroker update dst -t q -n JMSQueue -o maxNumMsgs=1000"""
    changes = checked_attributes(attributes(option), type)
    checked_name("-n", name)
    if not changes:
        raise UsageError("update dst: nothing to change; give -o attribute=value")
    admin.update_destination(type, name, **changes)
    output.say(f"updated {type} {name}: {', '.join(f'{key}={value}' for key, value in changes.items())}")


@command("destroy", "dst")
def destroy_dst(admin: Admin, name: Name, type: Type = "q", force: Force = False) -> None:
    """Remove a destination with its messages."""
    ask(force, f"destroy {type} {name} with its messages?")
    admin.destroy_destination(type, name)
    output.say(f"destroyed {type} {name}")


@command("adopt", "dst")
def adopt_dst(admin: Admin, name: Name, type: Type = "q") -> None:
    """Put an orphaned destination into the record again, with its messages: raybroker adopt dst -t q -n orders

    After restore cls, list dst shows what was created after the backup as ORPHANED; destroy dst drops it instead.
    """
    admin.adopt_destination(type, name)
    output.say(f"adopted {type} {name}")


@command("purge", "dst")
def purge_dst(admin: Admin, name: Name, type: Type = "q", force: Force = False) -> None:
    """Discard the messages that no consumer holds."""
    ask(force, f"discard the messages of {type} {name}?")
    admin.purge_destination(type, name)
    output.say(f"purged {type} {name}")


@command("pause", "dst")
def pause_dst(
    admin: Admin,
    name: PausedName = None,
    type: AnyType = None,
    which: Which = "ALL",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="Resume by itself: 10m from now, or 2030-01-31T12:00."),
    ] = None,
) -> None:
    """Pause one destination, or all: raybroker pause dst -t q -n orders -pst CONSUMERS --until 10m

    PRODUCERS: nothing is taken. CONSUMERS: nothing is delivered. ALL: both. INSERTION: what is under way arrives, and
    is not seen until insertion resumes.
    """
    kind, what = _paused(name, type, which)
    until_ms_ = 0 if until is None else until_ms("--until", until)
    count = admin.pause_destination(kind, name, what, until_ms=until_ms_)
    output.say(f"paused {what} of {_those(kind, name, count)}" + (f" until {moment(until_ms_)}" if until_ms_ else ""))


@command("resume", "dst")
def resume_dst(admin: Admin, name: PausedName = None, type: AnyType = None, which: Which = "ALL") -> None:
    """Resume one destination, or all: raybroker resume dst -t q -n orders -pst CONSUMERS"""
    kind, what = _paused(name, type, which)
    count = admin.resume_destination(kind, name, what)
    output.say(f"resumed {what} of {_those(kind, name, count)}")


@command("reset", "dst")
def reset_dst(admin: Admin, name: PausedName = None, type: AnyType = None) -> None:
    """Count from zero what query dst shows, of one destination or all: raybroker reset dst -t q -n orders

    Messages in and out, refused, expired and so on, peaks, consumers, time over thresholds. Metrics count on.
    """
    kind = None if type is None and name is None else destination_type(type or "queue")
    count = admin.reset_destination(kind, name)
    output.say(f"counts of {_those(kind, name, count)} are zero")


def _paused(name: str | None, type_: str | None, which: str) -> tuple[DestinationType | None, str]:
    if which.upper() not in PAUSES:
        raise UsageError(f"-pst {which}: it is one of {', '.join(PAUSES)}")
    if type_ is None:
        return (None if name is None else "queue"), which.lower()
    return destination_type(type_), which.lower()


def _those(kind: str | None, name: str | None, count: int) -> str:
    return f"{kind} {name}" if name is not None else things(count, kind or "destination")


@command("query", "store")
def query_store(admin: Admin, json: Json = False) -> None:
    """Show the stores of the hosts: bytes reserved, used and live, what is garbage, and each destination's part.

    Above a ratio of 75 % leave a store as it is; where it stays below 50 %, compact dst gives space back. A store
    reclaims its space by itself while it is used.
    """
    rows = admin.query_store()
    if json:
        output.as_json(rows)
    for row in () if json else rows:
        output.fields(without(row, "host", "destinations"), title=f"store of host {row['host']}")
        output.table(row["destinations"], STORED_COLUMNS, empty="no destinations")
    end_of_list(rows)


@command("compact", "dst")
def compact_dst(admin: Admin, name: PausedName = None, type: AnyType = None, json: Json = False) -> None:
    """Give back what a store has reserved and does not need: raybroker compact dst -t q -n orders

    The destination has to be paused (pause dst), all of them without a name. A store is that of a host, with all its
    destinations; it reclaims its space by itself while it is used, so that this is seldom needed.
    """
    kind = None if type is None and name is None else destination_type(type or "queue")
    rows = admin.compact_destination(kind, name)
    show_list(rows, COMPACTED_COLUMNS, empty="no destinations", json=json)
    for row in rows:
        if not row["done"]:
            output.error(f"host {row['host']} is not done yet and goes on; look again: raybroker query store")


@command("list", "con")
def list_con(
    admin: Admin,
    destination: Annotated[
        str | None, typer.Option("-d", "--destination", "-n", metavar="NAME", help="Only those of this destination.")
    ] = None,
    type: AnyType = None,
    json: Json = False,
) -> None:
    """List consumers: limit, granted, unacknowledged, sent."""
    rows = admin.list_consumers(destination, type)
    show_list(rows, CONSUMER_COLUMNS, empty="no consumers", json=json, shown=lambda row: {**row, "id": str(row["id"])})


@command("query", "con")
def query_con(
    admin: Admin,
    id: Annotated[int, typer.Option("-n", "--id", metavar="ID", help="The id that list con shows.")],
    json: Json = False,
) -> None:
    """Show one consumer."""
    found = admin.query_consumer(id)
    show_one(found, json=json)


@groups["list"].command("bkr")
def list_bkr(cluster: Cluster = "default", json: Json = False) -> None:
    """List the brokers of the cluster: state, whether it is the master, node, process.

    Those that are not up are named on standard error with the reason, and the exit status is 3.
    """
    rows = connecting.brokers(cluster)
    show_list(
        rows,
        BROKER_COLUMNS,
        empty="no brokers",
        json=json,
        shown=lambda row: {**row, "pid": str(row.get("pid", "-")), "role": "yes" if row.get("is_master") else "-"},
    )
    absent = [row for row in rows if row["state"] in NOT_UP]
    for row in absent:
        why = row.get("refusal") or row.get("reason")
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


@command("update", "bkr", epilog=properties_help())
def update_bkr(admin: Admin, broker: Broker = None, option: Properties = None) -> None:
    """Change properties while brokers run, of one or all: raybroker update bkr -o imq.log.level=WARNING

    They hold at once and after the next start too, until the configuration itself says something else than it does
    now. query bkr --explain shows them; one set to what the configuration says is as if it had not been changed.
    """
    changes = checked_properties(attributes(option, such_as="imq.log.level=WARNING"))
    if not changes:
        raise UsageError("update bkr: nothing to change; give -o property=value")
    found = admin.update_broker(changes, broker)
    shown = ", ".join(f"{key}={value}" for key, value in changes.items())
    for name, row in sorted(found["brokers"].items()):
        output.say(f"updated broker {name}: {shown}")
        for host in row["unreached"]:
            output.error(f"host {host} does not answer; it takes the change when it does")
    for name in found["down"]:
        output.error(f"broker {name} is not up and keeps what it had; then: raybroker update bkr -b {name} …")
