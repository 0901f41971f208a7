"""Quarantine: a damaged block is skipped, and a record of it goes to the dead message queue.

A destination with a damaged block is halted, so that no message is skipped silently.  An administrator who has
seen which messages are damaged may skip them: the record becomes durable in the same batch in which they go, or, with
the dead message queue on another host, before they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.dead_letters.death_records import DeathRecords
from raybroker.engine.destinations.destination_registry import DMQ, DestinationRegistry
from raybroker.engine.live_settings import LiveSettings
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.executor import DestinationStep, Executor
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.ports import Forward, Store
from raybroker.model.blocks.block import Block
from raybroker.model.errors import ResourceAllocationError, StoreDamagedError, StoreError


class Damaged(NamedTuple):
    """A block of which nothing can be delivered. ``mask``: its messages that are not settled."""

    ordinal: int
    mask: int
    error: str


class Quarantine:
    """``known``: the damaged blocks that were found in halted destinations, by number."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        cache: BlockCache,
        store: Store,
        own: OwnSends,
        death_records: DeathRecords,
        settings: LiveSettings,
        forward: Forward | None,
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._cache = cache
        self._store = store
        self._own = own
        self._records = death_records
        self._settings = settings
        self._forward = forward
        self.known: dict[int, list[Damaged]] = {}

    def read_blocks(self, destination: Destination) -> Iterator[Damaged | None]:
        """Read every block of a destination; None for one that is well. Raises StoreError when the store is gone."""
        for ordinal in list(destination.block_index.held):
            held = destination.block_index.held.get(ordinal)
            if held is None:
                continue
            try:
                self._cache.check(destination.number, ordinal)
            except StoreDamagedError as error:
                yield Damaged(ordinal, held.everything & ~held.done, str(error))
            else:
                yield None

    def forget_destination(self, destination: Destination) -> None:
        """Forget a destination that is resumed, purged or destroyed."""
        self.known.pop(destination.number, None)
        self._registry.halted.pop(destination.number, None)

    def legible(self, destination: Destination, ordinal: int) -> bytes:
        """The bytes in the place of a damaged block, unverified."""
        try:
            return self._store.salvage(destination.number, ordinal)
        except (StoreError, KeyError):
            return b""

    def skip(self, destination: Destination, damaged: Damaged, done: Callable[[bool], None]) -> None:
        """Put a record in the place of a damaged block; ``done`` hears whether that is durable.

        Raises ResourceAllocationError when the dead message queue does not take it. What a transaction holds stays.
        """
        ordinal, own, perform = damaged.ordinal, self._own, self._executor.perform
        held = destination.block_index.held.get(ordinal)
        if held is None:
            self._executor.append([], lambda: done(True))
            return
        most = self._settings.message_bytes_max
        record = Block(
            self._records.quarantined(
                destination,
                self.legible(destination, ordinal),
                damaged.mask,
                damaged.error,
                most if most > 0 else 1 << 30,
            )
        )
        target = self._registry.destinations.get(("queue", DMQ))
        if target is not None and not (
            self._executor.has_room(record.view.nbytes) and target.admission.would_take(record.lengths)
        ):
            raise ResourceAllocationError(f"{DMQ} does not take the record of what is skipped; make room there first")
        perform(destination, cmd.Remove({ordinal: held.everything}, aside=True))
        rows = [
            (n, mask) for n, queue in destination.queues.items() if (mask := queue.dead_letters.masks.get(ordinal, 0))
        ]
        gone = [DestinationStep(destination, cmd.SettleDeadLetters(queue, ordinal, mask)) for queue, mask in rows]
        if target is not None or self._forward is None:
            sends = [own.step(target, record)] if target is not None else []
            self._executor.perform_all([*sends, *gone], (), lambda: done(True))
            return

        def forwarded(stored: bool) -> None:
            if stored:
                self._executor.perform_all(gone, (), lambda: done(True))
                return
            for queue, mask in rows:
                perform(destination, cmd.ReturnDeadLetters(queue, ordinal, mask))
            done(False)

        self._forward("queue", DMQ, bytes(record.view), forwarded)
