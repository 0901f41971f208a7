"""Quotas on the command line: create, list, query, update and destroy quota."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Force, Json, ask, attributes
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row

COLUMNS: Final = {"name": "name", "attributes": "attributes"}
POOLS: Final = {
    "broker": "broker",
    "messages": "messages",
    "bytes": "bytes",
    "waiting": "waiting",
    "refused": "refused",
    "destinations": "destinations",
}
SUCH_AS: Final = "MessagesMaximum=1000"
QuotaName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the quota.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="ATTR=VALUE",
        help="MessagesMaximum, BytesMaximum (-1 is no limit), Policy (FIFO, Preemptive), Shared (true, false). "
        "Repeatable.",
    ),
]


@command("create", "quota")
def create_quota(admin: Admin, name: QuotaName, option: Options = None) -> None:
    """Create a quota: raybroker create quota -n small -o MessagesMaximum=1000; then update dst … -o quota=small"""
    admin.create_quota(name, **attributes(option, SUCH_AS))
    output.say(f"created quota {name}")


@command("list", "quota")
def list_quota(admin: Admin, json: Json = False) -> None:
    """List quotas with their attributes."""
    show_list(admin.list_quotas(), COLUMNS, empty="no quotas", json=json, shown=_shown)


def _shown(row: Row) -> Row:
    return {**row, "attributes": " ".join(f"{key}={output.plain(value)}" for key, value in row["attributes"].items())}


@command("query", "quota")
def query_quota(admin: Admin, name: QuotaName, json: Json = False) -> None:
    """Show a quota: its limits, what is used of them, who waits, and the destinations that refer to it."""
    row = admin.query_quota(name)
    show_one(row, json=json, shown=_in_full)
    if not json:
        pools = [{**pool, "destinations": ", ".join(pool["destinations"])} for pool in row["pools"]]
        output.table(pools, POOLS, empty="no destination refers to it")


def _in_full(row: Row) -> Row:
    fields = {key: value for key, value in _shown(row).items() if key != "pools"}
    return {**fields, "users": ", ".join(row["users"]) or "none"}


@command("update", "quota")
def update_quota(admin: Admin, name: QuotaName, option: Options = None) -> None:
    """Change the limits or the policy of a quota; senders that wait for room go on waiting by the new ones."""
    changes = attributes(option, SUCH_AS)
    if not changes:
        raise UsageError("update quota: nothing to change; give -o attribute=value")
    admin.update_quota(name, **changes)
    output.say(f"updated quota {name}")


@command("destroy", "quota")
def destroy_quota(admin: Admin, name: QuotaName, force: Force = False) -> None:
    """Remove a quota to which no destination and no template refers."""
    ask(force, f"remove quota {name}?")
    admin.destroy_quota(name)
    output.say(f"destroyed quota {name}")
