"""Held blocks by ordinal, of which those sent alone are packed when they grow cold.

A block of many messages costs one object; so does a block of one, and a long queue of messages that were sent one by
one would be made of such objects.  Therefore neighbours that are like each other share a *page*: which of its ordinals
are held is one integer, and what may differ from block to block is a column.  A page is made once ``HOT_PAGES`` pages
have come after it, and only of blocks of one message of which nothing has happened yet.

Taking a block by index, ``held[ordinal]``, unpacks that block for good; looking at it, by ``get`` or in an iteration,
makes an entry for the looker, which must not change it.
"""

from __future__ import annotations

from array import array
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any, Final, Self, TypeAlias

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry, Columns

PAGE_BITS: Final = 8
"""A page has 1 << PAGE_BITS ordinals."""
HOT_PAGES: Final = 2
"""Pages behind the newest that are left alone: a consumer that keeps up finds nothing packed."""
_WALK_MAX: Final = 256
"""Ordinals looked at one by one for the oldest, before all are."""
_PLAIN: Final = tuple([Columns(priority) for priority in range(10)])

Span = tuple[int, int]
"""Ordinals first … last."""
AlonePart: TypeAlias = "tuple[int, array[int], bytes]"
"""Blocks of one message side by side: the first ordinal, and their sizes and priorities."""


class HeldPage:
    """Blocks of one message. ``live``: which of the page's ordinals are here; columns have an item for each ordinal.

    sizes       body bytes, one number where all are alike
    priorities  one number where all are alike
    expires     milliseconds since 1970, None where none expires
    """

    __slots__ = ("expires", "live", "persistent", "priorities", "sizes", "stored")

    def __init__(
        self,
        live: int,
        sizes: int | array[int],
        priorities: int | bytes,
        expires: array[int] | None = None,
        *,
        persistent: bool = True,
        stored: bool = True,
    ) -> None:
        self.live = live
        self.sizes = sizes
        self.priorities = priorities
        self.expires = expires
        self.persistent = persistent
        self.stored = stored

    @classmethod
    def from_entries(cls, entries: dict[int, BlockEntry]) -> Self:
        """Entries by their place in the page, alike in what has no column."""
        places, most = list(entries), 1 << PAGE_BITS
        first = entries[places[0]]
        sizes, priorities, expires = array("I", bytes(4 * most)), bytearray(most), array("Q", bytes(8 * most))
        for at, entry in entries.items():
            sizes[at] = entry.bytes_of(1)
            priorities[at] = entry.columns.priority
            if entry.columns.expires is not None:
                expires[at] = entry.columns.expires[0]
        size, priority = sizes[places[0]], priorities[places[0]]
        return cls(
            pk.of_indexes(places),
            size if all(sizes[at] == size for at in places) else sizes,
            priority if all(priorities[at] == priority for at in places) else bytes(priorities),
            expires if any(expires) else None,
            persistent=first.persistent,
            stored=first.stored,
        )

    def entry(self, at: int) -> BlockEntry:
        """The block at a place of the page."""
        size = self.sizes if isinstance(self.sizes, int) else self.sizes[at]
        priority = self.priorities if isinstance(self.priorities, int) else self.priorities[at]
        columns = _PLAIN[priority]
        if self.expires is not None and self.expires[at]:
            columns = Columns(priority, expires=self.expires[at : at + 1])
        return BlockEntry(1, size, self.persistent, columns, stored=self.stored)


def _of_parts(parts: list[AlonePart]) -> HeldPage:
    """Stored blocks of one page: parts whose first ordinals are places in the page."""
    live, sizes, priorities = 0, array("I"), b"".join([part[2] for part in parts])
    for place, some, _ in parts:
        live |= pk.span(place, place + len(some))
        sizes += some
    size: int | array[int] = sizes[0]
    if sizes.count(sizes[0]) != len(sizes):
        size = array("I", bytes(4 << PAGE_BITS))
        for place, some, _ in parts:
            size[place : place + len(some)] = some
    priority: int | bytes = priorities[0]
    if priorities.count(priorities[0]) != len(priorities):
        column = bytearray(1 << PAGE_BITS)
        for place, _, levels in parts:
            column[place : place + len(levels)] = levels
        priority = bytes(column)
    return HeldPage(live, size, priority)


