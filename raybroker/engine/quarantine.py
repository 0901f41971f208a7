"""Skipping what cannot be read: a damaged block gives way, and a record of it goes to the dead message queue.

A destination with a damaged block is halted, so that no message is passed over in silence.  An administrator who has
seen which messages are damaged may skip them: the record becomes durable in the same batch in which they go, or, with
the dead message queue on another host, before they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.dead_letters import own_send
from raybroker.engine.destination_registry import DMQ
from raybroker.engine.executor import Step
from raybroker.model.block import Block
from raybroker.model.errors import ResourceAllocationError, StoreDamagedError, StoreError

if TYPE_CHECKING:
    from raybroker.engine.host import Host


class Damaged(NamedTuple):
    """A block of which nothing can be delivered. ``mask``: its messages that are not settled."""

    ordinal: int
    mask: int
    error: str


class Quarantine:
    """``known``: what was found when a halted destination was looked through, by its number."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.known: dict[int, list[Damaged]] = {}

    def look(self, home: Destination) -> Iterator[Damaged | None]:
        """Read every block of a destination; None for one that is well. Raises StoreError when the store is gone."""
        for ordinal in list(home.block_index.held):
            held = home.block_index.held.get(ordinal)
            if held is None:
                continue
            try:
                self._host.payloads.check(home.number, ordinal)
            except StoreDamagedError as error:
                yield Damaged(ordinal, held.everything & ~held.done, str(error))
            else:
                yield None

    def forget(self, number: int) -> None:
        """The destination goes on, is purged or gone."""
        self.known.pop(number, None)
        self._host.halted.pop(number, None)

    def legible(self, home: Destination, ordinal: int) -> bytes:
        """What is in the place of a damaged block, unverified."""
        try:
            return self._host.store.salvage(home.number, ordinal)
        except (StoreError, KeyError):
            return b""

    def skip(self, home: Destination, damaged: Damaged, done: Callable[[bool], None]) -> None:
        """Put a record in the place of a damaged block; ``done`` hears whether that is durable.

        Raises ResourceAllocationError when the dead message queue does not take it. What a transaction holds stays.
        """
        host, ordinal = self._host, damaged.ordinal
        held = home.block_index.held.get(ordinal)
        if held is None:
            host.append([], lambda: done(True))
            return
        record = Block(host.codec.quarantined(
            self.legible(home, ordinal), damaged.mask, (home.kind, home.name), damaged.error, broker=host.broker,
            producer=host.identity, seq=host.burial.take_seqs(1), now_ms=host.clock.now_ms(),
            body_bytes_max=host.message_bytes_max if host.message_bytes_max > 0 else 1 << 30,
        ))  # fmt: skip
        target = host.destinations.get(("queue", DMQ))
        if target is not None and not (
            host.has_room(record.view.nbytes) and target.admission.would_take(record.lengths)
        ):
            raise ResourceAllocationError(f"{DMQ} does not take the record of what is skipped; make room there first")
        host.perform(home, cmd.Remove({ordinal: held.everything}, aside=True))
        rows = [(n, mask) for n, queue in home.queues.items() if (mask := queue.dead_letters.masks.get(ordinal, 0))]
        gone = [Step(home, cmd.SettleDeadLetters(queue, ordinal, mask)) for queue, mask in rows]
        if target is not None or host.forward is None:
            sends = [own_send(host, target, record)] if target is not None else []
            host.perform_all([*sends, *gone], (), lambda: done(True))
            return

        def forwarded(stored: bool) -> None:
            if stored:
                host.perform_all(gone, (), lambda: done(True))
                return
            for queue, mask in rows:
                host.perform(home, cmd.ReturnDeadLetters(queue, ordinal, mask))
            done(False)

        host.forward("queue", DMQ, bytes(record.view), forwarded)
