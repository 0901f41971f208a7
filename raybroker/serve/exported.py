"""Messages of a queue as the brokers of the whole cluster have them; nothing is taken.

A browser sees those of the home broker alone, and results are on whichever broker their ids lead to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from raybroker.client.aio.handles import Connection
from raybroker.client.producer.bodies.body_encoding import unpickle
from raybroker.content.bodies import COMPRESSED, PICKLE, decode_body, inflated
from raybroker.model.blocks.block import Block
from raybroker.model.bounds import MESSAGE_BYTES_MAX

PAGES_MAX: Final = 10_000
"""Pages of one look: a page may be empty, for each broker at least."""


async def exported_bodies(
    connection: Connection, queue: str, selector: str | None, serializer: str | None
) -> AsyncIterator[Any]:
    """The bodies of what the selector names, on all brokers."""
    admin, start = connection.admin(), None
    for _ in range(PAGES_MAX):
        page = await admin.export_messages("queue", queue, selector, start=start)
        for data in page["blocks"]:
            block = Block(data)
            for index in range(block.count):
                yield _body(block, index, serializer)
        start = page["next"]
        if start is None:
            return


def _body(block: Block, index: int, serializer: str | None) -> Any:
    kind, data = block.kind_of(index), memoryview(block.body(index))
    if kind & COMPRESSED:
        kind, whole = inflated(kind, data, MESSAGE_BYTES_MAX)
        data = memoryview(whole)
    return unpickle(data, allowed=serializer == "pickle") if kind == PICKLE else decode_body(kind, data)
