"""One connection: received bytes go to the protocol machine, buffers of the machine's user go to the transport.

The same class serves both ends and both kinds of transport, a TCP socket and the pair of in-process ends of
:func:`memory_pair`.  It decides nothing: frames go to ``on_frames``, the end of the connection to ``on_lost``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import BrokerError, ConnectionLostError, ProtocolError
from raybroker.model.naming.addresses import is_loopback
from raybroker.transport.direct import DirectSockets
from raybroker.wire.native.connection import Native
from raybroker.wire.native.frames import Frame

WRITE_BYTES_HIGH: Final = 1 << 20
"""Unsent bytes above which the link is congested, and the engine holds further deliveries back."""
WRITE_BYTES_LOW: Final = 256 * 1024
SOCKET_BUFFER_BYTES: Final = 1 << 20
SOON_BYTES_MAX: Final = 256 * 1024
"""Most bytes that :meth:`Link.write_soon` keeps for the next write."""


class Link(asyncio.BufferedProtocol):
    """One end of a connection; calls ``on_frames(frames)``, and ``on_lost(error)`` once, with None for a clean end."""

    def __init__(
        self,
        native: Native,
        *,
        on_frames: Callable[[list[Frame]], None],
        on_lost: Callable[[BrokerError | None], None],
        on_writable: Callable[[], None] | None = None,
        on_made: Callable[[Link], None] | None = None,
    ) -> None:
        self._native = native
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._on_writable = on_writable
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._error: BrokerError | None = None
        self.congested = False
        self.lost = False
        self._soon: list[Buffer] = []
        self._soon_bytes = 0
        self._direct: DirectSockets | None = None
        self._number = -1
        self._beside: DirectSockets | None = None
        """Sockets of the same loop, of which this one is none."""
        self.bytes_in = self.writes = self.bytes_out = 0

    @property
    def authenticated(self) -> bool:
        return self._native.authenticated

    @property
    def peer_name(self) -> str:
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if name else "in-process"

    @property
    def has_socket(self) -> bool:
        """Whether the other end is reached by a socket; else it is in this process and works on the same loop."""
        return self._transport is not None and not isinstance(self._transport, MemoryTransport)

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the other end has shown over TLS, if it was asked for one."""
        secured = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return secured.getpeercert(True) if secured is not None else None

    @property
    def private(self) -> bool:
        """Whether nobody else can read what is sent: it is encrypted, or does not leave this machine."""
        transport = self._transport
        if transport is None:
            return False
        if transport.get_extra_info("ssl_object") is not None:
            return True
        name = transport.get_extra_info("peername")
        if not (isinstance(name, tuple) and name):
            return True  # A pipe, or a Unix socket.
        own = transport.get_extra_info("sockname")
        return is_loopback(str(name[0])) or (isinstance(own, tuple) and own[0] == name[0])

    # ---- called by the transport -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            if sock.family != socket.AF_UNIX:
                # What belongs together is written together: nothing gains by waiting for more.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._native.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        try:
            frames = self._native.received(nbytes)
            if frames:
                self._on_frames(frames)
        except BrokerError as error:
            self.close(error)
        except Exception as error:
            self._unhandled(error)
            raise

    def take_frames(self, frames: list[Frame]) -> None:
        """Give frames to the user that it has put off; what it raises ends the connection as ever."""
        try:
            self._on_frames(frames)
        except BrokerError as error:
            self.close(error)
        except Exception as error:
            self._unhandled(error)
            raise

    def data_received(self, data: bytes) -> None:
        """Take bytes of a pipe within the process, as :meth:`buffer_updated` takes those of a socket."""
        self.bytes_in += len(data)
        try:
            frames = self._native.receive_data(data)
            if frames:
                self._on_frames(frames)
        except BrokerError as error:
            self.close(error)
        except Exception as error:
            self._unhandled(error)
            raise

    def _unhandled(self, error: Exception) -> None:
        self.close(ProtocolError(f"a frame could not be handled: {error!r}"))  # Nobody waits for its answer.

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._on_writable is not None:
            self._on_writable()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        self._leave_direct()
        error = self._error
        if error is None and exc is not None:
            error = ConnectionLostError(f"the connection to {self.peer_name} broke: {exc}")
        self._on_lost(error)

    # ---- called by the user ----------------------------------------------------------------------------------------

    def write(self, *buffers: Buffer) -> None:
        """Send these buffers, one after the other.  Never blocks; the unsent rest is kept, see ``congested``."""
        if self._soon:
            buffers = (*self._soon, *buffers)
            self._soon.clear()
            self._soon_bytes = 0
        transport = self._transport
        if transport is None or self.lost:
            return
        self.writes += 1
        for buffer in buffers:
            self.bytes_out += len(buffer)
        if self._direct is not None and self._direct.active:
            self._direct.write(self._number, transport, buffers)
            return
        if self._beside is not None and self._beside.active:
            # Written by the transport, which needs the loop: whoever leads has to make room for it.
            self._beside.needs_loop = True
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def write_soon(self, *buffers: Buffer) -> None:
        """Send these buffers together with the next write, at the latest at the end of this turn of the loop.

        A write is a call of the system, and wakes the peer; several small ones cost as much as one.
        """
        if not self._soon:
            asyncio.get_running_loop().call_soon(self.flush)
        self._soon.extend(buffers)
        self._soon_bytes += sum(map(len, buffers))
        if self._soon_bytes > SOON_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send the buffers that :meth:`write_soon` has kept."""
        if self._soon:
            self.write()

    def traffic(self) -> tuple[int, int, int]:
        """Bytes in, writes and bytes out since the link was made."""
        return self.bytes_in, self.writes, self.bytes_out

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None and not self.lost else 0

    @property
    def reads(self) -> bool:
        """Whether anything is read from the other end now."""
        return self._transport is not None and not self.lost and self._transport.is_reading()

    def pause_reading(self) -> None:
        if self._transport is not None and not self.lost and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self.lost and not self._transport.is_reading():
            self._transport.resume_reading()

    def serve_directly(self, sockets: DirectSockets) -> None:
        """Allow the socket to be served by a thread while the loop stands still; a pipe has none."""
        if self._transport is None or self.lost:
            return
        secured = self._transport.get_extra_info("sslcontext") is not None
        sock = None if secured else self._transport.get_extra_info("socket")
        if sock is None:  # What is on a socket with TLS is the transport's business, which needs the loop.
            self._beside = sockets
        else:
            self._direct, self._number = sockets, sock.fileno()
            sockets.add(self._number, self, self._transport)

    def _leave_direct(self) -> None:
        if self._direct is not None:
            # The loop alone finds and finishes the end of a connection.
            self._direct.needs_loop = True
            self._direct.remove(self._number)
            self._direct = None

    def close(self, error: BrokerError | None = None) -> None:
        """End the connection once all written bytes are sent; ``on_lost`` gets ``error``."""
        self._error = self._error or error
        self.flush()
        self._leave_direct()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once; unsent bytes are lost."""
        self._leave_direct()
        if self._transport is not None:
            self._transport.abort()


