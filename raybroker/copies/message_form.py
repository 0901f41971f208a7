"""The bytes between copies: messages of ``replication.messages``, and what the shells have to say to each other.

    frame   length u32 | kind u8 | payload

The shells' own messages are about space and about files, and decide nothing:

    Freed        blocks that the leader's journal has let go, and the entry up to which a copy may not ask for them
    Living       the leader's live blocks in a stretch of (destination, ordinal): a copy lets go the others there
    ImageBegins  a copy of the leader's files begins; ImagePart, bytes of one; ImageEnds, what they are together
    ImageTaken   the files are there and synced; ``reason``: or they are not
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ProtocolError
from raybroker.replication import messages as m
from raybroker.replication.positions import CHAIN_BYTES, NO_TERM, EntryKind, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_set import ReplicaSet, unpacked_set

FRAME_BYTES_MAX: Final = 512 << 20
"""The largest entry is a batch with one block, or a checkpoint."""
TEXT_BYTES_MAX: Final = 64 << 10
HEAD: Final = struct.Struct("<IB")
_TERM: Final = struct.Struct("<QQ")
_POSITION: Final = struct.Struct(f"<QQQ{CHAIN_BYTES}s")
_ENTRY: Final = struct.Struct(f"<QQQ{CHAIN_BYTES}sBI")
_WORDS: Final = struct.Struct("<QQQQ")
_COUNT: Final = struct.Struct("<I")
_NONCE: Final = struct.Struct("<Q")
_SPAN: Final = struct.Struct("<QQ")
_KEY: Final = struct.Struct("<IQ")

Spans = tuple[tuple[int, int], ...]
"""First and last of numbers that follow each other."""


@dataclass(frozen=True, slots=True)
class Freed:
    index: int
    destination: int
    spans: Spans


@dataclass(frozen=True, slots=True)
class Living:
    """``after`` < (destination, ordinal) <= ``upto``; ``index``: the entry at which that is so."""

    index: int
    after: tuple[int, int]
    upto: tuple[int, int]
    spans: dict[int, Spans]


class ImageBegins(NamedTuple):
    number: int


class ImagePart(NamedTuple):
    number: int
    file: str
    offset: int
    data: Buffer


class ImageEnds(NamedTuple):
    """``image``: encoded, see ``snapshots``."""

    number: int
    image: bytes


class ImageTaken(NamedTuple):
    number: int
    reason: str


ShellMessage = Freed | Living | ImageBegins | ImagePart | ImageEnds | ImageTaken
(
    ASK_PROMISE,
    PROMISED,
    REFUSED,
    APPEND,
    APPENDED,
    BEHIND,
    SNAPSHOT,
    FREED,
    LIVING,
    IMAGE_BEGINS,
    IMAGE_PART,
    IMAGE_ENDS,
    IMAGE_TAKEN,
    TAKE_LEAD,
    ASK_AFTER,
) = range(1, 16)


def _position(at: LogPosition) -> bytes:
    return _POSITION.pack(*at.term, at.index, at.chain)


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return _COUNT.pack(len(data)) + data


def _spans(spans: Spans) -> bytes:
    return _COUNT.pack(len(spans)) + b"".join([_SPAN.pack(*span) for span in spans])


def encode(message: m.CopyMessage | ShellMessage) -> list[Buffer]:
    """Return the frame of a message, as buffers."""
    kind, parts = _parts(message)
    nbytes = sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in parts])
    if nbytes > FRAME_BYTES_MAX:
        raise ProtocolError(f"a message between copies of {nbytes} bytes; at most {FRAME_BYTES_MAX}")
    return [HEAD.pack(nbytes, kind), *parts]


def _parts(message: m.CopyMessage | ShellMessage) -> tuple[int, list[Buffer]]:
    match message:
        case m.Append():
            head = _TERM.pack(*message.term) + _position(message.previous)
            head += _WORDS.pack(message.committed, message.stamp_ms, message.round, message.mends)
            return APPEND, [head, *_entries(message.entries)]
        case m.Appended():
            return APPENDED, [
                _TERM.pack(*message.term) + _WORDS.pack(message.index, message.stamp_ms, message.round, 0)
            ]
        case m.Behind():
            words = _WORDS.pack(0, message.stamp_ms, message.round, message.damage)
            return BEHIND, [_TERM.pack(*message.term) + _position(message.last) + _position(message.sure) + words]
        case m.AskPromise() if message.after == NO_TERM:
            return ASK_PROMISE, [_TERM.pack(*message.term) + _position(message.last)]
        case m.AskPromise():
            return ASK_AFTER, [_TERM.pack(*message.term) + _position(message.last) + _TERM.pack(*message.after)]
        case m.TakeLead():
            return TAKE_LEAD, [_TERM.pack(*message.term) + _NONCE.pack(message.nonce)]
        case m.Promised():
            return PROMISED, [_TERM.pack(*message.term)]
        case m.PromiseRefused():
            return REFUSED, [_TERM.pack(*message.term) + _TERM.pack(*message.promised) + _text(message.reason)]
        case m.LogSnapshot():
            words = _WORDS.pack(0, message.stamp_ms, message.round, message.mends)
            head = _TERM.pack(*message.term) + _position(message.at) + words + _text(message.members.packed())
            return SNAPSHOT, [head, *message.content]
        case Freed():
            return FREED, [_KEY.pack(message.destination, message.index) + _spans(message.spans)]
        case Living():
            head = _COUNT.pack(0) + struct.pack("<Q", message.index) + _KEY.pack(*message.after)
            head += _KEY.pack(*message.upto) + _COUNT.pack(len(message.spans))
            return LIVING, [head, *[_COUNT.pack(d) + _spans(spans) for d, spans in message.spans.items()]]
        case ImageBegins():
            return IMAGE_BEGINS, [_COUNT.pack(message.number)]
        case ImagePart():
            return IMAGE_PART, [_KEY.pack(message.number, message.offset) + _text(message.file), message.data]
        case ImageEnds():
            return IMAGE_ENDS, [_COUNT.pack(message.number), message.image]
        case ImageTaken():
            return IMAGE_TAKEN, [_COUNT.pack(message.number) + _text(message.reason)]
    raise TypeError(f"no message between copies: {message!r}")


def _entries(entries: Sequence[ReplicatedEntry]) -> list[Buffer]:
    parts: list[Buffer] = [_COUNT.pack(len(entries))]
    for entry in entries:
        at = entry.at
        parts.append(_ENTRY.pack(*at.term, at.index, at.chain, entry.kind, entry.nbytes))
        parts += entry.body
    return parts


class _Reader:
    """Takes one value behind the other from a frame; raises struct.error or ValueError at its end."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def unpacked(self, form: struct.Struct) -> tuple[Any, ...]:
        found = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found

    def count(self) -> int:
        return int(self.unpacked(_COUNT)[0])

    def term(self) -> Term:
        return Term(*self.unpacked(_TERM))

    def position(self) -> LogPosition:
        number, nonce, index, chain = self.unpacked(_POSITION)
        return LogPosition(Term(number, nonce), index, chain)

    def raw(self, nbytes: int) -> memoryview:
        if self.at + nbytes > len(self.data):
            raise ValueError("it is cut off")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def text(self) -> str:
        nbytes = self.count()
        if nbytes > TEXT_BYTES_MAX:
            raise ValueError(f"a text of {nbytes} bytes")
        return str(self.raw(nbytes), "utf-8")

    def spans(self) -> Spans:
        count = self.count()
        return tuple(_SPAN.iter_unpack(self.raw(count * _SPAN.size)))

    def members(self) -> ReplicaSet:
        return unpacked_set(self.text().encode())

    def entries(self) -> tuple[ReplicatedEntry, ...]:
        found: list[ReplicatedEntry] = []
        for _ in range(self.count()):
            number, nonce, index, chain, kind, nbytes = self.unpacked(_ENTRY)
            body = (self.raw(nbytes),) if nbytes else ()
            found.append(ReplicatedEntry(LogPosition(Term(number, nonce), index, chain), EntryKind(kind), body, nbytes))
        return tuple(found)

    def rest(self) -> memoryview:
        return self.raw(len(self.data) - self.at)


