"""The message that a recurring schedule sends each time, from the one that its sender gave."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from raybroker.content.headers import BlockContent, pack_fields
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import MessageTooLargeError


def occurrence_block(
    block: Block,
    properties: Mapping[str, Any],
    *,
    producer: int,
    first_seq: int,
    now_ms: int,
    ttl_ms: int,
    delay_ms: int,
) -> bytes:
    """The one message of ``block`` with more properties and as of ``now_ms``: a block of its own.

    ``ttl_ms`` 0: it does not expire, ``delay_ms`` 0: it may be delivered at once; one without a timestamp gets
    none. Its deduplication id is left out, or every message would count as the first one again. Raises
    MessageTooLargeError when the headers grow too large.
    """
    content = BlockContent(block)
    fields = {key: value for key, value in content.fields(0).items() if key not in ("d", "p")}
    header = pack_fields({**fields, "p": {**content.properties(0), **properties}})
    if len(header) > MESSAGE_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(
            f"headers of {len(header)} bytes with those of the schedule; at most {MESSAGE_HEADERS_BYTES_MAX}"
        )
    return encode_block(
        [block.body(0)],
        producer=producer,
        first_seq=first_seq,
        timestamp_ms=now_ms if block.timestamp_ms else 0,
        persistent=block.persistent,
        kinds=block.kind_of(0),
        headers=[header],
        priority=block.priority_of(0),
        expires=array("Q", (now_ms + ttl_ms,)) if ttl_ms else None,
        deliver_at=array("Q", (now_ms + delay_ms,)) if delay_ms else None,
    )
