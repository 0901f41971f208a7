"""Where a destination's word beats that of its clients: flow limits, and what it forces on messages."""

from __future__ import annotations

from raybroker.model.block import Block
from raybroker.model.settings import DestinationAttributes


def effective_limit(flow: str, wanted: int, of_destination: int | None) -> int:
    """The smaller of what the client wants and the destination allows, over the finite ones (F-06, D-18).

    For "credit" 0 and -1 are without limit; for "prefetch" 0 polls.
    """
    unlimited = wanted < 0 or (wanted == 0 and flow == "credit")
    if of_destination is None:
        return -1 if unlimited else wanted
    return of_destination if unlimited else min(wanted, of_destination)


def overridden(attributes: DestinationAttributes, block: Block, now_ms: int) -> Block:
    """The block with what the destination forces on messages, whatever their producer says (W-64, W-65, W-74)."""
    mode = attributes.deliveryModeOverride
    wanted = attributes.priorityOverride, attributes.timeToLiveOverride, attributes.timeToDeliverOverride
    if wanted == (-1, -1, -1) and mode == "No-Delivery":
        return block
    priority, ttl_ms, delay_ms = (None if value < 0 else value for value in wanted)
    persistent = None if mode == "No-Delivery" else mode == "Persistent"
    return block.with_overrides(
        now_ms=now_ms, priority=priority, persistent=persistent, ttl_ms=ttl_ms, delay_ms=delay_ms
    )
