"""A turn: frames of one connection are handled, or those who wait for one commit are told.

What can be shared is put off to the end of a turn.  A commit comes after what other connections have sent meanwhile,
unless nobody else has sent anything since the connection's last frames: a lone sender does not wait for others.  The
confirmations that a turn brings a connection leave in one frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from raybroker.engine.ports import Committer
from raybroker.services.native.spinning import LoopSpin
from raybroker.services.native.tracing import SendTraces
from raybroker.transport.link import Link

ALONE_BYTES_MAX: Final = 32 << 10
"""A lone sender's commit of more bytes waits until the loop has looked for more: there may be more of them."""


class Turn:
    """One object for all turns of an event loop, one after another.

    under_way   somebody calls :meth:`finish_frames`, or :meth:`flush`, when the turn is over
    handling    frames are being handled: :meth:`finish_frames` is still to do what is put off
    latest      the link whose frames came last
    confirming  write the confirmations of connections that have some; each adds its own once during a turn
    later       what is to be done at the end of the turn
    committer   of the host, once that has started
    traces      sends whose way through the host is measured
    spin        keeps the loop awake after the frame of a lone sender; None: it sleeps
    """

    __slots__ = ("committer", "confirming", "handling", "later", "latest", "spin", "traces", "under_way")

    def __init__(self) -> None:
        self.under_way = self.handling = False
        self.latest: Link | None = None
        self.confirming: list[Callable[[], object]] = []
        self.later: list[Callable[[], object]] = []
        self.committer: Committer | None = None
        self.traces = SendTraces()
        self.spin: LoopSpin | None = None

    def finish_frames(self, *, alone: bool) -> None:
        """The frames of a connection were handled.

        ``alone``: there was one frame, and since the connection's last frames no other connection has sent any.
        """
        self.handling = False  # What comes of the actions is not for this turn.
        try:
            if self.later:
                actions, self.later = self.later, []
                if alone and (self.committer is None or self.committer.pending_bytes <= ALONE_BYTES_MAX):
                    for action in actions:
                        action()
                else:
                    loop = asyncio.get_running_loop()
                    for action in actions:
                        loop.call_soon(action)
        finally:
            self.under_way = False
            # Behind the actions: what a commit among them has confirmed leaves in the same frame.
            confirming, self.confirming = self.confirming, []
            for write in confirming:
                write()

    def soon(self, action: Callable[[], object]) -> None:
        """Call ``action`` when the frames at hand are handled, or in the loop's next turn: for a committer."""
        if self.handling:
            self.later.append(action)
        else:
            asyncio.get_running_loop().call_soon(action)

    def behind(self, action: Callable[[], object]) -> None:
        """Call ``action`` when what is confirmed now has left: for a committer.

        A client on this loop is told in the next turn, and what it writes to its own client then leaves at its end.
        """
        loop = asyncio.get_running_loop()
        if self.latest is not None and not self.latest.has_socket:
            loop.call_soon(loop.call_soon, action)
        else:
            loop.call_soon(action)

    def release(self, group: Sequence[Callable[[], None]]) -> None:
        """Tell those who wait for one commit, in order."""
        before, self.under_way = self.under_way, True
        try:
            for done in group:
                done()
        finally:
            self.under_way = before
            if self.confirming and not before:
                self.flush()

    def confirms(self, write: Callable[[], object]) -> None:
        """A connection has confirmations to write, and no turn is under way that would see to it."""
        if not self.confirming:
            asyncio.get_running_loop().call_soon(self.flush)
        self.confirming.append(write)

    def flush(self) -> None:
        """Write them."""
        confirming, self.confirming = self.confirming, []
        for write in confirming:
            write()
