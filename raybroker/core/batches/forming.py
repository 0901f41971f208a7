"""Forming batches: which of the messages that wait go together to a consumer, and when.

A batch is of messages with one key, in the order in which they wait, up to a number and a cost.  It goes when it is
full, or when its oldest message has waited for as long as the consumer lets it; of several that can go, that of which
this is found first, looking from the front of the queue.  Nothing is set aside for a batch before it goes: what waits
may expire, be removed, or go to a consumer that takes messages, as ever.

The first ``LOOKED_AT_MAX`` messages are looked at.  One that has failed by anything but a preemption goes alone, so
that it does not take others with it again.  While the delivery queue knows units of order every batch is of one
message, in the order of its unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from raybroker.core.batches.arrival_times import ArrivalTimes
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.backlog import Backlog
from raybroker.core.delivery.consumers import Asks
from raybroker.core.delivery.redelivery import failures_apart, own_failures
from raybroker.core.delivery.run import Run
from raybroker.core.step import Step
from raybroker.model.batch import COST_MAX, MESSAGES_MAX, Batch
from raybroker.model.causes import PREEMPTED

LOOKED_AT_MAX: Final = 2 * MESSAGES_MAX
"""Messages at the front of a delivery queue that are looked at to form one batch."""
BLOCKS_MAX: Final = LOOKED_AT_MAX
"""Blocks of which keys and costs are kept, so that their headers are decoded once."""


class Traits(NamedTuple):
    """What the messages of a block may go together with, and what each costs; None: they are alike."""

    keys: list[Any] | None
    costs: list[float] | None


_ALIKE: Final = Traits(None, None)


class Forming:
    """A batch as it grows. ``since_ms``: when its oldest message came; ``full``: nothing more goes in; ``due``: it has
    waited for long enough."""

    __slots__ = ("cost", "count", "due", "full", "runs", "since_ms")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.count = 0
        self.cost: float = 0
        self.since_ms = 1 << 62
        self.full = False
        self.due = False

    def add(self, run: Run, index: int, cost: float, rule: Batch, most: int) -> None:
        """One more message, if there is room for it; else the batch is full."""
        if self.count and rule.max_cost is not None and self.cost + cost > rule.max_cost:
            self.full = True
            return
        bit = 1 << index
        last = self.runs[-1] if self.runs else None
        if last is not None and last[:2] == run[:2] and last[3:] == run[3:] and last.mask < bit:
            self.runs[-1] = last._replace(mask=last.mask | bit)
        else:
            self.runs.append(run._replace(mask=bit))
        self.count += 1
        self.cost += cost
        self.full = self.count >= most or (rule.max_cost is not None and self.cost >= rule.max_cost)


class BatchFormer:
    """Forms the batches of a delivery queue. ``arrivals``: since when messages wait; ``due_ms``: when the first batch
    that is not full has to go, milliseconds; None: none waits for that."""

    __slots__ = ("_held", "_step", "_traits", "arrivals", "due_ms")

    def __init__(self, held: Mapping[int, BlockEntry], step: Step) -> None:
        self._held = held
        self._step = step
        self._traits: dict[tuple[int, str | None, str | None], Traits] = {}
        self.arrivals = ArrivalTimes()
        self.due_ms: int | None = None

    def next_batch(self, backlog: Backlog, asks: Asks, expired: list[Run]) -> Forming | None:
        """Take out the batch that goes now; None: there is none yet, and ``due_ms`` says when. What was found expired
        is taken out as well."""
        chosen = self._choose(backlog, asks, expired)
        for runs in (expired, chosen.runs if chosen is not None else ()):
            if runs:
                masks: dict[int, int] = {}
                for run in runs:
                    masks[run.ordinal] = masks.get(run.ordinal, 0) | run.mask
                backlog.take_near(masks, max(run.arrival for run in runs))
        return chosen

    def _choose(self, backlog: Backlog, asks: Asks, expired: list[Run]) -> Forming | None:
        wall_ms, now_ms, rule = self._step.wall_ms, self._step.now_ms, asks.rule
        groups: dict[Any, Forming] = {}
        chosen: Forming | None = None
        looked_at = 0
        for run in backlog.waiting_for(asks.selector):
            if looked_at >= LOOKED_AT_MAX or (chosen is not None and chosen.full):
                break
            block = self._held[run.ordinal]
            mask = run.mask
            if wall_ms >= block.soonest and (dead := block.expired(mask, wall_ms)):
                expired.append(run._replace(mask=dead))
                mask &= ~dead
            keys, costs = self._traits_of(run.ordinal, block.count, rule)
            since_ms, alone = self.arrivals.since_ms(run.arrival, now_ms), goes_alone(run)
            is_due = since_ms + rule.deadline_ms <= now_ms
            for index in pk.indexes(mask):
                looked_at += 1
                key = (run.ordinal, index) if alone else keys[index] if keys is not None else None
                group = groups.get(key)
                if group is None:
                    group = groups[key] = Forming()
                elif group.full:
                    continue
                group.add(run, index, costs[index] if costs is not None else 1, rule, asks.most)
                group.since_ms = min(group.since_ms, since_ms)
                group.full = group.full or alone
                group.due = group.due or is_due
                if chosen is None and (group.full or group.due):
                    chosen = group
                if chosen is not None and chosen.full:
                    break
        if chosen is None and groups:
            due_ms = min(group.since_ms for group in groups.values()) + rule.deadline_ms
            self.due_ms = due_ms if self.due_ms is None else min(self.due_ms, due_ms)
        return chosen

    def _traits_of(self, ordinal: int, count: int, rule: Batch) -> Traits:
        """What a rule makes of the messages of a block; with headers that cannot be read they are alike."""
        if not rule.needs_headers:
            return _ALIKE
        cost = rule.cost if rule.max_cost is not None else None
        at = ordinal, rule.key, cost
        found = self._traits.get(at)
        if found is None:
            content = self._step.peek(ordinal)
            if content is None:
                return _ALIKE
            rows = range(count)
            keys = list(map(_key, content.column(rule.key, rows))) if rule.key is not None else None
            costs = list(map(cost_of, content.column(cost, rows))) if cost is not None else None
            if len(self._traits) >= BLOCKS_MAX:
                del self._traits[next(iter(self._traits))]
            found = self._traits[at] = Traits(keys, costs)
        return found


def goes_alone(run: Run) -> bool:
    """Whether handing it out has failed in a way that may happen again with others beside it."""
    if not run.failures:
        return False
    return own_failures(run.failures) > 0 or any(cause != PREEMPTED for cause in failures_apart(run.failures))


def cost_of(value: Any) -> float:
    """The cost that a property says: a number that is not negative; anything else counts as 1."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return min(value, COST_MAX)
    return 1


def _key(value: Any) -> Any:
    """A value that compares by its type as well; what is not a number is one value."""
    return type(value).__name__, "NaN" if value != value else value
