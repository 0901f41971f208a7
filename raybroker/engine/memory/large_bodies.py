"""Bodies in pieces: those that clients send ahead of their messages, and those that consumers ask for.

A client announces a body, sends its pieces and then the message, which names it; by then the body is durable in a file
of the store.  A consumer gets the message without the body, and asks for its pieces.  Files are written and read by a
worker, so that other messages wait for neither.

    begin_body   body, bytes, headers, type, name   a body of that size will come for a destination, under that number,
                                                    and a message with so many bytes of headers
    body_piece   body, data                   its next piece; the answer to the last one says that it is durable
    drop_body    body                         it is not needed
    read_body    handle, epoch, ordinal, piece   a piece of a message that was delivered there, or browsed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from raybroker.core.admission.limits import largest_exceeded
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.ports import BodyStore, IncomingBody, Worker
from raybroker.engine.sessions.consumer_requests import kind_of
from raybroker.engine.sessions.session import Session
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.model.blocks.block import BLOCK_BYTES_MAX
from raybroker.model.blocks.large_block import (
    PIECES_WAITING_MAX,
    HeldBody,
    LargeBody,
    in_pieces,
    piece_bytes,
    pieces_of,
)
from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    MessageTooLargeError,
    ProtocolError,
    ResourceAllocationError,
    StoreError,
)

BODIES_MAX: Final = 16
"""Bodies of one connection that come at a time."""

Arguments = dict[str, Any]


class _Coming:
    """A body that comes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.received = 0
        """Pieces."""
        self.file: IncomingBody | None = None
        self.failure: BrokerError | None = None
        self.durable = False


@dataclass(slots=True)
class _OfSession:
    """What a connection has under way. ``reads`` wait until it can take more."""

    coming: dict[int, _Coming] = field(default_factory=dict)
    writing: int = 0
    reading: int = 0
    reads: list[Callable[[], None]] = field(default_factory=list)


