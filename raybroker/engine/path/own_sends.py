"""Messages that the host itself puts into its destinations: dead, moved, forwarded, composed and scheduled ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

    def occurrence(
        self, template: Block, properties: Mapping[str, Any], *, now_ms: int, ttl_ms: int, delay_ms: int
    ) -> Block:
        """The message of a block once more, as one that the host sends now, with these properties besides."""
        return Block(
            self._codec.occurrence(
                template,
                properties,
                producer=self.identity,
                first_seq=self.take_seqs(1),
                now_ms=now_ms,
                ttl_ms=ttl_ms,
                delay_ms=delay_ms,
            )
        )

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
