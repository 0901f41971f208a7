"""The blocks that a destination holds, and which of their messages are still owed to somebody.

A block is held from acceptance until its last message is settled.  Per block this costs one small object however many
messages it has; which messages are settled is one integer (see ``mask.py``).
"""

from __future__ import annotations

from array import array
from itertools import compress, pairwise
from typing import Final, NamedTuple

from raybroker.core.blocks import message_mask as pk
from raybroker.core.durable.records import PartColumn, Sizes

NEVER: Final = 1 << 62
"""A time that does not come, milliseconds."""


class Columns(NamedTuple):
    """What may differ from message to message of a block; None where it does not.

    priorities  one byte each; the block's own priority holds without
    expires     milliseconds since 1970, 0 never; without, none expires
    deliver_at  milliseconds since 1970, 0 at once; without, all at once
    units       the unit of order of each message, or None; without, no message has one
    works       what each message is in a unit of work, or None; without, no message is in one
    """

    priority: int = 4
    priorities: bytes | None = None
    expires: array[int] | None = None
    deliver_at: array[int] | None = None
    units: tuple[str | None, ...] | None = None
    works: PartColumn | None = None


PLAIN: Final = Columns()


class BlockEntry:
    """One block: ``left`` of its ``count`` messages are not settled; ``done`` says which are.

    stored     the store has it
    claims     delivery queues that owe something of it; 1 in a queue
    transacted it came in a transaction: nobody may see it before that is durable
    everything all its messages
    told_dead  messages whose death was told already, so that a topic tells it once
    soonest    no message of it expires before this, milliseconds
    ordered    messages that belong to a unit of order
    parts      messages that belong to a unit of work
    """

    __slots__ = (
        "claims",
        "columns",
        "count",
        "done",
        "everything",
        "left",
        "ordered",
        "parts",
        "persistent",
        "sizes",
        "soonest",
        "stored",
        "told_dead",
        "transacted",
    )  # fmt: skip

    def __init__(
        self, count: int, sizes: Sizes, persistent: bool, columns: Columns = PLAIN, *, stored: bool | None = None
    ) -> None:
        self.count = count
        self.everything = (1 << count) - 1
        self.left = count
        self.sizes = sizes
        self.persistent = persistent
        self.stored = persistent if stored is None else stored
        self.done = 0
        self.claims = 1
        self.columns = columns
        self.told_dead = 0
        self.transacted = False
        self.ordered = 0 if columns.units is None else _named(columns.units)
        self.parts = 0 if columns.works is None else _named(columns.works.keys)
        self.soonest = NEVER if columns.expires is None else min((t for t in columns.expires if t), default=NEVER)

    def bytes_of(self, mask: int) -> int:
        """Body bytes of some of its messages."""
        if isinstance(self.sizes, int):
            return self.sizes * mask.bit_count()
        side_by_side = pk.extent(mask) if mask else (0, 0)
        if side_by_side is not None:
            return sum(self.sizes[slice(*side_by_side)])
        return sum(compress(self.sizes, map(int, bin(mask)[:1:-1])))

    def expired(self, mask: int, now_ms: int) -> int:
        """Those of ``mask`` whose time is over."""
        if now_ms < self.soonest or self.columns.expires is None:
            return 0
        expires = self.columns.expires
        return pk.of_indexes(i for i in pk.indexes(mask) if 0 < expires[i] <= now_ms)

    def by_priority(self, mask: int) -> list[tuple[int, int]]:
        """``mask`` as (priority, messages of it), the highest first."""
        column = self.columns.priorities
        if column is None:
            return [(self.columns.priority, mask)]
        found: dict[int, int] = {}
        for index in pk.indexes(mask):
            level = column[index]
            found[level] = found.get(level, 0) | 1 << index
        return sorted(found.items(), reverse=True)

    def by_birth(self, mask: int, now_ms: int) -> tuple[int, list[tuple[int, int]]]:
        """Those to be delivered now, and (time, messages) of those to be delivered later."""
        column = self.columns.deliver_at
        if column is None:
            return mask, []
        later: dict[int, int] = {}
        for index in pk.indexes(mask):
            if column[index] > now_ms:
                later[column[index]] = later.get(column[index], 0) | 1 << index
        for chosen in later.values():
            mask &= ~chosen
        return mask, sorted(later.items())


def _named(units: tuple[object | None, ...]) -> int:
    """The messages that have a unit."""
    if None not in units:
        return (1 << len(units)) - 1
    return pk.of_indexes(index for index, name in enumerate(units) if name is not None)


class BlockIndex:
    """All held blocks of a destination by ordinal, with the totals that limits and administrators ask for."""

    __slots__ = (
        "bytes_held", "dead", "dead_bytes", "held", "messages", "next_ordinal", "peak_bytes", "peak_messages",
    )  # fmt: skip

    def __init__(self) -> None:
        self.held: dict[int, BlockEntry] = {}
        self.next_ordinal = 1
        self.messages = 0
        self.bytes_held = 0
        self.peak_messages = 0
        self.peak_bytes = 0
        self.dead = self.dead_bytes = 0
        """Messages that delivery queues hold as dead letters, and their bytes; once for each queue."""

    def accept(self, block: BlockEntry, ordinal: int = 0, *, whole: bool = True) -> int:
        """Hold a block under its ordinal, or the next one, which is returned.

        ``whole``: all of it is taken; if not, the caller settles the rest and then records the peak.
        """
        if not ordinal:
            ordinal = self.next_ordinal
            self.next_ordinal += 1
        self.held[ordinal] = block
        sizes = block.sizes
        messages = self.messages = self.messages + block.count
        nbytes = self.bytes_held = self.bytes_held + (sizes * block.count if isinstance(sizes, int) else sum(sizes))
        if whole:
            if messages > self.peak_messages:
                self.peak_messages = messages
            if nbytes > self.peak_bytes:
                self.peak_bytes = nbytes
        return ordinal

    def note_peak(self) -> None:
        """Record the peak of messages and bytes held."""
        self.peak_messages = max(self.peak_messages, self.messages)
        self.peak_bytes = max(self.peak_bytes, self.bytes_held)

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        self.peak_messages, self.peak_bytes = self.messages, self.bytes_held

    def settle(self, ordinal: int, mask: int) -> bool:
        """Messages of a held block are done with; True when they were its last and the block is no longer held."""
        block = self.held[ordinal]
        assert not block.done & mask, "a message was settled twice"
        count = mask.bit_count()
        self.messages -= count
        self.bytes_held -= block.bytes_of(mask)
        block.left -= count
        if block.left == 0:
            del self.held[ordinal]
            return True
        block.done |= mask
        return False

    def count_dead(self, ordinal: int, mask: int, sign: int = 1) -> None:
        """Messages of a held block are dead letters of a delivery queue, or (``sign`` -1) no longer."""
        self.dead += sign * mask.bit_count()
        self.dead_bytes += sign * self.held[ordinal].bytes_of(mask)


def spans(ordinals: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of runs without gaps."""
    if len(ordinals) < 2:
        return [(ordinal, ordinal) for ordinal in ordinals]
    cuts = [i + 1 for i, (a, b) in enumerate(pairwise(ordinals)) if b != a + 1]
    edges = [0, *cuts, len(ordinals)]
    return [(ordinals[a], ordinals[b - 1]) for a, b in pairwise(edges)]
