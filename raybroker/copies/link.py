"""One connection between two copies: frames in, frames out, and the proof that both have the cluster's secret.

    connecting side   HELLO      nonce, key of the log, its id
    listening side    CHALLENGE  nonce, its id, its proof
    connecting side   PROOF      its proof; what it says from then on is taken

A proof is a hash of both nonces, the key and both ids, keyed with the secret, which itself is never sent; where it
is encrypted, also of the certificate that the listening side shows, so that nobody in between can show another one.
Until then a frame has at most HANDSHAKE_BYTES_MAX.  Any thread may send: what the socket does not take at once is left
to the loop.
"""

from __future__ import annotations

import hmac
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final, NamedTuple

from raybroker.copies.message_form import FRAME_BYTES_MAX, HEAD
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ProtocolError, SecurityError

HELLO, CHALLENGE, PROOF = range(32, 35)
NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
HANDSHAKE_BYTES_MAX: Final = 1024
HANDSHAKE_MS: Final = 3000
SILENT_MS: Final = 5000
"""A link on which nothing has come for so long is closed: whoever leads sends something every half second."""
RECEIVE_BYTES: Final = 256 << 10
REST_BYTES_MIN: Final = 16 << 10
"""So much of a frame, or more, is received where it belongs; less is copied there, with what follows it."""
SOCKET_BYTES: Final = 4 << 20
UNSENT_BYTES_MAX: Final = 64 << 20
"""Behind so much that the other end has not taken, more is dropped, as by a network that loses it."""
BUFFERS_MAX: Final = 512
"""Buffers of one write; the system takes 1,024."""
_NAMES: Final = struct.Struct("<HH")


class LinkIdentity(NamedTuple):
    """This end.  ``key``: names the log; ``secret``: of the cluster."""

    me: str
    key: str
    secret: bytes
    entropy: Callable[[int], bytes]


class LinkEvents(NamedTuple):
    """What a link calls, in the loop's thread, but ``unsent``: it has something to write, in any thread.

    opened  the other end has proved itself
    frame   it has sent this
    closed  the link has ended
    """

    opened: Callable[[CopyLink], None]
    frame: Callable[[CopyLink, int, memoryview], None]
    closed: Callable[[CopyLink, str], None]
    unsent: Callable[[CopyLink], None]


class LinkTls(NamedTuple):
    """How a link is encrypted.  ``certificate``: what this end shows (DER), where it listens; b"" where it connects."""

    context: ssl.SSLContext
    certificate: bytes = b""


