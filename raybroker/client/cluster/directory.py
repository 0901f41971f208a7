"""The directory: the control side of a cluster, by which a client finds destinations and changes them.

Inside Ray the broker actor answers; in the loopback, the broker object of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from raybroker.transport.link import Link

LED_BY: Final = "ledBy"
"""Trait of a destination whose log has copies: the one broker at which it is, which changes when that is lost."""

Dial = Callable[[Callable[[], Link]], Awaitable[object]]
"""Connects the link that the factory makes; raises OSError when nobody listens."""


class DestinationPlace(NamedTuple):
    """The place of a destination: ``key`` names the host (one connection to it is enough), ``dial`` reaches it,
    ``token`` authenticates the client.

    broker  name of the broker whose host it is, "" where there is only one
    traits  attributes of the destination that a client acts on, such as ``unitOfOrderRouting``
    """

    key: str
    token: bytes
    dial: Dial
    broker: str = ""
    traits: Mapping[str, Any] = MappingProxyType({})

    @property
    def member(self) -> str:
        """The broker whose member this is, to find it again by; "" where there is only one, and where the log has
        copies, of which another broker's may lead then."""
        return "" if LED_BY in self.traits else self.broker


class KnownBroker(NamedTuple):
    """One broker of the cluster. ``state``: UP, SUSPECT or DOWN; ``coordinator``: it keeps the order of consumers;
    ``node``: the Ray node that it is on."""

    name: str
    state: str
    coordinator: bool
    node: str = ""


class View(NamedTuple):
    """The brokers of a cluster as one of them, ``home``, sees them; ``version`` differs when anything else does."""

    version: int
    home: str
    members: tuple[KnownBroker, ...]


class KnownSubscription(NamedTuple):
    """A named subscription of a topic, as the broker knows it."""

    topic: str
    client_id: str | None
    name: str
    durable: bool
    shared: bool
    selector: str | None
    no_local: bool


ALONE = View(0, "", (KnownBroker("", "UP", True),))
"""What a broker sees that is alone for good."""


class Directory(Protocol):
    """All methods raise the errors of ``raybroker.errors``; those marked retryable are worth another try."""

    @property
    def collocated(self) -> bool:
        """The broker is in this process."""
        ...

    @property
    def outside(self) -> bool:
        """A broker knows the client by the control connection that it has logged in with."""
        ...

    @property
    def home(self) -> str:
        """The name of the home broker; "" where there is one broker and never another."""
        ...

    async def locate(self, kind: str, name: str, create: bool, broker: str | None = None) -> DestinationPlace:
        """Return where the destination is served; creates it when missing, if ``create`` and the broker allow.

        ``broker``: whose member of the destination, None for the home broker's. A temporary destination is found
        wherever it is.
        """
        ...

    async def brokers(self, broker: str | None = None) -> View:
        """The brokers of the cluster now, as the home broker or another one sees them."""
        ...

    async def brokers_changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        """The version of the view, as soon as it is another than ``version`` or the time is over; as ``changed``."""
        ...

    async def doubt(self, home: str, patience_s: float) -> None:
        """Have another home broker unless ``home`` answers within ``patience_s`` seconds, and let calls that wait for
        it fail with BrokerGoneError. Nothing happens when the application has named it."""
        ...

    async def members(self, kind: str, name: str) -> dict[str, int]:
        """The brokers that have a member of the destination now, with how many consumers are attached to it."""
        ...

    async def routes(self, kind: str, name: str, units: list[str], owner: str) -> dict[str, str]:
        """Unit of order → the broker whose member takes its messages, by the path service.

        ``owner``: the producer, which has these units until :meth:`release_routes`. Raises OrderError when it cannot be
        told where.
        """
        ...

    async def renew_routes(self, owner: str) -> bool:
        """The producer lives: to be said every raybroker.path.lease_ms / 3. False: ask for its routes again."""
        ...

    async def release_routes(self, kind: str, name: str, units: list[str], owner: str) -> None:
        """The producer uses these units no more."""
        ...

    async def create_temporary(self, kind: str, owner: str) -> str:
        """The name of a new destination that lives as long as the connection with the id ``owner``."""
        ...

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        """Remove one before that; raises IllegalStateError while it has consumers, and for other owners."""
        ...

    async def subscribe(self, subscription: KnownSubscription) -> None:
        """Prepare a named subscription before it is opened: creates a missing topic as :meth:`locate` does, and ends an
        unused subscription of the same identity that is another one. May be repeated.

        Raises IllegalStateError when the identity is in use with another topic, selector, noLocal or sharing.
        """
        ...

    async def identify(self, client_id: str, instance: str) -> None:
        """The connection that calls itself ``instance`` has the client id; raises InvalidClientIDError when another one
        of the cluster has it. May be repeated."""
        ...

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        """End a durable subscription.

        Raises IllegalStateError while it has consumers, InvalidDestinationError when there is none.
        """
        ...

    async def matching(self, pattern: str, broker: str | None = None) -> tuple[int, list[str]]:
        """The version of a broker's list of topics, and the names in it that match the pattern, ascending.

        Raises InvalidDestinationError for a bad pattern.
        """
        ...

    async def changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        """The version of the list of topics, as soon as it is another one than ``version`` or the time is over.

        Waits at most 20 s, whatever is asked for: ask again. A version that differs says nothing but that the list may
        have changed; versions of a broker that was restarted are other ones.
        """
        ...

    async def branch_states(self, key: bytes) -> list[str]:
        """States of an XA branch, by its packed XID, one of each host of the cluster that has it and can be asked."""
        ...

    async def settings(self) -> dict[str, Any]:
        """Factory attributes and limits that the cluster gives its clients."""
        ...

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        """An administrative operation by name; see ``raybroker.admin``."""
        ...

    async def close(self) -> None: ...
