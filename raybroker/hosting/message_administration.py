"""Administration of the messages of one host: browsing, deleting, moving, exporting and importing them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from raybroker.content.bodies import COMPRESSED, PICKLE, decode_body
from raybroker.content.headers import decode_header, message_id
from raybroker.content.quarantine_record import legible_ids
from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.selector import compile_selector, normalised
from raybroker.engine.destinations.destination_registry import DMQ
from raybroker.engine.destinations.message_moves import Moved
from raybroker.engine.host import Host
from raybroker.engine.memory.quarantine import Damaged
from raybroker.engine.path.executor import DISK_FULL
from raybroker.hosting.durable import Durable
from raybroker.model.argument import Argument, or_none, whole
from raybroker.model.blocks.block import Block
from raybroker.model.definitions.pauses import CONSUMPTION
from raybroker.model.errors import (
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    ProtocolError,
    ResourceAllocationError,
    StoreError,
)
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.settings.setting import INT_MAX

if TYPE_CHECKING:
    from raybroker.engine.destinations.browsing import Seen

BROWSE_BYTES_MAX: Final = 8 << 20
"""Bodies of one page; as much as a page of an export."""
MOVABLE: Final = ("waiting", "delayed", "hidden")
ALL_STATES: Final = (*MOVABLE, "delivered")
ROOM_ASKS_MAX: Final = 100
ROOM_ASK_S: Final = 0.01
"""How often it is looked, and with which pauses, whether the broker has leased the host more of a pool."""
LEASES_MAX: Final = 10
"""How often messages that found no room in a pool are tried again after the broker has leased the host more of it."""
START: Final = Argument(or_none(whole(0, INT_MAX)), "the next of the page before, or None")
START_DIGITS_MAX: Final = 18
LOOK_STEP: Final = 32
"""Blocks that are read for damage before messages get a turn."""


class HostMessages(Durable):
    """What HostService says about messages; ``host`` is the engine's."""

    host: Host

    async def browse_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        start: Any,
        max: int,
        body_bytes_max: int,
    ) -> dict[str, Any]:
        """One page, of so many messages or about BROWSE_BYTES_MAX; ``start`` is how many matching messages to leave
        out. Damaged ones are left out too."""
        home = self.host.registry.named(type, name)
        first = _first(start)
        rows: list[dict[str, Any]] = []
        at = size = 0
        for seen, block in self._chosen(home, selector, None, ALL_STATES):
            for index in pk.indexes(seen.mask):
                at += 1
                if at <= first:
                    continue
                if len(rows) >= max or size >= BROWSE_BYTES_MAX:
                    return {"messages": rows, "next": first + len(rows)}
                rows.append(_row(block, index, seen, body_bytes_max))
                size += _shown_bytes(block, index, body_bytes_max)
        return {"messages": rows, "next": None}

    async def delete_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
    ) -> int:
        home = self.host.registry.find(type, name)
        _require_movable(home)
        chosen, count = _masks(seen for seen, _ in self._chosen(home, selector, ids, MOVABLE))
        if self.host.meters.life.wanted(home):
            for ordinal, mask in chosen.items():
                self.host.meters.life.removed(home, ordinal, mask)
        self.host.executor.perform(home, cmd.Remove(chosen))
        await self._barrier()
        return count

    async def move_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
        target_type: str | None,
        target: str | None,
    ) -> tuple[int, str]:
        """To a destination of this host, with their ids, or back to where dead ones died (no target)."""
        home = self.host.registry.find(type, name)
        _require_movable(home)
        to = None if target is None else self.host.registry.find(target_type or type, target)
        moved, refused = self._move(home, selector, ids, to)
        for _ in range(LEASES_MAX):
            if not refused or not await self._leased():
                break
            more, refused = self._move(home, selector, ids, to)
            moved += more
        await self._barrier()
        return moved, refused

    def _move(self, home: Destination, selector: str | None, ids: list[str] | None, to: Destination | None) -> Moved:
        """As :meth:`move_messages`, as far as there is room now."""
        moved, refused = 0, ""
        for seen, block in list(self._chosen(home, selector, ids, MOVABLE)):
            if to is None:
                count, why = self.host.moves.revive(home, seen.ordinal, seen.mask, block)
            else:
                picked = Block(self._copied(block, seen))
                count, why = self.host.moves.move(home, seen.ordinal, seen.mask, to, picked)
            moved, refused = moved + count, refused or why
        self.host.moves.tell_left()
        return Moved(moved, refused)

    async def _leased(self) -> bool:
        """Whether the broker was asked for more of the pools that were too small, and has answered."""
        shares = list(self.host.pools.shares.values())
        for share in shares:
            self.host.pools.ask_if_wanted(share)
        asked = [share for share in shares if share.asking]
        for _ in range(ROOM_ASKS_MAX if asked else 0):
            await asyncio.sleep(ROOM_ASK_S)
            if not any(share.asking for share in asked):
                return True
        return False

    def _copied(self, block: Block, seen: Seen) -> bytes:
        """Chosen messages of a block as another destination gets them: delivered as often as here."""
        return self.host.codec.delivered(b"".join(block.pick(seen.mask)), seen.attempts)

    async def export_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        start: Any,
        max_bytes: int,
    ) -> dict[str, Any]:
        """Blocks of about ``max_bytes``; ``start`` is how many messages to leave out. Damaged ones are left out too."""
        home = self.host.registry.named(type, name)
        first, at, size = _first(start), 0, 0
        blocks: list[bytes] = []
        for seen, block in self._chosen(home, selector, None, ALL_STATES):
            before, at = at, at + seen.mask.bit_count()
            if at <= first:
                continue
            if size >= max_bytes:
                return {"blocks": blocks, "next": max(before, first)}
            mask = seen.mask & ~pk.lowest(seen.mask, max(first - before, 0)) if first > before else seen.mask
            blocks.append(self._copied(block, seen._replace(mask=mask)))
            size += len(blocks[-1])
        return {"blocks": blocks, "next": None}

    async def import_messages(
        self,
        type: str,
        name: str,
        blocks: list[bytes],
        subscription: str = "",
    ) -> int:
        """All of these blocks or none, for one subscription of a topic (engine.destinations.subscription_keys) if it is
        named.

        Raises ResourceAllocationError when the destination does not take them, MemoryLowError when the host has no
        memory for them, InvalidDestinationError when the subscription is gone or does not select them.
        """
        home = self.host.registry.find(type, name)
        if not is_metrics_topic(name):
            self.host.memory.require(f"nothing is put into {type} {name}")
        found = [_exported(index, data) for index, data in enumerate(blocks)]
        sizes = [size for block in found for size in block.lengths]
        if sizes and not home.admission.would_take(sizes) and not await self._room_for(home, sizes):
            raise ResourceAllocationError(
                f"{type} {name} does not take {len(sizes)} more messages now, so that it gets none of them:"
                f" {home.admission.fitting(sizes)[1]}"
            )
        if not self.host.executor.has_room(sum(block.nbytes for block in found)):
            raise ResourceAllocationError(DISK_FULL)
        only = None
        for block in found if subscription else ():
            queue, wanted = self.host.moves.wanted_of(home, subscription, block)
            if queue is None or wanted.bit_count() < block.count:
                raise InvalidDestinationError(
                    f"subscription {subscription} of {type} {name} is gone or does not select the messages any more"
                )
            only = queue.number
        steps = [self.host.own.step(home, block, only=only) for block in found]

        def start(done: Callable[[], None]) -> None:
            self.host.executor.perform_all(steps, (), done)

        await self.durable(start)
        return len(sizes)

    async def _room_for(self, home: Destination, sizes: list[int]) -> bool:
        """Whether messages of these sizes are taken once the broker has leased the host more of their pool."""
        account = home.policy.account
        for _ in range(ROOM_ASKS_MAX if account is not None else 0):
            if account is None or account.share.whole:
                break
            self.host.pools.ask_if_wanted(account.share)
            await asyncio.sleep(ROOM_ASK_S)
            if home.admission.would_take(sizes):
                return True
        return home.admission.would_take(sizes)

    # ---- what cannot be read, see engine.memory.quarantine

    async def damaged_messages(self, type: str, name: str) -> list[dict[str, Any]]:
        """What is damaged in a halted destination; it is looked through once, a few blocks at a time."""
        home = self.host.registry.named(type, name)
        return [
            {
                "block": ordinal,
                "messages": mask.bit_count(),
                "error": error,
                "ids": legible_ids(self.host.quarantine.legible(home, ordinal), mask),
            }
            for ordinal, mask, error in await self._damaged(home)
        ]

    async def _damaged(self, home: Destination) -> list[Damaged]:
        quarantine = self.host.quarantine
        if home.number not in self.host.registry.halted:
            return []
        if home.number not in quarantine.known:
            found: list[Damaged] = []
            for looked, damaged in enumerate(quarantine.look(home)):
                if damaged is not None:
                    found.append(damaged)
                if looked % LOOK_STEP == LOOK_STEP - 1:
                    await asyncio.sleep(0)
            quarantine.known[home.number] = found
        return quarantine.known[home.number]

    async def skip_messages(self, type: str, name: str) -> int:
        home = self.host.registry.named(type, name)
        count = 0
        for damaged in await self._damaged(home):
            if not await self._skip(home, damaged):
                raise StoreError(f"{DMQ} was not reached; {count} damaged messages were skipped, the others were not")
            count += damaged.mask.bit_count()
        if home.number in self.host.registry.halted:
            self.host.quarantine.forget(home)
            self.host.report(f"[B2165] {count} damaged messages of {type} {name} were skipped; records are in {DMQ}")
        return count

    async def _skip(self, home: Destination, damaged: Damaged) -> bool:
        stored: list[bool] = []

        def start(done: Callable[[], None]) -> None:
            def told(ok: bool) -> None:
                stored.append(ok)
                done()

            self.host.quarantine.skip(home, damaged, told)

        await self.durable(start)
        return stored[0]

    # ---- handed over to another host, see engine.destinations.transfer

    async def set_aside(
        self,
        type: str,
        name: str,
        txn: str,
        messages_max: int,
        bytes_max: int,
    ) -> list[bytes]:
        home = self.host.registry.find(type, name)
        return self.host.transfer.set_aside(home, bytes.fromhex(txn), messages_max, bytes_max)

    async def give(self, txn: str) -> None:
        await self.durable(lambda done: self.host.transfer.give(bytes.fromhex(txn), done))

    async def keep(self, txn: str) -> None:
        await self.durable(lambda done: self.host.transfer.keep(bytes.fromhex(txn), done))

    async def take(self, type: str, name: str, txn: str, coordinator: str, blocks: list[bytes]) -> int:
        home = self.host.registry.find(type, name)
        self.host.memory.require(f"nothing is forwarded to {type} {name}")
        found = [_exported(index, data) for index, data in enumerate(blocks)]
        key = bytes.fromhex(txn)
        await self.durable(lambda done: self.host.transfer.take(home, key, coordinator, found, done))
        return sum(block.count for block in found)

    # ---- internals -------------------------------------------------------------------------------------------------

    def _chosen(
        self, home: Destination, selector: str | None, ids: list[str] | None, states: tuple[str, ...]
    ) -> Iterator[tuple[Seen, Block]]:
        """What is in one of the states and matches, by block."""
        from raybroker.engine.destinations.browsing import look

        text = normalised(selector)
        wanted = set(ids) if ids is not None else None
        chooses = compile_selector(text) if text is not None else None
        for seen in look(home, states):
            block, mask = self.host.blocks.read(home, seen.ordinal), seen.mask
            if block is None:
                continue
            if chooses is not None:
                mask = chooses.pick(self.host.codec.content(block), mask, seen.attempts)
            if wanted is not None:
                named = (i for i in pk.indexes(mask) if message_id(block.producer, block.seq_of(i)) in wanted)
                mask = pk.of_indexes(named) if mask else 0
            if mask:
                yield seen._replace(mask=mask), block

    async def _barrier(self) -> None:
        """Wait until everything done so far is durable."""
        await self.durable(lambda done: self.host.executor.append([], done))


