"""A delivery queue: what one subscription, or a queue, owes its consumers, and how messages get to them and come back.

A queue has one delivery queue and a topic one for each subscription.  A message of a delivery queue is in exactly one
place: pending, delayed (not to be seen yet), hidden (insertion is paused, or its unit of work is not complete), with a
consumer, held by a transaction, or a dead letter (its end is not settled yet).

The delivery queue returns what it has decided; the destination writes that down and settles it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raybroker.core.affinity.affinity_pending import AffinityPending
from raybroker.core.affinity.label_index import LabelIndex
from raybroker.core.batches.forming import BatchFormer
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.delivery.backlog import Backlog
from raybroker.core.delivery.batch_wait import BatchWait
from raybroker.core.delivery.consumers import Asks, BatchConsumers, Consumer, Consumers, Delivery
from raybroker.core.delivery.dead_letters import Dead, DeadLetterRules
from raybroker.core.delivery.decided import Dispatched, FailedDeliveries, Formed
from raybroker.core.delivery.delayed import Age, Delayed, age_of
from raybroker.core.delivery.dispatch_gate import DispatchGate
from raybroker.core.delivery.pending import Pending
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.redelivery import as_rejected, dead_of, delay_ms, failures_in_all, is_over, with_failure
from raybroker.core.delivery.run import LEVELS, Run
from raybroker.core.delivery.selector_index import SelectorIndex
from raybroker.core.delivery.sort_order import SortOrder
from raybroker.core.delivery.sorted_pending import SortedPending
from raybroker.core.delivery.window import DrainWindow
from raybroker.core.durable import records
from raybroker.core.outcome import Deliver, Drained, Ready
from raybroker.core.policy import DestinationPolicy
from raybroker.core.selector.content import Content
from raybroker.core.staleness.version_index import VersionIndex
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.step import Step
from raybroker.core.subscription import Subscription
from raybroker.core.unit_of_order.revocation import void
from raybroker.core.unit_of_order.unit import Unit
from raybroker.core.unit_of_order.unit_pending import UnitPending
from raybroker.core.unit_of_work import UnitsOfWork
from raybroker.model.causes import ERROR, TIMEOUT
from raybroker.model.failure import parted
from raybroker.model.sort_keys import parse_sort_keys


class DeliveryQueue:
    """``owes``: block → messages that this delivery queue has not settled, in a topic; a queue's block index says it
    (None).

    ``durable``: what happens here is written down.  ``pending``: the messages that wait; ``plain``, or one that knows
    units of order as long as there are any.
    """

    __slots__ = (
        "_arrival",
        "_dispatched",
        "_index",
        "_works",
        "batch_wait",
        "consumers",
        "dead_letters",
        "delayed",
        "dispatch_gate",
        "durable",
        "hidden",
        "number",
        "owes",
        "pending",
        "plain",
        "policy",
        "step",
        "subscription",
    )

    def __init__(
        self,
        number: int,
        step: Step,
        policy: DestinationPolicy,
        block_index: BlockIndex,
        works: UnitsOfWork,
        subscription: Subscription | None = None,
    ) -> None:
        self.number = number
        self.step = step
        self.policy = policy
        self._index = block_index
        self._works = works
        self.subscription = subscription
        self.durable = subscription is None or subscription.durable
        self.owes: dict[int, int] | None = None if subscription is None else {}
        self.consumers = Consumers()
        self.plain = _plain(policy, self.consumers, step)
        self.pending: Pending = self.plain
        self.delayed = Delayed()
        self.hidden: list[tuple[Run, bool]] = []
        self.dead_letters = DeadLetterRules(block_index)
        self.dispatch_gate = DispatchGate()
        self.batch_wait = BatchWait()
        self._arrival = 1
        self._dispatched = Dispatched()

    # ---- coming in -------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Mapping[int, BlockEntry]:
        """The blocks of the destination."""
        return self._index.held

    @property
    def parts(self) -> UnitsOfWork | None:
        """Units of work, if it is the delivery queue that has the destination's."""
        return self._works if self._works.queue == self.number else None

    @property
    def units(self) -> Mapping[str, Unit]:
        """Its units of order by name, of which messages were looked at."""
        return self.pending.state.units if isinstance(self.pending, UnitPending) else {}

    def pending_with(self, ordinal: int) -> Pending:
        """Return what messages of a held block wait in; from its first block with a unit of order on, it knows
        units."""
        if self.pending is self.plain and self._index.held[ordinal].ordered:
            self.pending = UnitPending(self.number, self.plain, self.step, self._index.held, ordinal - 1)
        return self.pending

    def next_arrival(self, count: int = 1) -> int:
        """The next number in the order of arrival, and the first of ``count``."""
        arrival = self._arrival
        self._arrival += count
        return arrival

    def arrive(self, ordinal: int, mask: int, content: Content | None, arrival: int = 0) -> None:
        """New messages of a held block are owed: they wait from now on, or from when they are to be delivered.

        ``arrival``: their place in the order of arrival; 0: behind all others.
        """
        if not arrival:
            arrival = self._arrival
            self._arrival += 1
        if self.owes is not None:
            self.owes[ordinal] = self.owes.get(ordinal, 0) | mask
        block = self._index.held[ordinal]
        columns, plain = block.columns, self.plain
        if columns.priorities is None and columns.deliver_at is None:
            run = Run(arrival, ordinal, mask, 0, 0, columns.priority)
            # Most messages have nothing that :meth:`_append` looks for.
            if self.pending is plain and not (block.ordered or self._works.enabled or self.policy.paused):
                plain.append(run, content)
            else:
                self._append(run, content)
            return
        mask, later = block.by_birth(mask, self.step.wall_ms)
        for priority, chosen in block.by_priority(mask) if mask else ():
            self._append(Run(arrival, ordinal, chosen, 0, 0, priority), content)
        for due_ms, unborn in later:
            for priority, chosen in block.by_priority(unborn):
                self.rest(due_ms - self.step.ahead_ms, Run(arrival, ordinal, chosen, 0, 0, priority))

    def reserve(self, ordinal: int, mask: int) -> None:
        """Messages of an open transaction get their places in their units."""
        pending = self.pending_with(ordinal)
        if pending is not self.plain:
            arrival = self.next_arrival()
            for priority, chosen in self._index.held[ordinal].by_priority(mask):
                pending.reserve(Run(arrival, ordinal, chosen, 0, 0, priority))

    def rest(self, due_ms: int, run: Run) -> None:
        """A run becomes available at a time, a measured one."""
        self.delayed.add(due_ms, run)
        self.pending_with(run.ordinal).hold_place(run)

    def _kept_aside(self, run: Run, *, fresh: bool) -> Run:
        """What of a run can wait: no parts of units of work, and nothing while insertion is paused."""
        if self.policy.insertion_paused:
            self.hidden.append((run, fresh))
            self.pending_with(run.ordinal).hold_place(run)
            return run._replace(mask=0)
        return self._works.keep(self.number, run) if self._works.enabled else run

    def _append(self, run: Run, content: Content | None = None) -> None:
        """A run becomes available behind all others."""
        if self._works.enabled or self.policy.paused:
            run = self._kept_aside(run, fresh=True)
        if run.mask:
            self.pending_with(run.ordinal).append(run, content)

    def put_back(self, run: Run) -> None:
        """A run becomes available at its old place."""
        if self._works.enabled or self.policy.paused:
            run = self._kept_aside(run, fresh=False)
        if run.mask:
            self.pending_with(run.ordinal).put_back(run)

    def show_hidden(self) -> None:
        """Insertion goes on: everything that completed meanwhile appears."""
        hidden, self.hidden = self.hidden, []
        for run, fresh in hidden:
            if fresh:
                self._append(run)
            else:
                self.put_back(run)

    def born(self, now_ms: int) -> None:
        """Messages whose time has come become available."""
        for run in self.delayed.due(now_ms):
            if run.attempts:
                self.put_back(run)
                continue
            ordered = run.mask & self._index.held[run.ordinal].ordered
            if ordered:  # In its unit it is not the last one, and its place is old.
                self.put_back(run._replace(mask=ordered))
            if run.mask != ordered:
                self._append(run._replace(arrival=self.next_arrival(), mask=run.mask & ~ordered))

    # ---- going out -------------------------------------------------------------------------------------------------

    def settle_units(self) -> None:
        """Find which message of each unit of order is next, after a change; without units the queue is plain again."""
        if isinstance(self.pending, UnitPending):
            self.pending.find_next()
            if self.pending.idle:
                self.pending = self.plain

    def dispatch(self) -> Dispatched:
        """Hand out what waits, in order, to consumers in turn, until one of the two runs out."""
        found = self._dispatched = Dispatched()
        batches = self.consumers.batches
        if batches is not None:
            for consumer in batches.go_one_by_one(self.pending is not self.plain):
                self.consumers.offer(consumer)
        wait_ms = self.policy.batch_wait_ms
        if not wait_ms or not self.batch_wait.holds(
            self.consumers, self.pending.count, self._arrival, self.step.now_ms, wait_ms
        ):
            self.pending.dispatch(self.hand_out, self.dies)
        if batches is not None:
            self._form_batches(batches, found)
        return found

    def _form_batches(self, batches: BatchConsumers, found: Dispatched) -> None:
        """Hand out batches as long as there are any, and tell those that have one that this was all."""
        out, backlog = self.step.out, self.plain.backlog
        if batches.one_by_one:  # They went as any message does.
            told = {effect.attachment for effect in (*out.immediate, *out.after_durable) if isinstance(effect, Deliver)}
            for attachment in told & batches.by_attachment.keys():
                out.after_durable.append(batches.served(batches.by_attachment[attachment]))
                found.batches.append(Formed(1, 0, full=True))
            return
        former = self.plain.former = self.plain.former or BatchFormer(self.held, self.step)
        former.due_ms = None
        assert isinstance(backlog, Backlog), "a sorted destination has consumers of batches"
        waiting: set[Asks] = set()
        going_on = True
        while going_on:
            going_on = False
            for consumer, asks in batches.asking():
                former.arrivals.wait_for(asks.rule.deadline_ms)
                if asks in waiting:
                    continue
                expired: list[Run] = []
                batch = former.next_batch(backlog, asks, expired)
                for run in expired:
                    self.dies(Dead(run, "EXPIRED"))
                if batch is None:
                    waiting.add(asks)
                    continue
                first = consumer.next_tag
                for run in batch.runs:
                    self.hand_out(consumer, run)
                if consumer.next_tag != first:  # Else all of it turned out to be dead.
                    out.after_durable.append(batches.served(consumer))
                    waited_ms = self.step.now_ms - batch.since_ms if batch.since_ms else 0
                    found.batches.append(Formed(consumer.next_tag - first, waited_ms, full=batch.full))
                going_on = True
                break

    def hand_out(self, consumer: Consumer, run: Run) -> None:
        """Hand out one run; what has died meanwhile goes nowhere, and what has no room in bytes waits again."""
        step, found, block = self.step, self._dispatched, self._index.held[run.ordinal]
        if step.wall_ms >= block.soonest:
            expired = block.expired(run.mask, step.wall_ms)
            if expired:
                dead = run._replace(mask=expired)
                self.pending.settled([dead])
                self.dies(Dead(dead, "EXPIRED"))
                run = run._replace(mask=run.mask & ~expired)
                if not run.mask:
                    return
        # The limit may have been lowered since they failed.
        if run.failures and is_over(run, self.policy.failures_max, self.policy.cause_limits):
            self.dies(dead_of(run, self.policy.failures_max, "", self.policy.cause_limits))
            self.pending.settled([run])
            return
        ordered = run.mask & block.ordered
        waits = block.persistent or block.transacted
        # What is in no unit need not wait for the disk with the others.
        if ordered and ordered != run.mask and not waits:
            self.hand_out(consumer, run._replace(mask=run.mask & ~ordered))
            run = run._replace(mask=ordered)
        delivery = consumer.handed(run, step.now_ms, block)
        if delivery is None or delivery.count != run.mask.bit_count():
            rest = run if delivery is None else run._replace(mask=run.mask & ~delivery.run.mask)
            self.give_back([Delivery(0, rest.mask.bit_count(), rest, 0)])
            if delivery is None:
                return
            run = run._replace(mask=delivery.run.mask)
        if len(self.consumers.by_attachment) > 1:
            self.consumers.handed(consumer)
        # Of one unit some may be persistent and others not: none must overtake another.
        effects = step.out.after_durable if waits or ordered else step.out.immediate
        effect = Deliver(consumer.attachment, delivery.tag, run.ordinal, run.mask, delivery.run.attempts)
        if self.consumers.fence:
            effect = self.consumers.fenced(consumer, effect)
        if self.consumers.checkpoints.by_block and (
            states := self.consumers.checkpoints.states_of(run.ordinal, run.mask)
        ):
            effect = effect._replace(states=states)
        effects.append(effect)
        if block.stored and self.durable:
            found.recorded.append(delivery.run)
        if run.attempts:
            found.redelivered += delivery.count
        if consumer.asked.no_ack:  # Its units are free for the next at once.
            found.settled.append(delivery)
            if self.pending is not self.plain:
                self.pending.settled([delivery.run])
                found.before.append((found.recorded, found.settled))
                found.recorded, found.settled = [], []

    def dies(self, dead: Dead) -> None:
        """Messages that wait no longer are dead."""
        self._dispatched.dead.append(dead)

    def tell_draining(self, *, paused: bool) -> None:
        """Consumers in drain mode lose the credit that is left, and hear once that there is something for them."""
        out = self.step.out
        for consumer in self.consumers.draining.values():
            assert isinstance(consumer.window, DrainWindow)
            unused = consumer.window.forfeit()
            if unused is not None:
                out.after_durable.append(Drained(consumer.attachment, unused, consumer.next_tag))
            if not consumer.armed or paused or not consumer.listening() or not self.pending.has_for(consumer):
                continue
            if self.consumers.is_passed_over(consumer, self.step.now_ms):
                self.step.wake(self.consumers.passed_until_ms)
            else:
                consumer.armed = False
                out.after_durable.append(Ready(consumer.attachment, consumer.next_tag))

    def is_recorded(self, ordinal: int) -> bool:
        """Whether what happens to messages of a block is written down."""
        return self.durable and self._index.held[ordinal].stored

    def owed(self, ordinal: int) -> int:
        """Messages of a block that the delivery queue has not settled."""
        if self.owes is not None:
            return self.owes.get(ordinal, 0)
        block = self._index.held.get(ordinal)
        return block.everything & ~block.done if block is not None else 0

    # ---- coming back -----------------------------------------------------------------------------------------------

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Deliveries go back to their old places, counted as handed out.

        No consumer has them any more; later ones of their units of order come with them.
        """
        # From the last to the first: so each goes to the end of a list, see :meth:`Bucket.give_back`.
        for item in reversed(deliveries + self.pending.returned(deliveries)):
            self.put_back(item.run)

    def failed(
        self, deliveries: list[Delivery], wanted_ms: int, *, rest: bool = True, reason: str = "", cause: str = ERROR
    ) -> FailedDeliveries:
        """Handing these out has failed: they rest and come again, or are dead.

        ``wanted_ms`` is the delay that the consumer wants; the destination's own value beats it. Without
        ``rest`` they come again at once: their consumer is gone. ``reason`` is written on the dead; ``cause``: of
        ``model.causes``.
        """
        found = FailedDeliveries([], [], sum(item.count for item in deliveries), cause)
        attributes, limit, apart = self.policy.attributes, self.policy.failures_max, self.policy.cause_limits
        with_them = self.pending.returned(deliveries)
        if rest and attributes.redeliveryDelayOverride >= 0:
            wanted_ms = attributes.redeliveryDelayOverride
        for item in reversed(deliveries):
            run = with_failure(item.run, cause)
            until_ms = 0
            if is_over(run, limit, apart):
                found.dead.append(dead_of(run, limit, reason, apart))
            elif wanted_ms > 0:
                due_ms = self.step.now_ms + delay_ms(attributes, wanted_ms, failures_in_all(run.failures))
                self.rest(due_ms, run)
                until_ms = due_ms + self.step.ahead_ms
            else:
                self.put_back(run)
            if self.is_recorded(run.ordinal):
                found.rows.append(records.RecordRow(run.ordinal, run.mask, run.failures, until_ms))
        for item in with_them:
            self.put_back(item.run)
        found.dead.reverse()
        return found

    def rejected(self, deliveries: list[Delivery], reason: str) -> FailedDeliveries:
        """The consumer wants these never again."""
        runs = [as_rejected(item.run) for item in deliveries]
        self.pending.settled(runs)
        rows = [records.RecordRow(r.ordinal, r.mask, r.failures) for r in runs if self.is_recorded(r.ordinal)]
        return FailedDeliveries(rows, [Dead(run, "ERROR", parted(reason)[0], reason) for run in runs])

    def expired(self, deliveries: list[Delivery], reason: str) -> FailedDeliveries:
        """The consumer has found these expired."""
        self.pending.settled([item.run for item in deliveries])
        return FailedDeliveries([], [Dead(item.run, "EXPIRED", reason) for item in deliveries])

    def overdue(self) -> list[FailedDeliveries]:
        """Take back what should have been acknowledged by now, uncounted unless redeliveryLimitByCause names timeout.

        The consumer is told, and gets nothing more before it is heard of again: it would keep that as well.
        """
        now_ms = self.step.now_ms
        found = [(c, c.overdue(now_ms)) for c in self.consumers.by_attachment.values() if c.asked.lease_ms]
        failed: list[FailedDeliveries] = []
        for consumer, items in found:  # What is overdue itself is not revoked with another's of its unit.
            if items:
                if TIMEOUT in self.policy.named_causes:
                    failed.append(self.failed(items, 0, rest=False, cause=TIMEOUT))
                else:
                    self.give_back(items)
                void(consumer, items, self.step.out)
        return failed

    def dead_letters_back(self, ordinal: int, mask: int) -> None:
        """Dead letters wait again, at their old place, or for their birth; what came after them in their units
        does too."""
        runs = self.dead_letters.take_dead(ordinal, mask)
        for item in self.pending.overtaken(runs):
            self.put_back(item.run)
        for run in reversed(runs):
            block = self._index.held[ordinal]
            born, later = (run.mask, []) if run.attempts else block.by_birth(run.mask, self.step.wall_ms)
            for due_ms, unborn in later:
                self.rest(due_ms - self.step.ahead_ms, run._replace(mask=unborn))
            if born:
                self.put_back(run._replace(mask=born))

    # ---- taking out ------------------------------------------------------------------------------------------------

    def clear(self) -> list[Run]:
        """Take out everything that is with nobody."""
        hidden, self.hidden = [run for run, _ in self.hidden], []
        parts = self.parts.clear() if self.parts is not None else ()
        return [*self.pending.clear(), *self.delayed.clear(), *hidden, *parts]

    def remove(self, chosen: Mapping[int, int], *, waiting: bool = True) -> list[Run]:
        """Take out these messages as far as they are with nobody; not ``waiting``: and rest or are hidden."""
        removed = self.pending.remove(chosen) if waiting else []
        waited = len(removed)
        removed += self.delayed.remove(chosen)
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
            removed += self.parts.remove(chosen)
        for run in removed[waited:]:
            self.pending.drop_blocked(run.ordinal, run.mask)
        return removed

    @property
    def removable(self) -> int:
        """Messages that are with nobody, parts of units of work left out."""
        return self.pending.count + self.delayed.count + sum([run.count for run, _ in self.hidden])

    def next_to_remove(self, *, lowest_priority: bool) -> Run | None:
        """The run with which :meth:`take_to_remove` would begin."""
        resting = self.delayed.oldest(by_priority=lowest_priority)
        first = self.pending.next_to_remove(lowest_priority=lowest_priority)
        runs = [run for run in (resting, first) if run is not None]
        if self.hidden or self.parts is not None:
            runs += [run for run, _ in self.hidden]
            runs += self.parts.runs() if self.parts is not None else ()
        return min(runs, key=lambda run: age_of(run, by_priority=lowest_priority), default=None)

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> list[Run]:
        """Take out up to ``room`` messages of those to discard first, of one block: the oldest, or the oldest of the
        lowest priority, whether they wait, rest or are hidden.

        What has not appeared yet is as old as its block: it came before what was sent since, wherever it will stand.
        """

        def age(run: Run) -> Age:
            return age_of(run, by_priority=lowest_priority)

        found, resting = None, self.delayed.oldest(by_priority=lowest_priority)
        hidden = [run for run, _ in self.hidden]
        if self.parts is not None:
            hidden += self.parts.runs()
        if resting is not None or hidden:
            found = min(hidden if resting is None else [*hidden, resting], key=age)
            first = self.pending.next_to_remove(lowest_priority=lowest_priority)
            found = None if first is not None and age(first) <= age(found) else found
        if found is None:
            return self.pending.take_to_remove(room, lowest_priority=lowest_priority)
        if found is resting:
            run = self.delayed.take_oldest(room)
            self.pending.drop_blocked(run.ordinal, run.mask)
            return [run]
        return self.remove({found.ordinal: pk.lowest(found.mask, room)}, waiting=False)

    def remove_over(self) -> list[Dead]:
        """Take out those whose end was decided before a restart, without waiting for a consumer."""
        limit, apart = self.policy.failures_max, self.policy.cause_limits
        chosen: dict[int, int] = {}
        for state, run in self.contents(tried=True):
            if state != "delivered" and is_over(run, limit, apart):
                chosen[run.ordinal] = chosen.get(run.ordinal, 0) | run.mask
        removed = self.remove(chosen) if chosen else ()
        return [dead_of(run, limit, "", apart) for run in removed if is_over(run, limit, apart)]

    # ---- selectors and time ----------------------------------------------------------------------------------------

    def selector_joins(self, text: str | None, attachment: int, labels: Sequence[str]) -> int:
        """A consumer with that selector and these labels comes; returns the selector's number."""
        labelled = self.plain.labels_join(attachment, labels)
        number, new = self.plain.selector_index.join(text)
        if new or labelled:
            self.pending.selectors_changed()
        if any(self.plain.backlog.has_unsorted(priority) for priority in range(LEVELS)):
            self.plain.unfinished = True
        return number

    def plan_wake(self) -> None:
        """Say when time alone changes something here."""
        for consumer in self.consumers.by_attachment.values():
            if consumer.asked.lease_ms:
                self.step.wake(consumer.next_due_ms())
        if self.delayed.count:
            self.step.wake(self.delayed.next_ms)
        if not self.dispatch_gate.dispatching:
            self.step.wake(self.dispatch_gate.until_ms(self.policy.attributes))
        if self.batch_wait.since_ms is not None:
            self.step.wake(self.batch_wait.until_ms(self.step.now_ms, self.policy.batch_wait_ms))
        if self.consumers.batches is not None:
            self._note_arrivals()
        elif self.plain.former is not None:
            self.plain.former = None
        if self.plain.times is not None:
            self.plain.times.note(self._arrival, self.step.now_ms)

    def _note_arrivals(self) -> None:
        """What came in this step came now; and a batch that is not full has to go some time."""
        former = self.plain.former = self.plain.former or BatchFormer(self.held, self.step)
        former.arrivals.note(self._arrival, self.step.now_ms)
        if former.due_ms is not None and former.due_ms > self.step.now_ms:
            self.step.wake(former.due_ms)

    def contents(self, *, tried: bool = False) -> Iterator[tuple[str, Run]]:
        """(state, run) of everything the delivery queue has but for what transactions and the dead letters hold.

        ``tried``: of what waits only what was handed out before, in no certain order; nothing is unpacked for that.
        """
        for run in self.pending.tried() if tried else self.pending.runs():
            yield "waiting", run
        for _, run in self.delayed.runs():
            yield "delayed", run
        for run, _ in self.hidden:
            yield "hidden", run
        for run in self.parts.runs() if self.parts is not None else ():
            yield "hidden", run
        for consumer in self.consumers.by_attachment.values():
            for item in consumer.unsettled:
                yield "delivered", item.run


def _plain(policy: DestinationPolicy, consumers: Consumers, step: Step) -> PlainPending:
    """Return what messages without units of order wait in: in the order of arrival and priority, or sorted."""
    keys = parse_sort_keys(policy.attributes.destinationKeys)
    if policy.attributes.affinityKey:
        return AffinityPending(consumers, LabelIndex(step.peek, policy.attributes.affinityKey), policy, step)
    if policy.attributes.versionKey:
        versions = VersionIndex(step.peek, policy.attributes.versionKey, policy.attributes.maxStaleness)
        return VersionPending(consumers, versions, policy)
    selector_index = SelectorIndex(step.peek)
    if keys:
        return SortedPending(consumers, selector_index, SortOrder(keys), step)
    return PlainPending(consumers, selector_index)
