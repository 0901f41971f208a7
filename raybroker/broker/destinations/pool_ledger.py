"""Ledger of a pool: how much of it each host of the broker may use.

A pure part: it decides, and :mod:`raybroker.broker.destinations.pools` asks and answers.  Each host has a *lease*, and
all leases together never exceed the limits of the pool, but for what hosts hold already when the limits are lowered, a
host restarts or a destination with messages comes to the pool; then nothing is granted until it has fallen.

Messages may be lost, doubled and overtaken.  A host counts *versions*: it begins a new one whenever it gives room back,
and says which lease it has then.  A grant belongs to a version, and the host drops those of an older one.  The ledger
books a grant before it is sent, so that it knows at least as much to be leased as the host does.

Versions grow over the processes of a host as well: each begins with the time at which it started.  Where that clock was
set back, a process whose statement is refused learns which version is known, and begins a later one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from raybroker.core.admission.pool_share import FIFO, PoolLimits, PoolRoom

WAITS_MS: Final = 250
"""A host that waits for room and does not ask again within that time has lost its place before the others."""


class PoolGrant(NamedTuple):
    """``lease`` of the host, all together; ``ahead``: how much of it is more than it needs; ``lacking``: how much of
    what it needs is not there."""

    lease: PoolRoom
    ahead: PoolRoom
    lacking: PoolRoom


class _Lease:
    __slots__ = ("room", "version")

    def __init__(self, version: int, room: PoolRoom) -> None:
        self.version = version
        self.room = room


class PoolLedger:
    """The ledger of one pool; times are milliseconds of one clock."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self._leases: dict[str, _Lease] = {}
        self._waiting: dict[str, int] = {}
        """Hosts that wait for room, in order → until when they keep their place."""

    def retain(self, hosts: Collection[str]) -> None:
        """Keep the leases of these hosts only: what others had is free."""
        for host in [host for host in self._leases if host not in hosts]:
            del self._leases[host]
            self._waiting.pop(host, None)

    def unknown(self, hosts: Collection[str]) -> list[str]:
        """Return those of which it is not known what they may use: until it is, nothing is granted."""
        return [host for host in hosts if host not in self._leases or self._boundless(self._leases[host].room)]

    def hear(self, host: str, version: int, lease: PoolRoom) -> bool:
        """A host says what it had when a version began; whether the statement is of its latest one."""
        known = self._leases.get(host)
        if known is None:
            known = self._leases[host] = _Lease(version, lease)
        if version > known.version:
            known.version, known.room = version, lease
        return version == known.version

    def version(self, host: str) -> int:
        """The latest of a host that was heard."""
        return self._leases[host].version

    def grant(self, host: str, need: PoolRoom, hosts: int, now_ms: int, *, waits: bool, sure: bool = True) -> PoolGrant:
        """Lease a host that was heard what it needs, and some ahead where there is much.

        ``hosts``: how many there are; ``waits``: senders wait there, so that it keeps its place before hosts that ask
        later; ``sure``: what all hosts have is known, else nothing is granted.
        """
        lease = self._leases[host]
        first = self.is_first(host, now_ms)
        free = self._free() if first and sure else self._nothing()
        given = PoolRoom(_smaller(need.messages, free.messages), _smaller(need.bytes, free.bytes))
        lacking = PoolRoom(need.messages - given.messages, need.bytes - given.bytes)
        ahead = PoolRoom(0, 0)
        if lacking == (0, 0):
            ahead = PoolRoom(_ahead(free.messages, given.messages, hosts), _ahead(free.bytes, given.bytes, hosts))
            self._waiting.pop(host, None)
        elif waits:
            self._waiting[host] = now_ms + WAITS_MS
        limits, room = self.limits, lease.room
        lease.room = PoolRoom(
            -1 if limits.messages < 0 else room.messages + given.messages + ahead.messages,
            -1 if limits.bytes < 0 else room.bytes + given.bytes + ahead.bytes,
        )
        return PoolGrant(lease.room, ahead, lacking)

    def is_first(self, host: str, now_ms: int) -> bool:
        """Whether no other host that waits comes before it."""
        for other in [other for other, until_ms in self._waiting.items() if until_ms <= now_ms]:
            del self._waiting[other]
        return self.limits.policy != FIFO or next(iter(self._waiting), host) == host

    def waits_no_more(self, host: str) -> None:
        """Its senders have given up, or got in."""
        self._waiting.pop(host, None)

    def leased(self) -> PoolRoom:
        """What all hosts may use together; -1 where there is no limit."""
        limits, rooms = self.limits, [lease.room for lease in self._leases.values()]
        return PoolRoom(
            -1 if limits.messages < 0 else sum(max(room.messages, 0) for room in rooms),
            -1 if limits.bytes < 0 else sum(max(room.bytes, 0) for room in rooms),
        )

    # ---- internals -------------------------------------------------------------------------------------------------

    def _boundless(self, room: PoolRoom) -> bool:
        """It may use any number of what is limited now."""
        return (self.limits.messages >= 0 > room.messages) or (self.limits.bytes >= 0 > room.bytes)

    def _free(self) -> PoolRoom:
        """-1: any number."""
        if any(self._boundless(lease.room) for lease in self._leases.values()):
            return self._nothing()
        limits, leased = self.limits, self.leased()
        return PoolRoom(
            -1 if limits.messages < 0 else max(limits.messages - leased.messages, 0),
            -1 if limits.bytes < 0 else max(limits.bytes - leased.bytes, 0),
        )

    def _nothing(self) -> PoolRoom:
        return PoolRoom(-1 if self.limits.messages < 0 else 0, -1 if self.limits.bytes < 0 else 0)


def _smaller(need: int, free: int) -> int:
    return need if free < 0 else min(need, free)


def _ahead(free: int, given: int, hosts: int) -> int:
    """All that is left for a host that is alone, and a part of it where there are others."""
    left = max(free - given, 0)
    return left if hosts <= 1 else left // (2 * hosts)
