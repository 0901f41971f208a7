"""Sends received messages on as they are: bodies are not read, though they may be compressed; headers, priorities,
times and units stay."""

from __future__ import annotations

from array import array
from concurrent.futures import Future
from itertools import groupby

from raybroker.client.consumer.message import Message
from raybroker.client.producer.bodies.block_split import by_bytes
from raybroker.client.producer.bodies.compression import squeezed
from raybroker.client.producer.members.unit_routing import RoutedProducer
from raybroker.client.producer.members.unnamed import OwnProducer
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_many import Own
from raybroker.model.blocks.block import Block
from raybroker.model.settings.setting import INT_MAX, PRIORITY_DEFAULT
from raybroker.system.clock import SystemClock


def put_messages(
    core: OwnProducer, batch: list[Message], *, keep_expiry: bool, threshold_bytes: int = INT_MAX
) -> list[Future[str]]:
    """Send received messages as they are, in their order; futures of their parts.

    ``keep_expiry`` False: they do not expire any more. ``threshold_bytes``: larger bodies are compressed.
    """
    assert isinstance(core, ProducerCore | RoutedProducer)
    done: list[Future[str]] = []
    for (member, persistent, stamp_ms), some in groupby(batch, lambda message: _way(core, message)):
        rows = [(message._delivery.block, message._index) for message in some]
        now_ms = stamp_ms or SystemClock().now_ms()
        ttls = [block.expires_of(i) - now_ms if keep_expiry and block.expires_of(i) else 0 for block, i in rows]
        own = Own(
            headers=[_header(block, i) for block, i in rows],
            priorities=bytes([block.priority_of(i) for block, i in rows]),
            ttls_ms=array("Q", [max(ttl, 0) for ttl in ttls]) if any(ttls) else None,
        )
        shared = Shared(persistent, PRIORITY_DEFAULT, stamped=stamp_ms > 0)
        kinds, bodies = bytes([block.kind_of(i) for block, i in rows]), [bytes(block.body(i)) for block, i in rows]
        if threshold_bytes < INT_MAX:
            pairs = [squeezed(kind, body, threshold_bytes) for kind, body in zip(kinds, bodies, strict=True)]
            kinds, bodies = bytes([kind for kind, _ in pairs]), [body for _, body in pairs]
        for start, end in by_bytes(bodies):
            done.append(member.put_block(kinds[start:end], bodies[start:end], shared, own.part(start, end), now_ms))
    return done


def _header(block: Block, index: int) -> bytes:
    return bytes(block.header(index) or b"")


def _way(core: ProducerCore | RoutedProducer, message: Message) -> tuple[ProducerCore, bool, int]:
    """The member that a message goes to, and what it shares with others of a block."""
    block = message._delivery.block
    if isinstance(core, RoutedProducer):
        core = core.member_for(_header(block, message._index), persistent=block.persistent)
    return core, block.persistent, block.timestamp_ms
