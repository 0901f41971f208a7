"""Mutants of recall: taking back what a consumer holds and its application has not begun."""

from __future__ import annotations

from typing import Any

from raybroker.core.admission import intake
from raybroker.core.admission.removal import Removal
from raybroker.core.delivery import consumer_commands, sharing
from raybroker.core.delivery.consumers import Consumer, Consumers
from raybroker.core.outcome import Recall
from raybroker.core.unit_of_order.unit_pending import UnitPending
from tests.simulation.mutation import Patch, mutant


@mutant("what is given back was not handed out: it is neither counted nor redelivered")
def recalled_counted(patch: Patch) -> None:
    old = consumer_commands.recalled

    def recalled(destination: Any, command: Any, out: Any) -> None:
        unseen = consumer_commands._unseen
        consumer_commands._unseen = lambda destination, queue, items: list(items)  # type: ignore[assignment]
        try:
            old(destination, command, out)
        finally:
            consumer_commands._unseen = unseen

    patch.handler(intake.cmd.Recalled, recalled)


@mutant("what is given back goes to its place in its unit of order, and what came after it as well")
def recall_breaks_units(patch: Patch) -> None:
    old = consumer_commands.recalled

    def recalled(destination: Any, command: Any, out: Any) -> None:
        returned = UnitPending.returned
        UnitPending.returned = lambda self, deliveries: []  # type: ignore[method-assign,assignment]
        try:
            old(destination, command, out)
        finally:
            UnitPending.returned = returned  # type: ignore[method-assign]

    patch.handler(intake.cmd.Recalled, recalled)


@mutant("nothing newer is discarded while a consumer has what is older, and has not begun it")
def newest_discarded(patch: Patch) -> None:
    patch.set(Removal, "recalls", lambda self, queue, waiting, room: False)


@mutant("a consumer that was asked to give back gets nothing before it has answered")
def asked_and_served(patch: Patch) -> None:
    def room(self: Consumer) -> int:
        recall, self.recall = self.recall, None
        try:
            return old(self)
        finally:
            self.recall = recall

    old = Consumer.room
    patch.set(Consumer, "room", room)


@mutant("at most half of what a consumer holds is for those that are idle")
def all_is_shared(patch: Patch) -> None:
    patch.set(sharing, "_part", lambda holder, idle: holder.have)


@mutant("a consumer that wants its limit keeps what it got")
def limits_are_shared(patch: Patch) -> None:
    old = Consumers.lend
    patch.set(Consumers, "lend", lambda self, recall: old(self, "Always" if recall == "Default" else recall))


@mutant("where nobody lends, each consumer keeps what it got")
def never_means_always(patch: Patch) -> None:
    old = Consumers.lend
    patch.set(Consumers, "lend", lambda self, recall: old(self, "Always" if recall == "Never" else recall))


@mutant("a unit of order is taken from its session as a whole")
def units_are_divided(patch: Patch) -> None:
    old = sharing._whole_units
    patch.set(
        sharing,
        "_whole_units",
        lambda queue, items: {name: tags[-1:] for name, tags in old(queue, items).items()},
    )


@mutant("what an idle consumer is to have does not go back to where it came from")
def passed_back(patch: Patch) -> None:
    def put_last(self: Consumers, consumer: Consumer, first: Consumer, since_ms: int) -> None:
        self.offer(consumer)

    patch.set(Consumers, "put_last", put_last)


@mutant("what a consumer was asked for and has kept is begun, and it is not asked for that again")
def asked_for_ever(patch: Patch) -> None:
    old = sharing.answered

    def answered(queue: Any, consumer: Consumer, *, given: bool) -> None:
        kept = consumer.kept
        old(queue, consumer, given=given)
        consumer.kept = kept

    patch.set(sharing, "answered", answered)


@mutant("a consumer whose node is drained gets nothing more")
def leaving_and_served(patch: Patch) -> None:
    old_room, old_listening = Consumer.room, Consumer.listening

    def room(self: Consumer) -> int:
        leaving, self.leaving = self.leaving, False
        try:
            return old_room(self)
        finally:
            self.leaving = leaving

    def listening(self: Consumer) -> bool:
        leaving, self.leaving = self.leaving, False
        try:
            return old_listening(self)
        finally:
            self.leaving = leaving

    patch.set(Consumer, "room", room)
    patch.set(Consumer, "listening", listening)


@mutant("a consumer that has a question to answer when its node is drained is asked for the rest afterwards")
def leaving_is_asked_once(patch: Patch) -> None:
    old = sharing.answered

    def answered(queue: Any, consumer: Consumer, *, given: bool) -> None:
        leaving, consumer.leaving = consumer.leaving, False
        try:
            old(queue, consumer, given=given)
        finally:
            consumer.leaving = leaving

    patch.set(sharing, "answered", answered)


@mutant("who cannot give anything back gets half of what there may be")
def unable_unbound(patch: Patch) -> None:
    patch.set(Consumers, "bound", lambda self, most: None)


@mutant("a question follows the deliveries that it is about")
def question_overtakes(patch: Patch) -> None:
    old = sharing.ask

    def ask(queue: Any, *args: Any, **options: Any) -> None:
        old(queue, *args, **options)
        out = queue.step.out
        out.immediate += [effect for effect in out.after_durable if isinstance(effect, Recall)]
        out.after_durable[:] = [effect for effect in out.after_durable if not isinstance(effect, Recall)]

    patch.set(sharing, "ask", ask)
