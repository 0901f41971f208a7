"""Mutants of batches that the broker forms, and of affinity."""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.affinity.affinity_pending import AffinityPending
from raybroker.core.affinity.label_index import LabelIndex
from raybroker.core.batches import forming
from raybroker.core.batches.arrival_times import ArrivalTimes
from raybroker.core.batches.forming import BatchFormer, Forming, Traits
from raybroker.core.delivery import backlog
from raybroker.core.delivery.backlog import Bucket
from raybroker.core.delivery.consumers import BatchConsumers
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.outcome import Drained
from tests.simulation.mutation import Patch, mutant


@mutant("a batch is of messages with one key")
def keys_are_mixed(patch: Patch) -> None:
    old = BatchFormer._traits_of
    patch.set(BatchFormer, "_traits_of", lambda self, *args: Traits(None, old(self, *args).costs))


@mutant("a batch costs no more than it may")
def cost_does_not_count(patch: Patch) -> None:
    old = BatchFormer._traits_of
    patch.set(BatchFormer, "_traits_of", lambda self, *args: Traits(old(self, *args).keys, None))


@mutant("a message that has failed goes alone")
def failed_ones_go_with_others(patch: Patch) -> None:
    patch.set(forming, "goes_alone", lambda run: False)


@mutant("what is not full waits for as long as its consumer lets it, and no longer")
def partial_batches_wait_for_ever(patch: Patch) -> None:
    patch.set(ArrivalTimes, "since_ms", lambda self, arrival, now_ms: now_ms)


@mutant("what is not full waits for others")
def partial_batches_go_at_once(patch: Patch) -> None:
    patch.set(ArrivalTimes, "since_ms", lambda self, arrival, now_ms: 0)


@mutant("the host is woken when a batch is due")
def nobody_wakes_for_batches(patch: Patch) -> None:
    old = DeliveryQueue._form_batches

    def form(self: DeliveryQueue, *args: Any) -> None:
        old(self, *args)
        if self.plain.former is not None:
            self.plain.former.due_ms = None

    patch.set(DeliveryQueue, "_form_batches", form)


@mutant("a consumer gets one batch for each time that it asks")
def batches_come_unasked(patch: Patch) -> None:
    old = BatchConsumers.served

    def served(self: BatchConsumers, consumer: Any) -> Drained:
        told = old(self, consumer)
        consumer.window.asked = True
        return told

    patch.set(BatchConsumers, "served", served)


@mutant("a batch is as large as was asked for, and no larger")
def one_message_more(patch: Patch) -> None:
    old = Forming.add

    def add(self: Forming, run: Any, index: int, cost: float, rule: Any, most: int) -> None:
        old(self, run, index, cost, rule, most + 1)

    patch.set(Forming, "add", add)


@mutant("what goes in a batch waits no longer, and what stays does")
def the_rest_is_lost(patch: Patch) -> None:
    old = Bucket.take_near

    def take_near(self: Bucket, chosen: Any, last: int, removed: Any) -> None:
        old(self, chosen, last, removed)
        if self.returned and chosen:
            self.returned.pop()

    patch.set(Bucket, "take_near", take_near)


@mutant("a consumer is told when all of a batch has come")
def the_end_is_not_told(patch: Patch) -> None:
    old = DeliveryQueue._form_batches

    def form(self: DeliveryQueue, *args: Any) -> None:
        old(self, *args)
        out = self.step.out
        out.after_durable[:] = [effect for effect in out.after_durable if not isinstance(effect, Drained)]

    patch.set(DeliveryQueue, "_form_batches", form)


@mutant("with units of order each batch is one message of its unit")
def batches_ignore_units(patch: Patch) -> None:
    old = BatchConsumers.go_one_by_one
    patch.set(BatchConsumers, "go_one_by_one", lambda self, one_by_one: old(self, False))


@mutant("messages of one block go in their order, wherever they wait")
def runs_of_a_block_overlap(patch: Patch) -> None:
    patch.set(backlog, "in_order", lambda runs: runs)


@mutant("whoever has begun anew has asked for nothing")
def a_release_asks(patch: Patch) -> None:
    def ask(destination: Any, command: cmd.Release, out: Any) -> None:
        queue = destination.queue_of.get(command.attachment)
        batches = queue.consumers.batches if queue is not None else None
        if batches is not None and command.attachment in batches.by_attachment:
            batches.by_attachment[command.attachment].window.asked = True  # type: ignore[union-attr]  # one of batches

    patch.after(cmd.Release, ask)


@mutant("a message is for those who have its label, at first")
def labels_do_not_count(patch: Patch) -> None:
    patch.set(AffinityPending, "_divided", lambda self, consumer: (list(self.backlog.buckets.values()), []))


@mutant("a message waits for its label no longer than affinityWait")
def labels_count_for_ever(patch: Patch) -> None:
    old = AffinityPending._divided
    patch.set(AffinityPending, "_divided", lambda self, consumer: (old(self, consumer)[0], []))


@mutant("what is for a label that nobody has any more is for anybody")
def labels_stay(patch: Patch) -> None:
    def leave(self: LabelIndex, attachment: int) -> None:
        self.labels_of.pop(attachment, None)

    patch.set(LabelIndex, "leave_labels", leave)
