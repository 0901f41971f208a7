"""The demand of a queue, which brokers tell each second to whoever listens: nobody asks them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from raybroker.client.blocking.handles import Connection
from raybroker.client.listener.promise import Demand
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock
from raybroker.system.supervision import Supervisor

TOPIC: Final = "topic:mq.metrics.demand.queue."
STALE_S: Final = 15.0
"""What was told longer ago is not believed."""
HEAR_S: Final = 1.0
"""How long it waits for a message before it looks whether it should stop."""
PAUSE_S: Final = 2.0
"""Between attempts to connect."""

log = logging.getLogger("raybroker.listener")


class DemandFeed:
    """Listens in a thread of its own, from now until ``end_listening``; ``attach`` makes a connection."""

    def __init__(self, queue: str, attach: Callable[[], Connection]) -> None:
        self._queue = queue
        self._attach = attach
        self._told: dict[str, Demand] = {}
        """By broker, the last that each has told."""
        self._over = threading.Event()
        self.trouble = "nothing has been heard yet"
        self._loops = Supervisor(f"the demand of {queue}")
        self._thread = self._loops.thread("hear the demand", self._listen, thread_name="raybroker-demand")

    def now(self) -> Demand | None:
        """The demand of all brokers together; None when none has told it lately."""
        least = _now_s() - STALE_S
        rows = [row for row in list(self._told.values()) if row.at_s > least]
        if not rows:
            return None
        return Demand(
            sum(row.backlog for row in rows),
            max(row.oldest_s for row in rows),
            sum(row.came for row in rows),
            sum(row.done for row in rows),
            max(row.at_s for row in rows),
        )

    def end_listening(self, wait_s: float = 0.0) -> None:
        """Listen no more; its connection is closed within a second, which is waited for so long."""
        self._over.set()
        self._loops.close()
        self._thread.join(wait_s)

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                with self._attach() as connection:
                    self._hear(connection)
            except BrokerError as error:
                if repr(error) != self.trouble:
                    log.warning("the demand of %s is not heard: %s", self._queue, error)
                self.trouble = repr(error)
                self._over.wait(PAUSE_S)

    def _hear(self, connection: Connection) -> None:
        consumer = connection.session().consumer(f"{TOPIC}{self._queue}")
        while not self._over.is_set():
            message = consumer.receive(HEAR_S)
            if message is not None:
                self._told[str(message.properties.get("brokerName"))] = demand_of(message.body)


def demand_of(told: dict[str, Any]) -> Demand:
    """What a broker has told just now; delayed messages are for later."""
    backlog = max(int(told["waiting"]) + int(told["unacknowledged"]), 0)
    return Demand(backlog, told["oldestAgeMs"] / 1000, int(told["numMsgsIn"]), int(told["numMsgsOut"]), _now_s())


def _now_s() -> float:
    return SystemClock.monotonic_ns() / 1e9
