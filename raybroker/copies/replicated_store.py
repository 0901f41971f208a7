"""The store of a host that runs where a copy leads: its journal is the copy's, and every batch is an entry of the log.

A batch is durable here when ``commit`` returns, and released once as many copies have it as must; the committer waits
for that.  Bodies in pieces have files of their own, which are not in the log: they are not taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from raybroker.copies.copy import Copy
from raybroker.copies.message_form import FRAME_BYTES_MAX
from raybroker.model.blocks.record import EntryRun, LogEntry
from raybroker.model.errors import StoreError, StoreFullError
from raybroker.store.journal.format import pack_entries

BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - (1 << 20)
"""Largest batch that goes to other copies in one message."""


class ReplicatedStore:
    """The store of ``copy``, which leads; see ``raybroker.engine.ports.Store`` and ``LogCopies``.

    What is not said here is asked of the copy's journal, which is another one after each opening.
    """

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._last = 0
        self._over = False

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

    def __getattr__(self, name: str) -> Any:
        return self._leave if name == "close" else getattr(self._copy.journal, name)

    @property
    def incarnation(self) -> int:
        """Number of the term in which the copy leads: larger with every leader, wherever it is."""
        return self._copy.term

    def recover(self) -> Iterator[LogEntry]:
        """Open the journal as after a restart, and give back what it has."""
        for found in self.recover_runs():
            if isinstance(found, EntryRun):
                yield from found.entries()
            else:
                yield found

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """Do what :meth:`recover` does, with blocks that are side by side together."""
        return self._copy.recover_runs()

    def commit(self, entries: Sequence[LogEntry]) -> None:
        """Append an entry to the log: durable here on return, and released later."""
        if self._over:
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

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """These blocks are dead, as of what was committed."""
        self._copy.free(destination, ordinals)

    def maintain(self, budget_bytes: int) -> bool:
        """Reclaim space; True when more is left to do."""
        with self._copy.saving() as folder:
            return folder.journal.maintain(budget_bytes)

    def _leave(self) -> None:
        """The host ends; the journal stays open, because it is the copy's."""
        self._over = True
