"""Destinations of a host, with their subscriptions and schedules, as its broker administers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from raybroker.core.subscription import Subscription
from raybroker.engine.destinations.destination_administration import DestinationAdministration
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.destinations.destination_removal import DestinationRemoval
from raybroker.engine.destinations.inspection import Inspection
from raybroker.engine.destinations.subscription_administration import SubscriptionAdministration
from raybroker.engine.measuring.counter_baselines import CounterBaselines
from raybroker.engine.measuring.unit_figures import live_units
from raybroker.engine.path.executor import Executor, unawaited
from raybroker.engine.schedules.schedules import Schedules
from raybroker.hosting.durable import Changes, Done, durable
from raybroker.model.errors import BrokerError
from raybroker.model.listing import Row
from raybroker.model.naming.names import check_destination_type
from raybroker.model.settings.settings import DestinationAttributes, destination_attributes


class DestinationsPort:
    """``damaged`` says what is damaged in a destination, see hosting.ports.messages."""

    def __init__(
        self,
        administration: DestinationAdministration,
        removal: DestinationRemoval,
        inspection: Inspection,
        registry: DestinationRegistry,
        baselines: CounterBaselines,
        executor: Executor,
        damaged: Callable[[str, str], Awaitable[list[Row]]],
        changes: Changes,
    ) -> None:
        self._administration = administration
        self._removal = removal
        self._inspection = inspection
        self._registry = registry
        self._baselines = baselines
        self._executor = executor
        self._damaged = damaged
        self.changes = changes

    @durable
    async def create(
        self, done: Done, type: str, name: str, attributes: Row, auto_created: bool, owner: str | None = None
    ) -> None:
        """``owner``: id of the client connection that a temporary destination lives as long as."""
        checked = destination_attributes(attributes, type=check_destination_type(type), name=name)
        self._administration.create(name, checked, auto_created=auto_created, done=done, kind=type, owner=owner)

    @durable
    async def create_many(self, done: Done, rows: list[Row]) -> list[str]:
        """Create many with one wait for the disk: rows of type, name, attributes; what of it failed, as text."""
        failed: list[str] = []
        parsed: dict[tuple[Any, ...], DestinationAttributes] = {}  # Most of them have the same.
        for row in rows:
            kind = check_destination_type(row["type"])
            try:
                given = (kind, *row["attributes"].items())
                checked = parsed.get(given)
                if checked is None:
                    checked = destination_attributes(row["attributes"], type=kind, name=row["name"])
                    parsed[given] = checked
                self._administration.create(row["name"], checked, auto_created=False, done=unawaited, kind=kind)
            except BrokerError as error:
                failed.append(f"{kind} {row['name']}: {error}")
        self._executor.append([], done)
        return failed

    @durable
    async def update(self, done: Done, type: str, name: str, changes: Row) -> None:
        self._administration.update(name, changes, done, type)

    @durable
    async def destroy(self, done: Done, type: str, name: str, empty: bool = False) -> None:
        """Remove a destination; ``empty``: only where nothing goes with it."""
        self._removal.destroy(name, done, type, empty=empty)

    @durable
    async def purge(self, done: Done, type: str, name: str) -> None:
        self._administration.purge(name, done, type)

    @durable
    async def publish_version(self, done: Done, type: str, name: str, version: int, back: bool) -> None:
        self._administration.publish_version(name, version, done, type, back=back)

    async def query(self, type: str, name: str) -> Row:
        row = self._inspection.describe(type, name)
        if row["state"] == "HALTED":
            row["damaged"] = await self._damaged(type, name)
        return row

    async def destination_rows(self) -> list[Row]:
        """One row a destination: type, name, auto_created, temporary, traits (its attributes), paused, and
        starts_paused: what stops at each start."""
        return [
            {
                "type": d.kind,
                "name": d.name,
                "auto_created": d.auto_created,
                "temporary": d.owner is not None,
                "traits": d.attributes.as_dict(check_destination_type(d.kind)),
                "paused": dict(self._registry.destinations[d.key].paused),
                "starts_paused": self._administration.starts_paused(d),
            }
            for d in self._registry.definitions.values()
        ]

    async def consumers(self, type: str | None, name: str | None) -> list[Row]:
        return self._inspection.consumers(type, name)

    async def live_units(self, type: str, name: str, names: list[str]) -> list[str]:
        """Return those of these units of order that have messages there."""
        return live_units(self._registry.find(type, name), names)

    @durable
    async def pause(self, done: Done, type: str, name: str, which: str, until_ms: int) -> None:
        """``which``: producers, consumers, all or insertion; ``until_ms``: absolute time, 0 until resumed."""
        self._administration.pause(name, which, until_ms, type, done)

    @durable
    async def resume(self, done: Done, type: str, name: str, which: str) -> None:
        self._administration.resume(name, which, type, done)

    @durable
    async def reset(self, done: Done, type: str, name: str) -> None:
        """Set to zero what administrators see counted of a destination."""
        destination = self._registry.named(type, name)
        record = self._baselines.reset(destination)
        if self._registry.definition(destination).owner is None:
            self._executor.note(destination.number, record, done)
        else:
            done()


class SubscriptionsPort:
    def __init__(self, inspection: Inspection, administration: SubscriptionAdministration, changes: Changes) -> None:
        self._inspection = inspection
        self._administration = administration
        self.changes = changes

    async def subscription_rows(self, name: str | None) -> list[Row]:
        """Return the subscriptions of one topic, or of all: topic, client_id, name, durable, shared, selector,
        no_local, active, messages, consumers."""
        return self._inspection.subscriptions(name)

    @durable
    async def subscribe(
        self, done: Done, topic: str, client_id: str, name: str, shared: bool, selector: str | None, no_local: bool
    ) -> None:
        """Make a durable subscription that no consumer has opened here, unless it is there."""
        wanted = Subscription(client_id, name, True, shared, selector, no_local, client_id if no_local else "")
        self._administration.subscribe(topic, wanted, done)

    @durable
    async def unsubscribe(self, done: Done, topic: str, client_id: str, name: str) -> None:
        self._administration.unsubscribe(topic, client_id, name, done)

    @durable
    async def purge(self, done: Done, topic: str, client_id: str, name: str) -> None:
        self._administration.purge(topic, client_id, name, done)


class SchedulesPort:
    def __init__(self, schedules: Schedules, changes: Changes) -> None:
        self._schedules = schedules
        self.changes = changes

    async def schedule_rows(self, type: str | None, name: str | None) -> list[Row]:
        """See engine.schedules.schedules.Schedules.schedule_rows."""
        return self._schedules.schedule_rows(type, name)

    @durable
    async def destroy(self, done: Done, id: str) -> None:
        self._schedules.destroy(id, done)
