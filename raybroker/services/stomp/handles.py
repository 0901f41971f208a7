"""Handles of the client, as narrow as STOMP needs them: a connection to the broker, and its sessions."""

from __future__ import annotations

from typing import Any, Protocol

from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations
from raybroker.system.clock import SystemClock


class BrokerConnection(Protocol):
    """A connection."""

    clock: SystemClock

    @property
    def identity(self) -> str: ...

    def begin_session(self, session: Any, /) -> None: ...

    def end_session(self, session: Any, /) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class ReceivingSession(Protocol):
    """A session of mode "client", with one consumer."""

    def acknowledge(self, up_to: Any, /) -> Confirmations: ...

    def acknowledge_one(self, message: Any, /) -> Confirmations: ...

    def settle_as(
        self, message: Any, outcome: str, delay_ms: int | None = None, reason: str = "", /
    ) -> Confirmations: ...

    def flush_lazily(self) -> None: ...

    async def close_the_rest(self) -> None: ...


class StompTransactions(Protocol):
    """Those of a transacted session."""

    def join(self, messages: list[Any], /) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...
