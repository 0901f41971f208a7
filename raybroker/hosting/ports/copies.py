"""Messages of a host as an administrator chooses, sees and copies them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raybroker.content.bodies import COMPRESSED, PICKLE, decode_body
from raybroker.content.headers import header_of, message_id
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.selector import compile_selector, normalised
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.ports import Codec
from raybroker.model.blocks.block import Block
from raybroker.model.errors import MessageFormatError, ProtocolError
from raybroker.model.listing import Row

if TYPE_CHECKING:
    from raybroker.engine.destinations.browsing import SeenMessage


class Copies:
    """``blocks`` reads what a destination holds."""

    def __init__(self, blocks: BlockReader, codec: Codec) -> None:
        self._blocks = blocks
        self._codec = codec

    def chosen(
        self, destination: Destination, selector: str | None, ids: list[str] | None, states: tuple[str, ...]
    ) -> Iterator[tuple[SeenMessage, Block]]:
        """What is in one of the states and matches, by block."""
        from raybroker.engine.destinations.browsing import look

        text = normalised(selector)
        wanted = set(ids) if ids is not None else None
        chooses = compile_selector(text) if text is not None else None
        for seen in look(destination, states):
            block, mask = self._blocks.read(destination, seen.ordinal), seen.mask
            if block is None:
                continue
            if chooses is not None:
                mask = chooses.pick(self._codec.content(block), mask, seen.attempts)
            if wanted is not None:
                named = (i for i in pk.indexes(mask) if message_id(block.producer, block.seq_of(i)) in wanted)
                mask = pk.of_indexes(named) if mask else 0
            if mask:
                yield seen._replace(mask=mask), block

    def copied(self, block: Block, seen: SeenMessage) -> bytes:
        """Chosen messages of a block as another destination gets them: delivered as often as here."""
        return self._codec.delivered(b"".join(block.pick(seen.mask)), seen.attempts)


def exported_block(index: int, data: bytes) -> Block:
    """One of the blocks that were exported; raises MessageFormatError."""
    try:
        block = Block(data)
        block.check()
    except ProtocolError as error:
        raise MessageFormatError(f"block {index} is no exported message: {error}") from None
    return block


def browsed_row(block: Block, index: int, seen: SeenMessage, body_bytes_max: int) -> Row:
    """One message as a page of them shows it."""
    header = header_of(block, index)
    return {
        "id": message_id(block.producer, block.seq_of(index)),
        "timestamp": block.timestamp_ms if header.timestamp_ms is None else header.timestamp_ms,
        "expiration": block.expires_of(index),
        "priority": block.priority_of(index),
        "persistent": block.persistent,
        "type": header.type,
        "correlation_id": header.correlation_id,
        "reply_to": header.reply_to,
        "properties": header.properties,
        "delivery_count": seen.attempts,
        "size": block.lengths[index],
        "body": _body(block, index, body_bytes_max),
        "state": seen.state,
    }


def shown_bytes(block: Block, index: int, most: int) -> int:
    """Return the size of a body as a row has it, with its headers; one that is compressed counts as it may be shown."""
    shown = most if block.kind_of(index) & COMPRESSED else min(block.lengths[index], most)
    return shown + len(block.header(index) or b"")


def _body(block: Block, index: int, most: int) -> Any:
    """The body when it is small enough and not an object of Python, else its first bytes as they are stored.

    ``most`` bounds a compressed body by what it has when it is whole: one small message could fill the host otherwise.
    """
    data, kind = block.body(index), block.kind_of(index)
    if kind == PICKLE or data.nbytes > most:
        return bytes(data[:most])
    try:
        return decode_body(kind, data, most, typed=False)
    except MessageFormatError:
        return bytes(data[:most])
