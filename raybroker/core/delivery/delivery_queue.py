"""A delivery queue: what one subscription, or a queue, owes its consumers, and how messages get to them and come back.

A queue has one delivery queue and a topic one for each subscription.  A message of a delivery queue is in exactly one
place: on the backlog, in the timetable (not to be seen yet), hidden (insertion is paused, or its unit of work is
not complete), with a consumer, held by a transaction, or dying (dead, and its end not settled yet).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import TYPE_CHECKING

from raybroker.core.delivery.backlog import UNSORTED, Backlog, Run, position
from raybroker.core.delivery.consumers import Consumer, Consumers, Delivery
from raybroker.core.delivery.delayed import Timetable
from raybroker.core.delivery.dispatch_gate import Gathering
from raybroker.core.delivery.redelivery import Returning
from raybroker.core.delivery.selector_index import SORT_MESSAGES_MAX, Matching
from raybroker.core.delivery.window import DrainWindow
from raybroker.core.durable import records
from raybroker.core.outcome import Deliver, Drained, Outcome, Ready
from raybroker.core.selector.content import Content
from raybroker.core.subscription import Subscription
from raybroker.core.unit_of_order.dispatch import dispatch, has_for, open_some
from raybroker.core.unit_of_order.state import Order
from raybroker.core.unit_of_work import Works

if TYPE_CHECKING:
    from raybroker.core.destination import Destination


class DeliveryQueue(Returning):
    """``owes``: block → messages that this delivery queue has not settled, in a topic; a queue's block index says it
    (None).

    ``durable``: what happens here is written down.
    """

    __slots__ = (
        "backlog", "consumers", "doomed", "durable", "dying", "gathering", "hidden", "home", "matching", "next_place",
        "number", "order", "owes", "subscription", "timetable", "unfinished",
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
        self.gathering = Gathering()
        self.matching = Matching(home.peek)
        self.order: Order | None = None
        """Its units of order, while it has messages of any."""
        self.next_place = 1
        self.unfinished = False

    # ---- coming in -------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Messages that could be handed out."""
        return self.backlog.count + (self.order.count if self.order is not None else 0)

    @property
    def parts(self) -> Works | None:
        """Units of work, if it is the delivery queue that has the destination's."""
        works = self.home.works
        return works if works is not None and works.queue is self else None

    def ordered(self, ordinal: int) -> Order | None:
        """What the delivery queue knows of units of order, if it has any or the block brings one."""
        if self.order is None and self.home.block_index.held[ordinal].ordered:
            self.order = Order(self, ordinal - 1)
        return self.order

    def take_place(self) -> int:
        """The next number in the order of arrival."""
        place = self.next_place
        self.next_place += 1
        return place

    def arrive(self, ordinal: int, mask: int, content: Content | None, place: int) -> None:
        """New messages of a held block: they wait from now on, or from when they are to be delivered."""
        block = self.home.block_index.held[ordinal]
        columns = block.columns
        if columns.priorities is None and columns.deliver_at is None:
            self._put(Run(place, ordinal, mask, 0, 0, columns.priority), content)
            return
        mask, later = block.by_birth(mask, self.home.now_ms)
        for priority, chosen in block.by_priority(mask) if mask else ():
            self._put(Run(place, ordinal, chosen, 0, 0, priority), content)
        for due_ms, unborn in later:
            for priority, chosen in block.by_priority(unborn):
                self.rest(due_ms, Run(place, ordinal, chosen, 0, 0, priority))

    def reserve(self, ordinal: int, mask: int) -> None:
        """Messages of an open transaction get their places in their units."""
        order = self.ordered(ordinal)
        if order is not None:
            place = self.take_place()
            for priority, chosen in self.home.block_index.held[ordinal].by_priority(mask):
                order.reserve(Run(place, ordinal, chosen, 0, 0, priority))

    def rest(self, due_ms: int, run: Run) -> None:
        """A run becomes available at a time."""
        self.timetable.add(due_ms, run)
        order = self.ordered(run.ordinal)
        if order is not None:
            order.bar(run)

    def _hide(self, run: Run, *, fresh: bool) -> None:
        self.hidden.append((run, fresh))
        order = self.ordered(run.ordinal)
        if order is not None:
            order.bar(run)

    def _put(self, run: Run, content: Content | None = None) -> None:
        """A run becomes available behind all others."""
        if self.home.works is not None and not self.home.insertion_paused:
            run = self.home.works.keep(self, run)
        if not run.mask:
            return
        if self.home.insertion_paused:
            self._hide(run, fresh=True)
        elif (order := self.order or self.ordered(run.ordinal)) is not None:
            order.enter(run)
        elif self.unfinished and self.backlog.has_unsorted(run.priority):
            self.backlog.append(run, UNSORTED)
        elif not self.matching:
            self.backlog.append(run)
        else:
            for signature, mask in self.matching.classify(run, content):
                self.backlog.append(run._replace(mask=mask), signature)

    def put_back(self, run: Run) -> None:
        """A run becomes available at its old place."""
        if self.home.works is not None and not self.home.insertion_paused:
            run = self.home.works.keep(self, run)
        if not run.mask:
            return
        if self.home.insertion_paused:
            self._hide(run, fresh=False)
        elif self.ordered(run.ordinal) is not None:
            assert self.order is not None
            self.order.enter(run)
        else:
            self.shelve(run)

    def shelve(self, run: Run) -> None:
        """Put a run on the buckets at its place."""
        if not self.matching:
            self.backlog.give_back(run)
        elif self.unfinished and self.backlog.has_unsorted(run.priority):
            self.backlog.give_back(run, UNSORTED)
        else:
            classify = self.matching.classify if self.order is None else self.order.classify
            for signature, mask in classify(run):
                self.backlog.give_back(run._replace(mask=mask), signature)

    def show_hidden(self) -> None:
        """Insertion goes on: everything that completed meanwhile appears."""
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
                continue
            ordered = run.mask & self.home.block_index.held[run.ordinal].ordered
            if ordered:  # In its unit it is not the last one, and its place is old.
                self.put_back(run._replace(mask=ordered))
            if run.mask != ordered:
                self._put(run._replace(place=self.take_place(), mask=run.mask & ~ordered))

    # ---- going out -------------------------------------------------------------------------------------------------

    def dispatch(self, out: Outcome) -> None:
        """Hand out what waits, in order, to consumers in turn, until one of the two runs out."""
        if self.order is not None:
            self.unfinished = dispatch(self, self.order, out) or self.unfinished
            return
        home, consumers, backlog = self.home, self.consumers, self.backlog
        held, now_ms = home.block_index.held, home.now_ms
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
                dead = block.expired(run.mask, now_ms)
                if dead:
                    self.bury(run._replace(mask=dead), "EXPIRED", "", out)
                    run = run._replace(mask=run.mask & ~dead)
                    if not run.mask:
                        continue
            if run.failures and self.is_over(run, out):
                continue
            delivery = consumer.handed(run, now_ms)
            recorded = block.stored and self.durable
            effects = out.after_durable if block.persistent or block.transacted else out.immediate
            effects.append(
                Deliver(consumer.attachment, delivery.tag, run.ordinal, run.mask, delivery.run.attempts)
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
            self.record_tried(tried, out)
        if done_with:
            home.acknowledged(self, done_with, out)

    def is_recorded(self, ordinal: int) -> bool:
        """Whether what happens to messages of a block is written down."""
        return self.durable and self.home.block_index.held[ordinal].stored

    def record_tried(self, tried: list[Run], out: Outcome) -> None:
        if tried:
            self.home.record_rows(out, records.DISPATCHED, self, [(r.ordinal, r.mask, r.attempts) for r in tried])

    def hand_out(self, consumer: Consumer, run: Run, out: Outcome, tried: list[Run]) -> None:
        """Hand out one run in a delivery queue that has units of order; what has died meanwhile is buried."""
        home, order = self.home, self.order
        assert order is not None
        block = home.block_index.held[run.ordinal]
        dead = block.expired(run.mask, home.now_ms)
        if dead:
            order.done([run._replace(mask=dead)])
            self.bury(run._replace(mask=dead), "EXPIRED", "", out)
            run = run._replace(mask=run.mask & ~dead)
        if not run.mask:
            return
        if run.failures and self.is_over(run, out):
            order.done([run])
            return
        ordered = run.mask & block.ordered
        waits = block.persistent or block.transacted
        if ordered and ordered != run.mask and not waits:
            self.hand_out(consumer, run._replace(mask=run.mask & ~ordered), out, tried)
            run = run._replace(mask=ordered)
        delivery = consumer.handed(run, home.now_ms)
        # Of one unit some may be persistent and others not: none must overtake another.
        effects = out.after_durable if waits or ordered else out.immediate
        effects.append(Deliver(consumer.attachment, delivery.tag, run.ordinal, run.mask, delivery.run.attempts))
        if block.stored and self.durable:
            tried.append(delivery.run)
        if run.attempts:
            home.counters.redelivered += delivery.count
        if consumer.no_ack:  # What it had is settled at once, and its units are free for the next.
            self.record_tried(tried, out)
            tried.clear()
            home.acknowledged(self, [delivery], out)

    def tell_draining(self, out: Outcome, *, paused: bool) -> None:
        """Consumers in drain mode lose the credit that is left, and hear once that there is something for them."""
        for consumer in self.consumers.draining.values():
            assert isinstance(consumer.window, DrainWindow)
            unused = consumer.window.forfeit()
            if unused is not None:
                out.after_durable.append(Drained(consumer.attachment, unused, consumer.next_tag))
            if consumer.armed and not paused and consumer.listening() and self._has_for(consumer, out):
                consumer.armed = False
                out.after_durable.append(Ready(consumer.attachment, consumer.next_tag))

    def _has_for(self, consumer: Consumer, out: Outcome) -> bool:
        """Whether the consumer would get something if it had room."""
        if self.order is None:
            return self.backlog.has_for(consumer.selector)
        found = has_for(self.order, consumer, out)
        self.unfinished = self.unfinished or found is None
        return bool(found)

    def owed(self, ordinal: int) -> int:
        """Messages of a block that the delivery queue has not settled."""
        if self.owes is None:
            return self.home.block_index.open_mask(ordinal) if ordinal in self.home.block_index.held else 0
        return self.owes.get(ordinal, 0)

    # ---- taking out ------------------------------------------------------------------------------------------------

    def clear(self) -> list[Run]:
        """Take out everything that is with nobody."""
        hidden, self.hidden = [run for run, _ in self.hidden], []
        parts = self.parts.clear() if self.parts is not None else ()
        found = [*self.backlog.clear(), *self.timetable.clear(), *hidden, *parts]
        return found + self.order.clear() if self.order is not None else found

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take out these messages as far as they are with nobody."""
        removed = self.backlog.remove(chosen)
        if self.order is not None:
            self.order.heads_gone(removed)
            removed += self.order.remove(chosen)
        barred = len(removed)
        removed += self.timetable.remove(chosen)
        if self.hidden:
            kept: list[tuple[Run, bool]] = []
            for run, fresh in self.hidden:
                gone = run.mask & chosen.get(run.ordinal, 0)
                if gone:
                    removed.append(run._replace(mask=gone))
                if gone != run.mask:
                    kept.append((run._replace(mask=run.mask & ~gone), fresh))
            self.hidden = kept
        if self.parts is not None:
            removed += self.parts.remove(self.home, chosen)
        if self.order is not None:
            for run in removed[barred:]:
                self.order.forget(run.ordinal, run.mask)
        return removed

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> list[Run]:
        """Take out up to ``room`` messages of those to discard first: of one block."""
        if self.order is None:
            run = self.backlog.take_to_remove(room, lowest_priority=lowest_priority)
            return [] if run is None else [run]
        chosen = self.order.first_to_remove(room, lowest_priority=lowest_priority)
        return self.remove(chosen)

    # ---- selectors and time ----------------------------------------------------------------------------------------

    def selector_joins(self, text: str | None) -> int:
        """A consumer with that selector comes; returns the selector's number."""
        number, new = self.matching.join(text)
        if new and self.backlog.count:
            self.backlog.unsort()
        if new and self.order is not None:
            self.order.selectors_changed()
        return number

    def selector_leaves(self, number: int) -> None:
        self.matching.leave(number)

    def sort_some(self) -> bool:
        """Go on comparing the backlog with the selectors; True when more is left to do."""
        if self.order is None:
            return self.backlog.sort_some(SORT_MESSAGES_MAX, self.matching.classify)
        opening = self.order.hasty and open_some(self.order)
        return self.backlog.sort_some(SORT_MESSAGES_MAX, self.order.classify) or opening

    def settle_order(self) -> None:
        """After a change: which message of each unit of order is next; nothing is left of units without messages."""
        assert self.order is not None
        self.order.unpack_if_hasty()
        self.order.refresh()
        if self.order.line and self.order.hasty and not self.unfinished:
            self.unfinished = self.sort_some()
        if self.order.idle:
            self.order = None

    def next_ms(self) -> int | None:
        """When time alone changes something here."""
        times = [c.next_due_ms() for c in self.consumers.by_attachment.values() if c.lease_ms]
        times.append(self.timetable.next_ms)
        if not self.gathering.dispatching:
            times.append(self.gathering.until_ms(self.home.attributes))
        return min((t for t in times if t is not None), default=None)

    def places(self) -> Iterator[tuple[str, Run]]:
        """(state, run) of everything the delivery queue has but for what transactions and the dying hold."""
        waiting = self.backlog.runs()
        if self.order is not None:
            rest = sorted(self.order.runs(), key=lambda run: (-run.priority, *position(run)))
            waiting = merge(waiting, rest, key=lambda run: (-run.priority, *position(run)))
        for run in waiting:
            yield "waiting", run
        for _, run in self.timetable.runs():
            yield "delayed", run
        for run, _ in self.hidden:
            yield "hidden", run
        for run in self.parts.runs() if self.parts is not None else ():
            yield "hidden", run
        for consumer in self.consumers.by_attachment.values():
            for item in consumer.unsettled:
                yield "delivered", item.run
