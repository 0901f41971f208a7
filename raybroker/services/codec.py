"""What is in a block, for the engine, which does not read it itself: the wire's functions behind a protocol."""

from __future__ import annotations

from raybroker.core.selector.content import Content
from raybroker.engine.ports import Death, Revived
from raybroker.model.block import Block
from raybroker.wire.content import content_of, dedup_ids
from raybroker.wire.dead import dead_block, dead_wish, revive_block
from raybroker.wire.expiry_log import expiry_record


class WireCodec:
    """Implements the engine's Codec."""

    def content(self, block: Block) -> Content:
        return content_of(block)

    def dedup_ids(self, block: Block) -> list[str | None] | None:
        return dedup_ids(block)

    def wish(self, block: Block, index: int) -> tuple[bool | None, bool | None, bool | None]:
        return dead_wish(block, index)

    def dead_block(
        self, block: Block, picks: int, death: Death, *, producer: int, first_seq: int, now_ms: int, truncate: bool
    ) -> bytes:
        return dead_block(
            block, picks, death, producer=producer, first_seq=first_seq, now_ms=now_ms, truncate=truncate
        )

    def revived(self, block: Block, picks: int, *, producer: int, first_seq: int, now_ms: int) -> list[Revived]:
        return revive_block(block, picks, producer=producer, first_seq=first_seq, now_ms=now_ms)

    def expiry_record(self, block: Block, index: int, policy: str, destination: str) -> str:
        return expiry_record(block, index, policy, destination=destination)
