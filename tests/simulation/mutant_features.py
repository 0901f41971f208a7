"""Mutants of topics, selectors, priorities, time, redelivery, dead messages, limits and transactions."""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core import destination, transaction
from raybroker.core.admission import intake
from raybroker.core.admission.admission import Admission
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery import consumer_commands, delivery_queue
from raybroker.core.delivery.backlog import Backlog
from raybroker.core.delivery.checkpoints import Checkpoints
from raybroker.core.delivery.decided import FailedDeliveries
from raybroker.core.delivery.delayed import Delayed
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.durable import records as notes
from raybroker.core.expiry import ExpiryScan
from raybroker.core.outcome import Outcome, SendAnswered
from raybroker.core.policy import DestinationPolicy
from raybroker.core.settlement import Settlement
from raybroker.core.topic import Topic
from raybroker.engine.dead_letters.dead_letter_moves import DeadLetterMoves
from raybroker.engine.dead_letters.dead_letter_policy import DeadLetterPolicy
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.path.executor import DestinationStep, Executor
from raybroker.engine.transactions import transaction_log
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.engine.transactions.transactions import Transactions
from tests.simulation.mutation import Patch, mutant

# ---- topics, selectors, priorities ---------------------------------------------------------------------------------


@mutant("a subscription with noLocal does not get what its own connection publishes")
def no_local_ignored(patch: Patch) -> None:
    old = Topic.claims
    patch.set(Topic, "claims", lambda self, mask, content, origin: old(self, mask, content, ("?", "?")))


@mutant("a subscription gets what its selector matches")
def selectors_of_topics_ignored(patch: Patch) -> None:
    old = Topic.claims
    patch.set(Topic, "claims", lambda self, mask, content, origin: old(self, mask, None, origin))


@mutant("a durable subscription outlives its consumers")
def durable_ends_with_its_consumer(patch: Patch) -> None:
    def left_by(self: Topic, queue: DeliveryQueue) -> None:
        if not queue.consumers.by_attachment:
            self._end_queue(queue)

    patch.set(Topic, "left_by", left_by)


@mutant("what is given back is compared with the selectors again")
def signature_of_returned_wrong(patch: Patch) -> None:
    def put_back(self: DeliveryQueue, run: Any) -> None:
        if self.policy.insertion_paused:
            old(self, run)
        else:
            self.plain.backlog.give_back(run)

    old = DeliveryQueue.put_back
    patch.set(DeliveryQueue, "put_back", put_back)


@mutant("a new selector is compared with what waits already")
def unsort_forgotten(patch: Patch) -> None:
    patch.set(Backlog, "unsort", lambda self: None)


@mutant("higher priorities go first")
def priorities_ignored(patch: Patch) -> None:
    patch.set(BlockEntry, "by_priority", lambda self, mask: [(4, mask)])


# ---- time ----------------------------------------------------------------------------------------------------------


@mutant("nothing is delivered before its time")
def delivered_before_born(patch: Patch) -> None:
    patch.set(BlockEntry, "by_birth", lambda self, mask, now_ms: (mask, []))


@mutant("nothing is delivered that has expired")
def expired_delivered(patch: Patch) -> None:
    patch.set(BlockEntry, "expired", lambda self, mask, now_ms: 0)


@mutant("what expires goes although nobody asks for it")
def never_scanned(patch: Patch) -> None:
    old = ExpiryScan.due
    patch.set(ExpiryScan, "due", lambda self: dict[int, int]() if old(self) else {})


@mutant("what is delivered later is so by the wall clock, also when that is set")
def births_stay_when_the_clock_is_set(patch: Patch) -> None:
    patch.set(Delayed, "put_off_births", lambda self, by_ms: None)


@mutant("what failed rests as long when the clock is set")
def rest_follows_the_wall_clock(patch: Patch) -> None:
    def put_off(self: Delayed, by_ms: int) -> None:
        for entry in self._heap:
            entry[0] += by_ms

    patch.set(Delayed, "put_off_births", put_off)


