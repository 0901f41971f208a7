"""Units of work: messages that are hidden until all of their unit are there, and are one message then.

A destination with unitOfWorkHandlingPolicy=SingleMessageDelivery keeps *parts* aside: messages from producers that say
which unit they belong to, which number they have in it, and whether they are its last.  They are held, stored and
charged like all others, and in no consumer's reach.  As soon as a unit is complete the engine is told (Compose) to make
one message of it, which takes the place of the parts in one step (Composed); until then a restart begins with the
parts.

    UnitOfWork   the parts of one unit, by number: taken, or taken by an open transaction
    UnitsOfWork  all units of a destination

A topic's parts are owed to a delivery queue of their own; the composed message goes to those who subscribe by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.blocks.ranges import Ranges
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import PartKey
from raybroker.core.outcome import Refused
from raybroker.core.subscription import Subscription
from raybroker.model.errors import MessageFormatError, MessageTooLargeError
from raybroker.model.settings.settings import DestinationAttributes

PARTS_MAX: Final = 100_000
"""Messages of one unit: the composed one is read and written whole."""
PART_BYTES: Final = 64
"""What a part adds to the composed message beside its body, at least."""
SINGLE: Final = "SingleMessageDelivery"
PARTS: Final = Subscription(name="\0parts", durable=True)
"""Whom a topic owes parts to; no client can choose that name."""


class _Part(NamedTuple):
    """``run`` None: it is part of an open transaction. ``size``: of its body."""

    size: int
    run: Run | None = None


class UnitOfWork:
    """One unit. ``end``: the number of its last message, 0 while that is not known."""

    __slots__ = ("end", "here", "nbytes", "parts", "persistent", "priority", "since_ms")

    def __init__(self, since_ms: int, *, persistent: bool, priority: int) -> None:
        self.since_ms = since_ms
        self.persistent = persistent
        self.priority = priority
        self.parts: dict[int, _Part] = {}
        self.here = 0
        """Parts that no transaction has."""
        self.end = 0
        self.nbytes = 0

    @property
    def complete(self) -> bool:
        return self.end > 0 and self.here == self.end

    def fault(self, key: PartKey, size: int, bytes_max: int, *, persistent: bool, priority: int) -> tuple[str, str]:
        """(code, text) of why a message cannot be one of its parts; empty when it can."""
        number, end = key.number, key.end
        text = ""
        if number in self.parts:
            text = f"its message {number} is there already"
        elif end and self.end:
            text = f"its end is message {self.end} already, and cannot be {number} too"
        elif self.end and number > self.end:
            text = f"it ends with message {self.end}; {number} is beyond that"
        elif end and self.parts and number < max(self.parts):
            text = f"message {number} cannot be its end: message {max(self.parts)} is there"
        elif self.parts and (persistent, priority) != (self.persistent, self.priority):
            text = "all of its messages have the same delivery mode and priority"
        elif 0 <= bytes_max < self.nbytes + size + PART_BYTES:
            return MessageTooLargeError.code, f"unit of work {key.unit!r} grows over {bytes_max} bytes"
        return (MessageFormatError.code, f"unit of work {key.unit!r}: {text}") if text else ("", "")

    def put(self, key: PartKey, part: _Part) -> None:
        before = self.parts.get(key.number)
        if before is None:
            self.nbytes += part.size + PART_BYTES
        self.here += (part.run is not None) - (before is not None and before.run is not None)
        self.parts[key.number] = part
        if key.end:
            self.end = key.number

    def drop(self, key: PartKey) -> None:
        part = self.parts.pop(key.number, None)
        if part is not None:
            self.nbytes -= part.size + PART_BYTES
            self.here -= part.run is not None
        if key.end:
            self.end = 0


class UnitsOfWork:
    """The units of a destination that are not complete, if it composes them.

    ``queue``: number of the delivery queue whose messages the parts are, -1 before there are any.
    """

    def __init__(self, block_index: BlockIndex) -> None:
        self.enabled = False
        self._held = block_index.held
        self.units: dict[str, UnitOfWork] = {}
        self.queue = -1
        self.count = 0
        """Parts that no transaction has."""
        self._complete: dict[str, None] = {}

    def enable(self, attributes: DestinationAttributes) -> None:
        """Compose units from now on, if the attributes say so; what has begun is not given up."""
        self.enabled = self.enabled or attributes.unitOfWorkHandlingPolicy == SINGLE

    # ---- coming in -------------------------------------------------------------------------------------------------

    def admit(self, command: cmd.Send, offered: Ranges, bytes_max: int) -> tuple[Ranges, list[Refused]]:
        """Which of the messages are taken: those that are no parts, and parts that fit their unit."""
        columns = command.columns
        assert columns.works is not None
        taken, refused = 0, []
        for start, end in offered:
            for index in range(start, end):
                key = columns.works.keys[index]
                fault = ("", "")
                if key is not None:
                    fault = self._fault(key, index, command, bytes_max)
                    if not fault[0]:
                        self._reserve(key, index, columns, command.sizes[index], persistent=command.persistent)
                if fault[0]:
                    refused.append(Refused(index, index + 1, *fault))
                else:
                    taken |= 1 << index
        return list(pk.runs_of(taken)), refused

    def _fault(self, key: PartKey, index: int, command: cmd.Send, bytes_max: int) -> tuple[str, str]:
        columns = command.columns
        if columns.units is not None and columns.units[index] is not None:
            return MessageFormatError.code, "a message is in a unit of order or in a unit of work, not in both"
        if not 1 <= key.number <= PARTS_MAX:
            return MessageFormatError.code, (
                f"unit of work {key.unit!r}: JMS_BEA_UnitOfWorkSequenceNumber is a whole number from 1 to {PARTS_MAX},"
                " and JMS_BEA_IsUnitOfWorkEnd true or false"
            )
        priority = _priority(columns, index)
        work = self.units.get(key.unit) or UnitOfWork(0, persistent=command.persistent, priority=priority)
        size = command.sizes[index]
        return work.fault(key, size, bytes_max, persistent=command.persistent, priority=priority)

    def _reserve(self, key: PartKey, index: int, columns: Columns, size: int, *, persistent: bool) -> None:
        assert columns.works is not None
        work = self.units.get(key.unit)
        if work is None:
            work = self.units[key.unit] = UnitOfWork(
                columns.works.at_ms, persistent=persistent, priority=_priority(columns, index)
            )
        work.put(key, _Part(size))

    def restage(self, block: BlockEntry, mask: int) -> None:
        """A restart has found messages of a prepared transaction."""
        for index, key in _keys(block, mask):
            self._reserve(key, index, block.columns, block.bytes_of(1 << index), persistent=block.persistent)

    def release(self, block: BlockEntry, mask: int) -> None:
        """A transaction is rolled back: its messages never were parts."""
        for _, key in _keys(block, mask):
            self._drop(key)

    def keep(self, queue: int, run: Run) -> Run:
        """Put the parts of a run, which is waiting now, to their units; returns what of it is none."""
        block = self._held[run.ordinal]
        parts = run.mask & block.parts
        if not parts:
            return run
        self.queue = queue
        for index, key in _keys(block, parts):
            size = block.bytes_of(1 << index)
            if key.unit not in self.units or key.number not in self.units[key.unit].parts:
                self._reserve(key, index, block.columns, size, persistent=block.persistent)
            work = self.units[key.unit]
            before = work.here
            work.put(key, _Part(size, run._replace(mask=1 << index)))
            self.count += work.here - before
            if work.complete:
                self._complete[key.unit] = None
        return run._replace(mask=run.mask & ~parts)

    # ---- going out -------------------------------------------------------------------------------------------------

    def take_complete(self) -> list[tuple[str, list[Run]]]:
        """Take out the units that have become complete: (unit, its parts in order)."""
        found = []
        for unit in list(self._complete):
            work = self.units[unit]
            if work.complete:
                found.append((unit, [part.run for _, part in sorted(work.parts.items()) if part.run is not None]))
                self._forget(unit)
        self._complete.clear()
        return found

    def due_ms(self, attributes: DestinationAttributes) -> int | None:
        """Return when the oldest incomplete unit is too old."""
        if attributes.incompleteWorkExpirationTime < 0 or not self.count:
            return None
        oldest = min((work.since_ms for work in self.units.values() if work.here), default=None)
        return None if oldest is None else oldest + attributes.incompleteWorkExpirationTime

    def take_expired(self, attributes: DestinationAttributes, now_ms: int) -> Iterator[Dead]:
        """Take out the parts of units that have waited for too long."""
        due_ms = self.due_ms(attributes)
        if due_ms is None or due_ms > now_ms:
            return
        until_ms = now_ms - attributes.incompleteWorkExpirationTime
        for unit, work in list(self.units.items()):
            if work.since_ms > until_ms or not work.here:
                continue
            text = f"unit of work {unit!r} is incomplete after incompleteWorkExpirationTime: {work.here} messages"
            for number, part in list(work.parts.items()):
                if part.run is not None:
                    self._drop(PartKey(unit, number, number == work.end))
                    yield Dead(part.run, "EXPIRED", text)

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take out these messages as far as they are here."""
        found = []
        for ordinal, mask in chosen.items():
            for index, key in _keys(self._held[ordinal], mask):
                work = self.units.get(key.unit)
                part = work.parts.get(key.number) if work is not None else None
                if part is not None and part.run is not None and part.run.ordinal == ordinal:
                    assert part.run.mask == 1 << index
                    self._drop(key)
                    found.append(part.run)
        return found

    def clear(self) -> list[Run]:
        found = list(self._here())
        for key, _ in found:
            self._drop(key)
        return [run for _, run in found]

    def runs(self) -> Iterator[Run]:
        """All parts that no transaction has."""
        for _, run in self._here():
            yield run

    def _here(self) -> Iterator[tuple[PartKey, Run]]:
        for unit, work in self.units.items():
            for number, part in work.parts.items():
                if part.run is not None:
                    yield PartKey(unit, number, number == work.end), part.run

    def _drop(self, key: PartKey) -> None:
        work = self.units.get(key.unit)
        if work is not None:
            before = work.here
            work.drop(key)
            self.count += work.here - before
            if not work.parts:
                del self.units[key.unit]

    def _forget(self, unit: str) -> None:
        self.count -= self.units.pop(unit).here


def _keys(block: BlockEntry, mask: int) -> Iterator[tuple[int, PartKey]]:
    works = block.columns.works
    for index in pk.indexes(mask & block.parts):
        assert works is not None
        key = works.keys[index]
        assert key is not None
        yield index, key


def _priority(columns: Columns, index: int) -> int:
    return columns.priority if columns.priorities is None else columns.priorities[index]
