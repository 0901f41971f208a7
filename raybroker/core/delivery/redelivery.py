"""What comes back to a delivery queue: given back, failed, rejected, kept for too long; and what dies there.

A base of :class:`DeliveryQueue`, which has the state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

from raybroker.core.delivery.backlog import Run
from raybroker.core.delivery.consumers import Consumers, Delivery
from raybroker.core.durable import records
from raybroker.core.outcome import Bury, Outcome
from raybroker.core.unit_of_order.revocation import back, void
from raybroker.model.failure import parted

if TYPE_CHECKING:
    from raybroker.core.delivery.delivery_queue import DeliveryQueue
    from raybroker.core.destination import Destination
    from raybroker.core.unit_of_order.state import Order

FAILURES_MAX: Final = 1_000_000
"""Failures are counted up to here."""


class Returning:
    """See :class:`DeliveryQueue` for what these are."""

    __slots__ = ()

    number: int
    home: Destination
    durable: bool
    owes: dict[int, int] | None
    dying: dict[int, int]
    doomed: dict[int, list[Run]]
    consumers: Consumers
    order: Order | None

    def _queue(self) -> DeliveryQueue:
        return cast("DeliveryQueue", self)

    @abstractmethod
    def put_back(self, run: Run) -> None: ...

    @abstractmethod
    def rest(self, due_ms: int, run: Run) -> None: ...

    @abstractmethod
    def remove(self, chosen: Mapping[int, int]) -> list[Run]: ...

    def give_back(self, deliveries: list[Delivery], out: Outcome) -> None:
        """Deliveries go back to their old places, counted as handed out.

        No consumer has them any more; later ones of their units of order come with them.
        """
        if self.order is not None:
            deliveries = deliveries + back(self.order, deliveries, out)
        for item in reversed(deliveries):
            self.put_back(item.run)

    def failed(
        self, deliveries: list[Delivery], delay_ms: int, out: Outcome, *, rest: bool = True, reason: str = ""
    ) -> None:
        """Handing these out has failed: they rest and come again, or are dead.

        ``delay_ms`` is what the consumer wants; the destination's own value beats it. Without ``rest`` they come
        again at once: their consumer is gone. ``reason`` is written on the dead.
        """
        attributes = self.home.attributes
        rows: list[records.Row] = []
        dead: list[Run] = []
        with_them = back(self.order, deliveries, out) if self.order is not None else ()
        limit = self.home.failures_max
        if rest and attributes.redeliveryDelayOverride >= 0:
            delay_ms = attributes.redeliveryDelayOverride
        for item in reversed(deliveries):
            run = item.run._replace(failures=min(item.run.failures + 1, FAILURES_MAX))
            block = self.home.block_index.held[run.ordinal]
            due_ms = 0
            if 0 <= limit < run.failures:
                dead.append(run)
            elif delay_ms > 0:
                due_ms = self.home.now_ms + self._rest_ms(delay_ms, run.failures)
                self.rest(due_ms, run)
            else:
                self.put_back(run)
            if block.stored and self.durable:
                rows.append(records.Row(run.ordinal, run.mask, run.failures, due_ms))
        for item in with_them:
            self.put_back(item.run)
        for run in reversed(dead):
            self.bury(run, "UNDELIVERABLE", f"failed {run.failures} times, {limit} are allowed", out, reason)
        if rows:
            self.home.note_rows(out, records.FAILED, self._queue(), rows)

    def _rest_ms(self, delay_ms: int, failures: int) -> int:
        """The delay grows with every failure, up to a cap."""
        attributes = self.home.attributes
        most = max(attributes.redeliveryDelayMax, delay_ms)
        percent = attributes.redeliveryBackoffPercent
        for _ in range(failures - 1):
            if delay_ms >= most or percent <= 100:
                break
            delay_ms = delay_ms * percent // 100
        return min(delay_ms, most)

    def rejected(self, deliveries: list[Delivery], reason: str, out: Outcome) -> None:
        """The consumer wants these never again."""
        self.done(deliveries)
        rows = []
        for item in deliveries:
            self.bury(item.run._replace(failures=records.REJECTED), "ERROR", parted(reason)[0], out, reason)
            if self.durable and self.home.block_index.held[item.run.ordinal].stored:
                rows.append(records.Row(item.run.ordinal, item.run.mask, records.REJECTED, 0))
        if rows:
            self.home.note_rows(out, records.FAILED, self._queue(), rows)

    def done(self, deliveries: Iterable[Delivery]) -> None:
        """Deliveries are settled, or dead: what comes after them in their units of order may go on."""
        if self.order is not None:
            self.order.done([item.run for item in deliveries])

    def bury(self, run: Run, reason: str, comment: str, out: Outcome, failure: str = "") -> None:
        """Messages are dead; they stay held until it is settled where they go. For the arguments see Bury."""
        block = self.home.block_index.held[run.ordinal]
        mask = run.mask
        if self.owes is not None and reason != "UNDELIVERABLE" and reason != "ERROR":
            told = mask & block.buried
            block.buried |= mask
            mask &= ~told
            if told:
                self.home.settle(self._queue(), [(run.ordinal, told)], out)
        if mask:
            self.set_aside(run._replace(mask=mask))
            out.immediate.append(Bury(self.number, run.ordinal, mask, run.attempts, reason, comment, failure))

    def set_aside(self, run: Run) -> None:
        """Hold messages for whoever decides where they go."""
        self.dying[run.ordinal] = self.dying.get(run.ordinal, 0) | run.mask
        self.home.dying += run.mask.bit_count()
        self.home.dying_bytes += self.home.block_index.held[run.ordinal].bytes_of(run.mask)
        self.doomed.setdefault(run.ordinal, []).append(run)

    def expire(self, chosen: Mapping[int, int], out: Outcome) -> None:
        """The scan found these expired: take out those that wait."""
        for run in self.remove(chosen):
            self.bury(run, "EXPIRED", "", out)

    def overdue(self, now_ms: int, out: Outcome) -> bool:
        """Take back what should have been acknowledged by now, uncounted; True when there was any.

        The consumer is told, and gets nothing more before it is heard of again: it would keep that as well.
        """
        found = [(c, c.overdue(now_ms)) for c in self.consumers.by_attachment.values() if c.lease_ms]
        for consumer, items in found:  # What is overdue itself is not withdrawn with another's of its unit.
            if items:
                self.give_back(items, out)
                void(consumer, items, out)
        return any(items for _, items in found)

    def end_what_is_over(self, out: Outcome) -> None:
        """After a restart: let those die whose end was decided before, without waiting for a consumer."""
        limit = self.home.failures_max
        chosen: dict[int, int] = {}
        for state, run in self._queue().places():
            if state != "delivered" and (run.failures == records.REJECTED or 0 <= limit < run.failures):
                chosen[run.ordinal] = chosen.get(run.ordinal, 0) | run.mask
        for run in self.remove(chosen) if chosen else ():
            self.is_over(run, out)

    def is_over(self, run: Run, out: Outcome) -> bool:
        """A restart found messages whose end was decided before, but not what becomes of them."""
        limit = self.home.failures_max
        if run.failures == records.REJECTED:
            self.bury(run, "ERROR", "rejected before a restart", out)
        elif 0 <= limit < run.failures:
            self.bury(run, "UNDELIVERABLE", f"failed {run.failures} times, {limit} are allowed", out)
        else:
            return False
        return True