@mutant("leases, delays and windows are by measured time")
def durations_follow_the_wall_clock(patch: Patch) -> None:
    patch.set(MeasuredTime, "read", lambda self: self._read_wall_ms())


@mutant("points in time follow the wall clock")
def wall_clock_not_followed(patch: Patch) -> None:
    patch.set(MeasuredTime, "_step", lambda self: None)


@mutant("what failed rests before it comes again")
def redelivery_delay_forgotten(patch: Patch) -> None:
    patch.set(delivery_queue, "delay_ms", lambda attributes, wanted_ms, failures: 0)


@mutant("a message goes back when the time for acknowledging it is over")
def leases_ignored(patch: Patch) -> None:
    patch.set(DeliveryQueue, "overdue", lambda self: None)


@mutant("nobody is served while consumption is paused")
def paused_consumers_served(patch: Patch) -> None:
    old = destination._HANDLERS[cmd.Pause]

    def pause(self: Destination, command: Any, out: Outcome) -> None:
        if command.which != "consumption":
            old(self, command, out)

    patch.handler(cmd.Pause, pause)


# ---- failures, dead messages, limits -------------------------------------------------------------------------------


@mutant("failures of a cause are counted apart")
def causes_are_alike(patch: Patch) -> None:
    old = delivery_queue.with_failure
    patch.set(delivery_queue, "with_failure", lambda run, cause="error": old(run))


@mutant("a checkpoint is of one message")
def states_of_neighbours(patch: Patch) -> None:
    def states_of(self: Checkpoints, ordinal: int, mask: int) -> Any:
        block = self._by_block.get(ordinal, {})
        return dict.fromkeys(pk.indexes(mask), next(iter(block.values()))) if block else {}

    patch.set(Checkpoints, "states_of", states_of)


@mutant("a checkpoint goes with its message")
def states_stay(patch: Patch) -> None:
    patch.set(Checkpoints, "drop", lambda self, ordinal, mask: None)


@mutant("who has lost a message cannot say how far he is")
def states_of_zombies(patch: Patch) -> None:
    old = consumer_commands.checkpoint

    def checkpoint(destination: Any, command: cmd.Checkpoint, out: Outcome) -> None:
        queue = destination.queue_of.get(command.attachment)
        consumer = queue.consumers.by_attachment.get(command.attachment) if queue is not None else None
        if consumer is not None and consumer.unsettled and not consumer.count_of([(command.tag, command.tag)]):
            command = command._replace(tag=consumer.unsettled[0].tag)
        old(destination, command, out)

    patch.handler(cmd.Checkpoint, checkpoint)


@mutant("a cause has a limit of its own")
def causes_without_limits(patch: Patch) -> None:
    old = delivery_queue.is_over
    patch.set(delivery_queue, "is_over", lambda run, most, apart: old(run, most))


@mutant("failures of a cause are known after a restart")
def causes_forgotten(patch: Patch) -> None:
    old = notes.encode

    def encode(kind: int, queue: int, spans: Any = (), rows: Any = (), rest: bytes = b"") -> bytes:
        if kind == notes.FAILED:
            rows = [row._replace(value=row.value & 0xFFFF_FFFF) for row in rows]
        return old(kind, queue, spans, rows, rest)

    patch.set(notes, "encode", encode)


@mutant("an ack deadline that has passed counts where the destination says so")
def deadlines_uncounted(patch: Patch) -> None:
    patch.set(delivery_queue, "TIMEOUT", "never")


@mutant("a message that has failed too often is dead")
def one_failure_too_many(patch: Patch) -> None:
    old = DestinationPolicy.failures_max.fget  # type: ignore[attr-defined]
    patch.set(DestinationPolicy, "failures_max", property(lambda self: old(self) + (old(self) >= 0)))


@mutant("a rejected message does not come again")
def rejected_comes_again(patch: Patch) -> None:
    patch.set(
        DeliveryQueue,
        "rejected",
        lambda self, deliveries, reason: self.give_back(deliveries) or FailedDeliveries([], []),
    )


