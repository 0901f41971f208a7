"""Turns of logins: whoever logs in by a gateway waits for one, since a password costs a fifth of a second to prove.

MOST logins are under way at once, OF_ADDRESS of them from one address, and SPARE of the places are for users who have
logged in from their address before: they go first, and others of a busy address keep nobody out. WAITING_OF_ADDRESS
wait for each address; one more is refused at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from raybroker.model.errors import LoginLimitError

MOST: Final = 16
SPARE: Final = 4
OF_ADDRESS: Final = 4
WAITING_OF_ADDRESS: Final = 64
REMEMBERED_MAX: Final = 16_384
"""Pairs of user and address that have logged in; the one that did so least recently is forgotten."""


class _WaitingLogin(NamedTuple):
    address: str
    turn: asyncio.Future[None]


class LoginTurns:
    """The turns of logins on one loop."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._first: list[_WaitingLogin] = []
        """Known ones that wait, and then the others."""
        self._others: list[_WaitingLogin] = []

    @asynccontextmanager
    async def turn_of(self, user: str, address: str) -> AsyncIterator[None]:
        """The turn of a user who comes from that address; he is known when what is done in it succeeds. Raises
        LoginLimitError when too many of the address wait."""
        known = (user, address) in self._known
        await self._enter(address, known=known)
        try:
            yield
        finally:
            self._leave(address)
        self._known[user, address] = None
        self._known.move_to_end((user, address))
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    def _may(self, address: str, *, known: bool) -> bool:
        total = self._running.total()
        return total < MOST if known else total < MOST - SPARE and self._running[address] < OF_ADDRESS

    async def _enter(self, address: str, *, known: bool) -> None:
        line = self._first if known else self._others
        if self._may(address, known=known):  # Those of the line before wait for their addresses.
            self._running[address] += 1
            return
        waiting = sum(one.address == address for one in line)
        if waiting >= WAITING_OF_ADDRESS:
            raise LoginLimitError(f"{waiting} logins from {address} wait for their turn; try again later")
        one = _WaitingLogin(address, asyncio.get_running_loop().create_future())
        line.append(one)
        try:
            await one.turn
        except asyncio.CancelledError:
            if one in line:
                line.remove(one)
            else:  # Its turn had come.
                self._leave(address)
            raise

    def _leave(self, address: str) -> None:
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
        self._wake()

    def _wake(self) -> None:
        for line, known in ((self._first, True), (self._others, False)):
            for one in list(line):
                if not one.turn.done() and self._may(one.address, known=known):
                    line.remove(one)
                    self._running[one.address] += 1
                    one.turn.set_result(None)
