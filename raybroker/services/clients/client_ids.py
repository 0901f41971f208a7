"""Client ids: each belongs to one live connection of the cluster, from the moment that it connects.

Who has one is known where the connection is: at the broker that a client outside has logged in at, and for one inside
the Ray cluster at the host that it has a link to (see client.connection.presence).  It is kept nowhere else, so a
connection that ends, or whose process dies, leaves nothing behind.  A broker that is asked for an id asks all others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from raybroker.model.errors import InvalidClientIDError

WAIT_S: Final = 0.4
"""How long a client waits for the end of another one with its client id: it may have come again at once."""
TRIES: Final = 10
Held = Callable[[str], Awaitable[set[str]]]
"""Client id → the connections of this broker that have it for themselves, by what they call themselves."""
Others = Callable[[str, str], Awaitable[Iterable[bool]]]
"""(client id, connection) → whether another connection has it, of each of the other brokers that answers."""


async def nobody_else(client_id: str, instance: str) -> Iterable[bool]:
    """Return nothing: there is one broker."""
    return ()


class _Claim:
    """A connection that asks for a client id. ``beaten``: one at a broker that goes before ours asks for it as well."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.beaten = False
        self.granted = False


class ClientIds:
    """The client ids of one broker. ``others`` asks the other brokers of its cluster."""

    def __init__(self, broker: str, held: Held, others: Others = nobody_else) -> None:
        self._others = others
        self._broker = broker
        self._held = held
        self._claims: dict[str, list[_Claim]] = {}

    @contextlib.asynccontextmanager
    async def claiming(self, client_id: str, instance: str) -> AsyncIterator[None]:
        """Nobody else gets the client id meanwhile; afterwards ``held`` has to know it as that of ``instance``.

        Raises InvalidClientIDError when another connection has it, and does not end in WAIT_S.
        """
        for left in reversed(range(TRIES)):
            claim = _Claim(instance)
            self._claims.setdefault(client_id, []).append(claim)
            try:
                if not await self._is_another_s(client_id, claim):
                    claim.granted = True
                    yield
                    return
            finally:
                self._over(client_id, claim)
            if left:
                await asyncio.sleep(WAIT_S / TRIES)
        raise in_use(client_id)

    async def _is_another_s(self, client_id: str, claim: _Claim) -> bool:
        if any(other.instance != claim.instance for other in self._claims[client_id] if other is not claim):
            return True
        answers = await asyncio.gather(self._held(client_id), self._others(client_id, claim.instance))
        return bool(answers[0] - {claim.instance}) or any(answers[1]) or claim.beaten

    def _over(self, client_id: str, claim: _Claim) -> None:
        left = [other for other in self._claims[client_id] if other is not claim]
        if left:
            self._claims[client_id] = left
        else:
            del self._claims[client_id]

    async def is_taken(self, client_id: str, instance: str, broker: str) -> bool:
        """Whether a connection of this broker's has it, other than the one that asks for it at ``broker``.

        Of two that ask for it at the same time the one at the broker whose name is smaller has it.
        """
        asking = list(self._claims.get(client_id, ()))
        held = await self._held(client_id)
        asking += [claim for claim in self._claims.get(client_id, ()) if claim not in asking]
        taken = bool(held - {instance} - {claim.instance for claim in asking})
        for claim in asking:
            if claim.instance == instance:
                continue
            if claim.granted or self._broker < broker:
                taken = True
            else:
                claim.beaten = True
        return taken


def in_use(client_id: str) -> InvalidClientIDError:
    """The refusal."""
    return InvalidClientIDError(
        f"client id {client_id!r} is in use by another connection; close that one, choose another id, or allow it with"
        " ClientIdPolicy=Unrestricted"
    )
