"""Belongings of a connection: the handles that are open, and what is kept for them until the connection ends."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from raybroker.client.connection.consumer_watch import ConsumerWatches
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.consumer.prefetch.duplicate_deliveries import DuplicateDeliveries
from raybroker.client.destinations import Destination
from raybroker.client.session.branch import Branch
from raybroker.model.balancing import Chooser
from raybroker.model.errors import BrokerError
from raybroker.system.entropy import token

if TYPE_CHECKING:
    from raybroker.model.naming.xid import Xid


NUMBER_BYTES: Final = 4


class Choosers:
    """The choosers of one connection."""

    def __init__(self) -> None:
        self._choosers: dict[tuple[Destination, str], Chooser] = {}

    def chooser_for(self, destination: Destination, policy: str, whose: str) -> Chooser:
        """The position among the members of a destination, for its "producers" or "consumers": each goes round by
        itself."""
        found = self._choosers.get((destination, whose))
        if found is None or found.policy != policy:
            found = Chooser(policy, lambda: int.from_bytes(token(NUMBER_BYTES), "little"))
            self._choosers[destination, whose] = found
        return found


class OpenBuffer(Protocol):
    """What threads of the application wait at, as its connection sees it."""

    closed: bool


class OpenHandles:
    """``watches``: the destinations whose consumers the application wants to know of."""

    def __init__(self, watches: ConsumerWatches) -> None:
        self.watches = watches
        self.consumers: dict[Endpoint, None] = {}
        """In the order in which they were opened."""
        self.producers: list[Endpoint] = []
        self.buffers: weakref.WeakSet[OpenBuffer] = weakref.WeakSet()
        """Closed in a forked child."""

    def forget_producer(self, producer: Endpoint) -> None:
        """It was closed."""
        self.producers = [other for other in self.producers if other is not producer]

    def wait_no_longer(self, error: BrokerError) -> None:
        """The connection is being closed: a listener that waits for a full destination would wait for ever."""
        for producer in self.producers:
            producer.wait_no_longer(error)

    def shut(self, error: BrokerError) -> None:
        """The connection has ended: nothing more is received, and producers fail with ``error``."""
        for consumer in list(self.consumers):
            consumer.shut()
        for producer in list(self.producers):
            producer.fail(error)


class KeptToTheEnd:
    """What a connection keeps until it ends.

    at_close     what else ends with it, in order; errors of it are nobody's any more
    temporaries  its temporary destinations; ``temporaries_end``: what deletes them is among ``at_close``
    branches     those of distributed transactions
    choosers     take turns among the members of a destination
    duplicates   what more than one member has delivered
    """

    def __init__(self) -> None:
        self.at_close: list[Callable[[], Awaitable[object]]] = []
        self.temporaries: set[Destination] = set()
        self.temporaries_end = False
        self.branches: dict[Xid, Branch] = {}
        self.choosers = Choosers()
        self.duplicates = DuplicateDeliveries()