class HeldBlocks(dict[int, BlockEntry]):
    """The dictionary itself has the blocks that are not packed.  Ordinals come in ascending order."""

    __slots__ = ("_oldest", "pages", "pages_count")

    fresh = dict[int, BlockEntry].get
    """The block of an ordinal unless it is packed, else None: for what has just been accepted, which never is."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[int, HeldPage] = {}
        self.pages_count = 0
        """Blocks that are packed."""
        self._oldest = 0

    # ---- packing ---------------------------------------------------------------------------------------------------

    def pack_before(self, ordinal: int) -> None:
        """The block ``ordinal``, the first of a page, has come: pack the page that is cold by now.

        Not when more than half of it is gone: a consumer is there, or it would not be worth it.
        """
        number = (ordinal >> PAGE_BITS) - 1 - HOT_PAGES
        first, found = number << PAGE_BITS, dict[int, BlockEntry]()
        persistent = stored = None
        for at in range(1 << PAGE_BITS):
            entry = super().get(first + at)
            if entry is None or not entry.is_alone():
                continue
            if not found:
                persistent, stored = entry.persistent, entry.stored
            if entry.persistent == persistent and entry.stored == stored:
                found[at] = entry
        if len(found) * 2 >= 1 << PAGE_BITS and number not in self.pages:
            self.pages[number] = HeldPage.from_entries(found)
            self.pages_count += len(found)
            for at in found:
                del self[first + at]

    def add_alone(self, parts: Iterable[AlonePart]) -> None:
        """Stored blocks of one message, which are behind all others, ascending; as pages, where there are enough."""
        page_size = 1 << PAGE_BITS
        number, here = -1, list[AlonePart]()
        for first, sizes, priorities in parts:
            at, count = 0, len(sizes)
            while at < count:
                place = (first + at) & (page_size - 1)
                if (first + at) >> PAGE_BITS != number:
                    self._add_page(number, here)
                    number, here = (first + at) >> PAGE_BITS, []
                some = min(page_size - place, count - at)
                here.append((place, sizes[at : at + some], priorities[at : at + some]))
                at += some
        self._add_page(number, here)

    def _add_page(self, number: int, parts: list[AlonePart]) -> None:
        """Blocks of page ``number``, whose first ordinals are places in it."""
        count = sum([len(sizes) for _, sizes, _ in parts])
        if number not in self.pages and count * 2 >= 1 << PAGE_BITS:
            self.pages[number] = _of_parts(parts)
            self.pages_count += count
            return
        for place, sizes, priorities in parts:
            ordinal = (number << PAGE_BITS) + place
            for size, priority in zip(sizes, priorities, strict=True):
                self[ordinal] = BlockEntry(1, size, True, _PLAIN[priority])
                ordinal += 1

    def __missing__(self, ordinal: int) -> BlockEntry:
        """Unpack one block."""
        number, at = ordinal >> PAGE_BITS, ordinal & ((1 << PAGE_BITS) - 1)
        page = self.pages.get(number)
        if page is None or not page.live >> at & 1:
            raise KeyError(ordinal)
        entry = self[ordinal] = page.entry(at)
        page.live &= ~(1 << at)
        self.pages_count -= 1
        if not page.live:
            del self.pages[number]
        return entry

    # ---- looking ---------------------------------------------------------------------------------------------------

    def get(self, ordinal: int, default: Any = None) -> Any:
        """The block, to be looked at and not to be changed."""
        entry = super().get(ordinal)
        if entry is None and self.pages:
            number, at = ordinal >> PAGE_BITS, ordinal & ((1 << PAGE_BITS) - 1)
            page = self.pages.get(number)
            if page is not None and page.live >> at & 1:
                return page.entry(at)
        return default if entry is None else entry

    def is_stored(self, ordinal: int) -> bool:
        """Whether the store has the block, which is held."""
        entry = super().get(ordinal)
        return entry.stored if entry is not None else self.pages[ordinal >> PAGE_BITS].stored

    def unpacked(self) -> ItemsView[int, BlockEntry]:
        """The blocks that are not packed, in no certain order; of packed ones nothing has happened yet."""
        return super().items()

    def stored_spans(self, without: set[int]) -> list[Span]:
        """The ordinals that the store has but for some, which are not packed: ascending, as runs without gaps."""
        parts = [(o, o) for o, entry in self.unpacked() if entry.stored and o not in without]
        for number, page in self.pages.items():
            if page.stored:
                first = number << PAGE_BITS
                parts += [(first + a, first + b - 1) for a, b in pk.runs_of(page.live)]
        parts.sort()
        found: list[Span] = []
        for first, last in parts:
            if found and found[-1][1] + 1 == first:
                found[-1] = found[-1][0], last
            else:
                found.append((first, last))
        return found

    def oldest(self) -> int | None:
        """The smallest ordinal, None without any. Cheap: it only ever grows."""
        if not self:
            return None
        at = self._oldest
        for ordinal in range(at, at + _WALK_MAX):
            if ordinal in self:
                self._oldest = ordinal
                return ordinal
        firsts = [(number << PAGE_BITS) + pk.first_of(page.live) for number, page in self.pages.items()]
        self._oldest = min([*super().__iter__(), *firsts])
        return self._oldest

    def __contains__(self, ordinal: object) -> bool:
        if super().__contains__(ordinal):
            return True
        if not self.pages or not isinstance(ordinal, int):
            return False
        page = self.pages.get(ordinal >> PAGE_BITS)
        return page is not None and bool(page.live >> (ordinal & ((1 << PAGE_BITS) - 1)) & 1)

    def __len__(self) -> int:
        return super().__len__() + self.pages_count

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[int]:
        """Ordinals, ascending as long as none was unpacked."""
        if not self.pages:
            return super().__iter__()
        return iter(self._ordinals())

    def _ordinals(self) -> list[int]:
        found = list(super().__iter__())
        for number, page in self.pages.items():
            found += [(number << PAGE_BITS) + at for at in pk.indexes(page.live)]
        return sorted(found)

    def keys(self) -> KeysView[int]:  # type: ignore[override]  # ours are of the base class
        return KeysView(self)

    def items(self) -> ItemsView[int, BlockEntry]:  # type: ignore[override]  # ours are of the base class
        return _Items(self)

    def values(self) -> ValuesView[BlockEntry]:  # type: ignore[override]  # ours are of the base class
        return _Values(self)


class _Items(ItemsView[int, BlockEntry]):
    """Blocks with their ordinals, looked at and not unpacked."""

    _mapping: HeldBlocks

    def __iter__(self) -> Iterator[tuple[int, BlockEntry]]:
        held = self._mapping
        return ((ordinal, held.get(ordinal)) for ordinal in held)


class _Values(ValuesView[BlockEntry]):
    """Blocks, looked at and not unpacked."""

    _mapping: HeldBlocks

    def __iter__(self) -> Iterator[BlockEntry]:
        held = self._mapping
        return (held.get(ordinal) for ordinal in held)