class LargeBodies:
    """``store`` and ``worker`` None: bodies come whole here."""

    def __init__(
        self, registry: DestinationRegistry, blocks: BlockReader, store: BodyStore | None, worker: Worker | None
    ) -> None:
        self._registry = registry
        self._blocks = blocks
        self._store = store
        self._worker = worker
        self._sessions: dict[ClientSession, _OfSession] = {}

    @property
    def taken(self) -> bool:
        """Whether bodies may come in pieces here."""
        return self._store is not None and self._worker is not None

    def operations(self) -> Mapping[str, Callable[[Any, int, Arguments], None]]:
        return {
            "begin_body": self._begin_body,
            "body_piece": self._piece,
            "drop_body": self._drop,
            "read_body": self._read,
        }

    def take_body(self, session: ClientSession, number: int, nbytes: int) -> LargeBody:
        """The body for a message that has come; raises ProtocolError when it is not there, or not the message's."""
        found = self._bodies_of(session).coming.pop(number, None)
        if found is None or not found.durable or found.file is None:
            raise ProtocolError(f"a message names body {number}, which has not come")
        if found.nbytes != nbytes:
            raise ProtocolError(f"a message says that its body has {nbytes} bytes; body {number} has {found.nbytes}")
        return found.file

    def writable(self, session: ClientSession) -> None:
        """The connection can take more."""
        found = self._sessions.get(session)
        while found is not None and found.reads and not session.peer.full():
            found.reads.pop(0)()

    def left(self, session: ClientSession) -> None:
        """The connection has ended."""
        self._sessions.pop(session, None)

    # ---- requests --------------------------------------------------------------------------------------------------

    def _bodies_of(self, session: ClientSession) -> _OfSession:
        return self._sessions.setdefault(session, _OfSession())

    def _begin_body(self, session: Session, request: int, args: Arguments) -> None:
        store, worker, known = self._store, self._worker, self._bodies_of(session.client)
        number, nbytes = int(args["body"]), int(args["bytes"])
        if store is None or worker is None:
            raise IllegalStateError("this host takes no bodies in pieces")
        destination = self._registry.find(kind_of(args), str(args["name"]))
        if too_large := largest_exceeded(
            destination.name, destination.policy.limits, nbytes, int(args.get("headers", 0))
        ):
            raise MessageTooLargeError(too_large)
        if not 1 <= nbytes <= BLOCK_BYTES_MAX:
            raise MessageTooLargeError(f"a body of {nbytes} bytes; it has 1 to {BLOCK_BYTES_MAX}")
        if number in known.coming:
            raise ProtocolError(f"body {number} is under way already")
        if len(known.coming) >= BODIES_MAX:
            raise ResourceAllocationError(f"{BODIES_MAX} bodies of the connection are under way; send their messages")
        coming = known.coming[number] = _Coming(nbytes)

        def begin() -> None:
            coming.file = store.begin_body(nbytes)

        worker.run(partial(_attempt, coming, begin), partial(self._written, session, request, number, coming))

    def _piece(self, session: Session, request: int, args: Arguments) -> None:
        known, number, data = self._bodies_of(session.client), int(args["body"]), args["data"]
        coming = known.coming.get(number)
        if coming is None or self._worker is None:
            raise ProtocolError(f"body {number} is not under way")
        if coming.received == pieces_of(coming.nbytes):
            raise ProtocolError(f"body {number} has all its pieces")
        wanted = piece_bytes(coming.nbytes, coming.received)
        if not isinstance(data, bytes) or len(data) != wanted:
            raise ProtocolError(f"piece {coming.received} of body {number} has {wanted} bytes")
        if known.writing >= PIECES_WAITING_MAX:
            raise ProtocolError(
                f"{PIECES_WAITING_MAX} pieces of the connection wait to be written; wait for their answers"
            )
        coming.received += 1
        known.writing += 1
        last = coming.received == pieces_of(coming.nbytes)
        job = partial(_attempt, coming, partial(_write, coming, data, last=last))
        self._worker.run(job, partial(self._written, session, request, number, coming, last=last, piece=True))

    def _written(
        self,
        session: Session,
        request: int,
        number: int,
        coming: _Coming,
        _: bytes | None,
        error: BrokerError | None,
        *,
        last: bool = False,
        piece: bool = False,
    ) -> None:
        known = self._sessions.get(session.client)
        if known is None:
            return
        known.writing -= piece
        if error is not None:
            if known.coming.get(number) is coming:
                del known.coming[number]
            session.peer.failed(request, error.code, str(error))
            return
        coming.durable = last
        session.peer.reply(request, None)

    def _drop(self, session: Session, request: int, args: Arguments) -> None:
        self._bodies_of(session.client).coming.pop(int(args["body"]), None)
        session.peer.reply(request, None)

    def _read(self, session: Session, request: int, args: Arguments) -> None:
        known = self._bodies_of(session.client)
        if len(known.reads) + known.reading >= PIECES_WAITING_MAX:
            raise ProtocolError(
                f"{PIECES_WAITING_MAX} pieces that the connection asks for wait to be read; take them first"
            )
        destination = _destination_of(session, int(args["handle"]), int(args["epoch"]))
        read = partial(self._read_piece, session, request, destination, int(args["ordinal"]), int(args["piece"]))
        if known.reads or session.peer.full():
            known.reads.append(read)
        else:
            read()

    def _read_piece(self, session: Session, request: int, destination: Any, ordinal: int, number: int) -> None:
        known, peer = self._bodies_of(session.client), session.peer
        found = self._blocks.read(destination, ordinal) if ordinal in destination.block_index.held else None
        block = in_pieces(found) if found is not None else None
        if block is None:
            peer.failed(request, IllegalStateError.code, "the message is not there any more")
            return
        if not 0 <= number < pieces_of(block.large.nbytes):
            peer.failed(request, ProtocolError.code, f"a body of {block.large.nbytes} bytes has no piece {number}")
            return
        if self._worker is None or isinstance(block.large, HeldBody):
            peer.reply(request, block.large.piece(number))
            return
        known.reading += 1
        self._worker.run(
            partial(block.large.piece, number), partial(self._read_done, session, request, destination, ordinal)
        )

    def _read_done(
        self,
        session: Session,
        request: int,
        destination: Any,
        ordinal: int,
        data: bytes | None,
        error: BrokerError | None,
    ) -> None:
        known = self._sessions.get(session.client)
        if known is not None:
            known.reading -= 1
        if error is None:
            session.peer.reply(request, data)
            return
        session.peer.failed(request, error.code, str(error))
        if isinstance(error, StoreError) and ordinal in destination.block_index.held:
            self._blocks.unreadable(destination, error)


def _destination_of(session: Session, handle: int, epoch: int) -> Any:
    """The destination of a consumer or browser."""
    found = session.consumer(handle, epoch) or session.browsers.get(handle)
    if found is None:
        raise IllegalStateError("the consumer is not attached any more")
    return found.destination


def _attempt(coming: _Coming, step: Callable[[], None]) -> bytes | None:
    """One step of a body that comes, in the worker; after one that failed the others fail alike."""
    if coming.failure is not None:
        raise coming.failure
    try:
        step()
    except BrokerError as error:
        coming.failure = error
        raise
    return None


def _write(coming: _Coming, data: bytes, *, last: bool) -> None:
    assert coming.file is not None, "a body begins before its pieces"
    coming.file.write(data)
    if last:
        coming.file.finish()
