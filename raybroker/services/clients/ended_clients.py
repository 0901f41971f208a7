"""Clients inside the Ray cluster that an administrator has ended: a host does not take their connections any more.

A client that is told leaves all hosts.  One that is between two connections when it is ended, or cut off from the host
that would tell it, learns the reason when it comes back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

ENDED_MAX: Final = 16_384
"""Clients that are remembered; the one that was ended first is forgotten first."""

ID_CHARS_MAX: Final = 64
"""No client has an id that is longer."""


class EndedClients:
    """The clients that were ended, by the ids of their connections, which are never used again."""

    def __init__(self, most: int = ENDED_MAX) -> None:
        self._most = most
        self._why: OrderedDict[str, str] = OrderedDict()
        self.everybody = ""
        """Why nobody is let in any more; "" while clients are."""

    def add(self, connections: Iterable[str], why: str) -> None:
        """Note that these are ended; the first reason stays."""
        for connection in connections:
            if len(connection) <= ID_CHARS_MAX:
                self._why.setdefault(connection, why)
        while len(self._why) > self._most:
            self._why.popitem(last=False)

    def why(self, connection: str) -> str | None:
        """Why it has ended; None: it has not."""
        return self._why.get(connection)