def _first(start: Any) -> int:
    """How many messages to leave out, as the page before has said it."""
    if isinstance(start, str) and start.isascii() and start.isdigit():
        start = int(start[:START_DIGITS_MAX])
    return int(START.check("start", start) or 0)


def _exported(index: int, data: bytes) -> Block:
    try:
        block = Block(data)
        block.check()
    except ProtocolError as error:
        raise MessageFormatError(f"block {index} is no exported message: {error}") from None
    return block


def _require_movable(home: Destination) -> None:
    if home.name != DMQ and CONSUMPTION not in home.paused:
        raise IllegalStateError(
            f"messages of {home.kind} {home.name} may be moved or deleted while its consumers are paused;"
            " pause it first"
        )


def _masks(found: Iterator[Seen]) -> tuple[dict[int, int], int]:
    chosen: dict[int, int] = {}
    for seen in found:
        chosen[seen.ordinal] = chosen.get(seen.ordinal, 0) | seen.mask
    return chosen, sum(mask.bit_count() for mask in chosen.values())


def _row(block: Block, index: int, seen: Seen, body_bytes_max: int) -> dict[str, Any]:
    header = decode_header(block.header(index))
    return {
        "id": message_id(block.producer, block.seq_of(index)),
        "timestamp": block.timestamp_ms,
        "expiration": block.expires_of(index),
        "priority": block.priority_of(index),
        "persistent": block.persistent,
        "type": header.type,
        "correlation_id": header.correlation_id,
        "reply_to": header.reply_to,
        "properties": header.properties,
        "delivery_count": seen.attempts,
        "size": block.lengths[index],
        "body": _body(block, index, body_bytes_max),
        "state": seen.state,
    }


def _shown_bytes(block: Block, index: int, most: int) -> int:
    """Of a body as a row has it, with its headers; one that is compressed counts as it may be shown."""
    shown = most if block.kind_of(index) & COMPRESSED else min(block.lengths[index], most)
    return shown + len(block.header(index) or b"")


def _body(block: Block, index: int, most: int) -> Any:
    """The body when it is small enough and not an object of Python, else its first bytes as they are stored.

    ``most`` bounds a compressed body by what it has when it is whole: one small message could fill the host otherwise.
    """
    data, kind = block.body(index), block.kind_of(index)
    if kind == PICKLE or data.nbytes > most:
        return bytes(data[:most])
    try:
        return decode_body(kind, data, most, typed=False)
    except MessageFormatError:
        return bytes(data[:most])
