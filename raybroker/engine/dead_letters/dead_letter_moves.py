"""The way of dead messages to their queue, on this host in one batch of the store, or on another host.

On the same host they become durable there and settled here together; to another host they are sent first and settled
after, so that a crash in between can double them and cannot lose them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.death_records import DeathRecords
from raybroker.engine.destinations.destination_registry import DMQ, DestinationRegistry
from raybroker.engine.destinations.subscription_keys import subscription_key
from raybroker.engine.path.executor import DestinationStep, Executor, unawaited
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.ports import Forward
from raybroker.model.blocks.block import Block

Refused = Callable[[DeadLetter, str], None]
"""Hears which messages were not taken, and why."""


class DeadLetterMoves:
    """``forward``: the way to destinations of other hosts, None where there are none."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        own: OwnSends,
        death_records: DeathRecords,
        forward: Forward | None,
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._own = own
        self._records = death_records
        self._forward = forward

    def settle_moved(self, destination: Destination, effect: DeadLetter) -> None:
        """The messages are gone from the destination where they died, if that is still there."""
        if self._registry.has(destination):
            self._executor.perform(destination, cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask))

    def send(
        self, destination: Destination, effect: DeadLetter, block: Block, name: str, refused: Refused, *, truncate: bool
    ) -> None:
        """Store messages of a block in queue ``name`` and settle them, one by one where not all of them fit.

        ``refused`` hears of those that stay. Without a dead message queue anywhere, messages for it are settled.
        """
        target = self._registry.destinations.get(("queue", name))
        sizes = [block.lengths[index] for index in pk.indexes(effect.mask)]
        if target is not None and len(sizes) > 1 and not target.admission.would_take(sizes, destination.policy.account):
            for index in pk.indexes(effect.mask):
                self.send(destination, effect._replace(mask=1 << index), block, name, refused, truncate=truncate)
            return
        own = effect.reason in ("UNDELIVERABLE", "ERROR")  # Of other reasons a message dies for all subscriptions.
        key = subscription_key(destination, destination.queues[effect.queue], self._own.identity) if own else ""
        data = self._records.dead_block(destination, effect, block, key, truncate=truncate)
        if target is not None:
            if not self._here(destination, effect, target, Block(data)):
                refused(effect, f"queue {name} does not take it now")
        elif self._forward is not None:
            self._forward("queue", name, data, partial(self._forwarded, destination, effect, name, refused))
        elif name == DMQ:
            self.settle_moved(destination, effect)
        else:
            refused(effect, f"queue {name} does not exist")

    def _here(self, destination: Destination, effect: DeadLetter, target: Destination, block: Block) -> bool:
        if not self._executor.has_room(block.nbytes):
            return False
        if not target.admission.would_take(block.lengths, destination.policy.account):
            return False
        settled = cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask)
        self._executor.perform_all(
            [self._own.step(target, block), DestinationStep(destination, settled)], (), unawaited
        )
        return True

    def _forwarded(self, destination: Destination, effect: DeadLetter, name: str, refused: Refused, ok: bool) -> None:
        if ok:
            self.settle_moved(destination, effect)
        else:
            refused(effect, f"{name} was not reached")
