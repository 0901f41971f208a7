"""A block as a destination sees it: how many messages it has, what differs between them, and what is left of it."""

from __future__ import annotations

from array import array
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
    )

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

    def is_alone(self) -> bool:
        """Whether it is one message of which nothing has happened, with no more than a size, a priority and an end."""
        _, priorities, _, deliver_at, units, works = self.columns
        return (
            self.count == 1
            and self.left == 1
            and self.claims == 1
            and isinstance(self.sizes, int)
            and not (self.transacted or self.told_dead)
            and priorities is None
            and deliver_at is None
            and units is None
            and works is None
        )

    def bytes_of(self, mask: int) -> int:
        """Body bytes of some of its messages."""
        if isinstance(self.sizes, int):
            return self.sizes * mask.bit_count()
        return sum(pk.chosen(self.sizes, mask))

    def expired(self, mask: int, now_ms: int) -> int:
        """Return those of ``mask`` whose time is over."""
        if now_ms < self.soonest or self.columns.expires is None:
            return 0
        expires = self.columns.expires
        return pk.of_indexes(i for i in pk.indexes(mask) if 0 < expires[i] <= now_ms)

    def by_priority(self, mask: int) -> list[tuple[int, int]]:
        """``mask`` as (priority, messages of it), the highest first."""
        column = self.columns.priorities
        if column is None:
            return [(self.columns.priority, mask)]
        found = ((level, mask & pk.of_value(column, level)) for level in sorted(set(column), reverse=True))
        return [(level, chosen) for level, chosen in found if chosen]

    def by_birth(self, mask: int, now_ms: int) -> tuple[int, list[tuple[int, int]]]:
        """Return those to be delivered now, and (time, messages) of those to be delivered later."""
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
