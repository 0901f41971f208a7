"""Transactions on the command line: list, query, commit and rollback txn."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, show_one, without
from raybroker.cli.groups import groups
from raybroker.cli.objects import Cluster, Force, Json, ask, moment
from raybroker.model.listing import Row

COLUMNS: Final = {
    "id": "id", "kind": "kind", "state": "state", "client_id": "client id", "messages": "messages", "acks": "acks",
    "created": "created",
}  # fmt: skip
TransactionId = Annotated[str, typer.Option("-n", "--id", metavar="ID", help="The id that list txn shows.")]


@groups["list"].command("txn")
def list_txn(cluster: Cluster = "default", json: Json = False) -> None:
    """List open and prepared transactions, local and distributed, and XA branches with a heuristic outcome.

    HEURISTICALLY_COMMITTED and HEURISTICALLY_ROLLED_BACK are prepared XA branches that an administrator has ended. They
    are listed until their transaction manager forgets them.
    """
    with connecting.administering(cluster) as admin:
        rows = admin.list_transactions()
    show_list(rows, COLUMNS, empty="no transactions", json=json, shown=_shown)


def _shown(row: Row) -> Row:
    return {**row, "id": f"{row['host']}:{row['id']}", "created": moment(row.get("created_ms"))}


@groups["query"].command("txn")
def query_txn(id: TransactionId, cluster: Cluster = "default", json: Json = False) -> None:
    """Show one transaction, with its client, connection and global id."""
    with connecting.administering(cluster) as admin:
        found = admin.query_transaction(id)
    show_one(found, json=json, shown=lambda row: without(_shown(row), "host", "created_ms"))


@groups["commit"].command("txn")
def commit_txn(id: TransactionId, force: Force = False, cluster: Cluster = "default") -> None:
    """Commit a PREPARED transaction whose manager does not: raybroker commit txn -n 5

    An XA branch is listed as HEURISTICALLY_COMMITTED from then on, until its transaction manager forgets it.
    """
    _settle(id, "commit", force, cluster)
    output.say(f"committed transaction {id}")


@groups["rollback"].command("txn")
def rollback_txn(id: TransactionId, force: Force = False, cluster: Cluster = "default") -> None:
    """Roll back a PREPARED transaction whose manager does not: raybroker rollback txn -n 5

    An XA branch is listed as HEURISTICALLY_ROLLED_BACK from then on, until its transaction manager forgets it.
    """
    _settle(id, "rollback", force, cluster)
    output.say(f"rolled back transaction {id}")


def _settle(id_: str, verb: str, force: bool, cluster: str) -> None:
    ask(force, f"{verb} transaction {id_} against its manager?")
    with connecting.administering(cluster) as admin:
        (admin.commit_transaction if verb == "commit" else admin.rollback_transaction)(id_)
