"""Durable subscriptions on the command line: list, purge and destroy dur."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list
from raybroker.cli.command import command
from raybroker.cli.objects import Force, Json, TopicOption, ask
from raybroker.client.admin.admin import Admin

COLUMNS: Final = {
    "name": "name", "client_id": "client id", "topic": "topic", "state": "state", "messages": "messages",
    "consumers": "cons", "shared": "shared", "durable": "durable", "selector": "selector",
}  # fmt: skip
SubscriptionName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the subscription.")]
ClientID = Annotated[
    str | None, typer.Option("-c", "--client-id", metavar="ID", help="Client id it belongs to; none: it has none.")
]


@command("list", "dur")
def list_dur(admin: Admin, topic: TopicOption = None, json: Json = False) -> None:
    """List subscriptions: messages that wait in each, and whether somebody uses it."""
    rows = admin.list_subscriptions(topic)
    show_list(
        rows, COLUMNS, empty="no subscriptions", json=json,
        shown=lambda row: {**row, "state": "ACTIVE" if row["active"] else "INACTIVE"},
    )  # fmt: skip


@command("purge", "dur")
def purge_dur(
    admin: Admin,
    name: SubscriptionName,
    client_id: ClientID = None,
    topic: TopicOption = None,
    force: Force = False,
) -> None:
    """Discard the messages of a durable subscription: raybroker purge dur -n audit -c billing"""
    ask(force, f"discard the messages of subscription {name}?")
    admin.purge_subscription(name, client_id, topic)
    output.say(f"purged subscription {name}")


@command("destroy", "dur")
def destroy_dur(
    admin: Admin,
    name: SubscriptionName,
    client_id: ClientID = None,
    topic: TopicOption = None,
    force: Force = False,
) -> None:
    """End a durable subscription with its messages: raybroker destroy dur -n audit -c billing"""
    ask(force, f"end subscription {name} with its messages?")
    admin.destroy_subscription(name, client_id, topic)
    output.say(f"destroyed subscription {name}")
