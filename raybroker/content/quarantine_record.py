"""The quarantine record: what becomes of messages that the store cannot give back whole, once they are skipped.

It is one message for a block, in the dead message queue: its body is what can still be read of the block, unverified,
its properties say where it was, how many messages it held and what is wrong with it.  It names no destination to go
back to, so that it is never sent on as a message.
"""

from __future__ import annotations

from typing import Final

from raybroker.content.bodies import BYTES
from raybroker.content.death_records import COMMENT_CHARS_MAX, DEAD_BROKER, TIMESTAMP
from raybroker.content.headers import message_id, pack_fields
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import BrokerError
from raybroker.model.naming.names import DEAD_COMMENT, DEAD_REASON

QUARANTINE: Final = "RAYBROKER_QUARANTINE"
"""Property: type and name of the destination where the messages were."""
QUARANTINED_MESSAGES: Final = "RAYBROKER_QUARANTINED_MESSAGES"
QUARANTINED_IDS: Final = "RAYBROKER_QUARANTINED_IDS"
"""Property: ids of the messages as far as they are legible; they are not verified."""
RECORD_BYTES_MAX: Final = 1 << 20
"""Bytes of a damaged block that are kept."""
IDS_MAX: Final = 100


def legible_ids(raw: bytes, mask: int) -> list[str]:
    """Ids of messages of a damaged block, not verified; empty when not even its head makes sense."""
    try:
        block = Block(raw)
        indexes = [index for index in range(min(mask.bit_length(), block.count)) if mask >> index & 1]
        return [message_id(block.producer, block.seq_of(index)) for index in indexes[:IDS_MAX]]
    except (BrokerError, ValueError, IndexError, TypeError, OverflowError):
        return []


def quarantine_record(
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
    """The record as a block of one persistent message."""
    properties = {
        DEAD_REASON: "ERROR",
        DEAD_COMMENT: error[:COMMENT_CHARS_MAX],
        DEAD_BROKER: broker,
        TIMESTAMP: now_ms,
        QUARANTINE: ":".join(origin),
        QUARANTINED_MESSAGES: mask.bit_count(),
        QUARANTINED_IDS: " ".join(legible_ids(raw, mask)),
    }
    body = raw[: min(RECORD_BYTES_MAX, body_bytes_max)]
    return encode_block(
        [body],
        producer=producer,
        first_seq=seq,
        timestamp_ms=now_ms,
        persistent=True,
        kinds=BYTES,
        headers=[pack_fields({"p": properties})],
        priorities=bytes([4]),
    )
