"""A destination as dumb as possible, compared with every outcome of the real one.

It does by itself what each command asks: which messages are taken and refused, which are handed to whom and in which
order, what is settled, rests, dies or retires, what must be recorded and what must wait for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.backlog import UNSORTED
from raybroker.core.destination import Destination
from raybroker.core.durable.records import REJECTED
from raybroker.core.outcome import (
    Acked,
    DeadLetter,
    Deliver,
    Drained,
    Gate,
    Outcome,
    Promoted,
    Released,
    Retire,
    SendAnswered,
)
from tests.simulation import twin_affinity, twin_batches, twin_staleness
from tests.simulation.ondisk import INDEX_BITS, Delta, Message, OnDisk
from tests.simulation.twin_draining import check_draining
from tests.simulation.twin_recalling import bound, check_leaving, check_older_are_asked, check_recalls, gone
from tests.simulation.twin_state import (
    Gates,
    Holder,
    Item,
    Staged,
    TwinDeliveryQueue,
    Waiting,
    all_failures,
    cause_unit,
    too_often,
)
from tests.simulation.twin_units import add, came_back, can_go, check_withdrawn, deliverable, for_him, remove

Effects = dict[type, list[Any]]
LIMITS = ("OLDEST", "LOW_PRIORITY")


class Twin:
    """``messages``: everything that is held, by key; ``told``: keys whose death a topic has told already."""

    def __init__(self, destination: Destination, handlers: Mapping[type, Any]) -> None:
        """``handlers``: what each command does, from :mod:`tests.simulation.twin_commands`."""
        self.destination = destination
        self._handlers = handlers
        self.messages: dict[int, Message] = {}
        self.bytes_held = 0
        self.queues: dict[int, TwinDeliveryQueue] = (
            {0: TwinDeliveryQueue(0, None)} if destination.kind == "queue" else {}
        )
        self.queue_of: dict[int, TwinDeliveryQueue] = {}
        self.left: dict[int, int] = {}
        self.stored: set[int] = set()
        self.transacted: set[int] = set()
        """Blocks that came by a transaction: nobody sees them before its end is durable."""
        self.staged: dict[int, Staged] = {}
        self.told: set[int] = set()
        self.gates = Gates()
        self.newest: dict[int, int] = {}
        self.attached: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        self.taken: set[int] = set()
        self.top: dict[int, int] = {}
        self.unwritten: dict[int, list[int]] = {}
        self.paused: dict[str, int] = {}
        self.pool_used = 0, 0
        """Messages and bytes of its pool before the step."""
        self.turned_down: list[str] = []
        """For each message that a limit refused in the step whose limit it was: "own" or "pool"."""
        self.values: list[int] = []
        """Which messages the host itself sends next: their values."""
        self.made: dict[int, int] = {}
        """What the producers of these made."""
        self.delta = Delta(destination.number)
        self.discarded: list[tuple[int, int]] = []
        self.arrived: list[tuple[int, int]] = []
        self.unseen: list[tuple[int, int]] = []
        """(delivery queue, value) of what came back in this step and never reached an application."""
        self.returned: dict[tuple[int, str], int] = {}
        """(delivery queue, unit of order) → the first message of it that came back in this step."""
        self.overdue: set[tuple[int, int]] = set()
        """(consumer, tag) of what was not acknowledged in time in this step."""
        self.transient: set[int] = set()
        """Values that were taken and that no restart would bring back."""
        self.doomed: dict[tuple[int, int], str] = {}
        self.now = self.wall = self.ahead = 0
        """Measured time, the wall clock, and how far that is ahead."""
        self.version: int | None = None
        """The one that was published last."""
        self.damaged = False
        """A block could not be read, so that the destination is about to halt."""
        self._settled: set[int] = set()
        self.passed_over: dict[int, tuple[int, int]] = {}
        """Delivery queue → who has given back messages for others to have, and until when it is not told of them."""
        self._giving_back = False

    # ---- what is held ----------------------------------------------------------------------------------------------

    def hold(self, key: int, message: Message) -> None:
        self.messages[key] = message
        self.bytes_held += message.size
        self.left[key >> INDEX_BITS] = self.left.get(key >> INDEX_BITS, 0) + 1

    def release(self, key: int) -> None:
        """Nobody is owed it any more."""
        message = self.messages.pop(key)
        self.bytes_held -= message.size
        self.left[key >> INDEX_BITS] -= 1
        self._settled.add(key >> INDEX_BITS)
        self.told.discard(key)

    def settle(self, queue: TwinDeliveryQueue, key: int, *, recorded: bool = True) -> None:
        """The delivery queue is done with it."""
        item = queue.items.pop(key)
        remove(queue, key, item.message)
        if recorded and queue.durable and key >> INDEX_BITS in self.stored:
            self.delta.add("removed", queue.number, key)
        item.message.claims -= 1
        if not item.message.claims:
            self.release(key)

    def discard(self, queue: TwinDeliveryQueue, key: int) -> None:
        """It goes although no consumer had it."""
        self.discarded.append((queue.number, queue.items[key].message.value))
        self.settle(queue, key)

    def give_back(self, queue: TwinDeliveryQueue, key: int) -> None:
        item = queue.items[key]
        item.behind = twin_staleness.last(self) and twin_staleness.is_stale(self, item)
        queue.put(key, hidden="insertion" in self.paused)

    def fail(
        self, queue: TwinDeliveryQueue, key: int, delay_ms: int, *, rest: bool = True, cause: str = "error"
    ) -> None:
        """Handing it out has failed."""
        came_back(self, queue, key)
        attributes = self.destination.attributes
        item = queue.items[key]
        item.failures += cause_unit(cause)
        due = 0
        if rest and attributes.redeliveryDelayOverride >= 0:
            delay_ms = attributes.redeliveryDelayOverride
        if too_often(attributes, item.failures):
            self.doomed[queue.number, key] = "UNDELIVERABLE"
        elif delay_ms > 0:
            for _ in range(all_failures(item.failures) - 1):
                if delay_ms < attributes.redeliveryDelayMax:
                    delay_ms = delay_ms * max(attributes.redeliveryBackoffPercent, 100) // 100
            due = self.now + min(delay_ms, attributes.redeliveryDelayMax)
            queue.rest(key, due)
        else:
            self.give_back(queue, key)
        if queue.durable and key >> INDEX_BITS in self.stored:
            self.delta.add("failed", queue.number, key, item.failures, due and due + self.ahead)

    def charged(self) -> tuple[int, int]:
        """Messages, and their bytes, that count for the limits: those that are not dead for everybody owed them."""
        dying = {key for queue in self.queues.values() for key in queue.dying}
        alive = {
            key for key in dying for queue in self.queues.values() if key in queue.items and key not in queue.dying
        }
        dead = dying - alive
        return len(self.messages) - len(dead), self.bytes_held - sum(self.messages[key].size for key in dead)

    def settled(self) -> tuple[int, int]:
        """:meth:`charged` without what open transactions have sent: it makes nothing go before its commit."""
        count, held_bytes = self.charged()
        open_ones = [message for staged in self.staged.values() for message in staged.blocks.values()]
        return count - len(open_ones), held_bytes - sum(message.size for message in open_ones)

    def full(self) -> bool:
        limits = self.destination.attributes
        count, held_bytes = self.charged()
        return 0 <= limits.maxNumMsgs <= count or 0 <= limits.maxTotalMsgBytes <= held_bytes

    # ---- one step --------------------------------------------------------------------------------------------------

    def _at(self, now_ms: int, ahead_ms: int) -> None:
        """It is that time; what is not born yet is by the wall clock, which may have been set."""
        for queue in self.queues.values() if ahead_ms != self.ahead else ():
            for key, (due, number) in queue.delayed.items():
                if not queue.items[key].attempts:
                    queue.delayed[key] = due + self.ahead - ahead_ms, number
        self.now, self.ahead, self.wall = now_ms, ahead_ms, now_ms + ahead_ms

    def step(self, command: cmd.Command, out: Outcome, now_ms: int, ahead_ms: int) -> None:
        """``command`` led to ``out``; raises AssertionError when it should not have."""
        self.delta = Delta(self.destination.number)
        self.returned.clear()
        self.discarded, self.arrived, self.unseen, self.doomed, self._settled = [], [], [], {}, set()
        self._at(now_ms, ahead_ms)
        self.turned_down = []
        self.damaged = (self.damaged or bool(out.damaged)) and not isinstance(command, cmd.Purge)
        effects: Effects = {}
        assert not any(isinstance(e, Released) for e in (*out.immediate[1:], *out.after_durable)), "released too late"
        staging = isinstance(command, cmd.Send) and (command.txn or not (command.persistent or command.confirm))
        for effect in out.immediate:
            early = Acked | Retire if staging else SendAnswered | Acked | Retire
            assert not isinstance(effect, early), f"{effect} does not wait for the disk"
            effects.setdefault(type(effect), []).append(effect)
        early_count = len(effects.get(Deliver, ()))
        for effect in out.after_durable:
            assert not isinstance(effect, DeadLetter), f"{effect} waits for the disk"
            effects.setdefault(type(effect), []).append(effect)
        expected = self._handlers[type(command)](self, command, out)
        check_withdrawn(self, out)
        self._rank(command)
        bound(self)
        check_recalls(self, out, to_make_room=True)
        self._giving_back = isinstance(command, cmd.Recalled)
        self._deaths(effects.get(DeadLetter, []), effects.get(Deliver, []))
        committed = isinstance(command, cmd.Decide) and command.commit
        if committed or (out.accepted is not None and isinstance(command, cmd.Send)):
            self._check_limits()
        twin_batches.prepare(self)
        twin_affinity.look(self)
        if Deliver in effects:
            self._handed_out(effects[Deliver], early_count)
        twin_staleness.check(self)
        self._check_nobody_waits()
        twin_batches.check_nobody_waits(self, out)
        twin_affinity.check_wakes(self, out)
        check_draining(self, out, [*expected.get(Drained, []), *twin_batches.ended(self)])
        check_recalls(self, out, to_make_room=False)
        check_leaving(self)
        self._check_gates(effects.get(Gate, []))
        for kind in (SendAnswered, Acked, Released, Promoted):
            found = effects.get(kind, [])
            assert found == expected.get(kind, []), f"{command} led to {found}, expected {expected.get(kind, [])}"
        self._check_retired(effects.get(Retire, []))
        block_index = self.destination.block_index
        assert (block_index.messages, block_index.bytes_held) == (len(self.messages), self.bytes_held), "totals differ"
        recorded = bool(out.records) or isinstance(command, cmd.Decide)
        assert recorded or not self.delta, f"nothing is recorded of what {command} did"

    def _check_nobody_waits(self) -> None:
        if "consumption" in self.paused:
            return
        for queue in self.queues.values():
            for number, holder in queue.holders.items() if queue.waiting else ():
                if (
                    not holder.room()
                    or not twin_affinity.settled(self, queue)
                    or twin_staleness.looks(self, queue)
                    or (holder.selector and self.unsorted(queue))
                ):
                    continue
                row = for_him(self, queue, holder)
                assert row is None or self.destination.queues[queue.number].plain.unfinished, (
                    f"consumer {number:#x} has room and {_text(row[2])} waits"
                )

    def _rank(self, command: cmd.Command) -> None:
        """Nobody gets anything before enough have come (B20), nor remote ones while there are others (D-19)."""
        attributes = self.destination.attributes
        for queue in self.queues.values():
            if isinstance(command, cmd.AttachConsumer | cmd.DetachConsumer | cmd.LeaveNode | cmd.Update | cmd.Tick):
                queue.gather(attributes.consumersBeforeDispatch, attributes.delayBeforeDispatch, self.now)
            others = any(h.active and not h.remote and not h.leaving for h in queue.holders.values())
            for holder in queue.holders.values():
                outranked = holder.remote and others and attributes.localDeliveryPreferred
                holder.outranked = outranked or not queue.gathered

    def unsorted(self, queue: TwinDeliveryQueue) -> bool:
        """The real delivery queue has not compared everything with its selectors yet, or could not."""
        buckets = self.destination.queues[queue.number].plain.backlog.buckets
        return self.damaged or any(signature == UNSORTED for _, signature in buckets)

    def reserves(self, queue: TwinDeliveryQueue) -> bool:
        """An open transaction has places in units of order, so that the real delivery queue goes by units already."""
        real = self.destination.queues[queue.number]
        return real.pending is not real.plain

    # ---- handing out -----------------------------------------------------------------------------------------------

    def _handed_out(self, deliveries: list[Deliver], early: int) -> None:
        """Messages leave in order, to active consumers, as far as windows have room, each with its next attempt."""
        assert "consumption" not in self.paused, "messages are handed out although that is paused"
        by_holder: dict[int, list[Deliver]] = {}
        for index, effect in enumerate(deliveries):
            queue = self.queue_of.get(effect.attachment)
            assert queue is not None, f"{effect} goes to nobody"
            key = effect.ordinal << INDEX_BITS | pk.first_of(effect.mask)
            assert key in queue.items, f"{_text(key)} is handed out and not held"
            message = queue.items[key].message
            waits = effect.ordinal in self.transacted or message.persistent or message.unit is not None
            assert waits == (index >= early), f"{effect} is in the wrong tuple"
            by_holder.setdefault(effect.attachment, []).append(effect)
        last: dict[int, list[tuple[int, int, int]]] = {}
        in_order = {a for a in by_holder if not self.queue_of[a].units}
        todo = {a: sorted(effects, key=lambda e: e.tag) for a, effects in by_holder.items()}
        batches = twin_batches.divide(self, todo)
        while todo:
            attachment = next((a for a, effects in todo.items() if self._can_go(a, effects[0])), next(iter(todo)))
            rows = last.setdefault(attachment, [])
            rows += self._hand(self.queue_of[attachment], todo[attachment].pop(0))
            if not todo[attachment]:
                del todo[attachment]
        self._check_order(last, in_order)
        twin_batches.hand(self, batches)

    def _check_order(self, last: Mapping[int, list[Waiting]], in_order: set[int]) -> None:
        """Nobody gets a message before another that it wants."""
        for attachment, rows in last.items():
            queue = self.queue_of[attachment]
            holder = queue.holders[attachment]
            by_units = queue.units or self.reserves(queue)
            if attachment not in in_order or by_units or (holder.selector and self.unsorted(queue)):
                continue
            if twin_staleness.looks(self, queue):
                continue
            if self.destination.attributes.affinityKey:
                made = {row[2]: self.messages[row[2]].made for row in rows if row[2] in self.messages}
                twin_affinity.check_order([row for row in rows if row[2] in made], made)
                continue
            assert rows == sorted(rows), f"consumer {attachment:#x} gets messages out of order: {rows}"
            for row in queue.waiting:
                if row > rows[-1]:
                    break
                assert not holder.wants(queue.items[row[2]]), f"{_text(rows[-1][2])} is before {_text(row[2])}"

    def _can_go(self, attachment: int, effect: Deliver) -> bool:
        queue = self.queue_of[attachment]
        keys = [effect.ordinal << INDEX_BITS | index for index in pk.indexes(effect.mask)]
        return can_go(self, queue, keys, queue.holders[attachment])

    def _hand(self, queue: TwinDeliveryQueue, effect: Deliver) -> list[tuple[int, int, int]]:
        holder = queue.holders[effect.attachment]
        indexes = pk.indexes(effect.mask)
        size, rows = len(indexes), []
        assert holder.room() >= size, f"{effect} exceeds the window of its consumer"
        holder.window.sent(size)
        assert effect.tag == holder.next_tag, f"{effect} should have tag {holder.next_tag}"
        for tag, index in enumerate(indexes, effect.tag):
            key = effect.ordinal << INDEX_BITS | index
            assert key in queue.items, f"{_text(key)} is handed out and not held"
            item = queue.items[key]
            assert queue.is_waiting(key), f"{_text(key)} is handed out and does not wait"
            rows.append(queue.row(key))
            queue.take_out(key)
            assert deliverable(self, queue, key, holder), f"{_text(key)} overtakes others of its unit"
            assert twin_affinity.may_have(self, queue, item, holder), f"{_text(key)} is for others yet"
            self._check_fit(item, holder, key)
            item.attempts += 1
            found = effect.states.get(index) if effect.states else None
            assert found == item.state, f"{_text(key)} comes with the checkpoint {found}, the last was {item.state}"
            assert item.attempts == effect.attempt, f"{_text(key)} should be attempt {item.attempts}: {effect}"
            if queue.durable and effect.ordinal in self.stored:
                self.delta.add("tried", queue.number, key, item.attempts)
            if holder.no_ack:
                self.discard(queue, key)
            else:
                holder.unsettled[tag] = key
                if holder.lease_ms:
                    holder.until[tag] = self.now + holder.lease_ms
        if holder.no_ack:
            holder.window.settled(size)
        holder.next_tag += size
        return rows

    def _check_fit(self, item: Item, holder: Holder, key: int) -> None:
        message = item.message
        assert holder.wants(item), f"{_text(key)} is not what the consumer wants: {holder.selector}"
        assert not 0 < message.expires <= self.wall, f"{_text(key)} has expired and is handed out"
        stale = not self.damaged and not twin_staleness.last(self) and twin_staleness.is_stale(self, item)
        assert not stale, f"{_text(key)} is stale and is handed out"
        assert not too_often(self.destination.attributes, item.failures), (
            f"{_text(key)} failed too often and comes again"
        )

    # ---- dying -----------------------------------------------------------------------------------------------------

    def _deaths(self, effects: list[DeadLetter], deliveries: list[Deliver]) -> None:
        removed: dict[int, list[tuple[int, int, int]]] = {}
        aside: dict[int, list[tuple[int, int, int]]] = {}
        for effect in effects:
            queue = self.queues.get(effect.queue)
            if queue is None:
                continue  # The delivery queue ended in this very step.
            for index in pk.indexes(effect.mask):
                key = effect.ordinal << INDEX_BITS | index
                assert key in queue.items, f"{_text(key)} dies and is not held"
                row, rested = queue.row(key), key in queue.delayed or key in queue.hidden
                self._check_death(queue, key, effect)
                assert key not in queue.dying, f"{_text(key)} dies twice"
                queue.dying[key] = effect.reason
                if self.destination.kind == "topic" and effect.reason not in ("UNDELIVERABLE", "ERROR"):
                    self.told.add(key)
                if effect.reason in LIMITS:
                    (aside if rested else removed).setdefault(queue.number, []).append(row)
        handed = {(e.attachment, e.ordinal << INDEX_BITS | i) for e in deliveries for i in pk.indexes(e.mask)}
        self._told_already(handed)
        assert not self.doomed, f"these should be dead: {self.doomed}"
        if removed or aside:
            others = [
                self.messages[e.ordinal << INDEX_BITS | i].size
                for e in effects
                if e.reason not in LIMITS
                for i in pk.indexes(e.mask)
            ]
            self._check_removed(removed, aside, others)

    def _check_death(self, queue: TwinDeliveryQueue, key: int, effect: DeadLetter) -> None:
        item, reason = queue.items[key], effect.reason
        assert effect.attempts == item.attempts, f"{_text(key)} died after {item.attempts} attempts: {effect}"
        wanted = self.doomed.pop((queue.number, key), None)
        if wanted is not None:
            assert wanted == reason, f"{_text(key)} died of {reason}, expected {wanted}"
            return
        assert queue.take_out(key), f"{_text(key)} dies and did not wait"
        limits = self.destination.attributes
        if reason == "EXPIRED":
            assert 0 < item.message.expires <= self.wall, f"{_text(key)} has not expired"
        elif reason == "UNDELIVERABLE":
            assert too_often(limits, item.failures), f"{_text(key)} may be tried again"
        elif reason == "STALE":
            stale = not twin_staleness.last(self) and twin_staleness.is_stale(self, item)
            assert stale, f"{_text(key)} is not stale"
        elif reason == "ERROR":
            assert item.failures & 0xFFFF_FFFF == REJECTED, f"{_text(key)} was not rejected"
        else:
            assert limits.limitBehavior == f"REMOVE_{reason}", f"{_text(key)} dies of {reason}"

    def _told_already(self, handed: set[tuple[int, int]]) -> None:
        """In other delivery queues of a topic a message that has died goes without a word."""
        for key in list(self.told):
            for queue in self.queues.values():
                if key not in queue.items or key in queue.dying or any((a, key) in handed for a in queue.holders):
                    continue
                if (
                    not self.destination.queues[queue.number].owed(key >> INDEX_BITS) >> (key & (1 << INDEX_BITS) - 1)
                    & 1
                ):
                    assert self.doomed.pop((queue.number, key), None) or queue.take_out(key), (
                        f"{_text(key)} has vanished"
                    )
                    self.discard(queue, key)

    def _check_removed(
        self, removed: dict[int, list[Waiting]], aside: dict[int, list[Waiting]], others: list[int]
    ) -> None:
        """The limits made these go, ``removed`` of what waited and ``aside`` of what rested or was hidden: the first
        blocks, and no more messages than necessary."""
        limits = self.destination.attributes
        low = limits.limitBehavior == "REMOVE_LOW_PRIORITY"

        def order(row: tuple[int, int, int]) -> tuple[int, ...]:
            at = row[2] >> INDEX_BITS if units else row[1]
            return (-row[0], at) if low else (at,)

        for number, rows in removed.items():
            queue = self.queues[number]
            units = True  # With units of order blocks go in their own order, whenever they became visible.
            last = max(map(order, rows))
            waiting = [order(row) for row in queue.waiting]
            units = False
            plain = not waiting or min(order(row) for row in queue.waiting) >= max(map(order, rows))
            assert plain or min(waiting) >= last, "a message was discarded before an older one"
            if self.destination.kind == "queue" and not self._giving_back:
                check_older_are_asked(queue, rows, by_priority=low)
        every = {n: [*removed.get(n, ()), *aside.get(n, ())] for n in {*removed, *aside}}
        for number, rows in every.items():
            queue = self.queues[number]
            left = [queue.row(key) for key in (*queue.delayed, *queue.hidden)]
            ages = [[(-row[0] * low, row[2] >> INDEX_BITS) for row in some] for some in (rows, left)]
            assert not left or max(ages[0]) <= min(ages[1]), "a message was discarded before an older one that rests"
        count, held_bytes = self.settled()
        count, held_bytes = count + len(others), held_bytes + sum(others)
        if not self._giving_back and self.destination.kind == "queue" and limits.maxTotalMsgBytes < 0:
            count -= gone(self)
        biggest = max(self.messages[row[2]].size for rows in every.values() for row in rows)
        assert 0 <= limits.maxNumMsgs < count + 1 or 0 <= limits.maxTotalMsgBytes < held_bytes + biggest, (
            "more was discarded than necessary"
        )

    def _check_limits(self) -> None:
        """After a message was taken, what is too much has gone, as far as it is with nobody."""
        limits = self.destination.attributes
        if limits.limitBehavior.startswith("REMOVE"):
            too_many = 0 <= limits.maxNumMsgs < self.settled()[0] - gone(self)
            free = any(queue.waiting or queue.delayed or queue.hidden for queue in self.queues.values())
            assert not (too_many and free), f"{len(self.messages)} messages are held, {limits.maxNumMsgs} may be"

    # ---- the rest --------------------------------------------------------------------------------------------------

    def gate(self) -> str:
        if "insertion" in self.paused or "production" in self.paused:
            return "paused"
        return "slow" if self.gates.slow else "open"

    def _check_gates(self, effects: list[Gate]) -> None:
        """What producers know of room."""
        gates, flow = self.gates, self.destination.attributes.limitBehavior == "FLOW_CONTROL"
        if gates.slow and not (flow and self.full()):
            gates.slow = False
        for effect in effects:
            gates.told[effect.attachment] = effect.state
        for attachment in self.attached:
            told = gates.told.get(attachment, "open")
            assert told == self.gate(), f"a producer knows {told}, it is {self.gate()}"

    def _check_retired(self, effects: list[Retire]) -> None:
        """A block retires with its last message, once."""
        retired = sorted(ordinal for effect in effects for ordinal in effect.ordinals)
        expected = sorted(ordinal for ordinal in self._settled if not self.left[ordinal])
        assert retired == expected, f"blocks {retired} retire, expected {expected}"
        for effect in effects:
            for ordinal in effect.ordinals:
                assert effect.persistent == (ordinal in self.stored), f"block {ordinal}: {effect}"
        for ordinal in expected:
            del self.left[ordinal]
            self.stored.discard(ordinal)
            self.transacted.discard(ordinal)

    # ---- after a restart -------------------------------------------------------------------------------------------

    def restore(self, disk: OnDisk, now_ms: int, ahead_ms: int) -> None:
        """What a disk gave back."""
        self._at(now_ms, ahead_ms)
        self.version = disk.version
        for number, subscription in disk.subscriptions.items():
            self.queues[number] = TwinDeliveryQueue(number, subscription)
        for number, rows in disk.queues.items():
            queue = self.queues[number]
            staged = {key for keys in disk.staged.values() for n, key in keys if n == number}
            for key, row in sorted(rows.items()):
                self.stored.add(key >> INDEX_BITS)
                message = self.messages.get(key)
                if message is None:
                    self.hold(key, message := row.message.copy())
                message.claims += 1
                queue.items[key] = Item(message, key >> INDEX_BITS, row.attempts, row.failures)
                if self.destination.attributes.affinityKey:
                    queue.items[key].since_ms = twin_affinity.UNKNOWN
                queue.items[key].state = row.state
                add(queue, key, message)
                queue.next_place = max(queue.next_place, (key >> INDEX_BITS) + 1)
                due = row.due if row.attempts else message.deliver_at
                if key in staged:
                    continue
                if due > self.wall:
                    queue.rest(key, due - ahead_ms)
                else:
                    self.give_back(queue, key)
        for txn, waiting in disk.waiting.items():
            self.staged[txn] = Staged()
            for key, (message, queues) in sorted(waiting.items()):
                self.stored.add(key >> INDEX_BITS)
                self.hold(key, message.copy())
                self.staged[txn].blocks[key] = self.messages[key]
                self.staged[txn].claims[key] = queues
        for txn, keys in disk.staged.items():
            self.staged.setdefault(txn, Staged()).acks = sorted(keys)
        for staged in self.staged.values():
            staged.prepared = True
        self.paused = dict(self.destination.paused)  # The host has kept what an administrator paused.
        self.taken, self.top, self.told = set(disk.taken), dict(disk.top), disk.told & self.messages.keys()
        block_index = self.destination.block_index
        assert (block_index.messages, block_index.bytes_held) == (len(self.messages), self.bytes_held), "totals differ"


def _text(key: int) -> str:
    return f"message {key & (1 << INDEX_BITS) - 1} of block {key >> INDEX_BITS}"
