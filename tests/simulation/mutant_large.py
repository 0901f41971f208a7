"""Mutants of bodies that come and go in pieces."""

from __future__ import annotations

from typing import Any

from raybroker.engine.memory import block_cache, block_compression, large_bodies
from raybroker.engine.memory.large_bodies import LargeBodies
from raybroker.engine.path import executor
from raybroker.model.blocks.large_block import LargeBlock, LargePayload
from raybroker.model.blocks.record import Payload
from raybroker.model.errors import StoreError
from tests.simulation.mutation import Patch, mutant


@mutant("a message may name a body that is durable, and no other")
def body_before_its_pieces(patch: Patch) -> None:
    def take(self: LargeBodies, session: Any, number: int, nbytes: int) -> Any:
        found = self._bodies_of(session).coming.pop(number, None)
        if found is None or found.file is None:
            raise large_bodies.ProtocolError("no body")
        return found.file

    patch.set(LargeBodies, "take_body", take)


@mutant("one block has the file of a body")
def one_body_of_two_blocks(patch: Patch) -> None:
    def payload_of(block: Any) -> Payload:
        return LargePayload.from_block(block) if type(block) is LargeBlock else (block.view,)

    for module in (executor, block_compression):  # Whoever compresses says anew how a block is written.
        patch.set(module, "payload_of", payload_of)


@mutant("a body that no store has stays where it is until its message is settled")
def body_let_go_early(patch: Patch) -> None:
    old = block_cache.BlockCache.put

    def put(self: Any, destination: int, ordinal: int, block: Any, **how: Any) -> bool:
        wanted = old(self, destination, ordinal, block, **how)
        if type(block) is LargeBlock and not how["stored"]:
            self._large.pop((destination, ordinal))
            self._newest = None
        return wanted

    patch.set(block_cache.BlockCache, "put", put)


@mutant("a body that is gone because its message is settled halts nothing")
def halted_by_what_is_settled(patch: Patch) -> None:
    old = LargeBodies._read_done

    def read_done(self: Any, session: Any, request: int, destination: Any, ordinal: int, data: Any, error: Any) -> None:
        old(self, session, request, destination, ordinal, data, error)
        if isinstance(error, StoreError) and ordinal not in destination.block_index.held:
            self._blocks.unreadable(destination, error)

    patch.set(LargeBodies, "_read_done", read_done)


@mutant("a body that is not needed is let go")
def bodies_kept(patch: Patch) -> None:
    patch.set(LargeBodies, "_drop", lambda self, session, request, args: session.peer.reply(request, None))
