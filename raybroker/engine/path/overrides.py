"""Overrides of a destination: headers that it sets on every message it takes, and its flow limits for consumers."""

from __future__ import annotations

from raybroker.core.blocks.block_entry import PLAIN, Columns
from raybroker.core.durable.records import PartColumn, PartKey
from raybroker.engine.ports import Codec
from raybroker.model.blocks.block import Block
from raybroker.model.settings.settings import DestinationAttributes


def effective_limit(flow: str, wanted: int, of_destination: int | None) -> int:
    """The smaller of what the client wants and the destination allows, over the finite ones.

    For "credit" 0 and -1 are without limit; for "prefetch" 0 polls.
    """
    unlimited = wanted < 0 or (wanted == 0 and flow == "credit")
    if of_destination is None:
        return -1 if unlimited else wanted
    return of_destination if unlimited else min(wanted, of_destination)


def columns_of(codec: Codec, block: Block, works: PartColumn | None = None) -> Columns:
    """What the core has to know of each message of a block."""
    units = codec.units(block) if block.headers_bytes else None
    if block.plain and units is None and works is None:
        return PLAIN
    return Columns(block.priority, block.priorities(), block.expires(), block.deliver_at(), units, works)


def parts_in(codec: Codec, block: Block, now_ms: int) -> PartColumn | None:
    """Which messages of a block are parts of units of work, for a destination that composes them; ``now_ms`` is
    measured."""
    keys = codec.works(block)
    return None if keys is None else PartColumn(now_ms, tuple([None if key is None else PartKey(*key) for key in keys]))


def overrides(attributes: DestinationAttributes) -> bool:
    """Whether the destination sets any header of the messages that it takes."""
    return (
        attributes.deliveryModeOverride != "No-Delivery"
        or attributes.priorityOverride != -1
        or attributes.timeToLiveOverride != -1
        or attributes.timeToDeliverOverride != -1
    )


def overridden(attributes: DestinationAttributes, block: Block, now_ms: int) -> Block:
    """The block with the destination's overrides of delivery mode, priority, time to live and time to deliver."""
    if not overrides(attributes):
        return block
    mode = attributes.deliveryModeOverride
    wanted = attributes.priorityOverride, attributes.timeToLiveOverride, attributes.timeToDeliverOverride
    priority, ttl_ms, delay_ms = (None if value < 0 else value for value in wanted)
    persistent = None if mode == "No-Delivery" else mode == "Persistent"
    return block.with_overrides(
        now_ms=now_ms, priority=priority, persistent=persistent, ttl_ms=ttl_ms, delay_ms=delay_ms
    )
