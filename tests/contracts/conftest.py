"""Brokers for the contract of the handles: memory, a directory, and the asynchronous face."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contracts.handles import LoopbackBroker

MakeBroker = Callable[..., LoopbackBroker]
FACES = ("memory", "store", "aio")


@pytest.fixture(params=FACES)
def make_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBroker]:
    """Brokers with properties of their own (dots of a name written as ``__``), closed at the end."""
    made: list[LoopbackBroker] = []

    def make(**properties: object) -> LoopbackBroker:
        store = tmp_path / f"store{len(made)}" if request.param == "store" else None
        made.append(LoopbackBroker(store, "aio" if request.param == "aio" else "blocking", **properties))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(make_broker: MakeBroker) -> LoopbackBroker:
    """A broker with the defaults."""
    return make_broker()
