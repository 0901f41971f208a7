"""The codec that tells the engine what is in a block, which the engine does not read itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raybroker.content.death_records import dead_block, dead_wish, deaths_in, revive_block
from raybroker.content.expiration_log import expiry_record
from raybroker.content.headers import content_of, dedup_ids
from raybroker.content.life_cycle import life_fields
from raybroker.content.packed_block import legible, packed, unpacked
from raybroker.content.possible_duplicates import delivered
from raybroker.content.quarantine_record import quarantine_record
from raybroker.content.schedule_occurrence import occurrence_block
from raybroker.content.unit_names import UnitNames, in_unit, units_of
from raybroker.content.unit_of_work import Key, work_block, works_of
from raybroker.core.selector.content import Content
from raybroker.engine.ports import Death, Revived
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.record import Buffer


class WireCodec:
    """Implements the engine's Codec."""

    def content(self, block: Block) -> Content:
        return content_of(block)

    def dedup_ids(self, block: Block) -> list[str | None] | None:
        return dedup_ids(block)

    def units(self, block: Block) -> UnitNames | None:
        return units_of(block)

    def works(self, block: Block) -> tuple[Key | None, ...] | None:
        return works_of(block)

    def composed(
        self, unit: str, parts: Sequence[tuple[Block, int]], *, producer: int, first_seq: int, version_key: str
    ) -> bytes:
        return work_block(unit, parts, producer=producer, first_seq=first_seq, version_key=version_key)

    def in_unit(self, block: Block, unit: str) -> Block:
        return in_unit(block, unit)

    def delivered(self, data: bytes, count: int) -> bytes:
        return delivered(data, count)

    def wish(self, block: Block, index: int) -> tuple[bool | None, bool | None, bool | None]:
        return dead_wish(block, index)

    def deaths(self, block: Block, index: int, queue: str) -> int:
        return deaths_in(block, index, queue)

    def dead_block(
        self, block: Block, mask: int, death: Death, *, producer: int, first_seq: int, now_ms: int, truncate: bool
    ) -> bytes:
        return dead_block(block, mask, death, producer=producer, first_seq=first_seq, now_ms=now_ms, truncate=truncate)

    def revived(self, block: Block, mask: int, *, producer: int, first_seq: int, now_ms: int) -> list[Revived]:
        return revive_block(block, mask, producer=producer, first_seq=first_seq, now_ms=now_ms)

    def quarantined(
        self,
        raw: bytes,
        mask: int,
        origin: tuple[str, str],
        error: str,
        *,
        broker: str,
        producer: int,
        seq: int,
        now_ms: int,
        body_bytes_max: int,
    ) -> bytes:
        return quarantine_record(
            legible(raw),
            mask,
            origin,
            error,
            broker=broker,
            producer=producer,
            seq=seq,
            now_ms=now_ms,
            body_bytes_max=body_bytes_max,
        )

    def occurrence(
        self,
        block: Block,
        properties: Mapping[str, Any],
        *,
        producer: int,
        first_seq: int,
        now_ms: int,
        ttl_ms: int,
        delay_ms: int,
    ) -> bytes:
        return occurrence_block(
            block, properties, producer=producer, first_seq=first_seq, now_ms=now_ms, ttl_ms=ttl_ms, delay_ms=delay_ms
        )

    def packed(self, data: Buffer) -> Buffer:
        return packed(data)

    def unpacked(self, data: Buffer) -> Buffer:
        return unpacked(data)

    def life(self, block: Block, index: int, policy: str) -> dict[str, Any]:
        return life_fields(block, index, policy)

    def expiry_record(self, block: Block, index: int, policy: str, destination: str) -> str:
        return expiry_record(block, index, policy, destination=destination)
