"""The large block: one message whose body is not in memory, and travels in pieces.

Whatever looks at headers and columns treats it as any block.  What needs the whole encoding gets it, at the cost of
the memory that the body takes: ``view``, ``body``, ``part`` and ``pick`` read all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from raybroker.model.blocks.block import HEAD_BYTES, Block
from raybroker.model.blocks.columns import HEAD
from raybroker.model.blocks.record import Buffer, Payload
from raybroker.model.errors import ProtocolError, StoreError
from raybroker.model.sizes import MIB

LARGE_BODY_BYTES: Final = MIB
"""A body with more bytes travels in pieces where both ends can do that."""
PIECE_BYTES: Final = 256 * 1024
"""Every piece of a body but the last one."""
PIECES_WAITING_MAX: Final = 32
"""Pieces of one connection that wait to be written at its host, and that wait to be read."""


def pieces_of(nbytes: int) -> int:
    """How many pieces a body of so many bytes has."""
    return -(-nbytes // PIECE_BYTES)


def piece_bytes(nbytes: int, number: int) -> int:
    """Size of a piece of a body of ``nbytes``; they are numbered from 0."""
    return min(PIECE_BYTES, nbytes - number * PIECE_BYTES)


class LargeBody(Protocol):
    """A body that can be read piece by piece, in any thread."""

    @property
    def nbytes(self) -> int: ...

    def piece(self, number: int) -> bytes:
        """A verified piece; raises StoreDamagedError, or StoreError when it cannot be read."""
        ...

    def claim(self) -> bool:
        """Whether the store of this host may make the body that of a block, as it is; it may once at most."""
        ...


class PromisedBody:
    """A body that is elsewhere, of which only the size is known."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def piece(self, number: int) -> bytes:
        raise StoreError(f"piece {number} of a body of {self.nbytes} bytes has not come")

    def claim(self) -> bool:
        return False


class LargeBlock(Block):
    """``front`` is the encoding up to its one body, which is ``large``; raises ProtocolError as any block, and when it
    has more than one message."""

    __slots__ = ("large", "referred")

    @classmethod
    def promised(cls, front: Buffer) -> LargeBlock:
        """One whose body has not come yet."""
        if memoryview(front).nbytes < HEAD_BYTES:
            raise ProtocolError(f"a block of {memoryview(front).nbytes} bytes is shorter than its head")
        return cls(front, PromisedBody(HEAD.unpack_from(front)[-1]))

    def __init__(self, front: Buffer, large: LargeBody) -> None:
        super().__init__(front, large.nbytes)
        if self.count != 1:
            raise ProtocolError(f"a block of {self.count} messages has its bodies in pieces; only one alone may")
        self.large = large
        self.referred = False
        """Its body came by reference."""

    @property
    def view(self) -> memoryview:
        return memoryview(b"".join((self.front, *self._pieces())))

    def body(self, index: int) -> memoryview:
        assert index == 0
        return memoryview(b"".join(self._pieces()))

    def part(self, start: int, end: int) -> tuple[Buffer, ...]:
        assert (start, end) == (0, 1)
        return (self.front, *self._pieces())

    def _pieces(self) -> list[bytes]:
        return [self.large.piece(number) for number in range(pieces_of(self.large.nbytes))]

    def _changed(
        self,
        columns: dict[int, Buffer],
        headers: Sequence[Buffer],
        priority: int | None = None,
        persistent: bool | None = None,
    ) -> Block:
        front = self._prefix(columns, headers, self.first_seq, self.bodies_bytes, priority, persistent)
        changed = LargeBlock(front, self.large)
        changed.referred = self.referred
        return changed


class HeldBody:
    """A body in the memory of its host. ``data``: a view of it, with another's life."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.nbytes = data.nbytes

    def piece(self, number: int) -> bytes:
        return bytes(self._data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES])

    def claim(self) -> bool:
        return False


def in_pieces(block: Block) -> LargeBlock | None:
    """A block whose one body may be read piece by piece; None: it is small, or there are several."""
    if isinstance(block, LargeBlock):
        return block
    if block.count > 1 or block.bodies_bytes <= LARGE_BODY_BYTES:
        return None
    return LargeBlock(block.view[: block.nbytes - block.bodies_bytes], HeldBody(block.body(0)))


def missing(block: Block) -> bool:
    """Whether the body of a large block is not there; no other block lacks one."""
    return type(block) is LargeBlock and type(block.large) is PromisedBody


class LargePayload(tuple[Buffer, ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """The payload of a store's entry with a large block: its front, and ``large``, which the store knows already."""

    large: LargeBody

    @classmethod
    def from_block(cls, block: LargeBlock) -> LargePayload:
        payload = cls((block.front,))
        payload.large = block.large
        return payload


def payload_of(block: Block) -> Payload:
    """What an entry of a store has of a new block."""
    if type(block) is LargeBlock and block.large.claim():
        return LargePayload.from_block(block)
    return (block.view,)
