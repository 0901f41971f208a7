"""A topic: every message goes to each subscription that wants it, and is kept once for all of them.

A plain subscriber's delivery queue lives as long as its consumer; a shared one's as long as any consumer; a durable
one's until it is unsubscribed.  Only durable delivery queues are written down, and a message that no durable delivery
queue wants is not stored at all: a restart ends its only takers.
"""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.outcome import Outcome
from raybroker.core.selector import compile_selector
from raybroker.core.selector.content import Content
from raybroker.core.subscription import Subscription, shared_otherwise
from raybroker.core.unit_of_work import PARTS
from raybroker.model.errors import IllegalStateError, InvalidDestinationError


class Topic(Destination):
    """One delivery queue for each subscription."""

    kind = "topic"

    # ---- subscriptions ---------------------------------------------------------------------------------------------

    def queue_for(self, command: cmd.AttachConsumer) -> DeliveryQueue:
        wanted = command.subscription
        if wanted is None:
            raise InvalidDestinationError(f"{self.name} is a topic: its consumers are subscribers")
        queue = self._found_or_ended(wanted)
        if queue is not None and queue.consumers.by_attachment and not wanted.shared:
            raise IllegalStateError(f"subscription {wanted.name!r} has a consumer already; close that one first")
        return queue or self.subscribe(wanted)

    def _subscribe(self, command: cmd.Subscribe, out: Outcome) -> None:
        if self._found_or_ended(command.subscription) is None:
            self.subscribe(command.subscription)

    def _found_or_ended(self, wanted: Subscription) -> DeliveryQueue | None:
        """The delivery queue of a subscription; one of that name with other options is ended."""
        if wanted.selector is not None:
            compile_selector(wanted.selector)
        queue = self.find(wanted.client_id, wanted.name, durable=wanted.durable) if wanted.name else None
        if queue is not None and queue.subscription != wanted:
            self._replace(queue, wanted)
            return None
        return queue

    def find(self, client_id: str, name: str, *, durable: bool = True) -> DeliveryQueue | None:
        """The delivery queue of a named subscription; a durable one and a shared one that is not durable have nothing
        in common, whatever they are called (JMS 2.0, 8.3.3)."""
        for queue in self.queues.values():
            own = queue.subscription
            if own is not None and (own.client_id, own.name, own.durable) == (client_id, name, durable):
                return queue
        return None

    def _replace(self, queue: DeliveryQueue, wanted: Subscription) -> None:
        """Give the same name another selector: the subscription is destroyed and made anew, unless somebody uses it.

        A shared one never takes the place of an unshared one, nor the other way round.
        """
        assert queue.subscription is not None
        if queue.subscription.shared != wanted.shared:
            raise shared_otherwise(wanted.name, shared=queue.subscription.shared)
        if queue.consumers.by_attachment:
            raise IllegalStateError(
                f"subscription {wanted.name!r} is in use with other options (selector, noLocal, durable or shared);"
                " close its consumers first"
            )
        self._end_queue(queue)

    def subscribe(self, wanted: Subscription) -> DeliveryQueue:
        """A new delivery queue; it gets what is published from now on."""
        queue = self.new_queue(self.next_queue, wanted)
        self.next_queue += 1
        self._reserve(queue)
        if queue.durable:
            self.current.record(records.encode(records.QUEUE, queue.number, (), (), wanted.encode()))
        return queue

    def _reserve(self, queue: DeliveryQueue) -> None:
        """What open transactions have sent already comes before what is sent from now on."""
        waiting = (block for staged in self.staged.values() for block in staged.blocks)
        for block in sorted((b for b in waiting if self.block_index.held[b.ordinal].ordered), key=lambda b: b.ordinal):
            content = self.current.peek(block.ordinal) if block.content is None else block.content
            mask = self.claims(block.mask, content, block.origin).get(queue.number, 0)
            if mask:
                queue.reserve(block.ordinal, mask)

    def parts_queue(self) -> int:
        return (self.find(PARTS.client_id, PARTS.name) or self.subscribe(PARTS)).number

    def left_by(self, queue: DeliveryQueue) -> None:
        if not queue.durable and not queue.consumers.by_attachment:
            self._end_queue(queue)

    def _unsubscribe(self, command: cmd.Unsubscribe, out: Outcome) -> None:
        queue = self.find(command.client_id, command.name)
        if queue is None:
            raise InvalidDestinationError(f"topic {self.name} has no subscription {command.name!r} of that client")
        if queue.consumers.by_attachment:
            raise IllegalStateError(f"subscription {command.name!r} has a consumer; close it before unsubscribing")
        if any(number == queue.number for staged in self.staged.values() for number, _ in staged.acks):
            raise IllegalStateError(f"subscription {command.name!r} is part of an open transaction; end that first")
        self._end_queue(queue)

    def _end_queue(self, queue: DeliveryQueue) -> None:
        """The delivery queue goes, with everything it is owed."""
        assert queue.owes is not None
        for staged in self.staged.values():  # Nothing that a transaction acknowledged in it matters any more.
            staged.acks = [(number, delivery) for number, delivery in staged.acks if number != queue.number]
        for ordinal, mask in queue.dead_letters.masks.items():
            self.block_index.count_dead(ordinal, mask, -1)
        if queue.durable:
            self.current.record(records.encode(records.QUEUE_GONE, queue.number))
        retired: tuple[list[int], list[int]] = ([], [])
        for ordinal, mask in list(queue.owes.items()):
            block = self.block_index.held[ordinal]
            free, _ = self.clear_queue(queue, ordinal, mask)
            if free and self.block_index.settle_messages(ordinal, free):
                retired[block.stored].append(ordinal)
        self.settlement.retire(retired)
        del self.queues[queue.number]
        self.current.touched.pop(queue.number, None)

    def has_durable_queues(self) -> bool:
        return any(queue.durable for queue in self.queues.values())

    # ---- messages --------------------------------------------------------------------------------------------------

    def claims(self, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        """Equal selectors are evaluated once."""
        found: dict[int, int] = {}
        matches: dict[str, int] = {}
        for number, queue in self.queues.items():
            own = queue.subscription
            assert own is not None
            if own == PARTS or (own.no_local and own.origin and own.origin in origin):
                continue
            chosen = mask
            if own.selector is not None and content is not None:
                if own.selector not in matches:
                    matches[own.selector] = compile_selector(own.selector).pick(content, mask, 0)
                chosen = matches[own.selector]
            if chosen:
                found[number] = chosen
        return found

    def clear_queue(self, queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        """What is free is what no other delivery queue owes; all of it at once when this delivery queue is the last."""
        assert queue.owes is not None
        block = self.block_index.held[ordinal]
        left = queue.owes[ordinal] & ~mask
        if left:
            queue.owes[ordinal] = left
        else:
            del queue.owes[ordinal]
            block.claims -= 1
        if not block.claims:
            return block.everything & ~block.done, True
        if block.count == 1:
            return 0, True
        free = mask
        if block.claims > bool(left):
            for other in self.queues.values():
                if other is not queue and other.owes is not None:
                    free &= ~other.owes.get(ordinal, 0)
                    if not free:
                        break
        return free, not left
