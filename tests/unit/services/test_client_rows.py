"""Clients are listed with what they have, and found by it."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConfigError, InvalidDestinationError
from raybroker.security.access_rules import User
from raybroker.services.client_rows import ALL, Wanted, client_row
from raybroker.services.native import TRAFFIC


class Client:
    id, user, peer = "b1/jms/1", User("ann", frozenset()), "192.0.2.7:99"

    def __init__(self) -> None:
        self.client: dict[str, Any] = {"client_id": "billing", "platform": "p"}


def guest(*destinations: str, consumers: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "producers": 1, "consumers": len(consumers), "destinations": list(destinations),
        "consumer_ids": list(consumers), **dict.fromkeys(TRAFFIC, 2),
    }  # fmt: skip


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
        ({}, True), ({"service": "jms"}, True), ({"service": "stomp"}, False), ({"user": "ann"}, True),
        ({"user": "an"}, False), ({"client_id": "billing"}, True), ({"client_id": ""}, False),
        ({"address": "192.0.2.7"}, True), ({"address": "192.0.2.0/24"}, True), ({"address": "192.0.2.7/24"}, True),
        ({"address": "192.0.3.0/24"}, False), ({"address": "::1"}, False), ({"destination": "orders"}, True),
        ({"destination": "news", "type": "t"}, True), ({"destination": "news", "type": "q"}, False),
        ({"type": "topic"}, True), ({"consumer": 5}, True), ({"consumer": "9"}, True), ({"consumer": 7}, False),
        ({"user": "ann", "destination": "other"}, False),
    ],
)  # fmt: skip
def test_all_that_is_given_has_to_fit(wanted: dict[str, Any], fits: bool) -> None:
    assert Wanted.of(**wanted).fits(row()) is fits


def test_what_can_fit_nobody_is_refused() -> None:
    for address in ("here", "10.0.0.0/99", "", "10.0.0.7:80"):
        with pytest.raises(ConfigError, match="a network such as"):
            Wanted.of(address=address)
    with pytest.raises(InvalidDestinationError):
        Wanted.of(type="heap")
    assert Wanted.of(type="queue").nobody_in_particular
    assert ALL.nobody_in_particular
    assert not Wanted.of(user="").nobody_in_particular
    assert not Wanted.of(address="0.0.0.0/0").fits(row(host="in-process-7:0"))
    assert Wanted.of(address="::/0").fits(row(host="[::1]:7"))
