"""Administration of transactions on all hosts, and settlement of those that dead clients left open.

A local transaction over several hosts is decided on one of them, its coordinator, and prepared on the others.  A client
that dies between the two leaves hosts that may neither commit nor roll back by themselves: :meth:`Transactions.resolve`
tells them what the coordinator says.  A distributed (XA) one is left to its manager and to administrators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from raybroker.broker import host_listing
from raybroker.broker.destinations.destination_registry import Registry
from raybroker.broker.remote_broker import HostElsewhere
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, IllegalStateError, InvalidDestinationError
from raybroker.model.listing import Listing

PREPARED: Final = "PREPARED"
HEURISTIC: Final = ("HEURISTICALLY_COMMITTED", "HEURISTICALLY_ROLLED_BACK")
"""States of XA branches that an administrator ended in place of their manager."""
PATIENCE_SWEEPS: Final = 15
"""Sweeps for which a coordinator that knows nothing is given time to hear from the client: half a minute."""
_ID = re.compile(r"(?:(?P<host>.+)[:@])?(?P<id>\d{1,20})", re.ASCII)


def branch_states(rows: Listing, key: bytes) -> list[str]:
    """States of an XA branch, one of each host that has it; ``rows`` as :meth:`Transactions.list_transactions`."""
    return [row["state"] for row in rows if row["kind"] == "xa" and row["key"] == key.hex()]


def nowhere(key: str) -> HostElsewhere | None:
    """There is no other broker."""
    return None


class TransactionAdministration:
    """The transactions on the hosts of one broker. ``elsewhere`` finds a host of another broker by its key."""

    def __init__(self, registry: Registry, elsewhere: Callable[[str], HostElsewhere | None] = nowhere) -> None:
        self._registry = registry
        self._elsewhere = elsewhere
        self._undecided: dict[tuple[str, str], int] = {}
        """(host, key) → sweeps in which the coordinator knew nothing of it."""

    async def list_transactions(self) -> Listing:
        """One row a transaction and host: the host's row, and ``host``."""
        found, missing = await host_listing.each_host(self._registry, lambda host: host.transactions.transaction_rows())
        return Listing(({**row, "host": host.key} for host, row in found), missing)

    async def query_transaction(self, id: int | str) -> Row:
        """One transaction by id: the number, or host:number where several hosts have that number.

        Raises InvalidDestinationError when there is none, IllegalStateError when there are several.
        """
        return (await self._find(id))[1]

    async def commit_transaction(self, id: int | str) -> None:
        """Commit a prepared transaction; raises IllegalStateError in any other state.

        Of an XA branch that is a heuristic decision: the host remembers it until the branch is forgotten.
        """
        await self._settle(id, commit=True)

    async def rollback_transaction(self, id: int | str) -> None:
        """Roll a transaction back; of a prepared XA branch that is a heuristic decision."""
        await self._settle(id, commit=False)

    async def decide_transaction(self, id: int | str, commit: bool) -> None:
        """What the transaction manager of a prepared XA branch decided. Raises IllegalStateError in any other state."""
        host, row = await self._find(id)
        if row["kind"] != "xa" or row["state"] != PREPARED:
            raise IllegalStateError(f"transaction {id} is {row['state']}; its manager decides PREPARED ones")
        await host.transactions.decide(row["key"], commit)

    async def forget_transaction(self, id: int | str) -> None:
        """Drop a heuristic outcome that its transaction manager knows. Raises IllegalStateError in any other state."""
        host, row = await self._find(id)
        if row["state"] not in HEURISTIC:
            raise IllegalStateError(f"transaction {id} is {row['state']}; only heuristic outcomes are forgotten")
        await host.transactions.forget_transaction(row["key"])

    async def _settle(self, id: int | str, *, commit: bool) -> None:
        host, row = await self._find(id)
        await host.transactions.decide_by_hand(row["id"], commit)

    async def _find(self, id: int | str) -> tuple[HostPort, Row]:
        match = _ID.fullmatch(str(id).strip())
        found = []
        if match is not None:
            rows, missing = await host_listing.each_host(
                self._registry, lambda host: host.transactions.transaction_rows()
            )
            found = [
                (host, {**row, "host": host.key})
                for host, row in rows
                if row["id"] == int(match["id"]) and match["host"] in (None, host.key)
            ]
            if not found:
                silent = {host: why for host, why in missing.items() if match["host"] in (None, host)}
                host_listing.require_whole(Listing((), silent), f"transaction {str(id)[:80]}")
        if len(found) > 1:
            names = ", ".join(f"{host.key}:{row['id']}" for host, row in found)
            raise IllegalStateError(f"there are several transactions {id}; name one of {names}")
        if not found:
            what = f"transaction {str(id)[:80]}"
            self._registry.require_all_asked(what)
            raise InvalidDestinationError(f"there is no {what}; list_transactions shows those there are")
        return found[0]

    # ---- what dead clients left

    async def resolve(self) -> int:
        """Settle prepared local transactions whose coordinator has decided; how many were.

        A coordinator that has never heard of one for PATIENCE_SWEEPS sweeps, or that is gone, means: rolled back.  It
        is told first, so that a client that is only slow cannot commit there afterwards.  Hosts that cannot be asked
        are left for the next sweep.
        """
        settled = 0
        seen = set()
        for host in list(self._registry.hosts):
            try:
                rows = await host.transactions.transaction_rows()
            except BrokerError:
                continue
            for row in rows:
                if row["kind"] != "local" or row["state"] != PREPARED:
                    continue
                seen.add((host.key, row["key"]))
                try:
                    commit = await self._decision(host, row)
                    if commit is not None:
                        await host.transactions.decide(row["key"], commit)
                        settled += 1
                except BrokerError:
                    continue
        self._undecided = {key: sweeps for key, sweeps in self._undecided.items() if key in seen}
        return settled

    async def _decision(self, host: HostPort, row: Row) -> bool | None:
        """What the coordinator says; None: nothing yet."""
        name = str(row["coordinator"]).partition("@")[0]
        own = next((other for other in self._registry.hosts if other.key == name), None)
        coordinator = own.transactions if own is not None else self._elsewhere(name)
        if coordinator is None and self._registry.unasked:
            return None
        outcome = await coordinator.outcome(row["key"]) if coordinator is not None else "unknown"
        if outcome in ("committed", "rolled_back"):
            return outcome == "committed"
        if outcome != "unknown":
            return None
        place = (host.key, row["key"])
        self._undecided[place] = self._undecided.get(place, 0) + 1
        if self._undecided[place] < PATIENCE_SWEEPS:
            return None
        if coordinator is not None:
            await coordinator.decide(row["key"], False)
        return False
