"""The connection of one who administers over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from raybroker.model.errors import BrokerError, RequestTimeoutError
from raybroker.model.listing import Row

ANSWER_TIMEOUT_S: Final = 90.0
"""How long a verb may take: longer than the broker's own bounds."""
CLOSE_TIMEOUT_S: Final = 10.0


class Verbs(Protocol):
    """``conn.admin()`` of a connection of the asyncio face."""

    _call: Callable[[str, Row], Awaitable[Any]]


class AdminConnection(Protocol):
    """A connection of the asyncio face (``raybroker.aio``)."""

    def admin(self) -> Verbs: ...
    async def close(self) -> None: ...


class Administrator:
    """It is of use once :meth:`use` has given it a connection."""

    def __init__(self) -> None:
        self.ended = False
        """The broker has ended it."""
        self.busy = False
        """Nothing is held between two requests."""
        self._connection: AdminConnection

    def use(self, connection: AdminConnection) -> None:
        self._connection = connection

    def was_ended(self, error: BrokerError) -> None:
        """The broker has ended the connection."""
        self.ended = True

    async def carry_out(self, verb: str, args: Row) -> Any:
        """What the verb answers; raises what it raises."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._connection.admin()._call(verb, args)
        except TimeoutError:
            raise RequestTimeoutError(
                f"{verb} has not ended in {ANSWER_TIMEOUT_S:g} s; whether it was done is unknown: look before you ask"
                " again"
            ) from None

    async def close(self) -> None:
        with contextlib.suppress(BrokerError, TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._connection.close()
