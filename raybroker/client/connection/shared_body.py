"""Bodies in Ray's object store: consumers of the same node read them there, without a copy.

The body of a message that is not persistent is there alone, owned by its host, and can be read from that in pieces as
any large body.  That of a persistent one is in its host's store; what the object store has beside it is a copy, and
one that is gone, or that does not come in time, is no loss.  The property SHARED of a message names the body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from raybroker.client.connection.whole_body import WholeBody
from raybroker.content.bodies import COMPRESSED
from raybroker.content.headers import decode_header
from raybroker.content.scattered import from_shared, parts_of, shared_form
from raybroker.model.blocks.large_block import LargeBlock

SHARED: Final = "RAYBROKER_SHARED_BODY"


class SharedObject(NamedTuple):
    """A value in the object store. ``held``: its reference, which this process owns."""

    key: str
    held: Any


class SharedObjects(NamedTuple):
    """The object store of the Ray that a client is in, by what is done with it.

    share    shares a copy of a value, which may be changed afterwards; None where it cannot be. Blocks
    give     gives the process of a host what was shared: (shared, host, bytes, whether its message is persistent); the
             token that the host knows it by. Raises BrokerError
    find     the value of a key, which cannot be written to: (key, host, whether its message is persistent); None when
             it is not there (any more)
    resolve  what an ObjectRef stands for; any other value is returned as it is. Blocks
    node     the node where this process is, and where what it shares lies
    """

    share: Callable[[Any], SharedObject | None]
    give: Callable[[SharedObject, str, int, bool], Awaitable[str]]
    find: Callable[[str, str, bool], Awaitable[Any]]
    resolve: Callable[[Any], Any]
    node: str = ""


class ReferredBody(WholeBody):
    """A body that goes by reference. ``kind``: that of the body."""

    __slots__ = ("_encoded", "_size", "kind", "objects", "shared")

    def __init__(self, objects: SharedObjects, shared: SharedObject, kind: int, size: int) -> None:
        self.objects = objects
        self.shared = shared
        self.kind = kind
        self._size = size
        self._encoded: bytes | None = None
        self.sent = False

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        return self._size

    @property
    def data(self) -> bytes:  # type: ignore[override]  # The parent's is an attribute.
        """The bytes of the body, for a host that takes no references."""
        if self._encoded is None:
            self._encoded = b"".join(parts_of(self.objects.resolve(self.shared.held))[1])
        return self._encoded


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
            self._encoded = b"".join(parts_of(shared_form(self.value))[1])
        return self._encoded

    @property
    def nbytes(self) -> int:
        return self._size


async def shared_body(objects: SharedObjects | None, block: LargeBlock, host: str) -> SharedBody | None:
    """The body of a large message from the object store; None: it has to be read from its host."""
    if objects is None or block.kind_of(0) & COMPRESSED:
        return None
    key = decode_header(block.header(0)).properties.get(SHARED)
    value = await objects.find(key, host, block.persistent) if isinstance(key, str) else None
    return SharedBody(from_shared(value), block.large.nbytes) if value is not None else None
