"""Transactions on the command line: list, query, commit and rollback txn."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one, without
from raybroker.cli.command import command
from raybroker.cli.grid_words import Force, Json, ask, moment
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row

COLUMNS: Final = {
    "id": "id",
    "kind": "kind",
    "state": "state",
    "client_id": "client id",
    "messages": "messages",
    "acks": "acks",
    "created": "created",
}
TransactionId = Annotated[str, typer.Option("-n", "--id", metavar="ID", help="The id that list txn shows.")]


@command("list", "txn")
def list_txn(admin: Admin, json: Json = False) -> None:
    """List open and prepared transactions, local and distributed, and XA branches with a heuristic outcome.

    HEURISTICALLY_COMMITTED and HEURISTICALLY_ROLLED_BACK are prepared XA branches that an administrator has ended. They
    are listed until their transaction manager forgets them.
    """
    rows = admin.list_transactions()
    show_list(rows, COLUMNS, empty="no transactions", json=json, shown=_shown)


def _shown(row: Row) -> Row:
    return {**row, "id": f"{row['host']}:{row['id']}", "created": moment(row.get("created_ms"))}


@command("query", "txn")
def query_txn(admin: Admin, id: TransactionId, json: Json = False) -> None:
    """Show one transaction, with its client, connection and global id."""
    found = admin.query_transaction(id)
    show_one(found, json=json, shown=lambda row: without(_shown(row), "host", "created_ms"))


@command("commit", "txn")
def commit_txn(admin: Admin, id: TransactionId, force: Force = False) -> None:
    """Commit a PREPARED transaction whose manager does not: raybroker commit txn -n 5

    An XA branch is listed as HEURISTICALLY_COMMITTED from then on, until its transaction manager forgets it.
    """
    ask(force, f"commit transaction {id} against its manager?")
    admin.commit_transaction(id)
    output.say(f"committed transaction {id}")


@command("rollback", "txn")
def rollback_txn(admin: Admin, id: TransactionId, force: Force = False) -> None:
    """Roll back a PREPARED transaction whose manager does not: raybroker rollback txn -n 5

    An XA branch is listed as HEURISTICALLY_ROLLED_BACK from then on, until its transaction manager forgets it.
    """
    ask(force, f"rollback transaction {id} against its manager?")
    admin.rollback_transaction(id)
    output.say(f"rolled back transaction {id}")
