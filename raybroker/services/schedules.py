"""Recurring schedules of all hosts: what administrators see and end; producers make them (B17)."""

from __future__ import annotations

from raybroker.model.errors import InvalidDestinationError
from raybroker.model.names import check_destination_type
from raybroker.services.ports import HostPort, Row
from raybroker.services.registry import Registry


class Schedules:
    """The schedules on the hosts of one broker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list_all(self, name: str | None = None, type: str | None = None) -> list[Row]:  # noqa: A002
        """One row a schedule, those that come next first: of one destination, of two with that name, or of all."""
        kind = None if type is None else check_destination_type(type)
        found = []
        for host in list(self._registry.hosts):
            found += [{**row, "host": host.key} for row in await host.schedules(kind, name)]
        return sorted(found, key=lambda row: (row["next_ms"] is None, row["next_ms"], row["id"]))

    async def query(self, id: str) -> Row:  # noqa: A002
        """One schedule; raises InvalidDestinationError when there is none."""
        return (await self._find(id))[1]

    async def destroy(self, id: str) -> None:  # noqa: A002
        """End a schedule; what it has sent stays. Raises InvalidDestinationError when there is none."""
        host, _ = await self._find(id)
        await host.destroy_schedule(id)

    async def _find(self, id_: str) -> tuple[HostPort, Row]:
        for host in list(self._registry.hosts):
            for row in await host.schedules(None, None):
                if row["id"] == id_:
                    return host, {**row, "host": host.key}
        what = f"schedule {str(id_)[:80]!r}"
        self._registry.require_all_asked(what)
        raise InvalidDestinationError(f"there is no {what}; list_schedules shows those there are")
