"""Clients inside the cluster, as the broker of their hosts lists and ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.clients.clients_inside import ClientsInside
from raybroker.errors import ConnectionLostError


class Host:
    """With so many connections of a client ``c``; ``failure``: what it answers instead."""

    def __init__(self, key: str, failure: Exception | None = None, *, has: bool = True) -> None:
        self.key = key
        self.clients = self
        self.failure = failure
        self.has = has
        self.ended: list[tuple[list[str], str]] = []

    async def client_rows(self) -> list[dict[str, Any]]:
        self._answer()
        row = {
            "id": "c",
            "client_id": "",
            "address": "10.0.0.7:5",
            "producers": 1,
            "consumers": 0,
            "destinations": [],
            "consumer_ids": [],
            "consumer_keys": [],
        }
        return [row] if self.has else []

    async def end_clients(self, ids: list[str], why: str) -> list[str]:
        self._answer()
        self.ended.append((ids, why))
        return ["c"] if self.has else []

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure


def inside(*hosts: Any, unasked: tuple[str, ...] = ()) -> ClientsInside:
    return ClientsInside(lambda: hosts, lambda: unasked, lambda kind, name: hosts[0], broker="b1")


def test_all_hosts_are_asked_and_those_that_do_not_answer_are_named() -> None:
    away = Host("b1/h2", ConnectionLostError("it restarts"))
    one, idle = Host("b1/h1"), Host("b1/h3", has=False)
    found = inside(one, away, idle, unasked=("b1/h9",))
    rows, missing = asyncio.run(found.client_rows())
    assert [(row["id"], row["hosts"], row["broker"]) for row in rows] == [("c", ["b1/h1"], "b1")]
    assert missing["b1/h2"] == "it restarts"
    assert set(missing) == {"b1/h2", "b1/h9"}
    ended, missing = asyncio.run(found.end_clients(["c"], "why"))
    assert (ended, set(missing)) == (["c"], {"b1/h2", "b1/h9"})
    assert one.ended == idle.ended == [(["c"], "why")]  # It is not to come to the other one either.


def test_what_is_no_error_of_a_broker_is_a_fault_of_ours() -> None:
    with pytest.raises(RuntimeError):
        asyncio.run(inside(Host("b1/h1"), Host("b1/h2", RuntimeError("a bug"))).client_rows())


def test_who_has_a_client_id_is_asked_of_one_host_and_is_nobody_while_it_is_away() -> None:
    one, away = Host("b1/h1"), Host("b1/h1", ConnectionLostError("it restarts"))
    assert asyncio.run(inside(one, Host("b1/h2", RuntimeError("not asked"))).held("")) == {"c"}
    assert asyncio.run(inside(one).held("other")) == set()
    assert asyncio.run(inside(away).held("")) == set()
