"""A copy of a log as its broker sees it, and whoever makes copies: actors in a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from raybroker.broker.destinations.destination_registry import Key
from raybroker.hosting.host_port import HostPort, Row

Address = tuple[str, int]
CHANGE_S: Final = 10.0
"""How long whoever asks for a change of the set waits for its answer."""
AskBroker = Callable[[str, Row], Awaitable[Any]]
"""Calls one of the methods of LED_WHERE and LED_CALL of a broker, of a log that is led there."""
LED_WHERE: Final = "led_where"
LED_CALL: Final = "led_call"


class KeptCopy(NamedTuple):
    """What a broker notes of a copy that it keeps.

    secret  what all copies of the log have
    key     the destination
    record  the configuration change record that had the copy here last: one that was restored may not know of it, and
            that is no reason to remove it; "" where that is not known
    """

    secret: bytes
    key: Key
    record: str = ""


class CopyPort(Protocol):
    """See raybroker.actors.hosts.copy_host; all raise ConnectionLostError while the process cannot be asked."""

    async def where(self) -> tuple[str, int, int, bytes]: ...
    async def copy_row(self) -> Row: ...
    async def until_unled(self, timeout_s: float) -> bool: ...
    async def know(self, addresses: Mapping[str, Address]) -> None: ...
    async def found(self, copies: Sequence[str], min_in_sync: int) -> None: ...
    async def lead(self) -> None: ...
    async def change(self, change: str, copy: str) -> str: ...
    async def require(self, min_in_sync: int) -> str: ...
    async def hand_over(self, copy: str, *, quiet: bool) -> str: ...


class CopyMaker(Protocol):
    """Makes the copies of one broker."""

    node: str
    """Where they are."""

    def new_secret(self) -> bytes:
        """What proves a copy to the others of its log, and a client to the host."""
        ...

    async def open(self, log: str, secret: bytes) -> CopyPort:
        """Start the process of this broker's copy, or find it."""
        ...

    async def end_copy(self, log: str, *, remove: bool) -> None:
        """End the process; ``remove``: with what it has on disk."""
        ...

    def host(self, copy: CopyPort) -> HostPort:
        """The host that serves where this copy leads."""
        ...

    def host_elsewhere(self, broker: str, log: str, secret: bytes, ask: AskBroker) -> HostPort:
        """The host where another broker's copy leads, which that broker is asked for."""
        ...

    def kept(self) -> Mapping[str, KeptCopy]:
        """Log → what the broker's catalogue has of the copy that is kept here."""
        ...

    async def keep(self, log: str, kept: KeptCopy | None) -> None:
        """Note it in the catalogue; None: forget it."""
        ...
