"""The links of one copy, and the loop that serves them: one thread, which also says what time it is.

A link is made when there is something to send to a copy that has none, after a pause that grows while that fails.  What
is said meanwhile is kept for WAITING_MS, up to WAITING_MAX messages; more is dropped, as by a network that loses it: a
copy that comes back is not asked for its promise in an election that has long been over.  Of two links with one copy
the newer is used.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from raybroker.copies.link import CopyLink, LinkEvents, LinkIdentity, LinkTls
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import PortRange
from raybroker.system.supervision import Supervisor

FIRST_PAUSE_MS: Final = 20
LAST_PAUSE_MS: Final = 1000
WAITING_MS: Final = 1000
WAITING_MAX: Final = 16
WAITING_BYTES_MAX: Final = 1 << 20
STRANGERS_MAX: Final = 32
"""Connections that have not proved themselves, at one time."""
BACKLOG: Final = 64
log = logging.getLogger("raybroker.copies")

Address = tuple[str, int]


class CopyTls(NamedTuple):
    """How links are encrypted: at this end where it listens, and where it connects.

    The certificate at the other end is not checked by an authority: the proof that follows is made of it.
    """

    listening: Callable[[], LinkTls]
    connecting: Callable[[], LinkTls]


class LinksHeard(NamedTuple):
    """What the links tell their copy, in the loop's thread.

    frame     a copy has sent this: its id, the kind, the payload
    opened    there is a link to this copy
    closed    there is none any more
    tick      time has passed
    """

    frame: Callable[[str, int, memoryview], None]
    opened: Callable[[str], None]
    closed: Callable[[str], None]
    tick: Callable[[], None]


@dataclass(slots=True)
class _Peer:
    """Another copy.  ``pause_ms``: how long after ``tried_ms`` it is tried again."""

    address: Address | None = None
    link: CopyLink | None = None
    trying: CopyLink | None = None
    tried_ms: int = -LAST_PAUSE_MS
    pause_ms: int = FIRST_PAUSE_MS
    waiting: deque[tuple[int, Sequence[Buffer]]] = field(default_factory=deque)
    """Since when what waits to be sent."""
    waiting_bytes: int = 0

    def keep(self, frame: Sequence[Buffer], now_ms: int) -> None:
        """Keep what is to be sent until there is a link, if there is room for it."""
        while self.waiting and now_ms - self.waiting[0][0] > WAITING_MS:
            self.waiting_bytes -= _nbytes(self.waiting.popleft()[1])
        if len(self.waiting) < WAITING_MAX and self.waiting_bytes + _nbytes(frame) <= WAITING_BYTES_MAX:
            self.waiting.append((now_ms, frame))
            self.waiting_bytes += _nbytes(frame)

    def take_waiting(self, now_ms: int) -> list[Sequence[Buffer]]:
        """Return what has not waited too long."""
        found = [frame for since_ms, frame in self.waiting if now_ms - since_ms <= WAITING_MS]
        self.waiting.clear()
        self.waiting_bytes = 0
        return found


def _nbytes(frame: Sequence[Buffer]) -> int:
    return sum(map(len, frame))


class CopyLinks:
    """Listens, connects, reads; ``now_ms``: a monotonic clock."""

    def __init__(
        self,
        identity: LinkIdentity,
        heard: LinksHeard,
        now_ms: Callable[[], int],
        tick_ms: int,
        tls: CopyTls | None = None,
    ) -> None:
        self._identity = identity
        self._heard = heard
        self._now_ms = now_ms
        self._tick_ms = tick_ms
        self._tls = tls
        self._events = LinkEvents(self._opened, self._frame, self._closed, self._unsent)
        self._peers: dict[str, _Peer] = {}
        self._links: set[CopyLink] = set()
        self._lock = threading.RLock()
        self._calls: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._listener: socket.socket | None = None
        self._over = False

    # ---- any thread

    def listen(self, ip: str, ports: PortRange) -> Address:
        """Take the first free port of the range; raises ConfigError."""
        last: OSError | None = None
        for port in range(ports.low, ports.high + 1):
            found = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
            try:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind((ip, port))
                found.listen(BACKLOG)
            except OSError as error:
                found.close()
                last = error
                continue
            found.setblocking(False)
            self._listener = found
            host, bound = found.getsockname()[:2]
            return str(host), int(bound)
        raise ConfigError(f"no free port in {ports} on {ip} for the links between copies: {last}")

    def serve(self, supervisor: Supervisor) -> threading.Thread:
        """Serve, in a thread of its own."""
        return supervisor.thread("links between copies", self._run, thread_name="raybroker-copy")

    def call(self, action: Callable[[], None]) -> None:
        """Run something in the loop's thread, soon."""
        self._calls.append(action)
        self._ring()

    def _ring(self) -> None:
        """Wake the loop, unless it has ended."""
        with self._lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def know(self, addresses: Mapping[str, Address]) -> None:
        """These are where the others are."""
        with self._lock:
            for copy, address in addresses.items():
                if copy != self._identity.me:
                    peer = self._peers.setdefault(copy, _Peer())
                    if peer.address != address:
                        peer.address, peer.pause_ms = address, FIRST_PAUSE_MS

    def connected(self) -> frozenset[str]:
        """Return the copies that there is a link to."""
        with self._lock:
            return frozenset(name for name, peer in self._peers.items() if peer.link is not None)

    def unsent_bytes(self, copy: str) -> int:
        """Return how much the other end has not taken; -1 without a link."""
        with self._lock:
            peer = self._peers.get(copy)
            return -1 if peer is None or peer.link is None else peer.link.unsent_bytes

    def send(self, to: str, frame: Sequence[Buffer]) -> None:
        """Send, or lose it."""
        with self._lock:
            peer = self._peers.get(to)
            if peer is None:
                return
            link = peer.link
            if link is None:
                peer.keep(frame, self._now_ms())
        if link is not None:
            link.send(frame)
        else:
            self.call(lambda: self._connect_if_due(to))

    def drop_link(self, to: str) -> None:
        """End the link with a copy; another one is made when it is needed."""

        def drop() -> None:
            with self._lock:
                peer = self._peers.get(to)
                link = None if peer is None else peer.link
            if link is not None:
                link.hang_up("it is begun anew")

        self.call(drop)

    def shut_down(self) -> None:
        """End all, and the loop."""
        self._over = True
        self._ring()

    # ---- the loop's thread

    def _run(self) -> None:
        self._selector.register(self._bell, selectors.EVENT_READ)
        if self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ)
        due = self._now_ms()
        try:
            while not self._over:
                for key, events in self._selector.select(max(0, due - self._now_ms()) / 1000):
                    self._serve(key, events)
                while self._calls:
                    self._calls.popleft()()
                if self._now_ms() >= due:
                    due = self._now_ms() + self._tick_ms
                    self._look_after_links()
                    self._heard.tick()
        finally:
            if self._over:
                self._hang_up_all()
            else:  # What was raised is logged, and the loop begins again.
                self._selector.unregister(self._bell)
                if self._listener is not None:
                    self._selector.unregister(self._listener)

    def _serve(self, key: selectors.SelectorKey, events: int) -> None:
        link = key.data
        if link is None:
            if key.fd == self._bell:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            else:
                self._accept()
            return
        if events & selectors.EVENT_WRITE and not link.over:
            self._write_on(link)
        if events & selectors.EVENT_READ and not link.over:
            link.readable(self._now_ms())

    def _write_on(self, link: CopyLink) -> None:
        with self._lock:
            peer = self._peers.get(link.other)
            begins = peer is not None and peer.trying is link and not link.open
        if begins:
            error = link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                link.hang_up(os.strerror(error))
                return
        if not link.writable() and not link.over:
            self._selector.modify(link.socket, selectors.EVENT_READ, link)

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(OSError):
            sock, _ = self._listener.accept()
            if sum(not link.open for link in self._links) >= STRANGERS_MAX:
                sock.close()
                return
            tls = None if self._tls is None else self._tls.listening()
            self._add(CopyLink(sock, self._identity, self._events, self._now_ms(), tls=tls))

    def _add(self, link: CopyLink, events: int = selectors.EVENT_READ) -> None:
        self._links.add(link)
        self._selector.register(link.socket, events, link)

    def _connect_if_due(self, to: str) -> None:
        now_ms = self._now_ms()
        with self._lock:
            peer = self._peers[to]
            if peer.link is not None or peer.trying is not None or peer.address is None:
                return
            if now_ms - peer.tried_ms < peer.pause_ms:
                return
            peer.tried_ms = now_ms
            peer.pause_ms = min(2 * peer.pause_ms, LAST_PAUSE_MS)
            address = peer.address
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        tls = None if self._tls is None else self._tls.connecting()
        link = CopyLink(sock, self._identity, self._events, now_ms, to, tls)
        with self._lock:
            peer.trying = link
        with suppress(BlockingIOError):
            try:
                sock.connect(address)
            except BlockingIOError:
                raise
            except OSError as error:
                self._links.add(link)
                self._selector.register(sock, selectors.EVENT_READ, link)
                link.hang_up(str(error))
                return
        self._add(link, selectors.EVENT_READ | selectors.EVENT_WRITE)
        link.greet()

    def _look_after_links(self) -> None:
        now_ms = self._now_ms()
        for link in list(self._links):
            link.look_after(now_ms)
        with self._lock:
            wanted = [name for name, peer in self._peers.items() if peer.waiting and peer.link is None]
        for name in wanted:
            self._connect_if_due(name)

    def _opened(self, link: CopyLink) -> None:
        with self._lock:
            peer = self._peers.setdefault(link.other, _Peer())
            peer.link = link
            if peer.trying is link:
                peer.trying = None
            peer.pause_ms = FIRST_PAUSE_MS
            waiting = peer.take_waiting(self._now_ms())
        for frame in waiting:
            link.send(frame)
        self._heard.opened(link.other)

    def _frame(self, link: CopyLink, kind: int, payload: memoryview) -> None:
        self._heard.frame(link.other, kind, payload)

    def _closed(self, link: CopyLink, reason: str) -> None:
        self._links.discard(link)
        with suppress(KeyError, ValueError):
            self._selector.unregister(link.socket)
        with self._lock:
            peer = self._peers.get(link.other)
            lost = peer is not None and peer.link is link
            if peer is not None:
                if lost:
                    peer.link = None
                if peer.trying is link:
                    peer.trying = None
        if not self._over:
            log.debug("copy %s: the link with copy %s has ended: %s", self._identity.me, link.other or "?", reason)
            if lost:
                self._heard.closed(link.other)

    def _unsent(self, link: CopyLink) -> None:
        """Something is left to write."""

        def write_later() -> None:
            if not link.over and link in self._links:
                self._selector.modify(link.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, link)

        self.call(write_later)

    def _hang_up_all(self) -> None:
        for link in list(self._links):
            link.hang_up("this copy ends")
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        with self._lock:
            os.close(self._bell)
            self._bell = -1