def decode(kind: int, payload: memoryview) -> m.CopyMessage | ShellMessage:
    """Return the message of a frame; raises ProtocolError."""
    reader = _Reader(payload)
    try:
        return _decoded(kind, reader)
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"a message between copies of kind {kind} does not decode: {error}") from None


def _decoded(kind: int, reader: _Reader) -> m.CopyMessage | ShellMessage:
    if kind == APPEND:
        term, previous = reader.term(), reader.position()
        committed, stamp_ms, round_, mends = reader.unpacked(_WORDS)
        return m.Append(term, previous, reader.entries(), committed, stamp_ms, round_, mends)
    if kind == APPENDED:
        term = reader.term()
        index, stamp_ms, round_, _ = reader.unpacked(_WORDS)
        return m.Appended(term, index, stamp_ms, round_)
    if kind == BEHIND:
        term, last, sure = reader.term(), reader.position(), reader.position()
        _, stamp_ms, round_, damage = reader.unpacked(_WORDS)
        return m.Behind(term, last, sure, stamp_ms, round_, damage)
    if kind == ASK_PROMISE:
        return m.AskPromise(reader.term(), reader.position())
    if kind == ASK_AFTER:
        return m.AskPromise(reader.term(), reader.position(), reader.term())
    if kind == TAKE_LEAD:
        return m.TakeLead(reader.term(), int(reader.unpacked(_NONCE)[0]))
    if kind == PROMISED:
        return m.Promised(reader.term())
    if kind == REFUSED:
        return m.PromiseRefused(reader.term(), reader.term(), reader.text())
    if kind == SNAPSHOT:
        term, at = reader.term(), reader.position()
        _, stamp_ms, round_, mends = reader.unpacked(_WORDS)
        members = reader.members()
        return m.LogSnapshot(term, at, members, (bytes(reader.rest()),), stamp_ms, round_, mends)
    return _decoded_shell(kind, reader)


def _decoded_shell(kind: int, reader: _Reader) -> ShellMessage:
    if kind == FREED:
        destination, index = reader.unpacked(_KEY)
        return Freed(index, destination, reader.spans())
    if kind == LIVING:
        _, index = reader.unpacked(_KEY)
        after, upto = reader.unpacked(_KEY), reader.unpacked(_KEY)
        spans = {reader.count(): reader.spans() for _ in range(reader.count())}
        return Living(index, (after[0], after[1]), (upto[0], upto[1]), spans)
    if kind == IMAGE_BEGINS:
        return ImageBegins(reader.count())
    if kind == IMAGE_PART:
        number, offset = reader.unpacked(_KEY)
        return ImagePart(number, reader.text(), offset, reader.rest())
    if kind == IMAGE_ENDS:
        return ImageEnds(reader.count(), bytes(reader.rest()))
    if kind == IMAGE_TAKEN:
        return ImageTaken(reader.count(), reader.text())
    raise ProtocolError(f"no message between copies has kind {kind}")
