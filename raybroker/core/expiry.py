"""What time alone does to a destination: births, deadlines, the ends of pauses, and the scan for what has expired."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core.blocks.block_index import NEVER
from raybroker.core.delivery import consumer_commands
from raybroker.core.outcome import Outcome

if TYPE_CHECKING:
    from raybroker.core.destination import Destination


def plan_scan(home: Destination) -> None:
    """Look for expired messages when it is time to, if there may be any."""
    if home.scan_ms and home.expiring:
        if not home.next_scan_ms:
            home.next_scan_ms = home.now_ms + home.scan_ms
        home.wake(home.next_scan_ms)


def tick(home: Destination, command: cmd.Tick, out: Outcome) -> None:
    """Whatever was to happen by now."""
    for which in [w for w, until_ms in home.paused.items() if 0 < until_ms <= home.now_ms]:
        home.resume(which, out)
    for until_ms in home.paused.values():
        home.wake(until_ms or None)
    if home.ended_before:
        home.ended_before = False
        for queue in home.queues.values():
            queue.end_what_is_over(out)
    for queue in home.queues.values():
        queue.born(home.now_ms)
        queue.overdue(home.now_ms, out)
        if not queue.gathering.dispatching:
            consumer_commands.rank(home, queue)
        home.touch(queue)
    if home.scan_ms and home.next_scan_ms and home.now_ms >= home.next_scan_ms:
        home.next_scan_ms = 0
        _scan(home, out)
    plan_scan(home)


def _scan(home: Destination, out: Outcome) -> None:
    """Take out what has expired: every block is looked at when its first message is due."""
    chosen: dict[int, int] = {}
    again: list[tuple[int, int]] = []
    while home.expiring and home.expiring[0][0] <= home.now_ms:
        _, ordinal = heappop(home.expiring)
        block = home.block_index.held.get(ordinal)
        if block is None or block.columns.expires is None:
            continue
        chosen[ordinal] = block.expired(block.everything & ~block.done, home.now_ms)
        later = min((t for t in block.columns.expires if t > home.now_ms), default=NEVER)
        if later < NEVER:
            again.append((later, ordinal))
    if chosen:
        for queue in home.queues.values():
            queue.expire(chosen, out)
    for ordinal, mask in chosen.items():
        if any(queue.owed(ordinal) & mask & ~queue.dying.get(ordinal, 0) for queue in home.queues.values()):
            again.append((home.now_ms, ordinal))  # With a consumer, or hidden: it may come back.
    for item in again:
        heappush(home.expiring, item)
