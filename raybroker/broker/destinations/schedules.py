"""Administration of recurring schedules on all hosts; producers create them."""

from __future__ import annotations

from raybroker.broker import host_listing
from raybroker.broker.destinations.destination_registry import Registry
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.listing import Listing
from raybroker.model.naming.names import check_destination_type


class ScheduleVerbs:
    """The schedules on the hosts of one broker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list_schedules(self, destination: str | None = None, type: str | None = None) -> Listing:
        """One row a schedule, those that come next first: of one destination, of two with that name, or of all."""
        kind = None if type is None else check_destination_type(type)
        found, missing = await host_listing.each_host(
            self._registry, lambda host: host.schedules.schedule_rows(kind, destination)
        )
        rows = [{**row, "host": host.key} for host, row in found]
        return Listing(sorted(rows, key=lambda row: (row["next_ms"] is None, row["next_ms"], row["id"])), missing)

    async def query_schedule(self, id: str) -> Row:
        """One schedule; raises InvalidDestinationError when there is none."""
        return (await self._find(id))[1]

    async def destroy_schedule(self, id: str) -> None:
        """End a schedule; what it has sent stays. Raises InvalidDestinationError when there is none."""
        host, _ = await self._find(id)
        await host.schedules.destroy(id)

    async def _find(self, id_: str) -> tuple[HostPort, Row]:
        what = f"schedule {str(id_)[:80]!r}"
        found = await host_listing.found_among(
            self._registry,
            what,
            lambda host: host.schedules.schedule_rows(None, None),
            lambda row: bool(row["id"] == id_),
        )
        for host, row in found:
            return host, {**row, "host": host.key}
        raise InvalidDestinationError(f"there is no {what}; list_schedules shows those there are")