@mutant("what a lost consumer's application had got counts as failed")
def loss_not_counted(patch: Patch) -> None:
    old = consumer_commands.detach_consumer
    patch.handler(
        cmd.DetachConsumer, lambda destination, command, out: old(destination, command._replace(lost=False), out)
    )


@mutant("a dead message is told once")
def buried_told_twice(patch: Patch) -> None:
    old = Settlement.dead_letter

    def dead_letter(self: Settlement, queue: DeliveryQueue, dead: Any) -> None:
        told = self._step.out.immediate
        before = len(told)
        old(self, queue, dead)
        told.extend(told[before:])

    patch.set(Settlement, "dead_letter", dead_letter)


@mutant("dead messages go where the destination says")
def dead_discarded(patch: Patch) -> None:
    patch.set(DeadLetterPolicy, "_target", lambda self, destination, reason: None)


@mutant("a dead message is stored where it goes and forgotten where it was in one step")
def dead_moved_in_two_steps(patch: Patch) -> None:
    def here(self: DeadLetterMoves, destination: Any, effect: Any, target: Any, block: Any) -> bool:
        if not target.admission.would_take(block.lengths):
            return False
        self._executor.perform_all([self._own.step(target, block)], (), lambda: None)
        self.settle_moved(destination, effect)
        return True

    patch.set(DeadLetterMoves, "_here", here)


@mutant("the limit discards the oldest, or the lowest priority")
def wrong_one_discarded(patch: Patch) -> None:
    old = Backlog.take_to_remove

    def take(self: Backlog, room: int, *, lowest_priority: bool) -> Any:
        runs = list(self.runs())
        if len(runs) < 2:
            return old(self, room, lowest_priority=lowest_priority)
        last = max(runs)
        return self.remove({last.ordinal: last.mask})[0]

    patch.set(Backlog, "take_to_remove", take)


@mutant("what rests or is hidden is discarded like what waits")
def resting_not_discarded(patch: Patch) -> None:
    patch.set(
        DeliveryQueue,
        "take_to_remove",
        lambda self, room, *, lowest_priority: self.pending.take_to_remove(room, lowest_priority=lowest_priority),
    )


@mutant("of what rests the oldest is discarded first")
def newest_resting_discarded(patch: Patch) -> None:
    def oldest(self: Delayed, *, by_priority: bool) -> Any:
        return max((run for _, run in self.runs()), key=lambda run: run.ordinal, default=None)

    def take(self: Delayed, room: int) -> Any:
        found = oldest(self, by_priority=False)
        return self.remove({found.ordinal: pk.lowest(found.mask, room)})[0]

    patch.set(Delayed, "oldest", oldest)
    patch.set(Delayed, "take_oldest", take)


@mutant("what is too much is discarded")
def nothing_discarded(patch: Patch) -> None:
    patch.set(intake, "_discard", lambda destination, reason: None)


@mutant("producers go on when there is room again")
def gate_never_opened(patch: Patch) -> None:
    patch.set(Admission, "open_gate", lambda self: None)


@mutant("what is stored is confirmed, also when it fills the destination")
def withheld_while_full(patch: Patch) -> None:
    def also(self: Destination, command: Any, out: Outcome) -> None:
        if self.admission.slow and command.persistent and not command.txn:
            out.after_durable[:] = [e for e in out.after_durable if not isinstance(e, SendAnswered)]

    patch.after(cmd.Send, also)


@mutant("who sends what nobody waits for hears of what is refused of it")
def volatile_refusals_untold(patch: Patch) -> None:
    def also(self: Destination, command: Any, out: Outcome) -> None:
        if not command.persistent and not command.confirm and not command.txn:
            out.immediate[:] = [e for e in out.immediate if not isinstance(e, SendAnswered)]

    patch.after(cmd.Send, also)


# ---- transactions --------------------------------------------------------------------------------------------------


