"""Clients are listed with what they have, and found by it."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConfigError, ConnectionLostError, InvalidDestinationError
from raybroker.security.access_rules import User
from raybroker.services.clients.client_rows import (
    Wanted,
    client_row,
    counted,
    ended_because,
    ids_to_end,
    inside_rows,
    merged,
    require_ended,
    shown,
)
from raybroker.services.native.guest import TRAFFIC


class Client:
    id, user, peer = "b1/jms/1", User("ann", frozenset()), "192.0.2.7:99"

    def __init__(self) -> None:
        self.client: dict[str, Any] = {"client_id": "billing", "platform": "p"}


def guest(*destinations: str, consumers: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "producers": 1,
        "consumers": len(consumers),
        "destinations": list(destinations),
        "consumer_ids": list(consumers),
        **dict.fromkeys(TRAFFIC, 2),
    }


def row(**changed: Any) -> dict[str, Any]:
    rows = [guest("queue orders", consumers=(5,)), guest("queue orders", "topic news", consumers=(9,))]
    return {**client_row("jms", Client(), rows), **changed}


def test_a_row_has_what_all_its_connections_to_hosts_have() -> None:
    found = row()
    assert (found["producers"], found["consumers"], found["messages_in"]) == (2, 2, 4)
    assert (found["destinations"], found["consumer_ids"]) == (["queue orders", "topic news"], [5, 9])
    assert (found["user"], found["client_id"], found["host"]) == ("ann", "billing", "192.0.2.7:99")
    assert client_row("jms", Client(), [])["consumers"] == 0


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"service": "jms"}, True),
        ({"service": "stomp"}, False),
        ({"user": "ann"}, True),
        ({"user": "an"}, False),
        ({"client_id": "billing"}, True),
        ({"client_id": ""}, False),
        ({"address": "192.0.2.7"}, True),
        ({"address": "192.0.2.0/24"}, True),
        ({"address": "192.0.2.7/24"}, True),
        ({"address": "192.0.3.0/24"}, False),
        ({"address": "::1"}, False),
        ({"destination": "orders"}, True),
        ({"destination": "news", "type": "t"}, True),
        ({"destination": "news", "type": "q"}, False),
        ({"type": "topic"}, True),
        ({"consumer": 5}, True),
        ({"consumer": "9"}, True),
        ({"consumer": 7}, False),
        ({"user": "ann", "destination": "other"}, False),
    ],
)
def test_all_that_is_given_has_to_fit(wanted: dict[str, Any], fits: bool) -> None:
    assert Wanted.parse(**wanted).fits(row()) is fits


def test_what_can_fit_nobody_is_refused() -> None:
    for address in ("here", "10.0.0.0/99", "", "10.0.0.7:80"):
        with pytest.raises(ConfigError, match="a network such as"):
            Wanted.parse(address=address)
    with pytest.raises(InvalidDestinationError):
        Wanted.parse(type="heap")
    for nobody in ({}, {"type": "queue"}):
        with pytest.raises(ConfigError, match="say whose"):
            Wanted.in_particular(**nobody)
    assert Wanted.in_particular(user="", type="t") == Wanted(user="", type="topic")
    assert not Wanted.parse(address="0.0.0.0/0").fits(row(host="in-process-7:0"))
    assert Wanted.parse(address="::/0").fits(row(host="[::1]:7"))


# ---- inside the Ray cluster


def connection(id: str, *consumers: str, producers: int = 0, address: str = "10.0.0.7:5") -> dict[str, Any]:
    """Of a client inside, with ``consumers`` of orders."""
    return {
        "id": id,
        "client_id": "billing",
        "address": address,
        "pid": "7",
        "platform": "p",
        "producers": producers,
        "consumers": len(consumers),
        "destinations": ["queue orders"],
        "consumer_ids": list(range(len(consumers))),
        "consumer_keys": [f"{name} queue orders" for name in consumers],
    }


def test_a_client_inside_has_one_row_whichever_hosts_and_brokers_it_is_connected_to() -> None:
    first = inside_rows([("b1/h1", connection("c", "x", producers=1)), ("b1/h2", connection("c", "x", "y"))], "b1")
    second = inside_rows([("b2/h1", connection("c", "x", producers=1)), ("b2/h1", connection("a"))], "b2")
    outside = {"service": "jms", "id": "b1/jms/1", "broker": "b1"}
    found = {row["id"]: row for row in shown(merged([outside, *first, *second]))}
    row = found["c"]
    assert set(found) == {"c", "a", "b1/jms/1"}
    assert (row["service"], row["host"], row["user"], row["pid"]) == ("inside", "10.0.0.7:5", "", "7")
    assert (row["producers"], row["consumers"], row["hosts"]) == (2, 2, ["b1/h1", "b1/h2", "b2/h1"])
    assert (row["client_id"], row["broker"], row["messages_in"]) == ("billing", "b1", None)
    assert "consumer_keys" not in row
    assert Wanted.parse(service="inside", address="10.0.0.0/8", destination="orders").fits(row)
    assert not Wanted.parse(user="ann").fits(row)


def test_services_for_administration_are_not_ended_by_what_fits_them() -> None:
    rows = [{"id": service, "service": service} for service in ("jms", "admin", "httpsadmin", "inside")]
    assert ids_to_end(rows) == ["jms", "inside"]
    assert ended_because("call 7") == "an administrator has closed the connection: call 7"
    assert ended_because(None) == "an administrator has closed the connection"


def test_success_is_not_told_of_a_client_that_may_go_on_elsewhere() -> None:
    require_ended("c", ["c"], {})
    require_ended("b1/jms/1", ["b1/jms/1"], {"b2": "it is down"})  # It belongs to b1 alone.
    with pytest.raises(InvalidDestinationError, match="no connection 'c'"):
        require_ended("c", [], {})
    with pytest.raises(ConnectionLostError, match=r"c was ended elsewhere; .*b2 \(it is down\)"):
        require_ended("c", ["c"], {"b2": "it is down"})
    with pytest.raises(ConnectionLostError, match=r"nobody else has .* 'c'.*b2 \(it is down\)"):
        require_ended("c", [], {"b2": "it is down"})
    assert counted(["a", "b", "a"], {}) == 2
    with pytest.raises(ConnectionLostError, match=r"connections of 1 clients were ended.*b1/h1.* and 2 more"):
        counted(["a"], {f"b1/h{number}": "x" for number in range(1, 13)})
