"""A producer without a destination of its own: each send names one.

Behind it is one producer for each destination that was sent to lately, opened when it is first needed.  It is the way
to answer many requests, whose queues are many and short-lived.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.destinations import Destination
from raybroker.client.producer.members.topic_pattern import PatternProducer
from raybroker.client.producer.members.unit_routing import RoutedProducer
from raybroker.client.producer.pacing.flow_rate import least
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.model.errors import BrokerError, IllegalStateError

AnyProducer = ProducerCore | PatternProducer | RoutedProducer

DESTINATIONS_MAX: Final = 32
"""Destinations whose producers are kept open; the one that was not used for the longest time is closed for another."""


class UnnamedProducer:
    """``open(destination, shared)`` opens a producer; ``let_go(producer)`` closes one once it is settled."""

    name = "(named by each send)"
    destination = None

    def __init__(
        self,
        connection: ConnectionCore,
        shared: Shared,
        opener: Callable[[Destination, Shared], Coroutine[Any, Any, AnyProducer]],
        let_go: Callable[[AnyProducer], Coroutine[Any, Any, None]],
        *,
        transacted: bool,
    ) -> None:
        self.shared = shared
        self.closed = False
        self.transacted = transacted
        self._connection = connection
        self._open = opener
        self._let_go = let_go
        self._lock = threading.Lock()
        self._opening = asyncio.Lock()
        self._producers: OrderedDict[Destination, AnyProducer] = OrderedDict()
        self._latest: tuple[Destination, AnyProducer] | None = None
        """The one that was used last, found again by the same object without a look at the others."""
        self._gone = 0
        """Duplicates that producers had which are closed."""
        self._refused = 0
        """As :attr:`_gone`, of messages that were refused and that nobody waited for."""

    def known(self, destination: Destination) -> AnyProducer | None:
        """The producer for a destination, if one is open; in any thread."""
        latest = self._latest
        if latest is not None and latest[0] is destination and not self.closed:
            return latest[1] if getattr(latest[1], "failure", None) is None else None
        with self._lock:
            found = self._producers.get(destination)
            if found is not None:
                self._producers.move_to_end(destination)
                self._latest = destination, found
        if self.closed:
            raise IllegalStateError("the producer is closed")
        return found if found is not None and getattr(found, "failure", None) is None else None

    async def find(self, destination: Destination) -> AnyProducer:
        """Return the producer for a destination, opened if there is none; on the IO loop. Raises what opening a
        producer raises."""
        async with self._opening:
            found = self.known(destination)
            if found is not None:
                return found
            opened = await self._open(destination, self.shared)
            with self._lock:
                failed = self._producers.pop(destination, None)
                self._producers[destination] = opened
                self._latest = destination, opened
                old = [failed] if failed is not None else []
                while len(self._producers) > DESTINATIONS_MAX:
                    old.append(self._producers.popitem(last=False)[1])
            for producer in old:
                self._gone += producer.duplicates
                self._refused += producer.refused
                self._connection.tasks.spawn(self._let_go(producer))
            return opened

    @property
    def throttled(self) -> bool:
        """One of the destinations is full, see :attr:`ProducerCore.throttled`."""
        return any(producer.throttled for producer in self._all())

    @property
    def duplicates(self) -> int:
        with self._lock:
            return self._gone + sum(producer.duplicates for producer in self._producers.values())

    @property
    def refused(self) -> int:
        with self._lock:
            return self._refused + sum(producer.refused for producer in self._producers.values())

    @property
    def flow_limit(self) -> float | None:
        """The limit of the destination that takes least, see :attr:`ProducerCore.flow_limit`."""
        return least(producer.flow_limit for producer in self._all())

    def wait_no_longer(self, error: BrokerError) -> None:
        """Do what :meth:`ProducerCore.wait_no_longer` does."""
        for producer in self._all():
            producer.wait_no_longer(error)

    def settled_futures(self) -> list[Future[None]]:
        return [future for producer in self._all() for future in producer.settled_futures()]

    async def close(self) -> None:
        self.closed = True
        fault: BrokerError | None = None
        for producer in self._all():
            try:
                await producer.close()
            except BrokerError as error:
                fault = fault or error
        if fault is not None:
            raise fault

    def _all(self) -> list[AnyProducer]:
        with self._lock:
            return list(self._producers.values())


OwnProducer = AnyProducer | UnnamedProducer
"""What a handle is made of."""
