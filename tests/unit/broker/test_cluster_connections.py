"""Clients of all brokers: listed once each, and ended at all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.clients.connection_verbs import ConnectionVerbs
from raybroker.broker.cluster.cluster_connections import ClusterConnections
from raybroker.errors import BrokerGoneError, ConfigError, ConnectionLostError, InvalidDestinationError
from raybroker.model.listing import Listing
from raybroker.services.clients.client_rows import inside_rows


def connection(id: str, broker: str, destination: str) -> dict[str, Any]:
    (row,) = inside_rows(
        [
            (
                f"{broker}/h1",
                {
                    "id": id,
                    "client_id": "",
                    "address": "10.0.0.7:5",
                    "producers": 1,
                    "consumers": 0,
                    "consumer_ids": [],
                    "destinations": [f"queue {destination}"],
                    "consumer_keys": [],
                },
            )
        ],
        broker,
    )
    return row


class Brokers:
    """``rows``: broker → what it lists, or raises."""

    def __init__(self, **rows: Any) -> None:
        self.rows = rows
        self.down: list[str] = []
        self.told: list[tuple[str, list[str], str | None]] = []

    def live(self) -> list[str]:
        return [broker for broker in self.rows if broker not in self.down]

    def absent(self) -> dict[str, str]:
        return dict.fromkeys(self.down, "it is down")

    async def ask_at(self, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        rows = self.rows[broker]
        if isinstance(rows, Exception):
            raise rows
        if method == "clients":
            return Listing([row for row in rows if args["service"] in (None, row["service"])])
        self.told.append((broker, args["ids"], args["reason"]))
        return [row["id"] for row in rows if row["id"] in args["ids"]], {}


def verbs(brokers: Brokers) -> ConnectionVerbs:
    connections = ClusterConnections(brokers)
    return ConnectionVerbs(connections.found, connections.end_connections)


def test_a_client_of_two_brokers_is_held_against_all_that_it_has() -> None:
    brokers = Brokers(
        b1=[connection("c", "b1", "orders")], b2=[connection("c", "b2", "news"), connection("d", "b2", "x")]
    )
    found = verbs(brokers)
    rows = asyncio.run(found.list_connections(destination="news"))
    assert [(row["id"], row["destinations"]) for row in rows] == [("c", ["queue news", "queue orders"])]
    assert [row["id"] for row in asyncio.run(found.list_connections())] == ["c", "d"]
    assert asyncio.run(found.destroy_connections("call 7", destination="orders")) == 1
    assert brokers.told == [("b1", ["c"], "call 7"), ("b2", ["c"], "call 7")]


def test_nobody_is_told_anything_when_nothing_fits() -> None:
    brokers = Brokers(b1=[connection("c", "b1", "orders")])
    assert asyncio.run(verbs(brokers).destroy_connections(user="eve")) == 0
    assert brokers.told == []
    with pytest.raises(ConfigError, match="say whose"):
        asyncio.run(verbs(brokers).destroy_connections("why"))
    with pytest.raises(InvalidDestinationError, match="no connection 'x'"):
        asyncio.run(verbs(brokers).destroy_connection("x"))


def test_brokers_that_cannot_be_asked_are_named_and_the_others_are_told() -> None:
    brokers = Brokers(b1=[connection("c", "b1", "orders")], b2=BrokerGoneError("it hangs"), b3=[])
    brokers.down = ["b3"]
    found = verbs(brokers)
    rows = asyncio.run(found.list_connections())
    assert ([row["id"] for row in rows], rows.missing) == (["c"], {"b2": "it hangs", "b3": "it is down"})
    with pytest.raises(ConnectionLostError, match=r"b2 \(it hangs\); b3 \(it is down\)"):
        asyncio.run(found.destroy_connection("c"))
    with pytest.raises(ConnectionLostError, match=r"connections of 1 clients were ended.*b2"):
        asyncio.run(found.destroy_connections(service="inside"))
    assert brokers.told == [("b1", ["c"], None)] * 2


def test_what_a_broker_refuses_is_raised() -> None:
    with pytest.raises(ConfigError, match="no such service"):
        asyncio.run(verbs(Brokers(b1=ConfigError("no such service"))).list_connections("jmz"))
