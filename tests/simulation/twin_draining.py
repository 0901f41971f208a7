"""What a twin says about consumers in drain mode: what becomes of their credit, and when they are told of messages.

The law of a credit pool over several brokers rests on this: a broker keeps no credit beyond the step that brought it,
says what is void, and tells of messages whenever another Drain would bring some, never otherwise.
"""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.delivery.consumers import PASSED_OVER_MS
from raybroker.core.outcome import Deliver, Drained, Outcome, Ready
from tests.simulation.twin_affinity import settled
from tests.simulation.twin_staleness import looks, versioned
from tests.simulation.twin_state import Holder, TwinDeliveryQueue, TwinDrain, TwinView
from tests.simulation.twin_units import for_him


def drain(twin: TwinView, command: cmd.Drain, out: Outcome) -> dict[type, list[Any]]:
    queue = twin.queue_of.get(command.attachment)
    if queue is not None:
        holder = queue.holders[command.attachment]
        if holder.batch is not None:
            asked, holder.window.asked = holder.window.asked, False
            return {Drained: [Drained(command.attachment, 1, holder.next_tag)]} if asked else {}
        holder.stalled = False
        if not isinstance(holder.window, TwinDrain):
            holder.window = TwinDrain(holder.window.left())
        holder.window.granted(command.credit)
        holder.armed = True
    return {}


def missed(twin: TwinView, command: cmd.Missed, out: Outcome) -> dict[type, list[Any]]:
    queue = twin.queue_of.get(command.attachment)
    if queue is None:
        return {}
    holder = queue.holders[command.attachment]
    holder.stalled = False
    if not isinstance(holder.window, TwinDrain):
        if holder.batch is None:
            holder.window.granted(command.messages)
        return {}
    holder.armed = True
    return {Drained: [Drained(command.attachment, command.messages, holder.next_tag)]}


def check_draining(twin: TwinView, out: Outcome, expected: list[Drained]) -> None:
    """Called when everything has been handed out; ``expected``: what the command itself leads to."""
    wanted: list[Any] = list(expected)
    told = [effect for effect in out.after_durable if isinstance(effect, Drained | Ready)]
    for queue in twin.queues.values():
        for attachment, holder in queue.holders.items():
            if isinstance(holder.window, TwinDrain):
                wanted += _told(twin, queue, attachment, holder, told)
    key = lambda effect: (effect.attachment, type(effect).__name__, effect.tag)
    assert sorted(told, key=key) == sorted(wanted, key=key), f"told {told}, expected {wanted}"
    assert not any(isinstance(effect, Drained | Ready) for effect in out.immediate), "they would overtake deliveries"
    for at, effect in enumerate(out.after_durable):
        late = isinstance(effect, Drained | Ready) and [
            e for e in out.after_durable[at:] if isinstance(e, Deliver) and e.attachment == effect.attachment
        ]
        assert not late, f"{effect} comes before {late}"


def _told(twin: TwinView, queue: TwinDeliveryQueue, attachment: int, holder: Holder, told: list[Any]) -> list[Any]:
    found: list[Any] = []
    assert isinstance(holder.window, TwinDrain)
    unused = holder.window.end_of_step()
    if unused is not None:
        found.append(Drained(attachment, unused, holder.next_tag))
    passed, until = twin.passed_over.get(queue.number, (0, 0))
    ready = Ready(attachment, holder.next_tag)
    # What it has given back is for others first; other commands may come before the tick that ends that.
    wakes = until == twin.now and ready in told
    late = queue.number not in twin.destination.current.touched
    if attachment == passed and not wakes and (late or 0 <= until - twin.now <= PASSED_OVER_MS):
        return found
    if holder.armed and _waits_for(twin, queue, holder):
        holder.armed = False
        found.append(ready)
    elif holder.armed and (holder.selector or versioned(twin)) and twin.unsorted(queue) and ready in told:
        holder.armed = False  # What it matches is not known to the twin in detail.
        found.append(ready)
    return found


def _waits_for(twin: TwinView, queue: TwinDeliveryQueue, holder: Holder) -> bool:
    if not settled(twin, queue) or looks(twin, queue):
        return False  # It is told when the time has come, by the step that looks.
    if not holder.listening() or "consumption" in twin.paused or (holder.selector and twin.unsorted(queue)):
        return False
    return for_him(twin, queue, holder) is not None
