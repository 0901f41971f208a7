"""Forwarding agents on the command line: create, list, query and destroy saf."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one
from raybroker.cli.command import command
from raybroker.cli.grid_words import Force, Json, ask, attributes
from raybroker.client.admin.admin import Admin

COLUMNS: Final = {
    "name": "name",
    "queue": "queue",
    "to": "to",
    "qos": "qos",
    "state": "state",
    "forwarded": "forwarded",
    "retries": "retries",
    "error": "error",
}
Name = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the agent.")]


@command("create", "saf")
def create_saf(
    admin: Admin,
    name: Name,
    queue: Annotated[str, typer.Option("-q", "--queue", metavar="NAME", help="The queue that it takes from.")],
    to: Annotated[str, typer.Option("--to", metavar="CLUSTER/QUEUE", help="Where it puts.")],
    attribute: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="NAME=VALUE", help="Such as qos=At-least-once or windowSize=100. Repeatable."),
    ] = None,
) -> None:
    """Forward a queue to another cluster: raybroker create saf -n eu -q orders --to eu-cluster/orders

    A message is taken from the queue here when it is stored there, and none comes twice.
    """
    given = attributes(attribute)
    admin.create_forwarding(name, queue, to, **given)
    output.say(f"created forwarding agent {name}")


@command("list", "saf")
def list_saf(admin: Admin, json: Json = False) -> None:
    """List forwarding agents."""
    rows = admin.list_forwardings()
    show_list(
        rows,
        COLUMNS,
        empty="no agents",
        json=json,
        shown=lambda row: {"forwarded": "", "retries": "", "error": "", **row},
    )


@command("query", "saf")
def query_saf(admin: Admin, name: Name, json: Json = False) -> None:
    """Show one forwarding agent."""
    found = admin.query_forwarding(name)
    show_one(found, json=json)


@command("destroy", "saf")
def destroy_saf(admin: Admin, name: Name, force: Force = False) -> None:
    """End a forwarding agent; what it has not forwarded stays in its queue."""
    ask(force, f"destroy forwarding agent {name}?")
    admin.destroy_forwarding(name)
    output.say(f"destroyed forwarding agent {name}")
