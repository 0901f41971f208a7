"""Transactions from the command line (A-43 … A-46), over an administrator who has some."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from raybroker.cli import connecting
from raybroker.model.errors import IllegalStateError
from raybroker.model.listing import Listing

ROWS = [
    {
        "id": 5,
        "key": "aa",
        "kind": "xa",
        "state": "PREPARED",
        "xid": "1:aa:",
        "client_id": "billing",
        "connection": "c1",
        "messages": 3,
        "acks": 2,
        "created_ms": 1_700_000_000_000,
        "coordinator": "",
        "host": "b1/h1",
    },
    {
        "id": 6,
        "key": "bb",
        "kind": "local",
        "state": "STARTED",
        "xid": None,
        "client_id": None,
        "connection": "c2",
        "messages": 0,
        "acks": 0,
        "created_ms": None,
        "coordinator": "",
        "host": "b1/h2",
    },
]


class FakeAdmin:
    """Knows two transactions and what it was told to do with them."""

    def __init__(self) -> None:
        self.settled: list[tuple[str, str]] = []

    def list_transactions(self) -> list[dict[str, Any]]:
        return ROWS

    def query_transaction(self, id: str) -> dict[str, Any]:
        return next(row for row in ROWS if id in (str(row["id"]), f"{row['host']}:{row['id']}"))

    def commit_transaction(self, id: str) -> None:
        if self.query_transaction(id)["state"] != "PREPARED":
            raise IllegalStateError(f"transaction {id} is STARTED")
        self.settled.append(("commit", id))

    def rollback_transaction(self, id: str) -> None:
        self.settled.append(("rollback", id))


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    found = FakeAdmin()

    @contextmanager
    def administering(cluster: str, broker: str | None) -> Any:
        yield found

    monkeypatch.setattr(connecting, "administering", administering)
    return found


def test_transactions_are_listed_under_ids_that_are_unique(raybroker: Any, admin: FakeAdmin) -> None:
    header, first, second = raybroker.output("list", "txn").splitlines()
    assert header.split() == ["ID", "KIND", "STATE", "CLIENT_ID", "MESSAGES", "ACKS", "CREATED"]
    assert first.split()[:6] == ["b1/h1:5", "xa", "PREPARED", "billing", "3", "2"]
    assert first.split()[6].startswith("2023-11-1")
    assert second.split() == ["b1/h2:6", "local", "STARTED", "-", "0", "0", "-"]
    assert raybroker.json("list", "txn") == ROWS


def test_query_shows_one_in_full(raybroker: Any, admin: FakeAdmin) -> None:
    lines = [line.split() for line in raybroker.output("query", "txn", "-n", "b1/h1:5").splitlines()]
    assert ["id", "b1/h1:5"] in lines
    assert ["xid", "1:aa:"] in lines
    assert raybroker.json("query", "txn", "-n", "6")["connection"] == "c2"


def test_a_transaction_is_settled_by_hand(raybroker: Any, admin: FakeAdmin) -> None:
    assert raybroker.output("commit", "txn", "-f", "-n", "5") == "committed transaction 5\n"
    assert raybroker.output("rollback", "txn", "-f", "-n", "b1/h1:5", "-f") == "rolled back transaction b1/h1:5\n"
    assert admin.settled == [("commit", "5"), ("rollback", "b1/h1:5")]
    result = raybroker("commit", "txn", "-f", "-n", "6")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "raybroker: transaction 6 is STARTED\n")


@pytest.mark.parametrize("json", [True, False])
def test_a_list_that_is_not_whole_is_shown_and_says_so(
    json: bool, raybroker: Any, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "list_transactions", lambda: Listing(ROWS, {"b2/h3": "restarting"}))
    found = raybroker("list", "txn", *(["--json"] if json else []))
    assert found.exit_code == 3
    assert "billing" in found.stdout
    told = "the list is not whole: b2/h3 has not answered (restarting)"
    assert found.stderr == (f'{{"error": "{told}"}}\n' if json else f"raybroker: {told}\n")
