"""Bodies in pieces: those that clients send ahead of their messages, and those that consumers ask for.

A client announces a body, sends its pieces and then the message, which names it; by then the body is durable in a file
of the store.  A consumer gets the message without the body, and asks for its pieces.  Files are written and read by a
worker, so that other messages wait for neither.

    begin_body   body, bytes, headers, type, name   a body of that size will come for a destination, under that number,
                                                    and a message with so many bytes of headers
    body_piece   body, data                   its next piece; the answer to the last one says that it is durable
    refer_body   body, bytes, headers, type, name, token, persistent   a body was given to this process by reference
                                              under that token; the answer says that it is durable, if it is to be, or
                                              that this process owns it
    drop_body    body                         it is not needed
    read_body    handle, epoch, ordinal, piece   a piece of a message that was delivered there, or browsed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

from raybroker.core.admission.limits import DestinationLimits, largest_exceeded
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.ports import BodyStore, IncomingBody, TakeBody, Worker
from raybroker.engine.sessions.consumer_requests import kind_of
from raybroker.engine.sessions.session import Session
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.model.blocks.block import BLOCK_BYTES_MAX
from raybroker.model.blocks.large_block import (
    PIECES_WAITING_MAX,
    HeldBody,
    LargeBlock,
    LargeBody,
    in_pieces,
    piece_bytes,
    pieces_of,
)
from raybroker.model.bounds import REFERENCE_BYTES_MAX
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
STEP_PIECES: Final = 16
"""Of a body that came by reference, so many pieces are written before other bodies have their turn."""

Arguments = dict[str, Any]


class _Coming:
    """A body that comes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.received = 0
        """Pieces."""
        self.file: IncomingBody | None = None
        self.referred: LargeBody | None = None
        """What came by reference."""
        self.source: Iterator[bytes] | None = None
        """Pieces of a reference that are not written yet."""
        self.failure: BrokerError | None = None
        self.durable = False


@dataclass(slots=True)
class _OfSession:
    """What a connection has under way. ``reads`` wait until it can take more."""

    coming: dict[int, _Coming] = field(default_factory=dict)
    writing: int = 0
    reading: int = 0
    reads: list[Callable[[], None]] = field(default_factory=list)

    def begin_body(self, number: int, nbytes: int) -> _Coming:
        """A body that comes under that number; raises ProtocolError and ResourceAllocationError."""
        if number in self.coming:
            raise ProtocolError(f"body {number} is under way already")
        if len(self.coming) >= BODIES_MAX:
            raise ResourceAllocationError(f"{BODIES_MAX} bodies of the connection are under way; send their messages")
        coming = self.coming[number] = _Coming(nbytes)
        return coming


class LargeBodies:
    """``store`` and ``worker`` None: bodies come whole here; ``given``: those that come by reference, None: none do."""

    def __init__(
        self,
        registry: DestinationRegistry,
        blocks: BlockReader,
        store: BodyStore | None,
        worker: Worker | None,
        given: TakeBody | None = None,
    ) -> None:
        self._given = given
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
            "refer_body": self._refer,
            "drop_body": self._drop,
            "read_body": self._read,
        }

    def give_body(self, session: ClientSession, number: int, block: LargeBlock) -> None:
        """Give a message that has come its body; raises ProtocolError when it is not there, or not the message's."""
        coming = self._bodies_of(session).coming.get(number)
        block.large = self.take_body(session, number, block.large.nbytes)
        block.referred = coming is not None and coming.referred is not None

    def take_body(self, session: ClientSession, number: int, nbytes: int) -> LargeBody:
        """The body for a message that has come; raises ProtocolError as :meth:`give_body`."""
        found = self._bodies_of(session).coming.pop(number, None)
        body = None if found is None else found.referred or found.file
        if found is None or not found.durable or body is None:
            raise ProtocolError(f"a message names body {number}, which has not come")
        if found.nbytes != nbytes:
            raise ProtocolError(f"a message says that its body has {nbytes} bytes; body {number} has {found.nbytes}")
        return body

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
        check_size(destination.name, destination.policy.limits, nbytes, args, BLOCK_BYTES_MAX)
        coming = known.begin_body(number, nbytes)

        def begin() -> None:
            coming.file = store.begin_body(nbytes)

        worker.run(partial(_attempt, coming, begin), partial(self._written, session, request, number, coming))

    def _refer(self, session: Session, request: int, args: Arguments) -> None:
        store, worker, given = self._store, self._worker, self._given
        number, nbytes, token = int(args["body"]), int(args["bytes"]), str(args["token"])
        if store is None or worker is None or given is None:
            raise IllegalStateError("this host takes no bodies by reference")
        destination = self._registry.find(kind_of(args), str(args["name"]))
        check_size(destination.name, destination.policy.reference_limits, nbytes, args, REFERENCE_BYTES_MAX)
        coming = self._bodies_of(session.client).begin_body(number, nbytes)
        coming.received = pieces_of(nbytes)  # None comes over the connection.

        def begin() -> None:
            body = given(token)
            if body.nbytes != nbytes:
                raise ProtocolError(f"body {number} was to have {nbytes} bytes; the reference has {body.nbytes}")
            if args["persistent"]:
                coming.referred = coming.file = store.begin_body(nbytes)
                coming.source = body.pieces()
            else:
                coming.referred = body.owned()

        self._step(session, request, number, coming, begin)

    def _step(self, session: Session, request: int, number: int, coming: _Coming, step: Callable[[], None]) -> None:
        """One step of a body by reference, and then the others, each behind what others have asked for meanwhile."""
        assert self._worker is not None
        self._worker.run(partial(_attempt, coming, step), partial(self._stepped, session, request, number, coming))

    def _stepped(
        self, session: Session, request: int, number: int, coming: _Coming, _: bytes | None, error: BrokerError | None
    ) -> None:
        if error is None and coming.source is not None and session.client in self._sessions:
            self._step(session, request, number, coming, partial(_write_some, coming))
        else:
            self._written(session, request, number, coming, None, error, last=True)

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


def check_size(name: str, limits: DestinationLimits, nbytes: int, args: Arguments, most: int) -> None:
    """Raises MessageTooLargeError for an announced body that is too large for its destination, or for ``most``."""
    if too_large := largest_exceeded(name, limits, nbytes, int(args.get("headers", 0))):
        raise MessageTooLargeError(too_large)
    if not 1 <= nbytes <= most:
        raise MessageTooLargeError(f"a body of {nbytes} bytes; it has 1 to {most}")


def _write_some(coming: _Coming) -> None:
    """The next pieces of a body by reference; after the last one it is durable, and nothing is left."""
    assert coming.source is not None, "the pieces of a reference"
    assert coming.file is not None, "a body begins before its pieces"
    count = 0
    for data in islice(coming.source, STEP_PIECES):
        coming.file.write(data)
        count += 1
    if count < STEP_PIECES:
        coming.file.finish()
        coming.source = None


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
