"""Mutants of what waits for the disk, what is recorded, and what comes back from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from raybroker.core import command as cmd
from raybroker.core import transaction
from raybroker.core.admission import intake
from raybroker.core.blocks import ranges
from raybroker.core.delivery.decided import Dispatched, FailedDeliveries
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.durable import records as notes
from raybroker.core.durable import recovery, snapshot
from raybroker.core.durable.recovery import DestinationRecovery
from raybroker.core.outcome import Acked, Deliver, Retire, SendAnswered
from raybroker.core.queue import Queue
from raybroker.core.settlement import Settlement
from raybroker.engine import checkpoint, host
from raybroker.engine.path.runner import Runner
from tests.simulation.disk import SimCommitter
from tests.simulation.mutation import TABLE, Mutant, Patch, at_once, mutant, without

# ---- durability ----------------------------------------------------------------------------------------------------


@mutant("effects wait for their records")
def release_before_sync(patch: Patch) -> None:
    def append(self: Runner, records: Any, durable: Any) -> None:
        if durable is not None:
            durable()
        if records:
            self._committer.submit(records, lambda: None)

    patch.set(Runner, "append", append)


@mutant("an effect without records waits for what was appended before it")
def no_wait_without_records(patch: Patch) -> None:
    old = Runner.append

    def append(self: Runner, records: Any, durable: Any) -> None:
        if records:
            old(self, records, durable)
        elif durable is not None:
            durable()

    patch.set(Runner, "append", append)


@mutant("one commit is in flight, so that completions are in order")
def two_commits_in_flight(patch: Patch) -> None:
    patch.set(SimCommitter, "in_flight_max", 2)


@mutant("a send is confirmed when it is durable")
def sent_at_once(patch: Patch) -> None:
    patch.after(cmd.Send, lambda destination, command, out: at_once(out, SendAnswered))


@mutant("an acknowledgement is confirmed when it is durable")
def acked_at_once(patch: Patch) -> None:
    patch.after(cmd.Acknowledge, lambda destination, command, out: at_once(out, Acked))


@mutant("a persistent message is delivered when it is durable")
def delivered_at_once(patch: Patch) -> None:
    old = DeliveryQueue.dispatch

    def dispatch(self: DeliveryQueue) -> Dispatched:
        found = old(self)
        at_once(self.step.out, Deliver)
        return found

    patch.set(DeliveryQueue, "dispatch", dispatch)


@mutant("acknowledgements are recorded")
def ack_not_recorded(patch: Patch) -> None:
    old = Settlement.settle_parts

    def settle(self: Settlement, queue: DeliveryQueue, parts: Any, **more: bool) -> int:
        count = old(self, queue, parts, **more)
        without(self._step.out, notes.ACKED)
        return count

    patch.set(Settlement, "settle_parts", settle)


@mutant("what is handed out is recorded, so that a second delivery after a crash is flagged")
def dispatch_not_recorded(patch: Patch) -> None:
    patch.set(Settlement, "record_attempts", lambda self, queue, runs: None)


@mutant("failures are recorded")
def failure_not_recorded(patch: Patch) -> None:
    old = Settlement.failed
    patch.set(Settlement, "failed", lambda self, queue, found: old(self, queue, FailedDeliveries([], found.dead)))


@mutant("refused messages of a stored block are recorded")
def refusal_not_recorded(patch: Patch) -> None:
    old = intake.store

    def store(destination: Any, *rest: Any) -> None:
        old(destination, *rest)
        without(destination.current.out, notes.REFUSED)

    patch.set(intake, "store", store)
    patch.set(transaction, "store", store)


@mutant("a block may go when its last acknowledgement is durable")
def retired_at_once(patch: Patch) -> None:
    old = Settlement.retire

    def retire(self: Settlement, retired: Any) -> None:
        old(self, retired)
        at_once(self._step.out, Retire)

    patch.set(Settlement, "retire", retire)


@mutant("a block may go when its last message is settled, not its first")
def retired_too_early(patch: Patch) -> None:
    old = Settlement.settle_parts

    def settle(self: Settlement, queue: DeliveryQueue, parts: Any, **more: bool) -> int:
        parts = list(parts)
        count = old(self, queue, parts, **more)
        self._step.out.after_durable.append(Retire(tuple(ordinal for ordinal, _ in parts), True))
        return count

    patch.set(Settlement, "settle_parts", settle)


# ---- checkpoints and recovery --------------------------------------------------------------------------------------


def _left_out(kind: int, part: str = "_queue") -> Callable[[Patch], None]:
    """A checkpoint without notes of one kind."""

    def apply(patch: Patch) -> None:
        old = getattr(snapshot, part)

        def some(*args: Any) -> Iterator[bytes]:
            return (note for note in old(*args) if notes.kind_of(note) != kind)

        patch.set(snapshot, part, some)

    return apply


def _note_ignored(kind: int) -> Callable[[Patch], None]:
    return lambda patch: patch.item(recovery._HANDLERS_OF_KIND, kind, lambda self, note: None)


TABLE += [
    Mutant("checkpoint_without_parts", "a checkpoint has partial acknowledgements", _left_out(notes.ACKED)),
    Mutant("checkpoint_without_live", "a checkpoint says which blocks live", _left_out(notes.LIVE)),
    Mutant("checkpoint_without_owed", "a checkpoint says what subscriptions are owed", _left_out(notes.OWED)),
    Mutant("checkpoint_without_lanes", "a checkpoint has subscriptions", _left_out(notes.QUEUE)),
    Mutant("checkpoint_without_attempts", "a checkpoint has attempts", _left_out(notes.DISPATCHED)),
    Mutant("checkpoint_without_failures", "a checkpoint has failures", _left_out(notes.FAILED)),
    Mutant("checkpoint_without_states", "a checkpoint has those of deliveries", _left_out(notes.CHECKPOINT)),
    Mutant("checkpoint_without_waiting", "a checkpoint has prepared sends", _left_out(notes.WAITING, "_staged")),
    Mutant("checkpoint_without_staged", "a checkpoint has prepared acks", _left_out(notes.STAGED, "_staged")),
    Mutant("recovery_ignores_refused", "what was refused does not come back", _note_ignored(notes.REFUSED)),
    Mutant("recovery_ignores_acks", "what was acknowledged does not come back", _note_ignored(notes.ACKED)),
    Mutant("recovery_ignores_dispatch", "what was handed out is known as such", _note_ignored(notes.DISPATCHED)),
    Mutant("recovery_ignores_failures", "what failed is known as such", _note_ignored(notes.FAILED)),
    Mutant("recovery_ignores_states", "how far a consumer was is known", _note_ignored(notes.CHECKPOINT)),
    Mutant("recovery_ignores_unsubscribe", "a subscription that ended stays ended", _note_ignored(notes.QUEUE_GONE)),
]


@mutant("a checkpoint has what was taken")
def checkpoint_without_producers(patch: Patch) -> None:
    old = checkpoint.snapshot

    def without_taken(destination: Destination) -> bytes:
        taken, destination.producers.taken = destination.producers.taken, {}
        try:
            return old(destination)
        finally:
            destination.producers.taken = taken

    patch.set(checkpoint, "snapshot", without_taken)


@mutant("recovery knows what was handed out as whole blocks")
def recovery_ignores_whole(patch: Patch) -> None:
    old = DestinationRecovery._dispatched
    patch.item(recovery._HANDLERS_OF_KIND, notes.DISPATCHED, lambda self, note: old(self, note._replace(spans=[])))


@mutant("a block that was alive in the checkpoint and acknowledged since need not be there")
def recovery_keeps_live(patch: Patch) -> None:
    old = DestinationRecovery._check_complete

    def check(self: DestinationRecovery, *args: Any) -> None:
        whole = {number: found.whole for number, found in self.queues.items()}
        for found in self.queues.values():
            found.whole = set()
        old(self, *args)
        for number, found in self.queues.items():
            found.whole = whole[number]

    patch.set(DestinationRecovery, "_check_complete", check)


@mutant("an acknowledgement may come before the copy that the store moved")
def moved_copies_come_back(patch: Patch) -> None:
    old = DestinationRecovery._block

    def block(self: DestinationRecovery, ordinal: int, meta: Any) -> None:
        whole = self.queues[0].whole
        parts = [part for low, high in whole for part in ((low, min(high, ordinal)), (max(low, ordinal + 1), high))]
        whole[:] = [(low, high) for low, high in parts if low < high]
        if ordinal < self.snapshot_end and meta.claims is None:
            ranges.add(self.queues[0].live, ordinal, ordinal + 1)
        old(self, ordinal, meta)

    patch.set(DestinationRecovery, "_block", block)


@mutant("the last part of a block is noted as the whole block")
def last_part_noted_as_part(patch: Patch) -> None:
    old = Queue.clear_queue
    patch.set(Queue, "clear_queue", lambda self, queue, ordinal, mask: (old(self, queue, ordinal, mask)[0], False))


@mutant("recovery gives each subscription what it is owed")
def recovery_drops_a_claim(patch: Patch) -> None:
    old = DestinationRecovery._owed_of

    def owed_of(self: DestinationRecovery, *args: Any) -> dict[int, int]:
        owed = old(self, *args)
        if len(owed) > 1:
            owed.popitem()
        return owed

    patch.set(DestinationRecovery, "_owed_of", owed_of)


@mutant("numbers of destinations are not used again after a checkpoint")
def numbers_used_again(patch: Patch) -> None:
    old = checkpoint.encode_checkpoint
    patch.set(host, "encode_checkpoint", lambda next_number, *rest: old(1, *rest))
