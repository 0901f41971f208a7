"""Messages of a host as its broker administers them: browsed, deleted, moved, exported and imported; and those that
are damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from raybroker.content.quarantine_record import legible_ids
from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DMQ, DestinationRegistry
from raybroker.engine.destinations.message_moves import MessageMoves, MovedMessages
from raybroker.engine.destinations.pools import Pools
from raybroker.engine.measuring.life_cycle import LifeCycle
from raybroker.engine.memory.quarantine import Damaged, Quarantine
from raybroker.engine.path.executor import DISK_FULL, Executor
from raybroker.hosting.durable import Changes, Done, durable
from raybroker.hosting.ports.copies import Copies, browsed_row, exported_block, shown_bytes
from raybroker.model import refusals
from raybroker.model.argument import Argument, or_none, whole
from raybroker.model.blocks.block import Block
from raybroker.model.errors import ResourceAllocationError, StoreError
from raybroker.model.listing import Row
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.refusals import refuse
from raybroker.model.settings.setting import INT_MAX

if TYPE_CHECKING:
    from raybroker.engine.destinations.browsing import SeenMessage

BROWSE_BYTES_MAX: Final = 8 << 20
"""Bodies of one page; as much as a page of an export."""
MOVABLE: Final = ("waiting", "delayed", "hidden")
ALL_STATES: Final = (*MOVABLE, "delivered")
ROOM_ASKS_MAX: Final = 100
ROOM_ASK_S: Final = 0.01
"""How often it is looked, and with which pauses, whether the broker has leased the host more of a pool."""
LEASES_MAX: Final = 10
"""How often messages that found no room in a pool are tried again after the broker has leased the host more of it."""
LOOK_STEP: Final = 32
"""Blocks that are read for damage before messages get a turn."""
START: Final = Argument(or_none(whole(0, INT_MAX)), "the next of the page before, or None")
START_DIGITS_MAX: Final = 18


class MessagesPort:
    """``require_memory`` raises MemoryLowError where there is none for what its argument names."""

    def __init__(
        self,
        registry: DestinationRegistry,
        executor: Executor,
        moves: MessageMoves,
        life: LifeCycle,
        copies: Copies,
        pools: Pools,
        require_memory: Callable[[str], None],
        changes: Changes,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._moves = moves
        self._life = life
        self._copies = copies
        self._pools = pools
        self._require_memory = require_memory
        self.changes = changes

    async def browse(
        self, type: str, name: str, selector: str | None, start: Any, max: int, body_bytes_max: int
    ) -> dict[str, Any]:
        """{"messages": rows, "next"}: one page, of so many messages or about BROWSE_BYTES_MAX; ``start`` is how many
        matching messages to leave out. Damaged ones are left out too."""
        destination = self._registry.named(type, name)
        first = _first(start)
        rows: list[Row] = []
        at = size = 0
        for seen, block in self._copies.chosen(destination, selector, None, ALL_STATES):
            for index in pk.indexes(seen.mask):
                at += 1
                if at <= first:
                    continue
                if len(rows) >= max or size >= BROWSE_BYTES_MAX:
                    return {"messages": rows, "next": first + len(rows)}
                rows.append(browsed_row(block, index, seen, body_bytes_max))
                size += shown_bytes(block, index, body_bytes_max)
        return {"messages": rows, "next": None}

    def _require_movable(self, destination: Destination) -> None:
        kind, name, paused = destination.kind, destination.name, destination.paused
        refuse(refusals.of_moving(kind, name, self._registry.state_of(destination), paused))

    @durable
    async def delete(self, done: Done, type: str, name: str, selector: str | None, ids: list[str] | None) -> int:
        destination = self._registry.find(type, name)
        self._require_movable(destination)
        chosen, count = _masks(seen for seen, _ in self._copies.chosen(destination, selector, ids, MOVABLE))
        if self._life.wanted(destination):
            for ordinal, mask in chosen.items():
                self._life.removed(destination, ordinal, mask)
        self._executor.perform(destination, cmd.Remove(chosen))
        self._executor.append([], done)
        return count

    @durable
    async def move(
        self,
        done: Done,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
        target_type: str | None,
        target: str | None,
    ) -> tuple[int, str]:
        """Move messages to a destination of this host, with their ids, or back to where dead ones died (no target). How
        many were moved, and why others that were chosen were not; "" when all were."""
        destination = self._registry.find(type, name)
        self._require_movable(destination)
        to = None if target is None else self._registry.find(target_type or type, target)
        moved, refused = self._move(destination, selector, ids, to)
        for _ in range(LEASES_MAX):
            if not refused or not await self._leased():
                break
            more, refused = self._move(destination, selector, ids, to)
            moved += more
        self._executor.append([], done)
        return moved, refused

    def _move(
        self, destination: Destination, selector: str | None, ids: list[str] | None, to: Destination | None
    ) -> MovedMessages:
        """Do what :meth:`move` does, as far as there is room now."""
        moved, refused = 0, ""
        for seen, block in list(self._copies.chosen(destination, selector, ids, MOVABLE)):
            if to is None:
                count, why = self._moves.revive(destination, seen.ordinal, seen.mask, block)
            else:
                picked = Block(self._copies.copied(block, seen))
                count, why = self._moves.move(destination, seen.ordinal, seen.mask, to, picked)
            moved, refused = moved + count, refused or why
        self._moves.tell_left()
        return MovedMessages(moved, refused)

    async def _leased(self) -> bool:
        """Whether the broker was asked for more of the pools that were too small, and has answered."""
        shares = list(self._pools.shares.values())
        for share in shares:
            self._pools.ask_if_wanted(share)
        asked = [share for share in shares if share.asking]
        for _ in range(ROOM_ASKS_MAX if asked else 0):
            await asyncio.sleep(ROOM_ASK_S)
            if not any(share.asking for share in asked):
                return True
        return False

    async def export(self, type: str, name: str, selector: str | None, start: Any, max_bytes: int) -> dict[str, Any]:
        """{"blocks": [bytes], "next"}: blocks of about ``max_bytes``; ``start`` is how many messages to leave out.
        Damaged ones are left out too."""
        destination = self._registry.named(type, name)
        first, at, size = _first(start), 0, 0
        blocks: list[bytes] = []
        for seen, block in self._copies.chosen(destination, selector, None, ALL_STATES):
            before, at = at, at + seen.mask.bit_count()
            if at <= first:
                continue
            if size >= max_bytes:
                return {"blocks": blocks, "next": max(before, first)}
            mask = seen.mask & ~pk.lowest(seen.mask, max(first - before, 0)) if first > before else seen.mask
            blocks.append(self._copies.copied(block, seen._replace(mask=mask)))
            size += len(blocks[-1])
        return {"blocks": blocks, "next": None}

    @durable
    async def put(self, done: Done, type: str, name: str, blocks: list[bytes], subscription: str = "") -> int:
        """Put all of these exported blocks into a destination or none, for one subscription of a topic as dead messages
        name it (engine.destinations.subscription_keys), or "" for all; how many messages.

        Raises ResourceAllocationError when the destination does not take them, MemoryLowError when the host has no
        memory for them, InvalidDestinationError when the subscription is gone or does not select them.
        """
        destination = self._registry.find(type, name)
        if not is_metrics_topic(name):
            self._require_memory(f"nothing is put into {type} {name}")
        found = [exported_block(index, data) for index, data in enumerate(blocks)]
        sizes = [size for block in found for size in block.lengths]
        if sizes and not destination.admission.would_take(sizes) and not await self._room_for(destination, sizes):
            raise ResourceAllocationError(
                f"{type} {name} does not take {len(sizes)} more messages now, so that it gets none of them:"
                f" {destination.admission.fitting(sizes)[1]}"
            )
        if not self._executor.has_room(sum(block.nbytes for block in found)):
            raise ResourceAllocationError(DISK_FULL)
        self._moves.put(destination, found, subscription, done)
        return len(sizes)

    async def _room_for(self, destination: Destination, sizes: Sequence[int]) -> bool:
        """Whether messages of these sizes are taken once the broker has leased the host more of their pool."""
        account = destination.policy.account
        for _ in range(ROOM_ASKS_MAX if account is not None else 0):
            if account is None or account.share.whole:
                break
            self._pools.ask_if_wanted(account.share)
            await asyncio.sleep(ROOM_ASK_S)
            if destination.admission.would_take(sizes):
                return True
        return destination.admission.would_take(sizes)


class DamagedPort:
    """What a host cannot read of its destinations: shown, and skipped; see engine.memory.quarantine. ``report`` takes a
    line for the log."""

    def __init__(
        self, registry: DestinationRegistry, quarantine: Quarantine, report: Callable[[str], None], changes: Changes
    ) -> None:
        self._registry = registry
        self._quarantine = quarantine
        self._report = report
        self._changes = changes

    async def damaged_rows(self, type: str, name: str) -> list[Row]:
        """What the store cannot give back whole of a halted destination: block, messages, ids, error. It is looked
        through once, a few blocks at a time."""
        destination = self._registry.named(type, name)
        return [
            {
                "block": ordinal,
                "messages": mask.bit_count(),
                "error": error,
                "ids": legible_ids(self._quarantine.legible(destination, ordinal), mask),
            }
            for ordinal, mask, error in await self._found(destination)
        ]

    async def skip(self, type: str, name: str) -> int:
        """Put what is damaged into quarantine and let the destination go on; how many messages. Each block is durable
        before the next one is skipped."""
        destination = self._registry.named(type, name)
        count = 0
        for damaged in await self._found(destination):
            if not await self._skip(destination, damaged):
                raise StoreError(f"{DMQ} was not reached; {count} damaged messages were skipped, the others were not")
            count += damaged.mask.bit_count()
        if destination.number in self._registry.halted:
            self._quarantine.forget_destination(destination)
            self._report(f"[B2165] {count} damaged messages of {type} {name} were skipped; records are in {DMQ}")
        return count

    async def _found(self, destination: Destination) -> list[Damaged]:
        quarantine = self._quarantine
        if destination.number not in self._registry.halted:
            return []
        if destination.number not in quarantine.known:
            found: list[Damaged] = []
            for looked, damaged in enumerate(quarantine.read_blocks(destination)):
                if damaged is not None:
                    found.append(damaged)
                if looked % LOOK_STEP == LOOK_STEP - 1:
                    await asyncio.sleep(0)
            quarantine.known[destination.number] = found
        return quarantine.known[destination.number]

    async def _skip(self, destination: Destination, damaged: Damaged) -> bool:
        stored: list[bool] = []
        async with self._changes.change() as done:

            def told(ok: bool) -> None:
                stored.append(ok)
                done()

            self._quarantine.skip(destination, damaged, told)
        return stored[0]


def _first(start: Any) -> int:
    """How many messages to leave out, as the page before has said it."""
    if isinstance(start, str) and start.isascii() and start.isdigit():
        start = int(start[:START_DIGITS_MAX])
    return int(START.check("start", start) or 0)


def _masks(found: Iterator[SeenMessage]) -> tuple[dict[int, int], int]:
    chosen: dict[int, int] = {}
    for seen in found:
        chosen[seen.ordinal] = chosen.get(seen.ordinal, 0) | seen.mask
    return chosen, sum(mask.bit_count() for mask in chosen.values())
