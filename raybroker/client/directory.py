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

    async def create_temporary(self, kind: str, owner: str) -> str:
        """The name of a new destination that lives as long as the connection with the id ``owner`` (D-23)."""
        ...

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        """Remove one before that; raises IllegalStateError while it has consumers, and for other owners (D-23)."""
        ...

    async def subscribe(
        self,
        topic: str,
        client_id: str | None,
        name: str,
        *,
        durable: bool = True,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
    ) -> None:
        """Before a named subscription is opened: creates a missing topic as :meth:`locate` and ends an unused
        subscription of the same identity that is another one (D-27). May be repeated.

        Raises IllegalStateError when the identity is in use with another topic, selector, noLocal or sharing.
        """
        ...

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        """End a durable subscription (D-27).

        Raises IllegalStateError while it has consumers, InvalidDestinationError when there is none.
        """
        ...

    async def matching(self, pattern: str) -> tuple[int, list[str]]:
        """The version of the list of topics, and the names in it that match the pattern, ascending (D-05).

        Raises InvalidDestinationError for a bad pattern.
        """
        ...

    async def changed(self, version: int, timeout_s: float) -> int:
        """The version of the list of topics, as soon as it is another one than ``version`` or the time is over.

        Waits at most 20 s, whatever is asked for: ask again. A version that differs says nothing but that the list may
        have changed; versions of a broker that was restarted are other ones (D-05).
        """
        ...

    async def settings(self) -> dict[str, Any]:
        """Factory attributes and limits that the cluster gives its clients."""
        ...

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """An administrative operation by name; see ``raybroker.admin``."""
        ...

    async def close(self) -> None: ...
