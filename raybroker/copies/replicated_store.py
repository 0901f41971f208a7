"""The store of a host that runs where a copy leads: its journal is the copy's, and every batch is an entry of the log.

A batch is durable here when ``commit`` returns, and released once as many copies have it as must; the committer waits
for that.  Bodies in pieces have files of their own, which are not in the log: they are not taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from raybroker.copies.copy import Copy
from raybroker.copies.message_form import FRAME_BYTES_MAX
from raybroker.model.blocks.record import EntryRun, LogEntry, StoreStats
from raybroker.model.errors import StoreError, StoreFullError
from raybroker.store.journal.format import pack_entries

BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - (1 << 20)
"""Largest batch that goes to other copies in one message."""


class ReplicatedStore:
    """The store of ``copy``, which leads; see ``raybroker.engine.ports.Store`` and ``LogCopies``."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._last = 0
        self._closed = False

    # ---- LogCopies

    def last_index(self) -> int:
        return self._last

    def released_index(self) -> int:
        return self._copy.released

    def may_dispatch(self) -> bool:
        return self._copy.may_dispatch()

    def tell_released(self, released: Callable[[], object]) -> None:
        self._copy.tell_released(released)

    # ---- Store

    @property
    def incarnation(self) -> int:
        return self._copy.journal.incarnation

    def recover(self) -> Iterator[LogEntry]:
        for found in self.recover_runs():
            if isinstance(found, EntryRun):
                yield from found.entries()
            else:
                yield found

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        return self._copy.recover_runs()

    def commit(self, entries: Sequence[LogEntry]) -> None:
        if self._closed:
            raise StoreError("the store is closed")
        if not entries:
            return
        packed = pack_entries(entries)
        if packed.nbytes > BATCH_BYTES_MAX:
            raise StoreError(f"a batch of {packed.nbytes} bytes; at most {BATCH_BYTES_MAX} go to other copies at once")
        # A lack of room has to show before the batch is on its way to the others.
        if packed.blocks and not self._copy.journal.has_room(packed.nbytes):
            raise StoreFullError(f"no room for a batch of {packed.nbytes} bytes in {self._copy.journal.directory}")
        self._last = self._copy.append(packed)

    def read(self, destination: int, ordinal: int) -> bytes:
        return self._copy.journal.read(destination, ordinal)

    def salvage(self, destination: int, ordinal: int) -> bytes:
        return self._copy.journal.salvage(destination, ordinal)

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        self._copy.free(destination, ordinals)

    def checkpoint_due(self) -> bool:
        return self._copy.journal.checkpoint_due()

    def checkpoint_helps(self) -> bool:
        return self._copy.journal.checkpoint_helps()

    def tidy_helps(self) -> bool:
        return self._copy.journal.tidy_helps()

    def maintain(self, budget_bytes: int) -> bool:
        with self._copy.saving() as folder:
            return folder.journal.maintain(budget_bytes)

    def compact(self) -> None:
        self._copy.journal.compact()

    @property
    def compacting(self) -> bool:
        return self._copy.journal.compacting

    def usage(self) -> dict[int, tuple[int, int]]:
        return self._copy.journal.usage()

    def plain_because(self) -> str:
        return ""

    def has_room(self, nbytes: int) -> bool:
        return self._copy.journal.has_room(nbytes)

    def stats(self) -> StoreStats:
        return self._copy.journal.stats()

    def notices(self) -> list[str]:
        return self._copy.journal.notices()

    def close(self) -> None:
        """The journal stays open: it is the copy's."""
        self._closed = True
