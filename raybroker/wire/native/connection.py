"""The native protocol: frames over a reliable byte stream, the same at both ends.

A connection opens with a *preface* of fixed length: a magic word and a token. The listening side compares the token in
constant time before it looks at anything else; until then it keeps at most a preface and answers nothing.  After that
both sides exchange frames (``frames.py``).  A connection that came in through a connection service shows another token,
which whoever listens there knows: ``accepts`` is asked about it.

:class:`Native` is the machine.  Bytes come in either with ``receive_data``, or without a copy: ``buffer()`` says where
to put them and ``received(n)`` takes note.  Large frames are received straight into a buffer of their own, which then
belongs to the block in it.  Whatever the peer sends, only ProtocolError or SecurityError leaves the machine, and after
either it is closed for good.

    state      input                 next
    PREFACE    right token           OPEN       (listening side)
    PREFACE    anything else         CLOSED     SecurityError
    OPEN       a frame               OPEN
    OPEN       a malformed frame     CLOSED     ProtocolError
    CLOSED     anything              CLOSED     dropped
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import Final

from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.wire.native.decoding import TO_CLIENT, TO_HOST
from raybroker.wire.native.frames import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, FRAME_HEAD, MESSAGE_FRAMES, Frame
from raybroker.wire.native.receive_buffers import FrameBuffers

MAGIC: Final = b"RBK\x01"
TOKEN_BYTES: Final = 32
PREFACE_BYTES: Final = len(MAGIC) + TOKEN_BYTES
SCRATCH_BYTES: Final = 64 * 1024
"""Most of the buffer for bytes that do not belong to a large frame; frames up to this size are copied out of it."""
FIRST_BYTES: Final = 4 * 1024
"""That buffer until it was full once: a connection that says little costs little."""
GROW_BYTES: Final = 1 << 20
"""A large frame's buffer grows by so much as its bytes come, so that a declared length alone costs nothing."""


def preface(token: bytes) -> bytes:
    """The preface, which the connecting side sends first."""
    assert len(token) == TOKEN_BYTES
    return MAGIC + token