@mutant("a decision is written down")
def decision_not_recorded(patch: Patch) -> None:
    patch.set(
        transaction_log,
        "decided",
        lambda number, key, commit, shared: transaction_log.note(transaction_log.FORGOTTEN, 0, b"?"),
    )


@mutant("what a transaction does becomes durable at once or not at all")
def commit_in_pieces(patch: Patch) -> None:
    old = Executor.perform_all

    def perform_all(self: Executor, steps: Any, extra: Any, done: Any) -> Any:
        outcomes = []
        for step in steps:
            outcomes += old(self, [DestinationStep(*step)], (), lambda: None)
        return outcomes + old(self, [], extra, done)

    patch.set(Executor, "perform_all", perform_all)


@mutant("a commit is confirmed when it is durable")
def commit_confirmed_at_once(patch: Patch) -> None:
    old = Transactions._decide

    def decide(self: Transactions, transaction: Any, commit: bool, done: Any, **rest: Any) -> None:
        old(self, transaction, commit, lambda: None, **rest)
        done()

    patch.set(Transactions, "_decide", decide)


@mutant("a commit keeps the checkpoints of its transaction")
def transacted_checkpoint_lost(patch: Patch) -> None:
    patch.set(transaction, "keep_state", lambda *rest: None)


@mutant("a checkpoint of a transaction is written down with its commit")
def transacted_checkpoint_in_memory(patch: Patch) -> None:
    def keep(destination: Any, queue: Any, ordinal: int, mask: int, state: bytes) -> None:
        queue.consumers.checkpoints.put(ordinal, mask.bit_length() - 1, state)

    patch.set(transaction, "keep_state", keep)


@mutant("a transaction acknowledges no message that it has a checkpoint of")
def transacted_checkpoint_acknowledges(patch: Patch) -> None:
    old = destination._HANDLERS[cmd.StageCheckpoint]

    def staged(destination: Any, command: Any, out: Any) -> None:
        old(destination, command, out)
        acks = cmd.StageAcks(command.txn, command.attachment, [(command.tag, command.tag)])
        transaction.stage_acks(destination, acks, out)

    patch.handler(cmd.StageCheckpoint, staged)


@mutant("a rollback gives back what was acknowledged")
def rollback_loses_acks(patch: Patch) -> None:
    old = transaction._roll_back

    def roll_back(destination: Any, staged: Any, delay_ms: int) -> None:
        staged.acks.clear()
        old(destination, staged, delay_ms)

    patch.set(transaction, "_roll_back", roll_back)


@mutant("a rollback makes what was sent vanish")
def rollback_commits_sends(patch: Patch) -> None:
    old = destination._HANDLERS[cmd.Decide]
    patch.handler(cmd.Decide, lambda destination, command, out: old(destination, command._replace(commit=True), out))


@mutant("acknowledgements of a prepared transaction are written down")
def prepared_acks_not_recorded(patch: Patch) -> None:
    patch.set(transaction, "rows_of", lambda destination, acks: {})


@mutant("a checkpoint has prepared transactions")
def checkpoint_without_prepared(patch: Patch) -> None:
    old = TxLog.encode

    def encode(self: TxLog) -> bytes:
        prepared, self.prepared = self.prepared, {}
        try:
            return old(self)
        finally:
            self.prepared = prepared

    patch.set(TxLog, "encode", encode)


@mutant("who asks what became of a transaction is told the truth")
def outcome_forgotten(patch: Patch) -> None:
    patch.set(TxLog, "remember", lambda self, *args, **rest: None)


@mutant("what a session leaves open is rolled back")
def open_transactions_stay(patch: Patch) -> None:
    patch.set(Transactions, "closed", lambda self, session: None)


@mutant("nobody sees what a transaction sent before it commits")
def sends_not_staged(patch: Patch) -> None:
    old = intake.send
    patch.handler(
        cmd.Send, lambda destination, command, out: old(destination, command._replace(txn=0, confirm=True), out)
    )
