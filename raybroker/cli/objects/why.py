"""``why msg|con|prod|dst|dur|txn``: why something waits, with what takes each reason away."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import without
from raybroker.cli.command import command
from raybroker.cli.exits import end_of_list
from raybroker.cli.grid_words import Json, Name, Type, moment
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Listing, Row

_HEAD: Final = (
    "what",
    "id",
    "type",
    "destination",
    "subscription",
    "client_id",
    "broker",
    "text",
    "reasons",
    "history",
    "producers",
)
Destination = Annotated[
    str | None, typer.Option("-d", "--destination", metavar="NAME", help="Only of this destination.")
]


def _id(help: str) -> Any:
    return typer.Option("-n", "--id", metavar="ID", help=help)


@command("why", "msg")
def why_msg(
    admin: Admin,
    name: Name,
    id: Annotated[str, typer.Option("--id", metavar="ID", help="The message, as list msg shows it.")],
    type: Type = "q",
    json: Json = False,
) -> None:
    """Why is a message not delivered, or delivered again, or dead: raybroker why msg -n orders --id ID:4f…-17

    Of a topic there is an answer for each subscription. A dead message is found by the id that it had, too.
    """
    _show(admin.why("message", id, name, type), json=json)


@command("why", "con")
def why_con(admin: Admin, id: Annotated[str, _id("The id that list con shows.")], json: Json = False) -> None:
    """Why does a consumer get nothing: raybroker why con -n 17"""
    _show(admin.why("consumer", id), json=json)


@command("why", "prod")
def why_prod(
    admin: Admin,
    id: Annotated[str, _id("The id of one of its messages, or the 16 digits in that.")],
    destination: Destination = None,
    type: Type = "q",
    json: Json = False,
) -> None:
    """Why does a producer wait, or is refused: raybroker why prod -n ID:4f00000000000001-17"""
    _show(admin.why("producer", id, destination, type), json=json)


@command("why", "dst")
def why_dst(admin: Admin, name: Name, type: Type = "q", json: Json = False) -> None:
    """Why do messages of a destination wait, and why are more refused: raybroker why dst -n orders"""
    _show(admin.why("destination", name, None, type), json=json)


@command("why", "dur")
def why_dur(
    admin: Admin,
    name: Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the subscription.")],
    client_id: Annotated[
        str | None, typer.Option("-c", "--client-id", metavar="ID", help="Client id it belongs to.")
    ] = None,
    destination: Destination = None,
    json: Json = False,
) -> None:
    """Why do messages of a subscription wait: raybroker why dur -n audit -c billing"""
    _show(admin.why("subscription", name, destination, "topic", client_id), json=json)


@command("why", "txn")
def why_txn(admin: Admin, id: Annotated[str, _id("The id that list txn shows.")], json: Json = False) -> None:
    """Why is a transaction not over: raybroker why txn -n 5"""
    _show(admin.why("transaction", id), json=json)


def _show(rows: Listing, *, json: bool) -> None:
    if json:
        output.as_json(rows)
    for row in rows if not json else ():
        output.say(_title(row))
        more = without(row, *_HEAD)
        output.fields({key: value for key, value in more.items() if value not in (None, [], "")})
        for title, reasons in (
            ("", row["reasons"]),
            ("before:", row["history"]),
            ("producers:", row.get("producers", ())),
        ):
            for text in ([f"  {title}"] if title and reasons else []) + [_said(reason) for reason in reasons]:
                output.say(text)
        if not row["reasons"]:
            output.say(f"  {row['text']}")
    end_of_list(rows)


def _title(row: Row) -> str:
    words = [f"{row['what']} {row['id']}"]
    if row.get("destination") and row["what"] != "destination":
        words.append(f"of {row['type']} {row['destination']}")
    if row.get("subscription"):
        words.append(f"in subscription {row['subscription']}")
    if row.get("broker"):
        words.append(f"at broker {row['broker']}")
    return f"{', '.join(words)}:"


def _said(reason: Row) -> str:
    """A reason, the times in it, and what takes it away."""
    times = "".join(
        f" {word} {moment(reason[key])}"
        for key, word in (("since_ms", "since"), ("until_ms", "until"))
        if reason.get(key)
    )
    return f"  - {reason['code']}: {reason['text']}{times}\n      → {reason['remedy']}"
