"""Durable subscriptions on the command line: create, list, purge and destroy dur."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list
from raybroker.cli.command import command
from raybroker.cli.grid_words import Force, Json, Selector, TopicOption, ask
from raybroker.client.admin.admin import Admin

COLUMNS: Final = {
    "name": "name",
    "client_id": "client id",
    "topic": "topic",
    "state": "state",
    "messages": "messages",
    "consumers": "cons",
    "shared": "shared",
    "durable": "durable",
    "selector": "selector",
}
SubscriptionName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the subscription.")]
ClientID = Annotated[
    str | None, typer.Option("-c", "--client-id", metavar="ID", help="Client id it belongs to; none: it has none.")
]


@command("create", "dur")
def create_dur(
    admin: Admin,
    name: SubscriptionName,
    topic: Annotated[str, typer.Option("-d", "--destination", metavar="TOPIC", help="The topic that it is of.")],
    client_id: ClientID = None,
    shared: Annotated[bool, typer.Option("--shared", help="Several consumers share its messages.")] = False,
    selector: Selector = None,
    no_local: Annotated[bool, typer.Option("--no-local", help="Nothing that its own connection sends.")] = False,
) -> None:
    """Make a durable subscription before a client opens it: raybroker create dur -n audit -d prices -c billing"""
    admin.create_subscription(name, topic, client_id=client_id, shared=shared, selector=selector, no_local=no_local)
    output.say(f"created subscription {name} of topic {topic}")


@command("list", "dur")
def list_dur(admin: Admin, topic: TopicOption = None, json: Json = False) -> None:
    """List subscriptions: messages that wait in each, and whether somebody uses it."""
    rows = admin.list_subscriptions(topic)
    show_list(
        rows,
        COLUMNS,
        empty="no subscriptions",
        json=json,
        shown=lambda row: {**row, "state": "ACTIVE" if row["active"] else "INACTIVE"},
    )


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