class _Encryption:
    """TLS of one connection, between what is said and what the socket carries."""

    def __init__(self, tls: LinkTls) -> None:
        self.came, self.goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.inside = tls.context.wrap_bio(self.came, self.goes, server_side=bool(tls.certificate))
        self._certificate = tls.certificate
        self.ready = False
        self._early: list[Buffer] = []

    def certificate(self) -> bytes:
        """Return what the listening side shows."""
        return self._certificate or self.inside.getpeercert(binary_form=True) or b""

    def encrypt(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        self._early += buffers
        return self._turn()

    def decrypt(self, data: bytes) -> tuple[bytes, list[Buffer]]:
        """Return what was said, and what the socket has to send for that."""
        if data:
            self.came.write(data)
        out = self._turn()
        said: list[bytes] = []
        if self.ready:
            with suppress(ssl.SSLWantReadError):
                while part := self.inside.read(RECEIVE_BYTES):
                    said.append(part)
        return b"".join(said), out

    def _turn(self) -> list[Buffer]:
        if not self.ready:
            with suppress(ssl.SSLWantReadError):
                self.inside.do_handshake()
                self.ready = True
        if self.ready:
            for buffer in self._early:
                view = memoryview(buffer).cast("B")
                while view:
                    view = view[self.inside.write(view) :]
            self._early.clear()
        out = self.goes.read()
        return [out] if out else []


class CopyLink:
    """One end.  ``expected``: the copy that is connected to; "" at the end that listens.

    other  id of the copy at the other end, once it is known
    open   the other end has proved itself
    """

    def __init__(
        self,
        sock: socket.socket,
        identity: LinkIdentity,
        events: LinkEvents,
        now_ms: int,
        expected: str = "",
        tls: LinkTls | None = None,
    ) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        self.socket = sock
        self.other = expected
        self.open = self.over = False
        self.heard_ms = self.began_ms = now_ms
        self._identity = identity
        self._events = events
        self._nonce = identity.entropy(NONCE_BYTES)
        self._words = b""
        """What the proofs are made of."""
        self._lock = threading.RLock()
        self._out: deque[memoryview] = deque()
        self._unsent = 0
        self._encryption = None if tls is None else _Encryption(tls)
        self._frames = _FrameBuffer()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    # ---- what goes out

    def greet(self) -> None:
        """Begin, at the end that has connected."""
        self._put(_frame(HELLO, self._nonce + _named(self._identity.key, self._identity.me)))

    def send(self, buffers: Sequence[Buffer]) -> bool:
        """Send a frame; False: it is dropped, because the link is not open, or the other end takes nothing."""
        if not self.open or self._unsent > UNSENT_BYTES_MAX:
            return False
        self._put(buffers)
        return True

    def _put(self, buffers: Sequence[Buffer]) -> None:
        with self._lock:
            if self.over:
                return
            if self._encryption is not None:
                buffers = self._encryption.encrypt(buffers)
            self._queue(buffers)
            waits = self._write()
        if waits:
            self._events.unsent(self)

    def _queue(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if view.nbytes:
                self._out.append(view)
                self._unsent += view.nbytes

    def _write(self) -> bool:
        """Write what the socket takes; True when something is left."""
        out = self._out
        while out:
            some = [out[at] for at in range(min(len(out), BUFFERS_MAX))]
            try:
                taken = self.socket.sendmsg(some)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError:
                out.clear()  # The loop finds the end of the connection.
                self._unsent = 0
                return False
            self._unsent -= taken
            while taken:
                first = out.popleft()
                if taken < first.nbytes:
                    out.appendleft(first[taken:])
                    break
                taken -= first.nbytes
        return False

    # ---- in the loop's thread

    def writable(self) -> bool:
        """The socket takes more; True when that was not enough."""
        with self._lock:
            return self._write()

    def readable(self, now_ms: int) -> None:
        """Read what has come."""
        rest = self._frames.rest() if self._encryption is None else None
        try:
            nbytes = self.socket.recv_into(self._frames.came if rest is None else rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.hang_up(str(error))
            return
        if not nbytes:
            self.hang_up("the other end has closed it")
            return
        self.heard_ms = now_ms
        try:
            for kind, payload in self._received(nbytes) if rest is None else self._frames.filled(nbytes):
                if self.over:
                    return
                if self.open:
                    self._events.frame(self, kind, payload)
                else:
                    self._handshake(kind, bytes(payload))
        except (ProtocolError, SecurityError, ssl.SSLError) as error:
            self.hang_up(str(error))

    def _received(self, nbytes: int) -> list[tuple[int, memoryview]]:
        """Frames that have come with so many bytes."""
        data: Buffer = self._frames.came[:nbytes]
        if self._encryption is not None:
            with self._lock:
                data, out = self._encryption.decrypt(bytes(data))
                self._queue(out)
                waits = self._write()
            if waits:
                self._events.unsent(self)
        return self._frames.frames(data, FRAME_BYTES_MAX if self.open else HANDSHAKE_BYTES_MAX)

    def look_after(self, now_ms: int) -> None:
        """Close a link that does not come about, or on which nothing comes any more."""
        if not self.open and now_ms - self.began_ms > HANDSHAKE_MS:
            self.hang_up("it did not come about in time")
        elif now_ms - self.heard_ms > SILENT_MS:
            self.hang_up(f"nothing has come for {SILENT_MS} ms")

    def hang_up(self, reason: str) -> None:
        """End the link; loop's thread."""
        with self._lock:
            if self.over:
                return
            self.over, self.open = True, False
            self._out.clear()
            self._unsent = 0
        self._events.closed(self, reason)
        with suppress(OSError):
            self.socket.close()

    def _handshake(self, kind: int, payload: bytes) -> None:
        identity = self._identity
        nonce, rest = payload[:NONCE_BYTES], payload[NONCE_BYTES:]
        if kind == HELLO and not self.other and not self._words:
            key, self.other = _names(rest)
            if key != identity.key:
                raise SecurityError(f"a copy of {key} was connected to one of {identity.key}")
            self._words = nonce + self._nonce + _named(key, self.other) + identity.me.encode()
            self._put(_frame(CHALLENGE, self._nonce + self._proof(b"listens") + identity.me.encode()))
        elif kind == CHALLENGE and not self._words and self.other:
            proof, other = rest[:PROOF_BYTES], rest[PROOF_BYTES:].decode("utf-8", "replace")
            self._words = self._nonce + nonce + _named(identity.key, identity.me) + other.encode()
            if not hmac.compare_digest(proof, self._proof(b"listens")):
                raise SecurityError("the other end does not have the secret of this cluster")
            if other != self.other:
                raise SecurityError(f"copy {other} listens where copy {self.other} was looked for")
            self._put(_frame(PROOF, self._proof(b"connects")))
            self._opened()
        elif kind == PROOF and self._words and not self.open:
            if not hmac.compare_digest(payload, self._proof(b"connects")):
                raise SecurityError("the other end does not have the secret of this cluster")
            self._opened()
        else:
            raise ProtocolError(f"a frame of kind {kind} before both ends have proved themselves")

    def _opened(self) -> None:
        self.open = True
        self._events.opened(self)

    def _proof(self, side: bytes) -> bytes:
        secret = blake2b(self._identity.secret).digest()
        shown = b"" if self._encryption is None else self._encryption.certificate()
        return blake2b(side + self._words + shown, key=secret, digest_size=PROOF_BYTES).digest()


class _FrameBuffer:
    """Makes frames of bytes; each has memory of its own, because entries are kept.  ``came``: for bytes of which it is
    not known yet where they belong."""

    def __init__(self) -> None:
        self.came = memoryview(bytearray(RECEIVE_BYTES))
        self._head = bytearray()
        self._kind = self._have = 0
        self._payload: bytearray | None = None

    def rest(self) -> memoryview | None:
        """Return where the rest of a frame belongs of which a part has come; None: where there is none, or little."""
        payload = self._payload
        if payload is None or len(payload) - self._have < REST_BYTES_MIN:
            return None
        return memoryview(payload)[self._have :]

    def filled(self, nbytes: int) -> list[tuple[int, memoryview]]:
        """Take note that so many bytes have come there; returns the frame if it is whole."""
        payload = self._payload
        assert payload is not None
        self._have += nbytes
        if self._have < len(payload):
            return []
        self._payload = None
        return [(self._kind, memoryview(payload))]

    def frames(self, data: Buffer, most: int) -> list[tuple[int, memoryview]]:
        found: list[tuple[int, memoryview]] = []
        view = memoryview(data)
        while view:
            if self._payload is None:
                missing = HEAD.size - len(self._head)
                self._head += view[:missing]
                view = view[missing:]
                if len(self._head) < HEAD.size:
                    break
                nbytes, self._kind = HEAD.unpack(self._head)
                if nbytes > most:
                    raise ProtocolError(f"a frame of {nbytes} bytes between copies; at most {most}")
                self._head.clear()
                self._payload, self._have = bytearray(nbytes), 0
            payload = self._payload
            some = min(len(payload) - self._have, len(view))
            payload[self._have : self._have + some] = view[:some]
            self._have += some
            view = view[some:]
            if self._have == len(payload):
                found.append((self._kind, memoryview(payload)))
                self._payload = None
        return found


def _frame(kind: int, payload: bytes) -> list[Buffer]:
    return [HEAD.pack(len(payload), kind) + payload]


def _named(key: str, copy: str) -> bytes:
    names = key.encode(), copy.encode()
    return _NAMES.pack(*map(len, names)) + b"".join(names)


def _names(data: bytes) -> tuple[str, str]:
    try:
        first, second = _NAMES.unpack_from(data)
        key, copy = data[_NAMES.size : _NAMES.size + first], data[_NAMES.size + first :]
        if len(copy) != second or not key or not copy:
            raise ValueError("names are missing")
        return key.decode(), copy.decode()
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"a greeting between copies does not decode: {error}") from None
