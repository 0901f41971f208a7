"""The verbs of the grid: create, list, query, update, destroy, purge for dst, bkr and con.

Each command is its arguments, one call of ``conn.admin()``, and what is printed.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import Commands, UsageError
from raybroker.cli.objects import (
    OBJECTS,
    VERBS,
    Attributes,
    Cluster,
    Json,
    Name,
    Type,
    add_missing,
    attributes,
    destination_type,
)

DESTINATION_COLUMNS: Final = {
    "name": "name", "type": "type", "state": "state", "messages": "messages", "unacknowledged": "unacked",
    "active_consumers": "cons", "producers": "prod", "messages_in": "in", "messages_out": "out",
}  # fmt: skip
CONSUMER_COLUMNS: Final = {
    "id": "id", "destination": "destination", "active": "active", "flow": "flow", "limit": "limit",
    "granted": "granted", "unacknowledged": "unacked", "sent": "sent",
}  # fmt: skip
HELP: Final = {
    "create": "create dst: a destination with its attributes.",
    "list": "list dst|con|bkr: destinations, consumers, brokers.",
    "query": "query dst|con|bkr: one of them in full.",
    "update": "update dst: change attributes.",
    "destroy": "destroy dst: remove one with its messages.",
    "purge": "purge dst: discard its messages.",
}

_groups = {verb: typer.Typer(cls=Commands, no_args_is_help=True) for verb in VERBS}


def attach(app: typer.Typer) -> None:
    """Hang the grid below the program."""
    for verb, group in _groups.items():
        present = [command.name or "" for command in group.registered_commands]
        add_missing(group, verb, present)
        text = HELP.get(verb, "Not in this version.")
        app.add_typer(group, name=verb, help=text, hidden=verb not in HELP)


@_groups["create"].command("dst")
def create_dst(name: Name, type: Type = "q", option: Attributes = None, cluster: Cluster = "default") -> None:  # noqa: A002
    """Create a destination: raybroker create dst -t q -n JMSQueue -o consumerFlowLimit=20

    Attributes have the seeds' names: maxNumMsgs, maxTotalMsgBytes, maxBytesPerMsg, limitBehavior,
    maxNumActiveConsumers, maxNumBackupConsumers, maxNumProducers, consumerFlowLimit, … and hosting=dedicated|shared.
    """
    kind, given = destination_type(type), attributes(option)
    with connecting.administering(cluster) as admin:
        admin.create_destination(kind, name, **given)
    output.say(f"created {kind} {name}")


@_groups["list"].command("dst")
def list_dst(
    type: Annotated[str | None, typer.Option("-t", "--type", metavar="q|t", help="Only this type.")] = None,  # noqa: A002
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """List destinations with their counts."""
    kind = None if type is None else destination_type(type)
    with connecting.administering(cluster) as admin:
        rows = admin.list_destinations(kind)
    if json:
        output.as_json(rows)
    else:
        output.table(rows, DESTINATION_COLUMNS, empty="no destinations")


@_groups["query"].command("dst")
def query_dst(name: Name, type: Type = "q", cluster: Cluster = "default", json: Json = False) -> None:  # noqa: A002
    """Show attributes, state and counts of one destination."""
    kind = destination_type(type)
    with connecting.administering(cluster) as admin:
        found = admin.query_destination(kind, name)
    if json:
        output.as_json(found)
        return
    output.fields({key: value for key, value in found.items() if key != "attributes"})
    output.fields(found["attributes"], title="attributes")


@_groups["update"].command("dst")
def update_dst(name: Name, type: Type = "q", option: Attributes = None, cluster: Cluster = "default") -> None:  # noqa: A002
    """Change attributes, all or none: raybroker update dst -t q -n JMSQueue -o maxNumMsgs=1000"""
    kind, changes = destination_type(type), attributes(option)
    if not changes:
        raise UsageError("update dst: nothing to change; give -o attribute=value")
    with connecting.administering(cluster) as admin:
        admin.update_destination(kind, name, **changes)
    output.say(f"updated {kind} {name}: {', '.join(f'{key}={value}' for key, value in changes.items())}")


Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask; without a terminal it never asks.")]


@_groups["destroy"].command("dst")
def destroy_dst(name: Name, type: Type = "q", force: Force = False, cluster: Cluster = "default") -> None:  # noqa: A002
    """Remove a destination with its messages."""
    kind = destination_type(type)
    with connecting.administering(cluster) as admin:
        _ask(force, f"destroy {kind} {name} with its messages?")
        admin.destroy_destination(kind, name)
    output.say(f"destroyed {kind} {name}")


@_groups["purge"].command("dst")
def purge_dst(name: Name, type: Type = "q", force: Force = False, cluster: Cluster = "default") -> None:  # noqa: A002
    """Discard the messages that no consumer holds."""
    kind = destination_type(type)
    with connecting.administering(cluster) as admin:
        _ask(force, f"discard the messages of {kind} {name}?")
        admin.purge_destination(kind, name)
    output.say(f"purged {kind} {name}")


def _ask(force: bool, question: str) -> None:
    if not force and sys.stdin.isatty():
        typer.confirm(question, abort=True)


@_groups["list"].command("con")
def list_con(
    destination: Annotated[
        str | None, typer.Option("-d", "--destination", "-n", metavar="NAME", help="Only those of this queue.")
    ] = None,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """List consumers: limit, granted, unacknowledged, sent."""
    with connecting.administering(cluster) as admin:
        rows = admin.list_consumers(destination)
    if json:
        output.as_json(rows)
    else:
        output.table([{**row, "id": str(row["id"])} for row in rows], CONSUMER_COLUMNS, empty="no consumers")


@_groups["query"].command("con")
def query_con(
    id: Annotated[int, typer.Option("-n", "--id", metavar="ID", help="The id that list con shows.")],  # noqa: A002
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show one consumer."""
    with connecting.administering(cluster) as admin:
        found = admin.query_consumer(id)
    if json:
        output.as_json(found)
    else:
        output.fields(found)


@_groups["list"].command("bkr")
def list_bkr(cluster: Cluster = "default", json: Json = False) -> None:
    """List the brokers of the cluster."""
    rows = connecting.brokers(cluster)
    if json:
        output.as_json(rows)
    else:
        titles = {"broker": "broker", "cluster": "cluster", "state": "state", "pid": "pid", "address": "ray"}
        output.table([{**row, "pid": str(row.get("pid", "-"))} for row in rows], titles, empty="no brokers")


@_groups["query"].command("bkr")
def query_bkr(
    explain: Annotated[bool, typer.Option("--explain", help="Each property, its value and its origin.")] = False,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show the broker: destinations, hosts, messages, stores; or its configuration."""
    if explain:
        rows = connecting.explain(cluster)
        if json:
            output.as_json(rows)
        else:
            output.table(rows, {"property": "property", "value": "value", "origin": "origin"}, empty="no properties")
        return
    with connecting.administering(cluster) as admin:
        found: dict[str, Any] = admin.query_broker()
    if json:
        output.as_json(found)
        return
    output.fields({key: value for key, value in found.items() if key != "hosts"})
    for host in found["hosts"]:
        output.fields({key: value for key, value in host.items() if key != "host"}, title=f"host {host['host']}")


MISSING_TEXT: Final = "Understood, but not in this version: " + ", ".join(
    [*(verb for verb in VERBS if verb not in HELP), *(name for name in OBJECTS if name not in ("dst", "bkr", "con"))]
)
