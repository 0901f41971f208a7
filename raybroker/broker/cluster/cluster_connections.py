"""Clients of a whole cluster: found once each, and ended wherever they are.

A client outside belongs to the broker that it has logged in at.  One inside the Ray cluster has connections to hosts of
any brokers: its row is put together from all of them, and it is ended at all of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerError, ConnectionLostError, RequestTimeoutError
from raybroker.model.listing import Listing
from raybroker.services.clients.client_rows import Wanted, merged

ASK_TIMEOUT_S: Final = 20.0
"""How long another broker may take."""
LIST, END = "clients", "end_clients"
"""What brokers ask each other."""


class ClusterConnections:
    """The steps of ``connection_verbs``, at all brokers."""

    def __init__(self, brokers: BrokerCalls) -> None:
        self._brokers = brokers

    async def found(self, wanted: Wanted) -> Listing:
        """Clients that are wanted. A client inside is held against all arguments once its row is whole."""
        answers, missing = await self._asked(LIST, wanted.of_each)
        rows: list[Row] = []
        for _, answer in answers:
            if isinstance(answer, ConnectionLostError | RequestTimeoutError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            rows += answer
            missing.update(answer.missing)
        return Listing([row for row in merged(rows) if wanted.fits(row)], missing)

    async def end_connections(self, ids: list[str], reason: str | None) -> tuple[list[str], dict[str, str]]:
        """End them; return those that were there, and who could not be asked."""
        answers, missing = await self._asked(END, {"ids": ids, "reason": reason})
        ended: set[str] = set()
        for broker, answer in answers:
            if isinstance(answer, BrokerError):
                missing[broker] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                ended |= set(answer[0])
                missing.update(answer[1])
        return sorted(ended), missing

    async def _asked(self, method: str, args: Row) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        """(broker, what it answered or raised) of those that are up, asked at once; and who cannot be asked → why."""
        brokers = self._brokers.live()
        work = (self._brokers.ask_at(broker, method, args, ASK_TIMEOUT_S) for broker in brokers)
        answers = list(zip(brokers, await asyncio.gather(*work, return_exceptions=True), strict=True))
        missing = self._brokers.absent()
        lost = (ConnectionLostError, RequestTimeoutError)
        missing |= {broker: str(answer) for broker, answer in answers if isinstance(answer, lost)}
        return answers, missing
