"""Mutants of windows, order, redelivery, retried sends, limits and consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybroker.core import command as cmd
from raybroker.core import destination
from raybroker.core.admission import intake
from raybroker.core.admission import limits as limit
from raybroker.core.admission.producer_sequences import ProducerSequences
from raybroker.core.blocks import ranges
from raybroker.core.delivery import consumer_commands
from raybroker.core.delivery.backlog import Backlog
from raybroker.core.delivery.consumers import Consumer, Consumers
from raybroker.core.delivery.decided import Dispatched
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import UNLIMITED, CreditWindow, PrefetchWindow
from raybroker.core.destination import Destination
from raybroker.core.outcome import Deliver, Outcome, Refused, Released, SendAnswered
from raybroker.engine.path.client_effects import ClientEffects
from raybroker.engine.sessions.session import Session
from tests.simulation.mutation import TABLE, Mutant, Patch, mutant

# ---- windows -------------------------------------------------------------------------------------------------------


@mutant("no more is sent than was granted")
def credit_unchecked(patch: Patch) -> None:
    patch.set(CreditWindow, "room", lambda self: UNLIMITED)
    patch.set(CreditWindow, "sent", lambda self, count: None)


@mutant("what is sent uses up what was granted")
def credit_not_consumed(patch: Patch) -> None:
    patch.set(CreditWindow, "sent", lambda self, count: None)


@mutant("a full prefetch window stays shut until half is settled")
def prefetch_topped_up_at_once(patch: Patch) -> None:
    def settled(self: PrefetchWindow, count: int) -> None:
        self.outstanding -= count
        self.full = False

    patch.set(PrefetchWindow, "settled", settled)


@mutant("a prefetch window opens when half is settled, not only when all is")
def prefetch_waits_for_all(patch: Patch) -> None:
    def settled(self: PrefetchWindow, count: int) -> None:
        self.outstanding -= count
        self.full = self.full and self.outstanding > 0

    patch.set(PrefetchWindow, "settled", settled)


@mutant("at most the prefetch limit is unsettled")
def prefetch_unchecked(patch: Patch) -> None:
    def sent(self: PrefetchWindow, count: int) -> None:
        self.outstanding += count

    patch.set(PrefetchWindow, "room", lambda self: UNLIMITED)
    patch.set(PrefetchWindow, "sent", sent)


@mutant("a held consumer gets nothing")
def held_is_ignored(patch: Patch) -> None:
    patch.set(Consumer, "room", lambda self: self.window.room() if self.active and not self.stalled else 0)


# ---- order and redelivery ------------------------------------------------------------------------------------------


@mutant("what is given back goes to its old place")
def requeued_at_the_end(patch: Patch) -> None:
    def give_back(self: Backlog, run: Any, signature: int = 0) -> None:
        self.append(run, signature)

    patch.set(Backlog, "give_back", give_back)


@mutant("what a consumer leaves behind is given back")
def requeue_forgotten(patch: Patch) -> None:
    patch.set(DeliveryQueue, "give_back", lambda self, deliveries: None)


@mutant("a second delivery counts as one")
def attempts_not_counted(patch: Patch) -> None:
    old = Consumer.handed
    patch.set(Consumer, "handed", lambda self, run, now_ms, block: old(self, run._replace(attempts=0), now_ms, block))


@mutant("a release gives back and starts new tags")
def release_keeps_old_tags(patch: Patch) -> None:
    def release(self: Destination, command: Any, out: Outcome) -> None:
        queue = self.queue_of.get(command.attachment)
        if queue is not None:
            queue.consumers.by_attachment[command.attachment].next_tag = 1
        consumer_commands.release(self, command, out)

    patch.handler(cmd.Release, release)


@mutant("the answer to a release comes before what is delivered after it")
def released_late(patch: Patch) -> None:
    def release(self: Destination, command: Any, out: Outcome) -> None:
        consumer_commands.release(self, command, out)
        out.after_durable.extend(e for e in out.immediate if isinstance(e, Released))
        out.immediate[:] = [e for e in out.immediate if not isinstance(e, Released)]

    patch.handler(cmd.Release, release)


@mutant("after a release, deliveries that were decided before it are not sent any more")
def stale_deliveries_sent(patch: Patch) -> None:
    def released(self: ClientEffects, destination: Any, effect: Released) -> None:
        attachment = self._live.get(effect.attachment)
        if attachment is not None:
            attachment.peer.released(attachment.handle, effect.request, effect.next_tag)

    patch.set(ClientEffects, "_released", released)


@mutant("what a metered connection does not take at once is kept for it")
def metered_rest_dropped(patch: Patch) -> None:
    old = ClientEffects._hand_over

    def hand_over(self: ClientEffects, attachment: Any, effect: Any) -> None:
        before = len(attachment.outbox.waiting)
        old(self, attachment, effect)
        del attachment.outbox.waiting[: len(attachment.outbox.waiting) - before]

    patch.set(ClientEffects, "_hand_over", hand_over)


@mutant("a non-persistent message is delivered once")
def volatile_delivered_twice(patch: Patch) -> None:
    old = DeliveryQueue.dispatch

    def dispatch(self: DeliveryQueue) -> Dispatched:
        found = old(self)
        self.step.out.immediate.extend([e for e in self.step.out.immediate if isinstance(e, Deliver)])
        return found

    patch.set(DeliveryQueue, "dispatch", dispatch)


# ---- producers -----------------------------------------------------------------------------------------------------


@mutant("a retried send is recognised")
def no_dedupe(patch: Patch) -> None:
    patch.set(ProducerSequences, "fresh", lambda self, producer, first, end, floor: ([(first, end)], []))


@mutant("a refused message does not look like one that was taken")
def dedupe_by_highest_number(patch: Patch) -> None:
    old = ProducerSequences.fresh
    patch.set(ProducerSequences, "fresh", lambda self, *args: (old(self, *args)[0], []))


@mutant("a refused message stays refused once later ones were taken")
def refused_retry_taken(patch: Patch) -> None:
    old = ProducerSequences.fresh

    def fresh(self: ProducerSequences, *args: int) -> Any:
        after, before = old(self, *args)
        return [*before, *after], []

    patch.set(ProducerSequences, "fresh", fresh)


@mutant("only what is below the floor is forgotten")
def floor_forgets_too_much(patch: Patch) -> None:
    old = ProducerSequences.fresh

    def fresh(self: ProducerSequences, producer: int, first: int, end: int, floor: int) -> Any:
        ranges.drop_below(self.taken.setdefault(producer, []), first + 1)
        return old(self, producer, first, end, floor)

    patch.set(ProducerSequences, "fresh", fresh)


@mutant("a producer is on one connection at a time")
def old_connections_heard(patch: Patch) -> None:
    def attach(self: ProducerSequences, attachment: int, producer: int, generation: int) -> None:
        self.attached[attachment] = producer
        self.generations[producer] = generation
        self.taken.setdefault(producer, [])

    patch.set(ProducerSequences, "attach", attach)


@mutant("an old connection that is read late does not take a producer over")
def late_openings_accepted(patch: Patch) -> None:
    old = destination._HANDLERS[cmd.AttachProducer]
    patch.handler(cmd.AttachProducer, lambda self, command, out: old(self, command._replace(generation=1 << 63), out))


@mutant("what was refused is not counted as taken")
def refused_counts_as_taken(patch: Patch) -> None:
    def also(self: Destination, command: Any, out: Outcome) -> None:
        if command.persistent and not command.txn and out.accepted is not None:
            self.producers.take_sequences(command.producer, command.first_seq, command.first_seq + len(command.sizes))

    patch.after(cmd.Send, also)


@mutant("holes of a block are settled when it is accepted")
def holes_not_settled(patch: Patch) -> None:
    patch.set(intake, "_settle_rest", lambda destination, ordinal, block, owed: None)


@mutant("a full disk does not refuse what is stored already")
def full_disk_refuses_retries(patch: Patch) -> None:
    def send(self: Destination, command: Any, out: Outcome) -> None:
        if command.room or not command.persistent or command.txn:
            intake.send(self, command, out)
        elif self.producers.attached.get(command.attachment) == command.producer:
            count = len(command.sizes)
            refused = (Refused(0, count, "store_full", "full"),)
            out.after_durable.append(SendAnswered(command.attachment, command.first_seq, count, refused))

    patch.handler(cmd.Send, send)


@mutant("acknowledgements of an ended attachment are dropped")
def epoch_unchecked(patch: Patch) -> None:
    patch.set(Session, "consumer", lambda self, handle, epoch: self.consumers.get(handle))


# ---- limits and consumers ------------------------------------------------------------------------------------------


def _limits_raised(field: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        old = limit.admit

        def admit(name: str, limits: limit.DestinationLimits, *rest: Any) -> Any:
            value = getattr(limits, field)
            return old(name, limits._replace(**{field: value + (value >= 0)}), *rest)

        patch.set(limit, "admit", admit)

    return apply


TABLE += [
    Mutant("one_message_too_many", "maxNumMsgs is exact", _limits_raised("messages_max")),
    Mutant("one_byte_too_many", "maxTotalMsgBytes is exact", _limits_raised("bytes_max")),
    Mutant("one_byte_too_long", "maxBytesPerMsg is exact", _limits_raised("message_bytes_max")),
]


@mutant("backups get nothing")
def backup_gets_messages(patch: Patch) -> None:
    old = Consumers.attach

    def attach(self: Consumers, consumer: Consumer, **places: Any) -> None:
        old(self, consumer, **places)
        consumer.active = True

    patch.set(Consumers, "attach", attach)


@mutant("a backup takes the place of an active consumer that left")
def no_promotion(patch: Patch) -> None:
    patch.set(Consumers, "promote", lambda self, active_max: [])


@mutant("a purge leaves to consumers what they have")
def purge_takes_from_consumers(patch: Patch) -> None:
    old = destination._HANDLERS[cmd.Purge]

    def purge(self: Destination, command: Any, out: Outcome) -> None:
        for queue in self.queues.values():
            for consumer in queue.consumers.by_attachment.values():
                unsettled = list(consumer.unsettled)
                consumer.unsettled.clear()
                queue.give_back(unsettled)
        old(self, command, out)

    patch.handler(cmd.Purge, purge)
