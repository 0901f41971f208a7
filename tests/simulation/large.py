"""Large messages of the simulation: bodies that come ahead of their messages, and leave after them, in pieces.

``SimBody`` is a file of the disk that the host's worker writes, and ``SimWorker`` that worker, which is late.
``Upload`` and ``Download`` are what a client does for one body.  Pieces have a few bytes, see :func:`small_pieces`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Protocol

from raybroker.client.connection import whole_body
from raybroker.client.connection.whole_body import WholeBody
from raybroker.client.producer import producer_state
from raybroker.client.producer.producer_state import SendBatch
from raybroker.model.blocks import large_block
from raybroker.model.blocks.block import headers_bytes_of
from raybroker.model.blocks.large_block import LargeBlock, PromisedBody, piece_bytes, pieces_of
from raybroker.model.errors import BrokerError, StoreError, StoreFullError
from tests.simulation.events import Loop
from tests.simulation.plan import MS

PIECE = 7
LARGE = 20
AHEAD_MAX = 4
FULL = "protocol"
"""What the host answers who asks for more pieces than may wait."""
HASTY = 0.05
"""How often a client names a body before the host has said that it is there."""


@contextmanager
def small_pieces(large: bool) -> Iterator[None]:
    """For a while a body over LARGE bytes is a large one, in pieces of PIECE bytes."""
    sizes: list[tuple[Any, str, int]] = [
        (large_block, "PIECE_BYTES", PIECE),
        (whole_body, "PIECE_BYTES", PIECE),
        (producer_state, "LARGE_BODY_BYTES", LARGE),
    ]
    before = [getattr(module, name) for module, name, _ in sizes]
    for module, name, size in sizes if large else ():
        setattr(module, name, size)
    try:
        yield
    finally:
        for (module, name, _), size in zip(sizes, before, strict=True):
            setattr(module, name, size)


class Disk(Protocol):
    """What a body needs of the store. ``dead``: the disk reports errors."""

    dead: bool
    roomy: Callable[[], bool]


class SimBody:
    """A body that comes; the disk has it once a block refers to it."""

    def __init__(self, disk: Disk, nbytes: int) -> None:
        self.nbytes = nbytes
        self.data = b""
        self.finished = False
        self.claimed = False
        self._disk = disk
        self._look()

    def _look(self) -> None:
        if self._disk.dead:
            raise StoreError("the disk is broken")
        if not self._disk.roomy():
            raise StoreFullError(f"the disk has no room for a body of {self.nbytes} bytes")

    def write(self, data: bytes) -> None:
        assert not self.finished
        assert len(data) == piece_bytes(self.nbytes, len(self.data) // PIECE)
        self._look()
        self.data += data

    def finish(self) -> None:
        assert len(self.data) == self.nbytes
        if self._disk.dead:
            raise StoreError("the disk is broken")
        self.finished = True

    def piece(self, number: int) -> bytes:
        return self.data[number * PIECE : (number + 1) * PIECE]

    def claim(self) -> bool:
        claimed, self.claimed = self.claimed, True
        return not claimed


class StoredBody:
    """A body on the disk, within the block that has it; ``read`` gives the block, or raises what the store raises."""

    def __init__(self, nbytes: int, front_bytes: int, read: Callable[[], bytes]) -> None:
        self.nbytes = nbytes
        self._front_bytes = front_bytes
        self._read = read

    def piece(self, number: int) -> bytes:
        start = self._front_bytes + number * PIECE
        return self._read()[start : start + PIECE]

    def claim(self) -> bool:
        return False


class SimWorker:
    """One job after the other, each some time later; ``gone()``: its host is no more."""

    def __init__(self, loop: Loop, rng: Random, job_max: int, gone: Callable[[], bool]) -> None:
        self._loop = loop
        self._rng = rng
        self._job_max = job_max
        self._gone = gone
        self._works_until = self._told_until = 0

    def run(self, job: Callable[[], bytes | None], done: Callable[[bytes | None, BrokerError | None], None]) -> None:
        self._works_until = max(self._works_until, self._loop.now + self._rng.randrange(self._job_max))
        self._loop.at(self._works_until, self._work, job, done)

    def _work(self, job: Callable[[], bytes | None], done: Callable[[bytes | None, BrokerError | None], None]) -> None:
        result: bytes | None = None
        failure: BrokerError | None = None
        if self._gone():
            return
        try:
            result = job()
        except BrokerError as error:
            failure = error
        self._told_until = max(self._told_until, self._loop.now + self._rng.randrange(MS))
        self._loop.at(self._told_until, self._tell, done, result, failure)

    def _tell(self, done: Callable[..., None], result: bytes | None, failure: BrokerError | None) -> None:
        if not self._gone():
            done(result, failure)


class Client(Protocol):
    """A machine with a connection."""

    world: Any

    def call(self, op: str, args: dict[str, Any], reply: Callable[[Any, str | None], None]) -> None: ...


class Upload:
    """One body goes to the host. ``done`` is called with None when its message may go, or with a code of the host's;
    not at all when the connection is lost."""

    def __init__(
        self, client: Client, number: int, to: tuple[str, str], batch: SendBatch, done: Callable[[str | None], None]
    ) -> None:
        assert batch.large is not None
        self.number = number
        self._client = client
        self._body = batch.large
        self._done = done
        self._next = self._answered = 0
        self._pieces = pieces_of(self._body.nbytes)
        self._hasty = client.world.rng.random() < HASTY
        kind, name = to
        client.call(
            "begin_body",
            {
                "body": number,
                "bytes": self._body.nbytes,
                "headers": headers_bytes_of(batch.data),
                "type": kind,
                "name": name,
            },
            self._begun,
        )

    def _begun(self, result: Any, code: str | None) -> None:
        if code is not None:
            self._over(code)
        else:
            for _ in range(self._client.world.rng.randrange(AHEAD_MAX) + 1):
                self._ask()

    def _ask(self) -> None:
        if self._next < self._pieces:
            piece, self._next = self._next, self._next + 1
            data = self._body.data[piece * PIECE : (piece + 1) * PIECE]
            self._client.call("body_piece", {"body": self.number, "data": data}, self._written)
            if self._hasty and self._next == self._pieces:
                self._over(None)

    def _written(self, result: Any, code: str | None) -> None:
        self._answered += 1
        if code is not None:
            self._over(code)
        elif self._answered == self._pieces:
            self._over(None)
        else:
            self._ask()

    def _over(self, code: str | None) -> None:
        done, self._done = self._done, lambda code: None
        if code is not None:
            self._next = self._pieces
            self._client.world.watch.seen["bodies refused"] += 1
        done(code)


Frame = tuple[Callable[..., None], tuple[Any, ...]]


class Download:
    """Bodies of messages that came to one handle, one after the other; other frames of the handle wait behind them.

    ``delivered`` gets epoch, tag, attempt and block, without its body when the host has it no more; ``over`` is called
    when nothing is left.
    """

    def __init__(self, client: Client, handle: int, delivered: Callable[..., None], over: Callable[[], None]) -> None:
        self._client = client
        self._handle = handle
        self._delivered = delivered
        self._over = over
        self._waiting: deque[Frame] = deque()
        self._reading: Frame | None = None

    def begin(self, epoch: int, tag: int, attempt: int, ordinal: int, block: LargeBlock) -> None:
        """Read the body of one message."""
        reading = self._reading = self.begin, (epoch, tag, attempt, ordinal, block)
        parts: dict[int, bytes] = {}
        state = {"answered": 0, "next": 0, "failed": 0}
        pieces = pieces_of(block.large.nbytes)

        def ask() -> None:
            if state["next"] < pieces and not state["failed"]:
                piece = state["next"]
                state["next"] += 1
                ask_for(piece)

        def ask_for(piece: int) -> None:
            args = {"handle": self._handle, "epoch": epoch, "ordinal": ordinal, "piece": piece}
            self._client.call("read_body", args, lambda result, code: came(piece, result, code))

        def came(piece: int, result: Any, code: str | None) -> None:
            if (
                code == FULL
            ):  # As many pieces wait for the connection as may; a client of ours would not have asked yet.
                if self._reading is reading:
                    ask_for(piece)
                return
            state["answered"] += 1
            if code is not None:
                assert code in ("illegal_state", "store_damaged", "store", "invalid_destination"), code
                state["failed"] = 1
                self._client.world.watch.seen["bodies that are gone"] += 1
            else:
                parts[piece] = result
                ask()
            if state["answered"] < state["next"] or self._reading is not reading:
                return
            if not state["failed"]:
                block.large = WholeBody(b"".join(parts[at] for at in range(pieces)))
            assert state["failed"] or type(block.large) is not PromisedBody
            self._reading = None
            self._delivered(epoch, tag, attempt, block)
            self._go_on()

        for _ in range(self._client.world.rng.randrange(AHEAD_MAX) + 1):
            ask()

    def deliver_now(self) -> None:
        """What is here is void: nothing is read any more, and the frames that wait are taken as they are."""
        delivered, self._delivered = self._delivered, lambda *args: None
        self._reading, frames = None, ([self._reading] if self._reading else []) + list(self._waiting)
        self._waiting.clear()
        for call, args in frames:
            if call == self.begin:
                epoch, tag, attempt, _, block = args
                delivered(epoch, tag, attempt, block)
            else:
                call(*args)
        self._over()

    def behind(self, call: Callable[..., None], *args: Any) -> None:
        """A frame that waits."""
        self._waiting.append((call, args))

    def _go_on(self) -> None:
        while self._waiting:
            call, args = self._waiting.popleft()
            if call == self.begin:
                self.begin(*args)
                return
            call(*args)
        self._over()
