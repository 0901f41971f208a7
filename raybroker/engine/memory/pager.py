"""The pager: bodies of messages that the store does not have, in memory within a buffer and beyond it in paging files.

Those are the bodies of non-persistent messages, and of persistent ones that no durable subscription wants.  They mean
nothing after a restart.  Which of them go out when the buffer is full depends on who reads them:

* of a queue the newest: the oldest are the next to be delivered, and those that come while the buffer is full have all
  of it before them;
* of a topic the oldest: subscribers that keep up want the newest, so that a subscription that lags behind by more than
  the buffer reads from the disk, and no other one does.

The buffer is no limit: crossing it never refuses a message.  What cannot be written as fast as it comes stays in memory
meanwhile; past ``LEAVING_HIGH`` bytes of that the pager is ``overloaded``, and whoever reads from producers must stop
until ``relieved``.  While paging files cannot be written, bodies stay in memory and nobody waits, which is told to the
log once, and it is tried again every ``RETRY_MS``; limits of destinations and of the broker bound that.

Properties page out with the body.  What the core decides by (priorities, times, units, sizes) is not in the body and
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol

from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.ports import Notice
from raybroker.model.blocks.columns import HEAD
from raybroker.model.blocks.record import Buffer

BATCH_BYTES: Final = 4 << 20
"""Less than that waits for company, until the next tick at most."""
BATCH_BLOCKS: Final = 4_096
WRITE_BYTES: Final = 32 << 20
WRITE_BLOCKS: Final = 32_768
"""One write takes at most so many, and at least one, so that it catches up with what came during the last one."""
LEAVING_HIGH: Final = 64 << 20
LEAVING_LOW: Final = 16 << 20
BLOCK_OVERHEAD_BYTES: Final = 512
"""What keeping a block in memory costs beside its bytes; counts for the buffer."""
RETRY_MS: Final = 5_000

Key = tuple[int, int]
"""Number of a destination, ordinal of a block."""


class PageFiles(Protocol):
    """The files of blocks that are not in memory.

    pack         what blocks are compressed with before they are written; None: they are written as they are
    saved_bytes  how many bytes fewer were written because of that
    """

    pack: Callable[[Buffer], Buffer] | None
    saved_bytes: int

    def write(self, rows: list[tuple[int, int, Buffer]], done: Callable[[OSError | None], None]) -> None:
        """Write blocks in the background, one call at a time; ``done`` in the engine's own thread: all, or none."""
        ...

    def has(self, destination: int, ordinal: int) -> bool: ...

    def read(self, destination: int, ordinal: int) -> bytes:
        """Raises StoreDamagedError for a block that is here and cannot be read as it was written."""
        ...

    def free(self, destination: int, ordinal: int) -> int:
        """Returns the bytes that were freed; 0: it was not here."""
        ...

    @property
    def bytes_by_destination(self) -> dict[int, int]:
        """Bytes of each destination that has any here."""
        ...

    def remove_all(self) -> None:
        """Remove everything."""
        ...


