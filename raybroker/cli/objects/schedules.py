"""Recurring schedules on the command line: create, list, query and destroy sch."""

from __future__ import annotations

from typing import Annotated

import typer

from raybroker.cli import connecting, output
from raybroker.cli.grid_words import Cluster, Type, properties
from raybroker.cli.groups import as_command


@as_command("create", "sch")
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
