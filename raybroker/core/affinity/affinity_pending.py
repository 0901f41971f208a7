"""Messages that wait in a delivery queue with affinity: a label of theirs says which consumers they are for, at first.

A message whose label a consumer has waits for such a consumer, and after ``affinityWait`` since it came goes to
anybody.  So do at once those without a label, and those whose label nobody has.  A consumer takes, of what it may have,
what came first; of others' messages that have waited for long enough it takes one when there is nothing else for it,
and after ``PASSES_MAX`` others in any case, so that none waits for ever while there is other work.

As long as the delivery queue has units of order, they say who gets what, and labels do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raybroker.core.affinity.label_index import LabelIndex
from raybroker.core.batches.arrival_times import ArrivalTimes
from raybroker.core.delivery.backlog import ANY, UNSORTED, Backlog, Bucket
from raybroker.core.delivery.consumers import Consumer, Consumers, in_line
from raybroker.core.delivery.pending import Dies, HandOut
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.run import Run, position
from raybroker.core.delivery.selector_index import SELECTORS_MAX
from raybroker.core.policy import DestinationPolicy
from raybroker.core.selector.content import Content
from raybroker.core.step import Step

PASSES_MAX: Final = 8
"""Messages that are handed out before others' that came earlier and have waited for long enough."""


class AffinityPending(PlainPending):
    """Buckets by label. ``passes``: so many runs went before others' messages that have waited for long enough."""

    __slots__ = ("_labels", "_policy", "_step", "_times", "passes")

    backlog: Backlog
    always_sorts = True

    def __init__(self, consumers: Consumers, labels: LabelIndex, policy: DestinationPolicy, step: Step) -> None:
        super().__init__(consumers, labels)
        self._labels = labels
        self._policy = policy
        self._step = step
        self.times = self._times = ArrivalTimes()
        self._times.note(1, 0)
        self.needs_headers = True
        self.passes = 0

    def sorts_by_headers(self) -> bool:
        return True

    # ---- coming in -------------------------------------------------------------------------------------------------

    def labels_join(self, attachment: int, labels: Iterable[str]) -> bool:
        return self._labels.join_labels(attachment, labels)

    def labels_leave(self, attachment: int) -> None:
        self._labels.leave_labels(attachment)

    # ---- going out -------------------------------------------------------------------------------------------------

    def dispatch(self, hand_out: HandOut, dies: Dies) -> None:
        backlog, consumers = self.backlog, self.consumers
        without: list[Consumer] = []
        while backlog.count:
            turn = consumers.next_with_room()
            if turn is None:
                break
            consumer, room = turn
            buckets = self._next_for(consumer)
            if buckets:
                hand_out(consumer, backlog.take_of(buckets, room))
            else:
                without.append(consumers.turn.popleft())
        else:
            consumers.turn.rotate(-1)
        consumers.turn.extend(without)

    def has_for(self, consumer: Consumer) -> bool:
        return bool(self._next_for(consumer, passing=False))

    def _next_for(self, consumer: Consumer, *, passing: bool = True) -> list[Bucket]:
        """The buckets from which a consumer gets its next messages; without any the step says when there may be some.

        ``passing``: it gets them now.
        """
        mine, others = self._divided(consumer)
        if not others:
            return _highest(mine)
        if mine and _before(others) < _before(mine):
            if self.passes < PASSES_MAX:
                self.passes += passing
                return _highest(mine)
        elif mine:
            return _highest(mine)
        self.passes = 0 if passing else self.passes
        return _highest(others)

    def kept_until_ms(self, run: Run, attachment: int, content: Content) -> int:
        """Return before when the consumer does not get a message that waits: the first one with its label, and it, are
        for others; 0: at any time."""
        ((signature, _),) = self._labels.classify(run, content)
        label = signature >> SELECTORS_MAX
        if label not in self._labels.consumers_of or label in self._labels.labels_of.get(attachment, ()):
            return 0
        bucket = self.backlog.buckets.get((run.priority, signature))
        if not bucket:
            return 0
        return self._times.since_ms(bucket.head().arrival, self._step.now_ms) + self._policy.attributes.affinityWait

    def _divided(self, consumer: Consumer) -> tuple[list[Bucket], list[Bucket]]:
        """What a consumer may have at any time, and what it may have since that has waited for long enough."""
        attachment, selector = in_line(consumer)
        labels = self._labels.labels_of.get(attachment, frozenset())
        self._times.wait_for(self._policy.attributes.affinityWait)
        wait_ms, now_ms = self._policy.attributes.affinityWait, self._step.now_ms
        mine: list[Bucket] = []
        others: list[Bucket] = []
        for bucket in self.backlog.buckets.values():
            signature = bucket.signature
            if signature == UNSORTED:
                if selector == ANY and not self._labels.numbers:
                    mine.append(bucket)
                continue  # Whom they are for shows when they are sorted, some in each step.
            if selector != ANY and not signature >> selector & 1:
                continue
            label = signature >> SELECTORS_MAX
            if not label or label in labels or label not in self._labels.consumers_of:
                mine.append(bucket)
                continue
            due_ms = self._times.since_ms(bucket.head().arrival, now_ms) + wait_ms
            if due_ms <= now_ms:
                others.append(bucket)
            else:
                self._step.wake(due_ms)
        return mine, others


def _before(buckets: list[Bucket]) -> tuple[int, tuple[int, int]]:
    """The place of the first of their messages, in order of priority and arrival."""
    return min((-bucket.priority, position(bucket.head())) for bucket in buckets)


def _highest(buckets: list[Bucket]) -> list[Bucket]:
    """Those with the highest priority."""
    if len(buckets) < 2:
        return buckets
    highest = max(bucket.priority for bucket in buckets)
    return [bucket for bucket in buckets if bucket.priority == highest]
