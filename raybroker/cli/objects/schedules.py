"""Recurring schedules on the command line: create, list, query and destroy sch."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, show_one, without
from raybroker.cli.command import command
from raybroker.cli.grid_words import AnyType, Cluster, Force, Json, Type, ask, moment, properties
from raybroker.cli.groups import groups
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row

COLUMNS: Final = {
    "id": "id",
    "type": "type",
    "destination": "destination",
    "schedule": "schedule",
    "timezone": "timezone",
    "fired": "fired",
    "next": "next",
    "state": "state",
}
ScheduleId = Annotated[str, typer.Option("-n", "--id", metavar="ID", help="The id that list sch shows.")]


@groups["create"].command("sch")
def create_sch(
    body: Annotated[str, typer.Argument(metavar="BODY", help="The message, a text.", show_default=False)],
    destination: Annotated[str, typer.Option("-d", "--destination", metavar="NAME", help="Where it is sent.")],
    when: Annotated[str, typer.Option("--when", metavar="EXPR", help="Five fields of cron, @daily, or @every 10s.")],
    type: Type = "q",
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin.")] = "UTC",
    repeat: Annotated[int | None, typer.Option("--repeat", metavar="N", help="End after so many.", min=1)] = None,
    catch_up: Annotated[bool, typer.Option("--catch-up", help="Make up for every one that was missed.")] = False,
    property: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="K=V", help="A property; numbers and true/false as such. Repeatable."),
    ] = None,
    cluster: Cluster = "default",
) -> None:
    """Send a message again and again: raybroker create sch -d orders --when "0 8 * * MON-FRI" hello

    What is missed while the broker is down, or the destination full, is made up for by one message.
    """
    given = properties(property)
    with connecting.connected(cluster) as connection:
        session = connection.session()
        producer = session.producer(session.topic(destination) if type == "topic" else session.queue(destination))
        id_ = producer.send(body, given, schedule=when, timezone=timezone, repeat=repeat, catch_up=catch_up)
    output.say(f"created schedule {id_}")


@command("list", "sch")
def list_sch(
    admin: Admin,
    destination: Annotated[
        str | None, typer.Option("-d", "--destination", metavar="NAME", help="Only those of this destination.")
    ] = None,
    type: AnyType = None,
    json: Json = False,
) -> None:
    """List recurring schedules, those that come next first."""
    rows = admin.list_schedules(destination, type)
    show_list(rows, COLUMNS, empty="no schedules", json=json, shown=_shown)


def _shown(row: Row) -> Row:
    fired = str(row["fired"]) if row["repeat"] is None else f"{row['fired']} of {row['repeat']}"
    return {**row, "fired": fired, "next": moment(row["next_ms"])}


@command("query", "sch")
def query_sch(admin: Admin, id: ScheduleId, json: Json = False) -> None:
    """Show one schedule."""
    found = admin.query_schedule(id)
    show_one(found, json=json, shown=_in_full)


def _in_full(row: Row) -> Row:
    times = {name: moment(row[f"{name}_ms"]) for name in ("last", "next", "created")}
    return without(row, *(f"{name}_ms" for name in times)) | times


@command("destroy", "sch")
def destroy_sch(admin: Admin, id: ScheduleId, force: Force = False) -> None:
    """End a schedule: raybroker destroy sch -n ID; what it has sent stays."""
    ask(force, f"destroy schedule {id}?")
    admin.destroy_schedule(id)
    output.say(f"destroyed schedule {id}")
