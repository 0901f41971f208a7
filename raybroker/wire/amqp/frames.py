"""Frames of AMQP 1.0: protocol headers and frames out of bytes in any pieces, and frames of bodies.

    frame = size (4 bytes, of the whole), doff (1, 4 × doff is where the body begins), type (1), channel (2)

A frame that is whole within the bytes that came is cut out of them; of one that is not, its bytes are collected, and
no more of them than came are kept.
"""

from __future__ import annotations

import struct
from typing import Final

from raybroker.wire.amqp.conditions import FRAMING_ERROR, AmqpViolation

FRAME_HEAD: Final = struct.Struct(">IBBH")
_unpack_head: Final = FRAME_HEAD.unpack_from
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
FRAME_BYTES_MIN: Final = 512
"""Least of max-frame-size, which every peer has to take."""
EMPTY_FRAME: Final = FRAME_HEAD.pack(8, 2, AMQP_FRAME, 0)
"""Tells the peer that the connection lives."""

HEADER_BYTES: Final = 8
PROTOCOL_AMQP: Final = 0
PROTOCOL_SASL: Final = 3
_VERSION: Final = bytes((1, 0, 0))

Cut = tuple[int, int, bytes, int]
"""(type, channel, the bytes of a frame, where its body begins)."""


def protocol_header(protocol: int) -> bytes:
    """What a connection begins with, for AMQP and for SASL."""
    return b"AMQP" + bytes((protocol,)) + _VERSION


def encode_frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    return FRAME_HEAD.pack(8 + len(body), 2, kind, channel) + body


class FrameReader:
    """``frame_bytes_max`` may be changed between two frames."""

    __slots__ = ("_at", "_data", "_partial", "_wanted", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._data = b""
        self._at = 0
        self._partial = bytearray()
        """The start of a header or frame that is not whole."""
        self._wanted = 0
        """How many bytes make it whole, as far as is known."""

    @property
    def held_bytes(self) -> int:
        """Bytes that came and were not given out."""
        return len(self._data) - self._at + len(self._partial)

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        partial = self._partial
        if self._at < len(self._data):
            self._data = self._data[self._at :] + data
            self._at = 0
        elif not partial:
            self._data, self._at = data, 0
        else:
            partial += data
            if len(partial) >= self._wanted:
                self._data, self._at = bytes(partial), 0
                partial.clear()

    def next_header(self) -> int | None:
        """The protocol of a protocol header; None when it has not come. Raises AmqpViolation for what is none."""
        data = self._data[self._at : self._at + HEADER_BYTES]
        if len(data) < HEADER_BYTES:
            if not b"AMQP".startswith(data[:4]):
                raise AmqpViolation("the connection does not begin with AMQP", FRAMING_ERROR)
            self._keep(HEADER_BYTES)
            return None
        if data[:4] != b"AMQP":
            raise AmqpViolation("the connection does not begin with AMQP", FRAMING_ERROR)
        if data[5:] != _VERSION:
            version = ".".join(map(str, data[5:]))
            raise AmqpViolation(f"AMQP {version} is not supported; it is 1.0.0", FRAMING_ERROR)
        self._at += HEADER_BYTES
        return data[4]

    def next_frame(self) -> Cut | None:
        """The next frame, or None when more bytes are needed. Raises AmqpViolation for what is none."""
        data, at = self._data, self._at
        held = len(data) - at
        if held < 8:
            self._keep(8)
            return None
        size, doff, kind, channel = _unpack_head(data, at)
        body = 4 * doff
        if size > self.frame_bytes_max:
            raise AmqpViolation(f"a frame of {size} bytes; max-frame-size is {self.frame_bytes_max}", FRAMING_ERROR)
        if body < 8 or body > size:
            raise AmqpViolation(f"a frame of {size} bytes with a data offset of {doff}", FRAMING_ERROR)
        if size > held:
            self._keep(size)
            return None
        self._at = end = at + size
        return kind, channel, data[at:end], body

    def _keep(self, wanted: int) -> None:
        """The rest is the start of something that needs so many bytes."""
        if self._at < len(self._data):
            self._partial += memoryview(self._data)[self._at :]
        self._data, self._at = b"", 0
        self._wanted = wanted
