"""Bodies that are in Ray's object store as well: consumers of the same node read them there, without a copy.

The host has the body in any case, as that of any other message: a shared copy that is gone, or that does not come in
time, is no loss.  The property SHARED of a message names it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from raybroker.client.connection.whole_body import WholeBody
from raybroker.client.producer.bodies.body_encoding import encode_any
from raybroker.content.bodies import COMPRESSED
from raybroker.content.headers import decode_header
from raybroker.model.blocks.large_block import LargeBlock

SHARED: Final = "RAYBROKER_SHARED_BODY"


class SharedObjects(NamedTuple):
    """The object store of the Ray that a client is in, by what is done with it.

    share    shares a copy of a value, which may be changed afterwards; its key, "" where it cannot be. Blocks
    find     the value of a key, which cannot be written to; None when it is not there (any more)
    resolve  what an ObjectRef stands for; any other value is returned as it is. Blocks
    """

    share: Callable[[Any], str]
    find: Callable[[str], Awaitable[Any]]
    resolve: Callable[[Any], Any]


class SharedBody(WholeBody):
    """A body that was read from the object store. ``value``: what it is decoded."""

    __slots__ = ("_encoded", "_size", "value")

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self._size = size
        self._encoded: bytes | None = None
        self.sent = False

    @property
    def data(self) -> bytes:  # type: ignore[override]  # The parent's is an attribute.
        """The bytes of the message's body, for the few who want those: a copy that goes to another process."""
        if self._encoded is None:
            self._encoded = bytes(encode_any(self.value)[1])
        return self._encoded

    @property
    def nbytes(self) -> int:
        return self._size


def bytes_in(value: Any) -> int:
    """Bytes of the arrays in a value that is shared."""
    parts = value.values() if type(value) is dict else (value,)
    return sum(int(getattr(one, "nbytes", 0)) for one in parts)


async def shared_body(objects: SharedObjects | None, block: LargeBlock) -> SharedBody | None:
    """The body of a large message from the object store; None: it has to be read from its host."""
    if objects is None or block.kind_of(0) & COMPRESSED:
        return None
    key = decode_header(block.header(0)).properties.get(SHARED)
    value = await objects.find(key) if isinstance(key, str) else None
    return SharedBody(value, block.large.nbytes) if value is not None else None