class Native:
    """One end of a connection. ``token``: what the peer must show (listening side), or None (connecting side).

    ``buffers``: shared by the connections of one event loop; ``accepts``: says whether a token that was shown will do,
    in place of ``token`` (listening side); ``grown``: is told how large the buffer of a frame of more than GROW_BYTES
    has become, and 0 when the frame has come; ``control_bytes_max``: of a frame without messages, from now on.

    After a wrong token or a malformed frame :attr:`closed` is True and further data is dropped.
    """

    __slots__ = (
        "_accepts",
        "_awaits_preface",
        "_buffers",
        "_decoders",
        "_end",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_grown",
        "_scratch",
        "closed",
        "control_bytes_max",
        "frame_bytes_max",
    )

    def __init__(
        self,
        *,
        token: bytes | None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        buffers: FrameBuffers | None = None,
        accepts: Callable[[bytes], bool] | None = None,
        grown: Callable[[int], None] | None = None,
    ) -> None:
        self._grown = grown
        if accepts is None and token is not None:
            accepts = partial(hmac.compare_digest, token)
        self._accepts = accepts
        self._buffers = buffers or FrameBuffers()
        self._awaits_preface = accepts is not None
        self._decoders = TO_CLIENT if accepts is None else TO_HOST
        self._scratch = bytearray(PREFACE_BYTES if self._awaits_preface else FIRST_BYTES)
        self._end = 0
        """Bytes of the scratch that are not taken in yet; they start at its beginning."""
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._filled = 0
        self.closed = False
        self.frame_bytes_max = frame_bytes_max
        self.control_bytes_max = CONTROL_BYTES_MAX

    @property
    def authenticated(self) -> bool:
        """True once the peer's token was right; a connecting side has nothing to check."""
        return not self._awaits_preface and not self.closed

    @property
    def held_bytes(self) -> int:
        """Bytes that came and are not part of a complete frame yet."""
        return self._end + self._filled

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take what came; returns the frames it completed. Raises SecurityError or ProtocolError and is then closed."""
        size, end = len(data), self._end
        if not end and type(data) is bytes and (whole := self._whole(data, size)) is not None:
            return whole
        if self._frame is None and size <= len(self._scratch) - end:
            self._scratch[end : end + size] = data
            return self.received(size)
        frames: list[Frame] = []
        view = memoryview(data)
        while view.nbytes and not self.closed:
            room = self.buffer()
            size = min(room.nbytes, view.nbytes)
            room[:size] = view[:size]
            room.release()
            view = view[size:]
            frames += self.received(size)
        return frames

    def _whole(self, data: bytes, size: int) -> list[Frame] | None:
        """What is in ``data``, when that is exactly one small frame, which may keep it; None when it is not."""
        if self._frame is not None or self._awaits_preface or self.closed:
            return None
        if not FRAME_HEAD.size < size <= SCRATCH_BYTES:
            return None
        length, kind = FRAME_HEAD.unpack_from(data)
        decoder = self._decoders.get(kind)
        most = self.frame_bytes_max if kind in MESSAGE_FRAMES else self.control_bytes_max
        if 4 + length != size or decoder is None or length > most:
            return None
        try:
            return list(decoder(memoryview(data)[FRAME_HEAD.size :]))
        except ProtocolError:
            self.closed = True
            raise

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty. To be released, or not kept, before :meth:`received`."""
        if self._frame is None:
            return memoryview(self._scratch)[self._end :]
        if self._filled == len(self._frame):
            self._frame.extend(bytes(min(GROW_BYTES, self._frame_bytes - self._filled)))
            if self._grown is not None:
                self._grown(len(self._frame))
        return memoryview(self._frame)[self._filled : self._frame_bytes]

    def received(self, size: int) -> list[Frame]:
        """``size`` bytes were put into :meth:`buffer`; returns the frames that are complete now.

        What is left of the scratch moves to its start, or into a large frame's own buffer.
        """
        frames: list[Frame] = []
        if self.closed:
            return frames
        try:
            if self._frame is not None:
                return self._fill(size)
            self._end += size
            if self._awaits_preface:
                self._check_preface()
                return frames
            scratch, at, end = self._scratch, 0, self._end
            view = memoryview(scratch)
            while end - at >= FRAME_HEAD.size:
                length, kind = FRAME_HEAD.unpack_from(scratch, at)
                decoder = self._decoders.get(kind)
                if decoder is None:
                    raise ProtocolError(f"a frame of unknown type {kind}")
                most = self.frame_bytes_max if kind in MESSAGE_FRAMES else self.control_bytes_max
                if not 1 <= length <= most:
                    raise ProtocolError(f"a frame declares {length} bytes; allowed are 1 to {most}")
                stop = at + 4 + length
                if stop > end:
                    if 4 + length > SCRATCH_BYTES:
                        self._give_room(view[at:end], 4 + length)
                        end = at
                    break
                body = view[at + FRAME_HEAD.size : stop]
                # Of messages a copy: they are kept, and the scratch is used again.
                frames.extend(decoder(memoryview(bytes(body)) if kind in MESSAGE_FRAMES else body))
                at = stop
            full = self._end == len(scratch) == FIRST_BYTES
            if full:
                self._scratch = bytearray(SCRATCH_BYTES)
            if at < end and (at or full):
                self._scratch[: end - at] = scratch[at:end]
            self._end = end - at
            return frames
        except (ProtocolError, SecurityError):
            self.closed = True
            self._frame = None
            self._end = self._filled = 0
            raise

    def _fill(self, size: int) -> list[Frame]:
        """More of a large frame has come."""
        assert self._frame is not None
        self._filled += size
        if self._filled < self._frame_bytes:
            return []
        frame, self._frame, self._filled = self._frame, None, 0
        if self._grown is not None and self._frame_bytes > GROW_BYTES:
            self._grown(0)
        return list(self._decoders[frame[4]](memoryview(frame)[FRAME_HEAD.size : self._frame_bytes]))

    def _give_room(self, start: memoryview, size: int) -> None:
        """A large frame has begun: its bytes from here on go straight into its own buffer."""
        self._frame_bytes = size
        # A larger buffer grows with what comes: who declares a length and sends nothing takes no memory.
        self._frame = self._buffers.take_buffer(size) if size <= GROW_BYTES else bytearray(GROW_BYTES)
        self._frame[: start.nbytes] = start
        self._filled = start.nbytes

    def _check_preface(self) -> None:
        """Nothing but a whole preface is looked at, in constant time."""
        assert self._accepts is not None
        if self._end < PREFACE_BYTES:
            return
        shown = bytes(self._scratch)
        if not hmac.compare_digest(shown[: len(MAGIC)], MAGIC) or not self._accepts(shown[len(MAGIC) :]):
            raise SecurityError("the connection did not show the cluster's token")
        self._awaits_preface = False
        self._scratch = bytearray(FIRST_BYTES)
        self._end = 0
