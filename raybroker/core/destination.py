"""A destination: the funnel through which every command comes, and what queues and topics have in common.

:meth:`Destination.step` looks the handler up in one table, lets it change state, hands out what can be handed out, and
returns the outcome.  A handler that raises has changed nothing.

What leaves as ``after_durable`` and why: a producer's acknowledgement, the delivery of a persistent message
(with the record that it was handed out, so that a second delivery after a crash is flagged), the confirmation of
an acknowledgement.  The delivery of a non-persistent message goes at once, and so does the answer to a release,
which has to come before whatever is delivered after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from raybroker.core import command as cmd
from raybroker.core import transaction
from raybroker.core.admission import intake
from raybroker.core.admission.admission import Admission
from raybroker.core.blocks.block_entry import NEVER, BlockEntry
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.counters import Counters
from raybroker.core.delivery import consumer_commands, sharing
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.durable import records
from raybroker.core.expiry import ExpiryScan
from raybroker.core.outcome import Compose, Idle, Outcome
from raybroker.core.policy import DestinationPolicy
from raybroker.core.selector.content import Content
from raybroker.core.settlement import Settlement
from raybroker.core.staged_transaction import StagedTransaction
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.step import Step
from raybroker.core.subscription import Subscription
from raybroker.core.unit_of_work import UnitsOfWork
from raybroker.model.definitions import pauses
from raybroker.model.errors import IllegalStateError
from raybroker.model.naming.names import DestinationType
from raybroker.model.settings.settings import DestinationAttributes


class Destination(ABC):
    """State of one destination, and its parts. ``reap_ms``: unused for so long it says Idle; None for never."""

    kind: ClassVar[DestinationType]

    def __init__(
        self, number: int, name: str, attributes: DestinationAttributes, *, reap_ms: int | None = None
    ) -> None:
        self.number = number
        self.name = name
        self.reap_ms = reap_ms
        self.current = Step(number)
        self.policy = DestinationPolicy(attributes)
        self.block_index = BlockIndex()
        self.counters = Counters()
        self.works = UnitsOfWork(self.block_index)
        self.works.enable(attributes)
        self.queues: dict[int, DeliveryQueue] = {}
        self.queue_of: dict[int, DeliveryQueue] = {}
        """Consumer's attachment → its delivery queue."""
        self.next_queue = 1
        """Number of a topic's next delivery queue; numbers are never used again."""
        self.admission = Admission(
            name, self.current, self.policy, self.block_index, self.counters, self.works, self.queues
        )
        self.producers = self.admission.producers
        self.duplicates = self.admission.duplicates
        self.settlement = Settlement(self.current, self.block_index, self.counters, self.clear_queue)
        self.expiry = ExpiryScan(self.current, self.block_index)
        self.staged: dict[int, StagedTransaction] = {}
        self.ended_before = False
        """A restart found messages that had failed: some may have been on their way to where the dead go."""
        self.idle_since_ms: int | None = None
        self.kept = False
        """The host has something to do for it later, so it is never idle."""

    def step(self, command: cmd.Command, *, now_ms: int, ahead_ms: int = 0) -> Outcome:
        """Do what ``command`` asks. Raises a BrokerError and changes nothing when it is not allowed.

        ``now_ms``: time that is measured, ``ahead_ms``: how far the wall clock is ahead of it; see Step.
        """
        current = self.current
        if ahead_ms != current.ahead_ms:
            for queue in self.queues.values():
                queue.delayed.put_off_births(current.ahead_ms - ahead_ms)
        out = current.begin(now_ms, ahead_ms)
        _HANDLERS[type(command)](self, command, out)
        if current.touched:
            if self.policy.removing is not None and type(command) in _GIVING_BACK:
                intake.discard_excess(self)
            paused = pauses.CONSUMPTION in self.policy.paused
            for number in current.touched:
                self._settle_queue(self.queues[number], paused=paused)
        if self.works.enabled:
            self._settle_works(out)
        if self.policy.attributes.versionKey:
            self._watch_starvation()
        if self.admission.slow:
            self.admission.open_gate()
        if self.reap_ms is not None:
            self._watch_idleness(out)
        if self.policy.account is not None:
            self.policy.account.charge(self.block_index.messages, self.block_index.bytes_held)
        current.arriving = None
        return out

    def _settle_queue(self, queue: DeliveryQueue, *, paused: bool) -> None:
        """The end of a step, for a delivery queue in which something has changed."""
        plain = queue.plain
        if plain.unfinished:
            plain.unfinished = queue.pending.sort_some()
        if isinstance(plain, VersionPending):
            for dead in plain.take_stale():
                self.settlement.dead_letter(queue, dead)
        if queue.pending is not plain:
            queue.settle_units()
        consumers = queue.consumers
        somebody = consumers.turn or consumers.batches is not None
        if not paused and somebody and (plain.backlog.count or queue.pending is not plain):
            self.settlement.dispatched(queue, queue.dispatch())
        if queue.consumers.draining:
            queue.tell_draining(paused=paused)
        if queue.consumers.rich and not paused:
            sharing.share(queue)
        if plain.unfinished:
            self.current.out.unfinished = True
        queue.plan_wake()

    # ---- what queues and topics do differently ---------------------------------------------------------------------

    @abstractmethod
    def queue_for(self, command: cmd.AttachConsumer) -> DeliveryQueue:
        """The delivery queue that a new consumer serves; raises when it may not."""

    @abstractmethod
    def claims(self, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        """Which delivery queues are owed which of these new messages."""

    @abstractmethod
    def left_by(self, queue: DeliveryQueue) -> None:
        """A consumer of the delivery queue is gone."""

    @abstractmethod
    def clear_queue(self, queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        """The delivery queue is done with these: the messages nobody is owed any more, and whether the delivery queue
        is done with all."""

    def parts_queue(self) -> int:
        """The delivery queue that parts of units of work are owed to."""
        return 0

    def has_durable_queues(self) -> bool:
        return False

    # ---- for the handlers ------------------------------------------------------------------------------------------

    @property
    def attributes(self) -> DestinationAttributes:
        return self.policy.attributes

    @property
    def paused(self) -> dict[str, int]:
        return self.policy.paused

    @property
    def selective(self) -> bool:
        """Somebody here has a selector, or the order is by headers, so that these are needed."""
        for queue in self.queues.values():  # noqa: SIM110 - for every block, and a generator takes three times as long
            if queue.plain.needs_headers or queue.plain.selector_index.selectors:
                return True
        return False

    def discard_given(self, queue: DeliveryQueue, given: int) -> None:
        """Take notice that so many messages came back that were to make room."""
        intake.discard_given(self, queue, given)

    def new_queue(self, number: int, subscription: Subscription | None = None) -> DeliveryQueue:
        """A delivery queue of this destination."""
        queue = self.queues[number] = DeliveryQueue(
            number, self.current, self.policy, self.block_index, self.works, subscription
        )
        return queue

    def owing(self, block: BlockEntry, mask: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        """Which delivery queues are owed which messages of a block that becomes visible, parts of units of work
        included."""
        parts = mask & block.parts
        if not parts:
            return self.claims(mask, content, origin)
        found = self.claims(mask & ~parts, content, origin) if mask != parts else {}
        queue = self.parts_queue()
        return found | {queue: found.get(queue, 0) | parts}

    def arrived(
        self, ordinal: int, fresh: dict[int, int], content: Content | None, arrivals: Mapping[int, int] | None = None
    ) -> None:
        """Messages of a block that were never handed out wait in their delivery queues.

        ``arrivals``: delivery queue → their place in the order of arrival, if they are not the last.
        """
        block = self.block_index.held[ordinal]
        if block.soonest < NEVER:
            self.expiry.expect(block.soonest, ordinal)
        for number, mask in fresh.items():
            self.queues[number].arrive(ordinal, mask, content, arrivals.get(number, 0) if arrivals else 0)
            self.current.touched[number] = None

    # ---- time ------------------------------------------------------------------------------------------------------

    def _tick(self, command: cmd.Tick, out: Outcome) -> None:
        """Whatever was to happen by now: ends of pauses, births, deadlines, and the scan for what has expired."""
        current, paused = self.current, self.policy.paused
        for which in [w for w, until_ms in paused.items() if 0 < until_ms <= current.wall_ms]:
            self._resume(which)
        for until_ms in paused.values():
            current.wake(until_ms - current.ahead_ms if until_ms else None)
        if self.ended_before:
            self.ended_before = False
            for queue in self.queues.values():
                for dead in queue.remove_over():
                    self.settlement.dead_letter(queue, dead)
        for queue in self.queues.values():
            queue.born(current.now_ms)
            for failed in queue.overdue():
                self.settlement.failed(queue, failed)
            if not queue.dispatch_gate.dispatching:
                consumer_commands.rank(self, queue)
            current.touch(queue.number)
        self._expire(self.expiry.due())
        self.expiry.plan()

    def _expire(self, chosen: Mapping[int, int]) -> None:
        """Take out those of these messages that wait; what is with a consumer, or hidden, may come back."""
        queues = self.queues.values()
        for queue in queues if chosen else ():
            for run in queue.remove(chosen):
                self.settlement.dead_letter(queue, Dead(run, "EXPIRED"))
        for ordinal, mask in chosen.items():
            if any(queue.owed(ordinal) & mask & ~queue.dead_letters.masks.get(ordinal, 0) for queue in queues):
                self.expiry.look_again(ordinal)

    def _settle_works(self, out: Outcome) -> None:
        """Hand over units of work that are complete, and let those expire that are too old, at the end of a step."""
        works, attributes = self.works, self.policy.attributes
        for unit, runs in works.take_complete():
            for run in runs:
                self.queues[works.queue].dead_letters.add(run)
            rows = tuple([(run.ordinal, run.mask) for run in runs])
            out.after_durable.append(Compose(works.queue, unit, rows))
        for dead in works.take_expired(attributes, self.current.now_ms):
            self.settlement.dead_letter(self.queues[works.queue], dead)
        self.current.wake(works.due_ms(attributes))

    def _watch_starvation(self) -> None:
        """Notice whether somebody waits who has nothing, at the end of a step."""
        for queue in self.queues.values():
            if isinstance(queue.plain, VersionPending):
                self.current.wake(queue.plain.watch(self.current.now_ms))

    def _watch_idleness(self, out: Outcome) -> None:
        assert self.reap_ms is not None
        used = self.block_index.messages or self.queue_of or self.producers.attached
        if used or self.kept or self.has_durable_queues():
            self.idle_since_ms = None
            return
        if self.idle_since_ms is None:
            self.idle_since_ms = self.current.now_ms
        self.current.wake(self.idle_since_ms + self.reap_ms)
        if self.current.now_ms >= self.idle_since_ms + self.reap_ms:
            out.immediate.append(Idle())

    # ---- administration --------------------------------------------------------------------------------------------

    def _update(self, command: cmd.Update, out: Outcome) -> None:
        """New attributes, checked by whoever made them; raised consumer limits promote backups."""
        self.policy.update(command.attributes)
        self.works.enable(command.attributes)
        for queue in self.queues.values():
            if isinstance(queue.plain, VersionPending):
                queue.plain.rules_changed()
            if queue.subscription is None:
                consumer_commands.promote(self, queue)
            else:
                consumer_commands.rank(self, queue)
            self.current.touch(queue.number)

    def _publish_version(self, command: cmd.PublishVersion, out: Outcome) -> None:
        queue = self.queues.get(0)
        if queue is None or not isinstance(queue.plain, VersionPending):
            raise IllegalStateError(
                f"{self.kind} {self.name} has no versions: make a queue with versionKey, which says the property of"
                " messages that has theirs"
            )
        published = queue.plain.versions.published
        if published is not None and command.version < published and not command.back:
            raise IllegalStateError(
                f"version {command.version} of queue {self.name} is older than {published}, which is published; publish"
                " it with back=True if training goes on from there"
            )
        if command.version != published:
            self.current.record(records.encode(records.VERSION, 0, (), (), records.encode_number(command.version)))
            queue.plain.publish(command.version)
            self.current.touch(0)

    def _purge(self, command: cmd.Purge, out: Outcome) -> None:
        for queue in [self.queues[command.queue]] if command.queue is not None else list(self.queues.values()):
            self.settlement.settle_parts(queue, [(run.ordinal, run.mask) for run in queue.clear()])
            for ordinal, mask in list(queue.dead_letters.masks.items()):
                self.settlement.dead_letters_settled(queue, ordinal, mask)

    def _remove(self, command: cmd.Remove, out: Outcome) -> None:
        for queue in self.queues.values():
            runs = queue.remove(command.chosen)
            if command.aside:
                for run in runs:
                    queue.dead_letters.add(run)
            else:
                self.settlement.settle_parts(queue, [(run.ordinal, run.mask) for run in runs])

    def _buried(self, command: cmd.SettleDeadLetters, out: Outcome) -> None:
        queue = self.queues.get(command.queue)
        if queue is not None:
            self.counters.dead += command.mask.bit_count() if command.dead else 0
            self.settlement.dead_letters_settled(queue, command.ordinal, command.mask)

    def _unbury(self, command: cmd.ReturnDeadLetters, out: Outcome) -> None:
        queue = self.queues.get(command.queue)
        if queue is not None:
            queue.dead_letters_back(command.ordinal, command.mask)
            self.current.touch(queue.number)

    def _pause(self, command: cmd.Pause, out: Outcome) -> None:
        if command.which not in pauses.WORK.values():
            raise IllegalStateError(f"{command.which!r} cannot be paused; {', '.join(pauses.WORK.values())} can")
        if command.which not in self.policy.paused:
            self.policy.paused_since[command.which] = self.current.wall_ms
        self.policy.paused[command.which] = command.until_ms
        self.current.wake(command.until_ms - self.current.ahead_ms if command.until_ms else None)
        if command.which != pauses.CONSUMPTION:
            self.admission.tell_producers()

    def _resume(self, which: str) -> None:
        """A pause ends."""
        if self.policy.paused.pop(which, None) is None:
            return
        self.policy.paused_since.pop(which, None)
        for queue in self.queues.values():
            if which == pauses.INSERTION:
                queue.show_hidden()
            self.current.touch(queue.number)
        if which != pauses.CONSUMPTION:
            self.admission.tell_producers()

    def _subscribe(self, command: cmd.Subscribe, out: Outcome) -> None:
        raise IllegalStateError(f"{self.kind} {self.name} has no subscriptions")

    def _unsubscribe(self, command: cmd.Unsubscribe, out: Outcome) -> None:
        raise IllegalStateError(f"{self.kind} {self.name} has no subscriptions")


_GIVING_BACK: Final = frozenset((cmd.Recalled, cmd.Settle, cmd.Release, cmd.TakeBack, cmd.DetachConsumer, cmd.Decide))
"""Commands after which messages wait that lay with a consumer when room was to be made."""
_HANDLERS: Final[dict[type, Callable[[Destination, Any, Outcome], None]]] = {
    cmd.AttachProducer: lambda destination, command, out: destination.admission.attach_producer(command),
    cmd.DetachProducer: lambda destination, command, out: destination.admission.detach_producer(command),
    cmd.Send: intake.send,
    cmd.AttachConsumer: consumer_commands.attach_consumer,
    cmd.DetachConsumer: consumer_commands.detach_consumer,
    cmd.Grant: consumer_commands.grant,
    cmd.Drain: consumer_commands.drain,
    cmd.Missed: consumer_commands.missed,
    cmd.Acknowledge: consumer_commands.acknowledge,
    cmd.Settle: consumer_commands.settle,
    cmd.Recalled: consumer_commands.recalled,
    cmd.LeaveNode: consumer_commands.leave,
    cmd.TakeBack: consumer_commands.take_back,
    cmd.Begun: consumer_commands.begun,
    cmd.Taken: consumer_commands.taken,
    cmd.Tuned: consumer_commands.tuned,
    cmd.Extend: consumer_commands.extend,
    cmd.Checkpoint: consumer_commands.checkpoint,
    cmd.Release: consumer_commands.release,
    cmd.Hold: consumer_commands.hold,
    cmd.Proceed: consumer_commands.proceed,
    cmd.Update: Destination._update,
    cmd.Purge: Destination._purge,
    cmd.Remove: Destination._remove,
    cmd.SettleDeadLetters: Destination._buried,
    cmd.Composed: intake.composed,
    cmd.ReturnDeadLetters: Destination._unbury,
    cmd.PublishVersion: Destination._publish_version,
    cmd.TakeKnownIds: lambda destination, command, out: destination.admission.take_known_ids(command),
    cmd.Pause: Destination._pause,
    cmd.Resume: lambda destination, command, out: destination._resume(command.which),
    cmd.Subscribe: lambda destination, command, out: destination._subscribe(command, out),
    cmd.Unsubscribe: lambda destination, command, out: destination._unsubscribe(command, out),
    cmd.StageAcks: transaction.stage_acks,
    cmd.StageCheckpoint: transaction.stage_checkpoint,
    cmd.Prepare: transaction.prepare,
    cmd.Decide: transaction.decide,
    cmd.Tick: Destination._tick,
}
