"""The block reader: reads held blocks, and handles errors of the store.

A damaged block halts its destination until an administrator has skipped or purged it; other destinations go on.  Any
other error of the store stops the host.
"""

from __future__ import annotations

from collections.abc import Callable

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.selector.content import Content
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.executor import Executor
from raybroker.engine.ports import Codec
from raybroker.engine.sessions.attachments import Attachments
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.errors import StoreDamagedError, StoreError


class BlockReader:
    """Reads blocks of existing destinations. ``halting``: is told which destination is about to be halted, and why."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        attachments: Attachments,
        cache: BlockCache,
        codec: Codec,
        halting: Callable[[Destination, str], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._attachments = attachments
        self._cache = cache
        self._codec = codec
        self._halting = halting

    def read(self, destination: Destination, ordinal: int) -> Block | None:
        """The block; None when it cannot be read, and then its destination is halted or the host has stopped."""
        try:
            return self._cache.get(destination.number, ordinal)
        except StoreError as error:
            self.unreadable(destination, error)
        return None

    def whole(self, destination: Destination, ordinal: int) -> Block | None:
        """Do what :meth:`read` does, with the body of a large block in memory: what is done with it cannot fail for the
        store."""
        block = self.read(destination, ordinal)
        if type(block) is not LargeBlock:
            return block
        try:
            return Block(block.view)
        except StoreError as error:
            self.unreadable(destination, error)
        return None

    def unreadable(self, destination: Destination, error: StoreError) -> None:
        """A held block, or its body, cannot be read: a damaged one halts its destination, anything else the host."""
        if isinstance(error, StoreDamagedError):
            self.halt(destination, error)
        else:
            self._executor.fail(error)

    def headers(self, destination: Destination, ordinal: int) -> Content | None:
        """Headers of a held block; None when the store cannot return it, without any other consequence."""
        block = self.glanced(destination, ordinal)
        return self._codec.content(block) if block is not None else None

    def glanced(self, destination: Destination, ordinal: int) -> Block | None:
        """A held block; None when the store cannot return it, without any other consequence."""
        try:
            return self._cache.get(destination.number, ordinal)
        except StoreError:
            return None

    def halt(self, destination: Destination, error: StoreDamagedError) -> None:
        """Stop a destination with a damaged message: its producers and consumers are told why, and end."""
        if destination.number in self._registry.halted or not self._registry.has(destination):
            return
        self._registry.halted[destination.number] = error
        self._halting(destination, str(error))
        ended = self._attachments.end_attachments(destination)
        for attachment in ended:
            attachment.peer.event("halted", {"handle": attachment.handle, "code": error.code, "text": str(error)})
        for attachment in ended:
            self._executor.perform(destination, cmd.DetachConsumer(attachment.number))
            self._executor.perform(destination, cmd.DetachProducer(attachment.number, forget=False))
