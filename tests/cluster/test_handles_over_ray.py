"""The contract of the handles over a broker in Ray: the same tests as over the loopback."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from tests.contracts.handle_basics import Basics

_numbers = itertools.count(1)


class RayBroker:
    """The module's cluster as the contract wants it."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def name(self) -> str:
        return f"queue{next(_numbers)}"

    def connect(self, *, started: bool = True, client_id: str | None = None, **attributes: object) -> Any:
        connection = rb.connect(client_id=client_id, **attributes)
        self.made.append(connection)
        if started:
            connection.start()
        return connection


@pytest.fixture
def broker(cluster: Any) -> Iterator[RayBroker]:
    found = RayBroker()
    yield found
    for connection in found.made:
        connection.close()


class TestOverRay(Basics):
    """Every test of the basics."""
