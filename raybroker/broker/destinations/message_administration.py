"""Administration of messages: browsing, deleting, moving, exporting and importing them.

A destination's messages may be moved or deleted only while its consumers are paused; those of mq.sys.dmq always.  What
moves between hosts is copied first and deleted then, so that a failure in between leaves duplicates and loses nothing.

What is moved or sent back keeps its count of deliveries, and fills its target up to the limits.  What the target does
not take stays, and ResourceAllocationError says how many were moved and why the others were not.  An import is taken as
a whole or refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from raybroker.admin.verb_types import BROWSE_MAX, EXPORT_BYTES_MAX
from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.content.death_records import ORIGIN, revive_block
from raybroker.content.headers import message_id
from raybroker.core.blocks import message_mask as pk
from raybroker.hosting.host_port import HostPort
from raybroker.model import refusals
from raybroker.model.blocks.block import Block
from raybroker.model.errors import ConfigError, InvalidDestinationError, ResourceAllocationError
from raybroker.model.naming.names import (
    DEAD_MESSAGE_QUEUE,
    check_destination_type,
    is_destination_type,
    is_metrics_topic,
    require_no_metrics_topic,
)
from raybroker.model.refusals import refuse
from raybroker.system import entropy
from raybroker.system.clock import SystemClock

IMPORT_BYTES_MAX: Final = 96 << 20
IDS_AT_A_TIME: Final = 50
"""Messages that one selector by id names."""
MOVABLE: Final = frozenset({"waiting", "delayed", "hidden"})
"""States in which a message may be moved: nobody has it, and no transaction holds it."""


Led = Callable[[Key], Awaitable[HostPort | None]]
"""Gives the host that serves a destination whose log has copies, at whichever broker; None for any other one."""


async def none_led(key: Key) -> HostPort | None:
    """No log has copies."""
    return None


class Messages:
    """The messages on the hosts of one broker; they may go to ``led`` hosts of others, too."""

    def __init__(self, registry: Registry, led: Led = none_led) -> None:
        self._registry = registry
        self._led = led

    async def move_messages(
        self,
        type: str,
        name: str,
        target: str,
        target_type: str | None = None,
        selector: str | None = None,
        ids: list[str] | None = None,
    ) -> int:
        """Move messages to another destination, by default of the same type, with their ids; how many.

        Raises IllegalStateError unless consumers are paused or it is mq.sys.dmq, and ResourceAllocationError when the
        target does not take all of them.
        """
        host, kind = self._at(type, name)
        require_no_metrics_topic(target_type or kind, target)
        target_host, target_kind = await self._target(target_type or kind, target)
        if (kind, name) == (target_kind, target):
            raise InvalidDestinationError(f"{kind} {name!r} is where the messages are already; name another target")
        if host is target_host:
            moved, why = await host.messages.move(kind, name, selector, ids, target_kind, target)
        else:
            await _require_movable(host, kind, name)
            wanted = None if ids is None else set(ids)
            rows = _rows(host, kind, name, selector)
            chosen = [row["id"] async for row in rows if wanted is None or row["id"] in wanted]
            moved, why = await _transfer(host, (kind, name), chosen, target_host, (target_kind, target))
        return _all_of(moved, why, f"{kind} {name}", f"were moved to {target_kind} {target}")

    async def retry_messages(
        self,
        type: str = "queue",
        name: str = DEAD_MESSAGE_QUEUE,
        selector: str | None = None,
        ids: list[str] | None = None,
    ) -> int:
        """Send dead messages back to where each died, as new messages; how many.

        One that died in a subscription of a topic goes to that alone. One whose destination or subscription does not
        exist any more stays and does not count. Raises IllegalStateError, and ResourceAllocationError when a
        destination does not take all of its own; the others are sent back all the same.
        """
        host, kind = self._at(type, name)
        await _require_movable(host, kind, name)
        wanted = None if ids is None else set(ids)
        here: list[str] = []
        elsewhere: dict[tuple[str, str], list[str]] = {}
        targets: dict[tuple[str, str], HostPort | None] = {}
        async for row in _rows(host, kind, name, selector):
            if wanted is not None and row["id"] not in wanted:
                continue
            origin = str(row["properties"].get(ORIGIN, "")).partition(":")[::2]
            if is_metrics_topic(origin[1]):
                continue  # Only brokers send there; what it said is out of date anyway.
            if origin not in targets:
                targets[origin] = await self._find(*origin)
            target = targets[origin]
            if target is host:
                here.append(row["id"])
            elif target is not None:
                elsewhere.setdefault(origin, []).append(row["id"])
        count, refused = 0, ""
        for some in _parts(here, IDS_AT_A_TIME):
            moved, why = await host.messages.move(kind, name, None, list(some), None, None)
            count, refused = count + moved, refused or why
        for origin, chosen in elsewhere.items():
            target = targets[origin]
            if target is not None:
                moved, why = await _send_back(host, (kind, name), chosen, target, origin)
                count, refused = count + moved, refused or why
        return _all_of(count, refused, f"{kind} {name}", "were sent back to where they died")

    async def import_messages(self, type: str, name: str, blocks: list[bytes]) -> int:
        """Put exported messages into a destination, with their ids; how many. SecurityError for metrics topics.

        ResourceAllocationError when they do not all fit: then none is taken.
        """
        require_no_metrics_topic(type, name)
        size = sum(map(len, blocks))
        if size > IMPORT_BYTES_MAX:
            raise ConfigError(f"{size} bytes of blocks are too many for one call; allowed are {IMPORT_BYTES_MAX}")
        host, kind = await self._target(type, name)
        return await host.messages.put(kind, name, blocks)

    def _at(self, type_: str, name: str) -> tuple[HostPort, str]:
        return self._registry.host_of(type_, name), check_destination_type(type_)

    async def _target(self, type_: str, name: str) -> tuple[HostPort, str]:
        found = await self._find(type_, name)
        return (found, check_destination_type(type_)) if found is not None else self._at(type_, name)

    async def _find(self, type_: str, name: str) -> HostPort | None:
        """The host that messages for a destination go to; None when none is known."""
        found = self._registry.find(type_, name)
        if found is not None or not is_destination_type(type_):
            return found
        return await self._led((check_destination_type(type_), name))


async def _rows(host: HostPort, kind: str, name: str, selector: str | None) -> Any:
    """The rows of all messages that can be moved now."""
    start: Any = None
    while True:
        page = await host.messages.browse(kind, name, selector, start, BROWSE_MAX, 0)
        for row in page["messages"]:
            if row["state"] in MOVABLE:
                yield row
        start = page["next"]
        if start is None:
            return


async def _require_movable(host: HostPort, kind: str, name: str) -> None:
    if name != DEAD_MESSAGE_QUEUE:
        refuse(refusals.of_moving(kind, name, (await host.destinations.query(kind, name))["state"]))


async def _exported(host: HostPort, source: tuple[str, str], ids: Sequence[str]) -> AsyncIterator[list[bytes]]:
    """Copies of messages, page by page."""
    selector = "JMSMessageID IN (" + ", ".join(_quoted(one) for one in ids) + ")"
    start: Any = None
    while True:
        page = await host.messages.export(*source, selector, start, EXPORT_BYTES_MAX)
        if page["blocks"]:
            yield page["blocks"]
        start = page["next"]
        if start is None:
            return


async def _transfer(
    host: HostPort, source: tuple[str, str], ids: Sequence[str], target_host: HostPort, target: tuple[str, str]
) -> tuple[int, str]:
    """Copy messages to another host, then delete them here, a few at a time, as far as they are taken; how many, and
    why the others are not."""
    moved, refused = 0, ""
    for some in _parts(ids, IDS_AT_A_TIME):
        taken: list[str] = []
        async for data in _exported(host, source, some):
            for block in map(Block, data):
                mask, why = await _put(target_host, target, block)
                taken += [message_id(block.producer, block.seq_of(index)) for index in pk.indexes(mask)]
                refused = refused or why
        moved += await host.messages.delete(*source, None, taken) if taken else 0
        if refused and not taken:
            break  # It is full, and not one message too large among others.
    return moved, refused


async def _send_back(
    host: HostPort, source: tuple[str, str], ids: Sequence[str], target_host: HostPort, target: tuple[str, str]
) -> tuple[int, str]:
    """Do what :func:`_transfer` does, with dead messages that live again; those whose subscription is gone stay."""
    moved, refused, clock = 0, "", SystemClock()
    producer, next_seq = int.from_bytes(entropy.token(8), "little"), 1
    for some in _parts(ids, IDS_AT_A_TIME):
        sent: list[str] = []
        async for blocks in _exported(host, source, some):
            for block in map(Block, blocks):
                every = (1 << block.count) - 1
                revived = revive_block(block, every, producer=producer, first_seq=next_seq, now_ms=clock.now_ms())
                next_seq += block.count
                for _, _, subscription, mask, data in revived:
                    taken, why = await _put(target_host, target, Block(data), subscription)
                    at = [index for here, index in enumerate(pk.indexes(mask)) if taken >> here & 1]
                    sent += [message_id(block.producer, block.seq_of(index)) for index in at]
                    refused = refused or why
        moved += await host.messages.delete(*source, None, sent) if sent else 0
    return moved, refused


async def _put(host: HostPort, target: tuple[str, str], block: Block, subscription: str = "") -> tuple[int, str]:
    """Which messages of a block are taken, one by one where not all of them are, and why the first of the others is
    not; "" also when their subscription is gone."""
    every = pk.span(0, block.count)
    try:
        await host.messages.put(*target, [bytes(block.view)], subscription)
    except InvalidDestinationError:
        if not subscription:
            raise
        return 0, ""
    except ResourceAllocationError as error:
        taken, refused = 0, str(error)
        for index in pk.indexes(every if block.count > 1 else 0):
            some, _ = await _put(host, target, Block(b"".join(block.pick(1 << index))), subscription)
            taken |= some << index
        return taken, refused
    return every, ""


def _all_of(count: int, why: str, source: str, what: str) -> int:
    """How many, when all that were chosen are where they were to go."""
    if why:
        raise ResourceAllocationError(
            f"{'1 message' if count == 1 else f'{count} messages'} of {source} {what}; the others stay in {source}:"
            f" {why}"
        )
    return count


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
