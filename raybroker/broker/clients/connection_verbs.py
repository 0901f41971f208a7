"""Verbs about clients, the same for one broker and for a cluster: listed, and ended by who they are or by their ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from raybroker.model.listing import Listing
from raybroker.services.clients.client_rows import Wanted, counted, ids_to_end, require_ended, shown

Found = Callable[[Wanted], Awaitable[Listing]]
"""Rows of the clients that are wanted, and who could not be asked."""
End = Callable[[list[str], "str | None"], Awaitable[tuple[list[str], dict[str, str]]]]
"""Ends clients by their ids, for a reason: those that were there, and who could not be asked."""


class ConnectionVerbs:
    """``found`` and ``end``: of one broker, or of all."""

    def __init__(self, found: Found, end: End) -> None:
        self._found = found
        self._end = end

    async def list_connections(
        self,
        service: str | None = None,
        user: str | None = None,
        address: str | None = None,
        client_id: str | None = None,
        destination: str | None = None,
        type: str | None = None,
        consumer: int | str | None = None,
    ) -> Listing:
        rows = await self._found(
            Wanted.parse(
                service=service,
                user=user,
                address=address,
                client_id=client_id,
                destination=destination,
                type=type,
                consumer=consumer,
            )
        )
        return Listing(shown(rows), rows.missing)

    async def destroy_connection(self, id: int | str, reason: str | None = None) -> None:
        ended, missing = await self._end([str(id)], reason)
        require_ended(str(id), ended, missing)

    async def destroy_connections(
        self,
        reason: str | None = None,
        service: str | None = None,
        user: str | None = None,
        address: str | None = None,
        client_id: str | None = None,
        destination: str | None = None,
        type: str | None = None,
        consumer: int | str | None = None,
    ) -> int:
        rows = await self._found(
            Wanted.in_particular(
                service=service,
                user=user,
                address=address,
                client_id=client_id,
                destination=destination,
                type=type,
                consumer=consumer,
            )
        )
        ended: list[str] = []
        missing: dict[str, str] = {}
        if ids := ids_to_end(rows):
            ended, missing = await self._end(ids, reason)
        return counted(ended, {**rows.missing, **missing})
