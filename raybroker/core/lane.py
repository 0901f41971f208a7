"""A lane: what one subscription, or a queue, owes its consumers, and how messages get to them and come back.

A queue has one lane and a topic one for each subscription.  A message of a lane is in exactly one place: on the
backlog, in the timetable (not to be seen yet), hidden (insertion is paused, W-124), with a consumer, held by a
transaction, or dying (dead, and its end not settled yet).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from raybroker.core import notes
from raybroker.core.backlog import UNSORTED, Backlog, Run
from raybroker.core.consumers import Consumer, Consumers, Delivery
from raybroker.core.matching import SORT_MESSAGES_MAX, Matching
from raybroker.core.outcome import Bury, Deliver, Outcome
from raybroker.core.selector.content import Content
from raybroker.core.subscription import Subscription
from raybroker.core.timetable import Timetable

if TYPE_CHECKING:
    from raybroker.core.destination import Destination

FAILURES_MAX: Final = 1_000_000
"""Failures are counted up to here."""


class Lane:
    """``owes``: block → messages that this lane has not settled, in a topic; a queue's ledger says it (None).

    ``durable``: what happens here is written down.
    """

    __slots__ = (
        "backlog", "consumers", "doomed", "durable", "dying", "hidden", "home", "matching", "next_place", "number",
        "owes", "subscription", "timetable", "unfinished",
    )  # fmt: skip

    def __init__(self, number: int, home: Destination, subscription: Subscription | None = None) -> None:
        self.number = number
        self.home = home
        self.subscription = subscription
        self.durable = subscription is None or subscription.durable
        self.owes: dict[int, int] | None = None if subscription is None else {}
        self.backlog = Backlog()
        self.timetable = Timetable()
        self.hidden: list[tuple[Run, bool]] = []
        self.dying: dict[int, int] = {}
        self.doomed: dict[int, list[Run]] = {}
        """The dying messages as they were, for a restart; a rejected one has REJECTED failures."""
        self.consumers = Consumers()
        self.matching = Matching(home.peek)
        self.next_place = 1
        self.unfinished = False

    # ---- coming in -------------------------------------------------------------------------------------------------

    def take_place(self) -> int:
        """The next number in the order of arrival."""
        place = self.next_place
        self.next_place += 1
        return place

    def arrive(self, ordinal: int, picks: int, content: Content | None, place: int) -> None:
        """New messages of a held block: they wait from now on, or from when they are to be delivered (W-65)."""
        block = self.home.ledger.held[ordinal]
        columns = block.columns
        if columns.priorities is None and columns.deliver_at is None:
            self._put(Run(place, ordinal, picks, 0, 0, columns.priority), content)
            return
        picks, later = block.by_birth(picks, self.home.now_ms)
        for priority, chosen in block.by_priority(picks) if picks else ():
            self._put(Run(place, ordinal, chosen, 0, 0, priority), content)
        for due_ms, unborn in later:
            for priority, chosen in block.by_priority(unborn):
                self.timetable.add(due_ms, Run(place, ordinal, chosen, 0, 0, priority))

    def _put(self, run: Run, content: Content | None = None) -> None:
        """A run becomes available behind all others."""
        if self.home.insertion_paused:
            self.hidden.append((run, True))
        elif self.unfinished and self.backlog.has_unsorted(run.priority):
            self.backlog.append(run, UNSORTED)
        elif not self.matching:
            self.backlog.append(run)
        else:
            for signature, picks in self.matching.classify(run, content):
                self.backlog.append(run._replace(picks=picks), signature)

    def put_back(self, run: Run) -> None:
        """A run becomes available at its old place."""
        if self.home.insertion_paused:
            self.hidden.append((run, False))
        elif not self.matching:
            self.backlog.give_back(run)
        else:
            for signature, picks in self.matching.classify(run):
                self.backlog.give_back(run._replace(picks=picks), signature)

    def show_hidden(self) -> None:
        """Insertion goes on: everything that completed meanwhile appears (W-124)."""
        hidden, self.hidden = self.hidden, []
        for run, fresh in hidden:
            if fresh:
                self._put(run)
            else:
                self.put_back(run)

    def born(self, now_ms: int) -> None:
        """Messages whose time has come become available."""
        for run in self.timetable.due(now_ms):
            if run.attempts:
                self.put_back(run)
            else:
                self._put(run._replace(place=self.take_place()))

    # ---- going out -------------------------------------------------------------------------------------------------

    def dispatch(self, out: Outcome) -> None:
        """Hand out what waits, in order, to consumers in turn, until one of the two runs out."""
        home, consumers, backlog = self.home, self.consumers, self.backlog
        held, now_ms = home.ledger.held, home.now_ms
        tried: list[Run] = []
        done_with: list[Delivery] = []
        without: list[Consumer] = []
        while backlog.count:
            consumer = consumers.next_with_room()
            if consumer is None:
                break
            run = backlog.take(consumer.room(), consumer.selector)
            if run is None:
                without.append(consumers.turn.popleft())
                continue
            block = held[run.ordinal]
            if now_ms >= block.soonest:
                dead = block.expired(run.picks, now_ms)
                if dead:
                    self.bury(run._replace(picks=dead), "EXPIRED", "", out)
                    run = run._replace(picks=run.picks & ~dead)
                    if not run.picks:
                        continue
            if run.failures and self._is_over(run, out):
                continue
            delivery = consumer.handed(run, now_ms)
            recorded = block.stored and self.durable
            effects = out.after_durable if block.persistent or block.transacted else out.immediate
            effects.append(
                Deliver(consumer.attachment, delivery.tag, run.ordinal, run.picks, delivery.run.attempts)
            )
            if recorded:
                tried.append(delivery.run)
            if run.attempts:
                home.counters.redelivered += delivery.count
            if consumer.no_ack:
                done_with.append(delivery)
        else:
            consumers.rotate()
        consumers.turn.extend(without)
        if tried:
            home.record_rows(out, notes.DISPATCHED, self, [(r.ordinal, r.picks, r.attempts) for r in tried])
        if done_with:
            home.acknowledged(self, done_with, out)

    def _is_over(self, run: Run, out: Outcome) -> bool:
        """A restart found messages whose end was decided before, but not what becomes of them."""
        limit = self.home.failures_max
        if run.failures == notes.REJECTED:
            self.bury(run, "ERROR", "rejected before a restart", out)
        elif 0 <= limit < run.failures:
            self.bury(run, "UNDELIVERABLE", f"failed {run.failures} times, {limit} are allowed", out)
        else:
            return False
        return True

    def owed(self, ordinal: int) -> int:
        """Messages of a block that the lane has not settled."""
        if self.owes is None:
            return self.home.ledger.open_picks(ordinal) if ordinal in self.home.ledger.held else 0
        return self.owes.get(ordinal, 0)

    # ---- coming back -----------------------------------------------------------------------------------------------

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Deliveries go back to their old places, counted as handed out (B-07, F-25, R-11)."""
        for item in reversed(deliveries):
            self.put_back(item.run)

    def failed(self, deliveries: list[Delivery], delay_ms: int, out: Outcome, *, rest: bool = True) -> None:
        """Handing these out has failed: they rest and come again (W-67), or are dead (W-69).

        ``delay_ms`` is what the consumer wants; the destination's own value beats it (W-68). Without ``rest`` they come
        again at once: their consumer is gone (W-67).
        """
        attributes = self.home.attributes
        rows: list[notes.Row] = []
        dead: list[Run] = []
        limit = self.home.failures_max
        if rest and attributes.redeliveryDelayOverride >= 0:
            delay_ms = attributes.redeliveryDelayOverride
        for item in reversed(deliveries):
            run = item.run._replace(failures=min(item.run.failures + 1, FAILURES_MAX))
            block = self.home.ledger.held[run.ordinal]
            due_ms = 0
            if 0 <= limit < run.failures:
                dead.append(run)
            elif delay_ms > 0:
                due_ms = self.home.now_ms + self._rest_ms(delay_ms, run.failures)
                self.timetable.add(due_ms, run)
            else:
                self.put_back(run)
            if block.stored and self.durable:
                rows.append(notes.Row(run.ordinal, run.picks, run.failures, due_ms))
        for run in reversed(dead):
            self.bury(run, "UNDELIVERABLE", f"failed {run.failures} times, {limit} are allowed", out)
        if rows:
            self.home.note_rows(out, notes.FAILED, self, rows)

    def _rest_ms(self, delay_ms: int, failures: int) -> int:
        """The delay grows with every failure, up to a cap (B11)."""
        attributes = self.home.attributes
        most = max(attributes.redeliveryDelayMax, delay_ms)
        percent = attributes.redeliveryBackoffPercent
        for _ in range(failures - 1):
            if delay_ms >= most or percent <= 100:
                break
            delay_ms = delay_ms * percent // 100
        return min(delay_ms, most)

    def rejected(self, deliveries: list[Delivery], reason: str, out: Outcome) -> None:
        """The consumer wants these never again (B9)."""
        rows = []
        for item in deliveries:
            self.bury(item.run._replace(failures=notes.REJECTED), "ERROR", reason, out)
            if self.durable and self.home.ledger.held[item.run.ordinal].stored:
                rows.append(notes.Row(item.run.ordinal, item.run.picks, notes.REJECTED, 0))
        if rows:
            self.home.note_rows(out, notes.FAILED, self, rows)

    def bury(self, run: Run, reason: str, comment: str, out: Outcome) -> None:
        """Messages are dead; they stay held until it is settled where they go."""
        block = self.home.ledger.held[run.ordinal]
        picks = run.picks
        if self.owes is not None and reason != "UNDELIVERABLE" and reason != "ERROR":
            told = picks & block.buried
            block.buried |= picks
            picks &= ~told
            if told:
                self.home.settle(self, [(run.ordinal, told)], out)
        if picks:
            self.set_aside(run._replace(picks=picks))
            out.immediate.append(Bury(self.number, run.ordinal, picks, run.attempts, reason, comment))

    def set_aside(self, run: Run) -> None:
        """Hold messages for whoever decides where they go."""
        self.dying[run.ordinal] = self.dying.get(run.ordinal, 0) | run.picks
        self.home.dying += run.picks.bit_count()
        self.doomed.setdefault(run.ordinal, []).append(run)

    def _from_aside(self, ordinal: int, picks: int) -> list[Run]:
        picks &= self.dying.get(ordinal, 0)
        if not picks:
            return []
        self.dying[ordinal] &= ~picks
        if not self.dying[ordinal]:
            del self.dying[ordinal]
        self.home.dying -= picks.bit_count()
        runs = self.doomed.pop(ordinal)
        left = [run._replace(picks=run.picks & ~picks) for run in runs if run.picks & ~picks]
        if left:
            self.doomed[ordinal] = left
        return [run._replace(picks=run.picks & picks) for run in runs if run.picks & picks]

    def unbury(self, ordinal: int, picks: int) -> None:
        """They wait again, at their old place, or for their birth (W-65)."""
        for run in reversed(self._from_aside(ordinal, picks)):
            block = self.home.ledger.held[ordinal]
            born, later = (run.picks, []) if run.attempts else block.by_birth(run.picks, self.home.now_ms)
            for due_ms, unborn in later:
                self.timetable.add(due_ms, run._replace(picks=unborn))
            if born:
                self.put_back(run._replace(picks=born))

    def buried(self, ordinal: int, picks: int, out: Outcome) -> None:
        """It is settled what became of dead messages."""
        parts = [(run.ordinal, run.picks) for run in self._from_aside(ordinal, picks)]
        if not parts:
            return
        block = self.home.ledger.held[ordinal]
        told = block.buried & picks
        if told and block.stored:  # Other subscriptions owe it still, and must not tell it again after a restart.
            self.home.note_rows(out, notes.BURIED, self, [notes.Row(ordinal, told)])
        self.home.settle(self, parts, out)

    def expire(self, chosen: Mapping[int, int], out: Outcome) -> None:
        """The scan found these expired: take out those that wait (W-59)."""
        for run in self.remove(chosen):
            self.bury(run, "EXPIRED", "", out)

    def clear(self) -> list[Run]:
        """Take out everything that is with nobody."""
        hidden, self.hidden = [run for run, _ in self.hidden], []
        return [*self.backlog.clear(), *self.timetable.clear(), *hidden]

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take out these messages as far as they are with nobody."""
        removed = [*self.backlog.remove(chosen), *self.timetable.remove(chosen)]
        if self.hidden:
            kept: list[tuple[Run, bool]] = []
            for run, fresh in self.hidden:
                gone = run.picks & chosen.get(run.ordinal, 0)
                if gone:
                    removed.append(run._replace(picks=gone))
                if gone != run.picks:
                    kept.append((run._replace(picks=run.picks & ~gone), fresh))
            self.hidden = kept
        return removed

    # ---- selectors and time ----------------------------------------------------------------------------------------

    def selector_joins(self, text: str | None) -> int:
        """A consumer with that selector comes; returns the selector's number."""
        number, new = self.matching.join(text)
        if new and self.backlog.count:
            self.backlog.unsort()
        return number

    def selector_leaves(self, number: int) -> None:
        self.matching.leave(number)

    def sort_some(self) -> bool:
        """Go on comparing the backlog with the selectors; True when more is left to do."""
        return self.backlog.sort_some(SORT_MESSAGES_MAX, self.matching.classify)

    def overdue(self, now_ms: int) -> bool:
        """Take back what should have been acknowledged by now, uncounted (B6); True when there was any.

        The consumer gets nothing more before it is heard of again: it would keep that as well.
        """
        found = False
        for consumer in self.consumers.by_attachment.values():
            if consumer.lease_ms:
                items = consumer.overdue(now_ms)
                self.give_back(items)
                consumer.window.settled(sum(item.count for item in items))
                consumer.stalled = consumer.stalled or bool(items)
                found = found or bool(items)
        return found

    def next_ms(self) -> int | None:
        """When time alone changes something here."""
        times = [c.next_due_ms() for c in self.consumers.by_attachment.values() if c.lease_ms]
        times.append(self.timetable.next_ms)
        return min((t for t in times if t is not None), default=None)

    def places(self) -> Iterator[tuple[str, Run]]:
        """(state, run) of everything the lane has but for what transactions and the dying hold."""
        for run in self.backlog.runs():
            yield "waiting", run
        for _, run in self.timetable.runs():
            yield "delayed", run
        for run, _ in self.hidden:
            yield "hidden", run
        for consumer in self.consumers.by_attachment.values():
            for item in consumer.unsettled:
                yield "delivered", item.run
