"""Draining: before maintenance a broker is stopped in order, and started on another one's node at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.takeovers import StoreWatch
from raybroker.broker.observing.alone import NotShared
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerGoneError, ConfigError, IllegalStateError

DRAIN: Final = "drain"
"""What brokers ask the one that is to take another one over."""
ASK_TIMEOUT_S: Final = 30.0
"""How long the broker that takes over may take to begin."""


class Draining:
    """``store``: see StoreWatch; ``shut_down`` shuts a broker down in order, and answers at once."""

    def __init__(
        self, brokers: BrokerCalls, store: StoreWatch | NotShared, shut_down: Callable[[str], Awaitable[object]]
    ) -> None:
        self._brokers = brokers
        self._store = store
        self._shut_down = shut_down

    async def drain_broker(self, broker: str, to: str | None = None) -> Row:
        """See the verb."""
        up = self._brokers.live()
        if broker not in up:
            raise BrokerGoneError(
                f"broker {broker} is not up, and cannot be drained; up are {', '.join(sorted(up))}. What a lost one has"
                f" stored: raybroker takeover bkr -n {broker}"
            )
        others = [name for name in up if name != broker]
        if not others:
            raise IllegalStateError(f"broker {broker} is the only one that is up: nobody could serve what it stores")
        if to is not None and to not in others:
            raise ConfigError(f"broker {broker} cannot be drained to {to!r}; others that are up: {', '.join(others)}")
        taker = to or others[0]
        answer: Row = await self._brokers.ask_at(taker, DRAIN, {"broker": broker}, ASK_TIMEOUT_S)
        return answer

    async def take_drained(self, broker: str) -> Row:
        """Drain a broker to this one."""
        return await self._store.take_drained(broker, partial(self._shut_down, broker))
