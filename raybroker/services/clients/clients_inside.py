"""A host's clients inside the Ray cluster: connections that came in by its data socket, with the cluster's token.

A client is known by the id of its connection, which it tells each host that it comes to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from raybroker.services.native.native import NativeService


class HostClientsInside:
    """The clients inside of one host, on the loop of the native service; a role of hosting.host_port."""

    def __init__(self, service: NativeService) -> None:
        self._service = service

    async def client_rows(self) -> list[dict[str, Any]]:
        """One for each connection that is in: id (of the client's connection), client_id, address, what the client says
        of itself, producers, consumers, destinations, consumer_ids and consumer_keys."""
        found = []
        for connection in self._service.connections:
            id, client_id = connection.identity  # noqa: A001 - as in the rows of guests
            if connection.guest is None and id:
                found.append(
                    {
                        "id": id,
                        "client_id": client_id,
                        "address": connection.peer,
                        **connection.told,
                        **connection.counts(),
                        "consumer_keys": connection.consumer_keys(),
                    }
                )
        return found

    async def retire(self, why: str) -> int:
        """End all clients, guests too, and take none any more: what is served here is about to be elsewhere, and they
        look for it. Returns how many are still to go."""
        return self._service.retire(why)

    async def end_clients(self, ids: Collection[str], why: str) -> list[str]:
        """End these clients here, and take none of them any more; returns those that had a connection."""
        self._service.ended.add(ids, why)
        wanted, found = frozenset(ids), set()
        for connection in list(self._service.connections):
            if connection.guest is None and connection.identity[0] in wanted:
                found.add(connection.identity[0])
                connection.end_for_good(why)
        return sorted(found)
