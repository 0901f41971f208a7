"""What a twin says about messages that lie with a consumer and are asked back: to make room, or for one that is idle.

The law: whoever is asked can give messages back, has not been asked before without an answer, and is asked for nothing
that its application is known to have.  What is asked for to make room is older than everything that is discarded in its
stead; what is asked for since somebody is idle is the newest half of what its holder has, at most.  Whoever leaves is
asked for all that its application may not have begun, at once, or as soon as it has answered.
"""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.delivery.consumers import PASSED_OVER_MS, SHARED_ALWAYS_MIN, SHARED_MIN
from raybroker.core.outcome import Outcome, Recall
from tests.simulation.ondisk import INDEX_BITS
from tests.simulation.twin_state import Holder, TwinDeliveryQueue, TwinView
from tests.simulation.twin_units import came_back

NEVER = 1 << 62


def recall_of(attributes: Any) -> str:
    """Who lends; nobody where labels say who gets what."""
    return "Never" if attributes.affinityKey else str(attributes.prefetchRecall)


def recalled(twin: TwinView, command: cmd.Recalled, out: Outcome) -> dict[type, list[Any]]:
    """What is given back is as before it was handed out."""
    queue = twin.queue_of.get(command.attachment)
    if queue is None:
        return {}
    holder = queue.holders[command.attachment]
    given = 0
    for first, last in command.ranges:
        for tag in range(first, last + 1):
            key = holder.unsettled.pop(tag, None)
            if key is None:
                continue
            holder.until.pop(tag, None)
            given += 1
            item = queue.items[key]
            item.attempts -= 1
            twin.unseen.append((queue.number, item.message.value))
            if queue.durable and key >> INDEX_BITS in twin.stored:
                twin.delta.add("tried", queue.number, key, item.attempts)
            came_back(twin, queue, key)
            twin.give_back(queue, key)
    holder.window.settled(given)
    if command.last and holder.asked is not None:
        holder.kept = max([holder.kept, *(tag for tag in holder.asked if tag in holder.unsettled)])
        holder.asked = None
        if not holder.to_make_room:
            twin.passed_over[queue.number] = command.attachment, twin.now + PASSED_OVER_MS
    return {}


def leave(twin: TwinView, command: cmd.LeaveNode, out: Outcome) -> dict[type, list[Any]]:
    """The node of a consumer is drained, or is not any more."""
    queue = twin.queue_of.get(command.attachment)
    if queue is not None:
        queue.holders[command.attachment].leaving = command.leaving
    return {}


def check_leaving(twin: TwinView) -> None:
    """Nothing stays with one that leaves but what its application may have begun, and what it was asked for."""
    for queue in twin.queues.values():
        for holder in queue.holders.values():
            left = holder.recallable() if holder.leaving and holder.asked is None else {}
            assert not left, f"one that leaves is not asked for {sorted(left)}"


def bound(twin: TwinView) -> None:
    """Those that cannot give anything back share half of what there may be."""
    limits = twin.destination.attributes
    removing = limits.limitBehavior.startswith("REMOVE") and limits.maxNumMsgs >= 0
    for queue in twin.queues.values():
        unable = [holder for holder in queue.holders.values() if not holder.recalls and not holder.no_ack]
        for holder in queue.holders.values():
            holder.going = holder.going_next  # From the step after the question on all that may come back counts.
        for holder in unable:
            holder.most = max(limits.maxNumMsgs // 2 // len(unable), 1) if removing else -1


def check_recalls(twin: TwinView, out: Outcome, *, to_make_room: bool) -> None:
    """Who is asked for what, in this step."""
    assert not any(isinstance(effect, Recall) for effect in out.immediate), "a question overtakes what it is about"
    for effect in out.after_durable:
        if not isinstance(effect, Recall):
            continue
        queue = twin.queue_of[effect.attachment]
        real = twin.destination.queues[queue.number].consumers.by_attachment[effect.attachment].recall
        assert real is not None
        if (real.asker is None) != to_make_room:
            continue
        holder = queue.holders[effect.attachment]
        assert holder.recalls, "one is asked that cannot give back"
        assert holder.asked is None, "one is asked again before it has answered"
        asked = {tag for first, last in effect.ranges for tag in range(first, last + 1)}
        here = holder.recallable()
        assert asked, "one is asked for nothing"
        assert asked <= here.keys(), f"{asked - here.keys()} are asked for and known to be begun, or settled"
        if not to_make_room:
            _check_shared(recall_of(twin.destination.attributes), queue, holder, asked)
        holder.asked, holder.to_make_room = asked, to_make_room
        holder.going, holder.going_next = (len(asked) if to_make_room else len(here)), len(here)


def _check_shared(recall: str, queue: TwinDeliveryQueue, holder: Holder, asked: set[int]) -> None:
    always = recall == "Always"
    assert recall != "Never", "one is asked for others where nobody is to be"
    assert holder.shares or always, "one is asked for others although it wants its limit"
    least = SHARED_ALWAYS_MIN if always else SHARED_MIN
    assert len(holder.unsettled) >= least, "one that holds hardly anything is asked for others"
    assert 2 * len(asked) <= len(holder.unsettled), "more than half is asked for"
    idle = [one for one in queue.holders.values() if one is not holder and not one.unsettled and one.listening()]
    assert any(one.room() or one.armed for one in idle), "one is asked for others, and nobody is idle"
    for unit in {queue.items[holder.unsettled[tag]].message.unit for tag in asked} - {None}:
        assert always, "a unit is taken from its session"
        rest = [
            one
            for one in queue.holders.values()
            for tag, key in one.unsettled.items()
            if queue.items[key].message.unit == unit and not (one is holder and tag in asked)
        ]
        assert not rest, "a unit is divided"
    plain = [tag for tag, key in holder.recallable().items() if queue.items[key].message.unit is None]
    # What shares a block with a message of a unit stays as well: nothing that is newer does so otherwise.
    units = {key >> INDEX_BITS for key in queue.items if queue.items[key].message.unit is not None}
    loose = [tag for tag in asked if queue.items[holder.unsettled[tag]].message.unit is None]
    first = min(loose, default=NEVER)
    newer = [tag for tag in plain if tag > first and holder.unsettled[tag] >> INDEX_BITS not in units]
    assert set(newer) <= asked, "others than the newest are asked for"


def gone(twin: TwinView) -> int:
    """How many messages are on their way out: what may come back from those that are asked, and what has died for some
    subscriptions and is with consumers of others."""
    holders = [holder for queue in twin.queues.values() for holder in queue.holders.values()]
    if len(twin.queues) == 1:
        return sum(min(holder.going, len(holder.unsettled)) for holder in holders if holder.asked is not None)
    keys = {key for holder in holders if holder.asked is not None for key in holder.recallable().values()}
    return len(keys | {key for key in twin.told if _is_out(twin, key)})


def _is_out(twin: TwinView, key: int) -> bool:
    return any(key in queue.items and key not in queue.dying for queue in twin.queues.values())


def check_older_are_asked(queue: TwinDeliveryQueue, rows: list[tuple[int, int, int]], *, by_priority: bool) -> None:
    """Nothing is discarded while a consumer that could be asked has something older, or of a lower priority."""

    def age(row: tuple[int, int, int]) -> tuple[int, int]:
        return -row[0] if by_priority else 0, row[2] >> INDEX_BITS

    newest = max(map(age, rows))
    for holder in queue.holders.values():
        if holder.asked is None:
            older = [key for key in holder.recallable().values() if age(queue.row(key)) < newest]
            assert not older, "a message was discarded, and nobody asked for older ones that a consumer has not begun"
