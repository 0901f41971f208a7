"""Direct IO: sockets of an event loop that a thread serves while the loop stands still.

A thread that waits for an answer of its own may take the loop's place for a moment: it writes to the sockets and reads
from them itself, which saves two changes of thread.  Only one thread at a time may do so, and never while the loop
runs; who it is decides the user.  What it cannot do at once, such as the rest of a write that the socket does not take,
or the end of a connection, stays for the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from raybroker.model.blocks.record import Buffer
from raybroker.transport.spin import Spin

SUPPORTED: Final = hasattr(select, "epoll") and hasattr(os, "eventfd")
"""Whether this system has what it takes; elsewhere the loop alone serves."""
BUFFERS_MAX: Final = 512
"""Buffers of one write to a socket; the system takes 1,024."""


class Transport(Protocol):
    """What is asked of the loop's transport."""

    def get_write_buffer_size(self) -> int: ...

    def write(self, data: Buffer, /) -> None: ...


class DirectSockets:
    """The sockets of one loop.

    active      a thread serves them now, and the loop does not run
    needs_loop  something is left that only the loop can do
    spin        how long a wait looks again before it sleeps; None: it sleeps at once
    """

    def __init__(self) -> None:
        self.active = False
        self.needs_loop = False
        self.spin: Spin | None = None
        self._now_ns: Callable[[], int] = lambda: 0
        self.links: dict[int, tuple[asyncio.BufferedProtocol, Transport]] = {}
        """By file number: what takes the bytes that come, and the loop's transport."""
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        weakref.finalize(self, os.close, self._bell)

    def spin_for(self, most_ns: int, monotonic_ns: Callable[[], int]) -> None:
        """Look again for so long at most before each sleep from now on; 0: not at all."""
        self.spin = Spin(most_ns) if most_ns else None
        self._now_ns = monotonic_ns

    def add(self, number: int, link: asyncio.BufferedProtocol, transport: Transport) -> None:
        """Serve the socket with this file number."""
        self.links[number] = link, transport
        self._epoll.register(number, select.EPOLLIN)

    def remove(self, number: int) -> None:
        """The connection has ended, or is about to; before the file number is closed."""
        if self.links.pop(number, None) is not None:
            with contextlib.suppress(OSError):  # It is closed already, which took it out as well.
                self._epoll.unregister(number)

    @property
    def unsent(self) -> bool:
        """Something is to be written that waits for the loop."""
        return any(transport.get_write_buffer_size() for _, transport in self.links.values())

    def ring(self) -> None:
        """End the :meth:`wait` of whoever serves, from any thread."""
        os.eventfd_write(self._bell, 1)

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """(file number, events) of sockets with something to read; empty when the time is over."""
        if self.spin is not None and timeout_s > 0:
            found = self._look_again(self.spin, round(timeout_s * 1e9))
            if found:
                return found
        return self._epoll.poll(timeout_s)

    def _look_again(self, spin: Spin, timeout_ns: int) -> list[tuple[int, int]]:
        """Wait without sleeping, for as long as the spin allows, which is little beside any time-out."""
        most_ns = min(spin.start_spin(), timeout_ns)
        if not most_ns:
            return []
        found: list[tuple[int, int]] = []
        began_ns = now_ns = self._now_ns()
        while not found and now_ns - began_ns < most_ns:
            found = self._epoll.poll(0)
            now_ns = self._now_ns()
        spin.count_spin(now_ns - began_ns, came=bool(found))
        return found

    def read(self, number: int) -> None:
        """Read what is there and give it to the link."""
        served = self.links.get(number)
        if served is None:
            if number == self._bell:
                os.eventfd_read(self._bell)
            return
        link = served[0]
        try:
            count = os.readv(number, [link.get_buffer(-1)])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count:
            link.buffer_updated(count)
        else:
            self.needs_loop = True  # It finds the end of the connection, and says so.

    def write(self, number: int, transport: Transport, buffers: Sequence[Buffer]) -> None:
        """Write to a socket after what its transport still has; the rest is left to the transport."""
        written = 0
        # What the transport still has was sent before.
        if len(buffers) <= BUFFERS_MAX and not transport.get_write_buffer_size():
            try:
                written = os.writev(number, buffers)
            except OSError:  # It takes nothing now, or is broken, which the loop finds.
                written = 0
            if written == sum(map(len, buffers)):
                return
        self.needs_loop = True
        for buffer in buffers:
            if written < len(buffer):
                transport.write(memoryview(buffer)[written:] if written else buffer)
            written = max(written - len(buffer), 0)
