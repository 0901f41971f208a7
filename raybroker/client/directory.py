"""How a client finds destinations and changes them: the control side of a cluster, behind one protocol.

Inside Ray the broker actor answers; in the loopback, the broker object of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from raybroker.transport.link import Link

Dial = Callable[[Callable[[], Link]], Awaitable[object]]
"""Connects the link that the factory makes; raises OSError when nobody listens."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a destination is served: ``key`` names the host (one connection to it is enough), ``dial`` reaches it,
    ``token`` opens the door."""

    key: str
    token: bytes
    dial: Dial


class Directory(Protocol):
    """All methods raise the errors of ``raybroker.errors``; those marked retryable are worth another try."""

    async def locate(self, kind: str, name: str, create: bool) -> Place:
        """Where the destination is served; creates it when missing, if ``create`` and the broker allow (D-21)."""
        ...

    async def settings(self) -> dict[str, Any]:
        """Factory attributes and limits that the cluster gives its clients."""
        ...

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """An administrative operation by name; see ``raybroker.admin``."""
        ...

    async def close(self) -> None: ...
