"""Messages that the host itself puts into its destinations: dead, moved, forwarded, composed and scheduled ones."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.path.executor import DestinationStep
from raybroker.engine.path.overrides import columns_of
from raybroker.engine.ports import Codec, Governed
from raybroker.model.blocks.block import Block
from raybroker.model.naming.units import default_unit


class OwnSends:
    """``identity``: 64 bits that nobody else has, the producer of what the host itself sends."""

    def __init__(self, registry: DestinationRegistry, codec: Codec, identity: int) -> None:
        self.identity = identity
        self._registry = registry
        self._codec = codec
        self._next_seq = 1

    def take_seqs(self, count: int) -> int:
        """The first of ``count`` sequence numbers for messages of the host."""
        seq = self._next_seq
        self._next_seq += count
        return seq

    def send(
        self, target: Governed, block: Block, *, moved: bool = True, only: int | None = None
    ) -> tuple[cmd.Send, Block]:
        """The command that puts a block into a destination; ``moved``, ``only``: as in command.Send."""
        codec = self._codec
        if target.attributes.unitOfOrder:
            block = codec.in_unit(block, default_unit(target.kind, target.name))
        persistent = block.persistent and self._registry.definition(target).owner is None
        command = cmd.Send(
            0,
            0,
            1,
            block.lengths,
            persistent,
            0,
            True,
            columns_of(codec, block),
            codec.content(block),
            confirm=False,
            moved=moved,
            only=only,
        )
        return command, block

    def step(
        self, target: Destination, block: Block, *, moved: bool = True, only: int | None = None
    ) -> DestinationStep:
        """:meth:`send` as a step of several commands."""
        return DestinationStep(target, *self.send(target, block, moved=moved, only=only))
