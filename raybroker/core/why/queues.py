"""Reasons for which the messages of a delivery queue wait, on the whole."""

from __future__ import annotations

from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.unit_of_order.unit_pending import UnitPending
from raybroker.core.why.consumers import obstacles_and_selector, starving
from raybroker.core.why.messages import CONSUMERS_MAX
from raybroker.core.why.pauses import consumption_paused, insertion_paused
from raybroker.core.why.reason import Reason


def standing(queue: DeliveryQueue) -> list[Reason]:
    """What keeps messages of a delivery queue: of those that wait, and how many are elsewhere."""
    found = consumption_paused(queue.policy)
    pending, consumers = queue.pending, list(queue.consumers.by_attachment.values())
    if not consumers:
        found.append(Reason("no_consumer", "nobody is there to take messages"))
    if pending.count:
        for consumer in consumers[:CONSUMERS_MAX]:
            found += obstacles_and_selector(queue, consumer)
        if isinstance(pending, UnitPending) and pending.state.behind:
            text = f"{pending.state.behind} messages wait behind earlier ones of their units of order"
            found.append(Reason("unit_earlier", text, {"messages": pending.state.behind}))
        if queue.plain.unfinished:
            found.append(Reason("sorting", "messages are being compared with the selectors of the consumers"))
    else:
        found.append(Reason("nothing_waits", "no message waits"))
    found += starving(queue)
    held = sum(consumer.have for consumer in consumers)
    if held:
        text = f"messages with consumers that have not acknowledged them: {held}"
        found.append(Reason("delivered", text, {"messages": held}))
    if queue.delayed.count:
        next_ms = queue.delayed.next_ms
        until_ms = next_ms + queue.step.ahead_ms if next_ms is not None else 0
        text = f"{queue.delayed.count} messages are delayed, or have failed and rest"
        found.append(Reason("delayed", text, {"messages": queue.delayed.count, "until_ms": until_ms}))
    if queue.hidden:
        found += insertion_paused(queue.policy)
    return found
