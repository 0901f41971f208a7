"""Brokers for the contract of the handles: memory, a directory, and the asynchronous face."""

from __future__ import annotations

import shutil
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
        face = "aio" if request.param == "aio" else "blocking"
        # Segments are reserved on the disk, and there are hundreds of these stores.
        made.append(LoopbackBroker(store, face, raybroker__store__segment_bytes="1m", **properties))
        return made[-1]

    yield make
    for broker in made:
        broker.close()
    for store in tmp_path.glob("store*"):
        shutil.rmtree(store)


@pytest.fixture
def broker(make_broker: MakeBroker) -> LoopbackBroker:
    """A broker with the defaults."""
    return make_broker()
