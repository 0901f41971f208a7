"""The intake of blocks from clients: applies the overrides of the destination and makes the Send command."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.unit_of_work import SINGLE
from raybroker.engine.destination_registry import DestinationRegistry
from raybroker.engine.executor import Executor
from raybroker.engine.memory_protection import MemoryProtection
from raybroker.engine.overrides import columns_of, overridden, overrides, parts_in
from raybroker.engine.ports import Clock, Codec
from raybroker.model.block import Block
from raybroker.model.units import default_unit


class BlockIntake:
    """Makes the commands that send blocks of clients."""

    def __init__(
        self, executor: Executor, registry: DestinationRegistry, codec: Codec, clock: Clock, memory: MemoryProtection
    ) -> None:
        self._has_room = executor.has_room
        self._definitions = registry.definitions
        self._codec = codec
        self._now_ms = clock.now_ms
        self._memory = memory

    def command(
        self, home: Destination, attachment: int, block: Block, *, floor: int, origin: tuple[str, str], txn: int,
        confirm: bool,
    ) -> tuple[cmd.Send, Block]:  # fmt: skip
        """The command for a block, and the block as its destination takes it; arguments as those of the command."""
        codec, attributes, memory = self._codec, home.policy.attributes, self._memory
        memory.left -= block.count
        memory.left_bytes -= block.nbytes
        if memory.left < 0 or memory.left_bytes < 0:
            memory.used_up(attachment)
        heads = block.header_lengths() if attributes.maximumMessageSize >= 0 else None
        if overrides(attributes):
            block = overridden(attributes, block, self._now_ms())
        if attributes.unitOfOrder:
            block = codec.in_unit(block, default_unit(home.kind, home.name))
        composes = attributes.unitOfWorkHandlingPolicy == SINGLE
        parts = parts_in(codec, block, self._now_ms()) if composes else None
        command = cmd.Send(
            attachment, block.producer, block.first_seq, block.lengths,
            persistent=block.persistent and self._definitions[home.number].owner is None,
            floor=floor,
            room=not block.persistent or self._has_room(block.nbytes),
            columns=columns_of(codec, block, parts),
            content=codec.content(block) if home.kind == "topic" or home.selective or txn else None,
            origin=origin,
            txn=txn,
            dedup_ids=codec.dedup_ids(block) if attributes.duplicateWindowMs > 0 else None,
            confirm=confirm,
            barred=memory.barred,
            heads=heads,
        )  # fmt: skip
        return command, block
