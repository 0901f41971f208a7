"""What an actor of ours does first in its process: what Ray and the imports have left is out of the collector's way."""

from __future__ import annotations

import gc
import multiprocessing as mp
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from raybroker.actors.broker_actor import BrokerActor


def _broker(pipe: Any) -> None:
    def shell(*_: object) -> None:
        pipe.send(gc.get_freeze_count())

    stand_in = ModuleType("raybroker.actors.broker")
    stand_in.BrokerShell = shell  # type: ignore[attr-defined]
    sys.modules[stand_in.__name__] = stand_in
    given: Any = None
    BrokerActor(given)


def _host(pipe: Any) -> None:
    from raybroker.actors.hosts.host import DestinationHost

    class Begun(DestinationHost):
        def _begin_as(self, spec: Any) -> Any:
            pipe.send(gc.get_freeze_count())
            self.ready = threading.Event()
            self.ready.set()
            return self

    Begun(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("begin", [_broker, _host])
def test_nothing_that_was_there_before_is_looked_through_at_the_start(begin: Callable[[Any], None]) -> None:
    """The collector goes through all that Ray imports in 40 ms, and does so once or twice in a start of 300."""
    mine, other = mp.Pipe()
    process = mp.get_context("spawn").Process(target=begin, args=(other,))
    process.start()
    try:
        assert mine.poll(60), "the process said nothing"
        assert mine.recv() > 1_000
    finally:
        process.join(60)
