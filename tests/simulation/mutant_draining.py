"""Mutants of drain mode, and of the preference for local consumers."""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.delivery.consumers import Consumers
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import DrainWindow
from raybroker.core.outcome import Drained, Ready
from tests.simulation.mutation import Patch, mutant


@mutant("credit that is not used at once is void")
def drained_credit_kept(patch: Patch) -> None:
    patch.set(DrainWindow, "forfeit", lambda self: None)


@mutant("what is void includes what had been granted before drain mode")
def standing_credit_forgotten(patch: Patch) -> None:
    old = DrainWindow.__init__
    patch.set(DrainWindow, "__init__", lambda self, taken=0: old(self))


@mutant("a consumer in drain mode is told when there is something for it")
def never_ready(patch: Patch) -> None:
    def tell(self: DeliveryQueue, *, paused: bool) -> None:
        out = self.step.out
        old(self, paused=paused)
        out.after_durable[:] = [e for e in out.after_durable if not isinstance(e, Ready)]

    old = DeliveryQueue.tell_draining
    patch.set(DeliveryQueue, "tell_draining", tell)


@mutant("a consumer in drain mode is not told of what it cannot get")
def ready_without_looking(patch: Patch) -> None:
    old = DeliveryQueue.tell_draining
    patch.set(DeliveryQueue, "tell_draining", lambda self, *, paused: old(self, paused=False))


@mutant("Drained comes after the messages that used the credit")
def drained_overtakes(patch: Patch) -> None:
    def tell(self: DeliveryQueue, *, paused: bool) -> None:
        out = self.step.out
        old(self, paused=paused)
        early = [e for e in out.after_durable if isinstance(e, Drained)]
        out.after_durable[:] = early + [e for e in out.after_durable if not isinstance(e, Drained)]

    old = DeliveryQueue.tell_draining
    patch.set(DeliveryQueue, "tell_draining", tell)


@mutant("what is told after a recover can be told from what was before")
def recover_reuses_tags(patch: Patch) -> None:
    def restart(self: Consumers, one: Any, credit: int) -> None:
        before = one.next_tag
        old(self, one, credit)
        one.next_tag = before

    old = Consumers.restart
    patch.set(Consumers, "restart", restart)


@mutant("remote consumers get nothing while there are local ones")
def locals_not_preferred(patch: Patch) -> None:
    old = Consumers.rank
    patch.set(Consumers, "rank", lambda self, *, local_first: old(self, local_first=False))


@mutant("what was taken back before it left is void, or granted again")
def missed_forgotten(patch: Patch) -> None:
    patch.handler(cmd.Missed, lambda destination, command, out: None)
