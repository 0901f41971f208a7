"""The intake of blocks from clients: applies the overrides of the destination and makes the Send command."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.blocks.block_entry import PLAIN
from raybroker.core.destination import Destination
from raybroker.core.unit_of_work import SINGLE
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.memory_protection import MemoryProtection
from raybroker.engine.path.executor import Executor
from raybroker.engine.path.overrides import columns_of, overridden, overrides, parts_in
from raybroker.engine.ports import Codec
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.naming.units import default_unit
from raybroker.model.settings.settings import DestinationAttributes


class BlockIntake:
    """Makes the commands that send blocks of clients."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        codec: Codec,
        time: MeasuredTime,
        memory: MemoryProtection,
    ) -> None:
        self._has_room = executor.has_room
        self._definitions = registry.definitions
        self._codec = codec
        self._time = time
        self._memory = memory
        self._attributes: DestinationAttributes | None = None
        """Of the destination that got the latest block: mostly the next one's too."""
        self._looks = True
        """What :func:`looks_into` says of them."""

    def command(
        self,
        destination: Destination,
        attachment: int,
        block: Block,
        *,
        floor: int,
        origin: tuple[str, str],
        txn: int,
        confirm: bool,
    ) -> tuple[cmd.Send, Block]:
        """The command for a block, and the block as its destination takes it; arguments as those of the command."""
        memory, attributes = self._memory, destination.policy.attributes
        referred = type(block) is LargeBlock and block.referred
        memory.left -= block.count
        memory.left_bytes -= block.nbytes
        if memory.left < 0 or memory.left_bytes < 0:
            memory.used_up(attachment)
        if attributes is not self._attributes:
            self._attributes, self._looks = attributes, looks_into(attributes)
        heads = parts = ids = None
        if self._looks:
            codec = self._codec
            heads = block.header_lengths() if attributes.maximumMessageSize >= 0 else None
            if overrides(attributes):
                block = overridden(attributes, block, self._time.wall_ms())
            if attributes.unitOfOrder:
                block = codec.in_unit(block, default_unit(destination.kind, destination.name))
            if attributes.unitOfWorkHandlingPolicy == SINGLE:
                parts = parts_in(codec, block, self._time.now_ms())
            if attributes.duplicateWindowMs > 0:
                ids = codec.dedup_ids(block)
        simple = block.plain and not block.headers_bytes and parts is None
        command = cmd.Send(
            attachment,
            block.producer,
            block.first_seq,
            block.lengths,
            block.persistent and self._definitions[destination.number].owner is None,
            floor,
            not block.persistent or self._has_room(block.nbytes),
            PLAIN if simple else columns_of(self._codec, block, parts),
            self._codec.content(block) if txn or destination.kind == "topic" or destination.selective else None,
            origin,
            txn,
            ids,
            confirm,
            barred=memory.barred,
            heads=heads,
            referred=referred,
        )
        return command, block


def looks_into(attributes: DestinationAttributes) -> bool:
    """Whether a destination changes what arrives, or has to know more of it than sizes and columns."""
    return (
        overrides(attributes)
        or attributes.unitOfOrder
        or attributes.unitOfWorkHandlingPolicy == SINGLE
        or attributes.maximumMessageSize >= 0
        or attributes.duplicateWindowMs > 0
    )
