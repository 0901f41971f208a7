"""Destroying a destination: its messages, its schedules and whatever parts of the host keep of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.executor import Done, Executor
from raybroker.engine.path.wakeups import Wakeups
from raybroker.engine.schedules.schedules import Schedules
from raybroker.engine.sessions.attachments import Attachments
from raybroker.model.blocks.record import NOTE, LogEntry
from raybroker.model.errors import IllegalStateError


class DestinationRemoval:
    """``leaving``: called in order with a destination that is about to go, by the parts that keep something of it."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        attachments: Attachments,
        cache: BlockCache,
        wakeups: Wakeups,
        schedules: Schedules,
        leaving: Sequence[Callable[[Destination], None]],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._attachments = attachments
        self._cache = cache
        self._wakeups = wakeups
        self._schedules = schedules
        self._leaving = leaving

    def destroy(self, name: str, done: Done, kind: str = "queue", *, empty: bool = False) -> None:
        """Remove a destination and its messages; its producers and consumers are told.

        ``done`` is called when that is durable. Raises InvalidDestinationError; with ``empty`` IllegalStateError where
        anything would go with it.
        """
        self._executor.require_running()
        destination = self._registry.named(kind, name)
        if empty and (destination.block_index.messages or destination.staged):
            raise IllegalStateError(f"{kind} {name!r} has messages again")
        if empty and self._schedules.schedule_rows(kind, name):
            raise IllegalStateError(f"{kind} {name!r} has recurring schedules: destroy them first (destroy sch)")
        for leave in self._leaving:
            leave(destination)
        self._wakeups.cancel(destination.number)
        del self._registry.destinations[kind, name]
        definition = self._registry.definitions.pop(destination.number)
        for attachment in self._attachments.end_attachments(destination):
            attachment.peer.event("destroyed", {"handle": attachment.handle, "name": name})
        stored = [ordinal for ordinal, block in destination.block_index.held.items() if block.stored]
        ordinals, (ended, schedules) = list(destination.block_index.held), self._schedules.without(destination)

        def gone() -> None:
            self._cache.retire(destination.number, stored, stored=True)
            self._cache.retire(destination.number, ordinals, stored=False)
            self._schedules.freed(schedules)
            done()

        if definition.owner is not None:
            self._executor.append([], gone)
        else:
            self._executor.append(
                [LogEntry(NOTE, destination.number, 0, records.encode(records.GONE, 0)), *ended], gone
            )
