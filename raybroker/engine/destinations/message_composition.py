"""The message that a complete unit of work becomes: made of its parts, and put in their place.

Both happen in one batch of the store: a restart finds the parts or the message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.outcome import Compose, DeadLetter
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.path.executor import Executor
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.path.wakeups import WakeupRetries
from raybroker.engine.ports import Codec
from raybroker.model.blocks.block import Block
from raybroker.model.errors import MessageTooLargeError


class MessageComposition:
    """``full``: units for which the store has no room now; ``dead``: takes messages that cannot be composed."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        blocks: BlockReader,
        own: OwnSends,
        codec: Codec,
        full: WakeupRetries[tuple[Destination, Compose]],
        dead: Callable[[Destination, DeadLetter], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._blocks = blocks
        self._own = own
        self._codec = codec
        self._full = full
        self._dead = dead

    def completed(self, destination: Destination, effect: Compose) -> None:
        """The effect: a unit of ``destination`` is complete."""
        self._executor.later(partial(self._compose, destination, effect))

    def _compose(self, destination: Destination, effect: Compose) -> None:
        queue = destination.queues.get(effect.queue)
        if queue is None or not self._registry.has(destination):
            return
        if any(queue.dead_letters.masks.get(ordinal, 0) & mask != mask for ordinal, mask in effect.parts):
            return  # Some of them were purged.
        blocks: dict[int, Block] = {}
        for ordinal, _ in effect.parts:
            block = self._blocks.whole(destination, ordinal)
            if block is None:
                return
            blocks[ordinal] = block
        parts = [(blocks[ordinal], mask.bit_length() - 1) for ordinal, mask in effect.parts]
        own = self._own
        try:
            data = self._codec.composed(
                effect.unit,
                parts,
                producer=own.identity,
                first_seq=own.take_seqs(1),
                version_key=destination.attributes.versionKey,
            )
        except MessageTooLargeError as error:
            for ordinal, mask in effect.parts:
                self._dead(destination, DeadLetter(effect.queue, ordinal, mask, 0, "ERROR", str(error)))
            return
        if self._executor.has_room(len(data)):
            command, composed = own.send(destination, Block(data))
            self._executor.perform(destination, cmd.Composed(effect.queue, effect.parts, command), composed)
        else:
            self._full.add((destination, effect))

    def try_again(self) -> None:
        """Try again what there was no room for."""
        for destination, effect in self._full.due():
            self._compose(destination, effect)
