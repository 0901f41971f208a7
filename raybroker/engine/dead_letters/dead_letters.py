"""Dead letters: messages that died are moved to the error destination or the dead message queue, or are dropped.

A dead message stays held where it died until it is stored where it goes.  What the target does not take is tried again.
"""

from __future__ import annotations

from functools import partial

from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.dead_letter_log import DeadLetterLog
from raybroker.engine.dead_letters.dead_letter_moves import DeadLetterMoves
from raybroker.engine.dead_letters.dead_letter_policy import DeadLetterPolicy
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.path.executor import Executor
from raybroker.engine.path.wakeups import WakeupRetries


class DeadLetters:
    """Takes dead messages out of their destinations; ``waiting``: what no target has taken yet."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        blocks: BlockReader,
        policy: DeadLetterPolicy,
        moves: DeadLetterMoves,
        log: DeadLetterLog,
        waiting: WakeupRetries[tuple[Destination, DeadLetter]],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._blocks = blocks
        self._policy = policy
        self._moves = moves
        self._log = log
        self._not_taken = waiting

    def died(self, destination: Destination, effect: DeadLetter) -> None:
        """The effect: messages of ``destination`` have died."""
        self._executor.later(partial(self.move, destination, effect))

    def move(self, destination: Destination, effect: DeadLetter, *, again: bool = False) -> None:
        """Move dead messages; ``again``: they were told before, and no target took them yet."""
        queue = destination.queues.get(effect.queue)
        if queue is None or not self._registry.has(destination):
            return
        if not queue.dead_letters.masks.get(effect.ordinal, 0) & effect.mask:
            return
        block = self._blocks.whole(destination, effect.ordinal)
        if block is None:
            return
        if not again:
            destination.counters.expired += effect.mask.bit_count() if effect.reason == "EXPIRED" else 0
            self._log.died(destination, effect, block)
        for target, mask, truncate in self._policy.sort(destination, effect, block):
            part = effect._replace(mask=mask)
            if target is None:
                self._moves.settle_moved(destination, part)
            else:
                refused = partial(self._refused, destination, again=again)
                self._moves.send(destination, part, block, target, refused, truncate=truncate)

    def _refused(self, destination: Destination, effect: DeadLetter, why: str, *, again: bool) -> None:
        """The error destination is full or missing: what is persistent stays, and is offered again.

        ``again``: it was refused before, and the log has heard of it.
        """
        block = destination.block_index.held.get(effect.ordinal)
        if block is None:
            return
        if not again:
            self._log.count_refused(destination, effect.mask.bit_count(), why, kept=block.persistent)
        if block.persistent:
            self._not_taken.add((destination, effect))
        else:
            self._moves.settle_moved(destination, effect)

    def offer_again(self) -> None:
        """Offer again what was not taken."""
        for destination, effect in self._not_taken.due():
            self.move(destination, effect, again=True)
