"""The check that error destinations do not lead back, by what the hosts of a broker serve now."""

from __future__ import annotations

from collections.abc import Mapping

from raybroker.broker.destinations.destination_registry import Key
from raybroker.hosting.host_port import HostPort
from raybroker.model.settings.settings import go_on


async def refuse_circle(where: Mapping[Key, HostPort], key: Key, error_destination: object) -> None:
    """Raises ConfigError when dead messages of ``key`` would go round in a circle with this error destination.

    ``where``: the host of each destination.
    """
    way = [key[1]]
    while key[0] == "queue" and error_destination:
        go_on(way, str(error_destination))
        host = where.get(("queue", way[-1]))
        row = await host.destinations.query("queue", way[-1]) if host is not None else {"attributes": {}}
        error_destination = row["attributes"].get("errorDestination")
