"""One host as its broker sees it: a remote actor in a cluster, an object of the process in the loopback.

A destination is its type and its name; rows are dicts of plain values.  All methods raise the errors of
``raybroker.errors``; ConnectionLostError means that the host cannot be asked now, and that a change may have been made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

Row = dict[str, Any]
Page = dict[str, Any]
"""One page of a long answer: what was asked for, and ``next``, where to go on, None at the end."""


class HostPort(Protocol):
    """The methods are carried out by hosting.host_service."""

    @property
    def key(self) -> str: ...

    @property
    def hosting(self) -> str:
        """One of model.settings.setting_table.HOSTINGS."""
        ...

    # ---- destinations

    async def create(
        self,
        type: str,
        name: str,
        attributes: Row,
        auto_created: bool,
        owner: str | None,
    ) -> None:
        """``owner``: id of the client connection that a temporary destination lives as long as."""
        ...

    async def create_many(self, rows: list[Row]) -> list[str]:
        """Create many with one wait for the disk: rows of type, name, attributes; what of it failed, as text."""
        ...

    async def update(self, type: str, name: str, changes: Row) -> None: ...
    async def destroy(self, type: str, name: str) -> None: ...
    async def purge_destination(self, type: str, name: str) -> None: ...
    async def query(self, type: str, name: str) -> Row: ...
    async def effective(self, type: str, name: str) -> Row:
        """What policies make of the attributes: see engine.destinations.policies.Policies.row."""
        ...

    async def pause(self, type: str, name: str, which: str, until_ms: int) -> None:
        """``which``: producers, consumers, all or insertion; ``until_ms``: absolute time, 0 until resumed."""
        ...

    async def resume(self, type: str, name: str, which: str) -> None: ...
    async def reset(self, type: str, name: str) -> None:
        """Set to zero what administrators see counted of a destination."""
        ...

    async def destinations(self) -> list[Row]:
        """One row a destination: type, name, auto_created, temporary, traits (its attributes)."""
        ...

    async def live_units(self, type: str, name: str, names: list[str]) -> list[str]:
        """Those of these units of order that have messages there."""
        ...

    async def consumers(self, type: str | None, name: str | None) -> list[Row]: ...
    async def state(self) -> Row: ...
    async def stop_intake(self) -> None:
        """Have all producers wait from now on: the broker is about to end the host."""
        ...

    async def configure(self, changed: Row) -> None:
        """From now on exactly these properties differ from the configuration."""
        ...

    async def memory_elsewhere(self, nbytes: int) -> None:
        """What the other processes of the broker use counts against the limit of its memory, too."""
        ...

    async def thresholds(self, over: bool) -> Row:
        """Whether the broker is over its thresholds, which slows producers here; the answer is what the destinations
        hold: messages, bytes."""
        ...

    async def metrics(self, names: str | None) -> Row:
        """incarnation, age_s, ``host``: the host's own row, ``types``: type → sums; with ``names`` also
        ``destinations``: rows of those whose name matches (* for any text). See engine.measuring.metrics for the rows.
        ``recovered`` and ``lasting``: type → totals that are stored, when the host started and now; ``recovered`` is in
        each row too."""
        ...

    async def recall(self, pool: str, owed: list[int]) -> Row:
        """Give back what the host does not use of a pool: version and lease of its share, how many blocks
        are ``waiting``, and whether the pool is ``known`` there. ``owed``: messages and bytes to set aside for
        other hosts where senders wait."""
        ...

    async def define_quotas(self, quotas: Row) -> None:
        """From now on these are the quotas there are: name → attributes."""
        ...

    async def define_policies(self, policies: Row) -> None:
        """From now on these are the policies there are: name → fields. They hold for the destinations when it
        returns."""
        ...

    async def pools(self) -> list[Row]:
        """See engine.destinations.pools.Pools.rows."""
        ...

    # ---- subscriptions

    async def subscriptions(self, name: str | None) -> list[Row]:
        """Of one topic, or of all: topic, client_id, name, durable, shared, selector, no_local, active, messages,
        consumers."""
        ...

    async def subscribe(
        self, topic: str, client_id: str, name: str, shared: bool, selector: str | None, no_local: bool
    ) -> None:
        """Make a durable subscription that no consumer has opened here, unless it is there."""
        ...

    async def unsubscribe(self, topic: str, client_id: str, name: str) -> None: ...
    async def purge_subscription(self, topic: str, client_id: str, name: str) -> None: ...

    # ---- schedules

    async def schedules(self, type: str | None, name: str | None) -> list[Row]:
        """See engine.schedules.schedules.Schedules.rows."""
        ...

    async def destroy_schedule(self, id: str) -> None: ...

    # ---- transactions; ``key`` is the global identifier in hexadecimal digits

    async def transactions(self) -> list[Row]:
        """id, key, kind (local, xa), state, xid, client_id, connection, messages, acks, created_ms, coordinator."""
        ...

    async def settle_transaction(self, id: int, commit: bool) -> None: ...
    async def outcome(self, key: str) -> str:
        """committed, rolled_back, prepared, started or unknown."""
        ...

    async def decide(self, key: str, commit: bool) -> None:
        """End a prepared transaction; one that is not known is rolled back for ever. Raises IllegalStateError when it
        ended the other way."""
        ...

    async def forget(self, key: str) -> None: ...

    # ---- messages

    async def browse_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        start: Any,
        max: int,
        body_bytes_max: int,
    ) -> Page:
        """{"messages": rows, "next"}."""
        ...

    async def delete_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
    ) -> int: ...

    async def move_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
        target_type: str | None,
        target: str | None,
    ) -> tuple[int, str]:
        """How many were moved, and why others that were chosen were not; "" when all were."""
        ...

    async def export_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        start: Any,
        max_bytes: int,
    ) -> Page:
        """{"blocks": [bytes], "next"}."""
        ...

    async def import_messages(
        self,
        type: str,
        name: str,
        blocks: list[bytes],
        subscription: str = "",
    ) -> int:
        """``subscription``: the only one of a topic that gets them, as dead messages name it; "": all."""
        ...

    async def damaged_messages(self, type: str, name: str) -> list[Row]:
        """What the store cannot give back whole: block, messages, ids, error."""
        ...

    async def skip_messages(self, type: str, name: str) -> int:
        """Put what is damaged into quarantine and let the destination go on; how many messages."""
        ...

    # ---- the store

    async def stored(self) -> list[Row]:
        """One row: reserved_bytes, used_bytes, live_bytes, garbage_bytes, ratio (percent), advice, segments,
        compressed_blocks, compression_saved_bytes, not_compressed_because, and ``destinations``: rows of type, name,
        blocks, bytes."""
        ...

    async def compact(self, keys: Sequence[tuple[str, str]]) -> Row:
        """Give back what can be of the store in which these paused destinations are: done, freed_bytes, and the figures
        of :meth:`stored` afterwards. Raises IllegalStateError for one that is not paused."""
        ...

    # ---- guests: connections that came in through a connection service; see services.native.guests

    async def expect_guest(self, secret: bytes, claims: Row) -> None: ...
    async def guests(self) -> list[Row]: ...
    async def guest_traffic(self) -> dict[str, dict[str, int]]:
        """Service → what its connections carried since the host was started: services.native.native.TRAFFIC."""
        ...

    async def close_guest(self, connection: str, reason: str) -> int: ...
    async def pause_guests(self, service: str, paused: bool) -> None: ...
    async def guest_address(self, security: str) -> str:
        """Where the host takes their sockets from another process of the machine: see
        services.listening.socket_handing.

        ``security``: the broker's security directory, where the keystore is."""
        ...

    # ---- clients inside the Ray cluster: see services.clients.clients_inside

    async def clients(self) -> list[Row]: ...
    async def end_clients(self, ids: list[str], why: str) -> list[str]:
        """End these here, and take none of them any more; those that had a connection."""
        ...

    # ---- messages that go to another host: see engine.destinations.transfer

    async def set_aside(
        self,
        type: str,
        name: str,
        txn: str,
        messages_max: int,
        bytes_max: int,
    ) -> list[bytes]:
        """Blocks of messages that wait, for the transaction of that key in hexadecimal digits."""
        ...

    async def give(self, txn: str) -> None: ...
    async def keep(self, txn: str) -> None: ...
    async def take(self, type: str, name: str, txn: str, coordinator: str, blocks: list[bytes]) -> int:
        """How many messages were taken."""
        ...


MakeHost = Callable[[str], Awaitable[HostPort]]
DropHost = Callable[[HostPort], Awaitable[None]]
Spares = Callable[[], list[HostPort]]

HOST_METHODS: Final = frozenset(
    name for name in vars(HostPort) if not name.startswith("_") and name not in ("key", "hosting")
)
"""What a host may be asked by name from another process."""