class MemoryTransport(asyncio.Transport):
    """One end of a pipe within a process; bytes arrive in a later turn of the loop, as from a socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._peer: MemoryTransport | None = None
        self._protocol: Link | None = None
        self._closed = False
        self._reading = True
        self._held: list[bytes] = []
        self._unread_bytes = 0
        """That the other end has not taken yet."""
        self._high, self._low = WRITE_BYTES_HIGH, WRITE_BYTES_LOW
        self._full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BYTES_HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unread_bytes

    def write(self, data: Any) -> None:
        if not self._closed and self._peer is not None:
            data = bytes(data)
            self._loop.call_soon(self._peer._arrive, data)
            self._unread_bytes += len(data)
            if self._unread_bytes > self._high and not self._full and self._protocol is not None:
                self._full = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _arrive(self, data: bytes) -> None:
        if self._closed or self._protocol is None:
            return
        if not self._reading:
            self._held.append(data)
            return
        if self._peer is not None:
            self._peer._taken(len(data))
        self._protocol.data_received(data)

    def _taken(self, nbytes: int) -> None:
        """The other end takes bytes that were written here."""
        self._unread_bytes -= nbytes
        if self._full and self._unread_bytes <= self._low:
            self._full = False
            if self._protocol is not None and not self._closed:
                self._loop.call_soon(self._protocol.resume_writing)

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        held, self._held = self._held, []
        for data in held:
            self._arrive(data)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._lose_connection)
            if self._peer is not None:
                self._loop.call_soon(self._peer.close)

    def _lose_connection(self) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(None)

    abort = close

    def is_closing(self) -> bool:
        return self._closed


def memory_pair(loop: asyncio.AbstractEventLoop, first: Link, second: Link) -> None:
    """Connect two links of one process."""
    ends = MemoryTransport(loop), MemoryTransport(loop)
    for end, other, protocol in ((ends[0], ends[1], first), (ends[1], ends[0], second)):
        end._peer = other
        end._protocol = protocol
    first.connection_made(ends[0])
    second.connection_made(ends[1])
