"""Sockets that have come and have not said what they want yet: how many there may be, in all and from one address.

When there is no room for another one, the one that has waited longest makes some, so that silent ones keep nobody out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from raybroker.model.settings.setting_listeners import ARRIVING_MAX, ARRIVING_OF_ADDRESS_MAX
from raybroker.system.supervision import Supervisor


class Origin(NamedTuple):
    """What is known of how a client comes, when a gateway passes it on within the process.

    encrypted    nobody can read what it sends on its way to the gateway, or the gateway has looked at that itself
    certificate  the client's own, which TLS has verified
    gateway      it is a gateway that logs in for its client
    """

    encrypted: bool = True
    certificate: bytes | None = None
    gateway: bool = False


ITSELF: Final = Origin()
"""Of clients that no gateway passes on."""
GATEWAY: Final = Origin(gateway=True)
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
QUIESCED: Final = "QUIESCED"
"""States of a service: new clients come in, nobody comes in and nothing is read, only those that are there go on."""
MAKES_ROOM: Final = "others need the room, and it has not said what it wants"


class Arrivals:
    """Tasks of one event loop, one a socket; at most ``most``, and ``of_address`` from one address."""

    def __init__(self, most: int = ARRIVING_MAX, of_address: int = ARRIVING_OF_ADDRESS_MAX) -> None:
        self._most = most
        self._of_address = of_address
        self._loops = Supervisor("clients that come in")
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, address: str, work: Callable[[], Coroutine[Any, Any, None]], made_room: Callable[[], None]) -> bool:
        """Begin with one from that address, and end the one that came first when there are too many in all; False when
        there are too many from that address.

        ``made_room``: closes the socket and tells of it, when this one was ended for another one. Its work may not even
        have begun by then.
        """
        if self._by_address[address] >= self._of_address:
            if not self._by_address[address]:
                del self._by_address[address]
            return False
        if len(self._tasks) >= self._most:
            first = next(iter(self._tasks))
            del self._tasks[first]
            first.cancel()
        self._by_address[address] += 1
        task = self._loops.once(f"of {address}", work())
        self._tasks[task] = None

        def left(done: asyncio.Task[None]) -> None:
            others_came = done not in self._tasks
            self._tasks.pop(done, None)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            if others_came and done.cancelled():
                made_room()

        task.add_done_callback(left)
        return True

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()