class Pager:
    """``limit_bytes``: the buffer; ``unpacked``: opens blocks that were compressed when they were written.

    held_bytes    what is in memory, with BLOCK_OVERHEAD_BYTES a block
    failure       why bodies cannot go out at present; "" when they can
    overloaded    bodies come faster than they can be written
    relieved      called when that is over
    messages_out, bytes_out    what went out since the start, before it was compressed
    messages_back, bytes_back  what was read again, some of it more than once, likewise
    """

    def __init__(
        self,
        files: PageFiles,
        limit_bytes: int,
        time: MeasuredTime,
        report: Callable[[str], None],
        unpacked: Callable[[Buffer], Buffer] = bytes,
        relieved: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._unpacked = unpacked
        self.held_bytes = 0
        self.failure = ""
        self.overloaded = False
        self._relieved = relieved
        self.messages_out = self.bytes_out = self.messages_back = self.bytes_back = 0
        self._files = files
        self._now_ms = time.now_ms
        self._report = report
        self._held: dict[Key, Buffer] = {}
        self._of_topics: dict[Key, Buffer] = {}
        """Those of topics that may go out, the oldest first."""
        self._leaving: dict[Key, Buffer] = {}
        """Those that are to go out next, or are being written."""
        self._leaving_bytes = 0
        self._writing: list[Key] = []
        self._retry_at_ms = 0
        self._told = False

    @property
    def paged_bytes(self) -> int:
        """Bytes that are in paging files and needed."""
        return sum(self._files.bytes_by_destination.values())

    def paged_bytes_of(self, destination: int) -> int:
        return self._files.bytes_by_destination.get(destination, 0)

    def paging_row(self) -> dict[str, Any]:
        """Figures for administrators."""
        return {
            "message_buffer_bytes": self.held_bytes,
            "message_buffer_limit_bytes": self.limit_bytes,
            "paged_bytes": self.paged_bytes,
            "paging_failure": self.failure or None,
        }

    # ---- blocks ----------------------------------------------------------------------------------------------------

    def put(self, key: Key, view: memoryview, *, topic: bool, fixed: bool = False) -> None:
        """Keep a new block. ``fixed``: the store will have it, so it stays in memory until then."""
        cost = view.nbytes + BLOCK_OVERHEAD_BYTES
        self._held[key] = view
        self.held_bytes += cost
        if topic and not fixed:
            self._of_topics[key] = view
        if self.held_bytes <= self.limit_bytes or fixed:
            return
        if topic:
            while cost > 0 and self._of_topics:
                oldest = next(iter(self._of_topics))
                cost -= self._leave(oldest, self._of_topics.pop(oldest))
        else:
            self._leave(key, view)
        if not self._writing and (self._leaving_bytes >= BATCH_BYTES or len(self._leaving) >= BATCH_BLOCKS):
            self._write()

    def loosen(self, key: Key) -> None:
        """A block of a topic that was ``fixed`` is not: the store has it by now, or will not have it."""
        data = self.take_block(key)
        if data is not None:
            self.put(key, memoryview(data), topic=True)

    def get(self, key: Key) -> Buffer | None:
        """The bytes of a block, None when it is not here; raises StoreDamagedError."""
        data = self._held.get(key)
        if data is None and self._files.has(*key):
            data = self._unpacked(self._files.read(*key))
            self.bytes_back += memoryview(data).nbytes
            self.messages_back += _messages_in(data)
        return data

    def check(self, key: Key) -> bool:
        """Whether the block is here; raises as :meth:`get`."""
        if key in self._held:
            return True
        if not self._files.has(*key):
            return False
        self._files.read(*key)
        return True

    def drop(self, key: Key) -> None:
        """Nobody needs the block any more."""
        if self.take_block(key) is None:
            self._files.free(*key)

    def take_block(self, key: Key) -> Buffer | None:
        """Keep a block no longer that is in memory, and return it; None when it is not."""
        data = self._held.pop(key, None)
        if data is not None:
            cost = memoryview(data).nbytes + BLOCK_OVERHEAD_BYTES
            self.held_bytes -= cost
            if self._of_topics.pop(key, None) is None and self._leaving.pop(key, None) is not None:
                self._leaving_bytes -= cost
        return data

    # ---- paging out ------------------------------------------------------------------------------------------------

    def _leave(self, key: Key, view: Buffer) -> int:
        cost = memoryview(view).nbytes + BLOCK_OVERHEAD_BYTES
        self._leaving[key] = view
        self._leaving_bytes += cost
        if self._leaving_bytes > LEAVING_HIGH and not self.failure:
            self.overloaded = True
        return cost

    def _write(self) -> None:
        """Begin to write some of those that leave."""
        if self.failure and self._now_ms() < self._retry_at_ms:
            return
        if not self._told:
            self._told = True
            self._report(
                Notice(
                    f"the message buffer of {self.limit_bytes} bytes is full: bodies of messages that are not stored "
                    "go to paging files"
                )
            )
        rows: list[tuple[int, int, Buffer]] = []
        nbytes = 0
        for key, view in islice(self._leaving.items(), WRITE_BLOCKS):
            rows.append((*key, view))
            nbytes += memoryview(view).nbytes
            if nbytes >= WRITE_BYTES:
                break
        self._writing = [(destination, ordinal) for destination, ordinal, _ in rows]
        self._files.write(rows, self._written)

    def page_out_waiting(self) -> None:
        """What waits for company has waited long enough: a lone block, of however many messages, goes out as well."""
        if self._leaving and not self._writing:
            self._write()

    def _written(self, error: OSError | None) -> None:
        keys, self._writing = self._writing, []
        if error is None:
            self._gone_out(keys)
        else:
            self._retry_at_ms = self._now_ms() + RETRY_MS
            if not self.failure:
                self._report(
                    f"paging files cannot be written: {error}; bodies stay in memory, and it is tried again every"
                    f" {RETRY_MS // 1000} s. Make room, or lower the limits of destinations"
                )
            self.failure = str(error)
        if self._leaving_bytes >= BATCH_BYTES or len(self._leaving) >= BATCH_BLOCKS:
            self._write()
        if self.overloaded and (self.failure or self._leaving_bytes < LEAVING_LOW):
            self.overloaded = False
            self._relieved()

    def _gone_out(self, keys: list[Key]) -> None:
        for key in keys:
            view = self.take_block(key)
            if view is None:  # It was needed no longer before it was written.
                self._files.free(*key)
            else:
                self.bytes_out += memoryview(view).nbytes
                self.messages_out += _messages_in(view)
        if self.failure:
            self.failure = ""
            self._report(Notice("paging files can be written again"))


def _messages_in(data: Buffer) -> int:
    """Messages of an encoded block."""
    return int(HEAD.unpack_from(data)[4])
