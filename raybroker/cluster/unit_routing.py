"""Routing of units of order to members: by hash, or by the path service's map.

Hash routing is ``rendezvous`` of ``raybroker.model.hashing`` over the *configured* brokers, live or not: a member that
is down keeps its units and their sends fail.

The path map gives a unit to a member at its first use and keeps that for as long as a producer uses the unit or a
message of it lives.  Producers hold a unit by a lease, so that one that dies is noticed.  The map is kept in a
log of frames: what is in it is durable before anybody is told.  Producers are not in the log; after a restart every
unit is held for one lease, in which the producers that live say so again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from raybroker.model.errors import StoreDamagedError

Destination = tuple[str, str]
"""Type and name."""
Choose = Callable[[str], str]
"""Unit → member, by normal balancing."""

LEASE_MS: Final = 60_000
UNITS_MAX: Final = 1000
"""Units of one question: a bound for what one call does."""


class Resolved(NamedTuple):
    """The answer: ``where``: unit → member, of all that were asked; ``frames``: durable before the answer goes out, may
    be none."""

    where: dict[str, str]
    frames: tuple[bytes, ...]


class RouteCandidate(NamedTuple):
    """Units of one member that no producer holds: has it live messages of them?  ``stamps`` go back as given."""

    destination: Destination
    member: str
    units: tuple[str, ...]
    stamps: tuple[int, ...]


class _Path:
    """The path of a unit: where it goes, and which producers use it.  ``stamp`` changes with each use."""

    __slots__ = ("member", "owners", "stamp")

    def __init__(self, member: str) -> None:
        self.member = member
        self.owners: dict[str, None] = {}
        self.stamp = 0


class _Owner:
    """A producer: how long it is believed to live, and the units that it holds."""

    __slots__ = ("held", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        self.held: dict[Destination, dict[str, None]] = {}


COMPACT_MIN: Final = 10_000
"""Logged assignments and removals below which compaction is not worth a rewrite."""


class PathMap:
    """Unit → member for every destination that is routed by path service.

    A caller answers a question only when the frames of it and of every earlier call are durable, and stops for good
    when they cannot be made so.
    """

    def __init__(self, *, lease_ms: int = LEASE_MS) -> None:
        self._lease_ms = lease_ms
        self._paths: dict[Destination, dict[str, _Path]] = {}
        self._owners: dict[str, _Owner] = {}
        self._free: dict[tuple[Destination, str], None] = {}
        self._grace_until_ms = 0
        self._stamp = 0
        self._logged = 0
        self.count = 0

    def by_member(self) -> dict[str, int]:
        """How many units each member has."""
        return dict(Counter(path.member for paths in self._paths.values() for path in paths.values()))

    # ---- producers

    def resolve(
        self, destination: Destination, units: Sequence[str], owner: str, choose: Choose, now_ms: int
    ) -> Resolved:
        """Return where the units go, which the producer ``owner`` uses from now on, for a lease at least.

        Units without a path get the member that ``choose`` gives. A unit is never moved because its member is down; the
        sender handles that. Raises ValueError for over UNITS_MAX units.
        """
        if len(units) > UNITS_MAX:
            raise ValueError(f"{len(units)} units in one question; at most {UNITS_MAX} are allowed")
        found = self._owners.get(owner)
        if found is None:
            found = self._owners[owner] = _Owner()
        found.until_ms = now_ms + self._lease_ms
        paths = self._paths.setdefault(destination, {})
        held = found.held.setdefault(destination, {})
        where: dict[str, str] = {}
        new: dict[str, str] = {}
        self._stamp += 1
        for unit in units:
            path = paths.get(unit)
            if path is None:
                path = paths[unit] = _Path(choose(unit))
                new[unit] = path.member
            elif not path.owners:
                self._free.pop((destination, unit), None)
            path.owners[owner] = None
            path.stamp = self._stamp
            held[unit] = None
            where[unit] = path.member
        self.count += len(new)
        self._logged += len(new)
        return Resolved(where, (_assigned(destination, new),) if new else ())

    def renew(self, owner: str, now_ms: int) -> bool:
        """The producer lives. False: it is not known (any more) and has to resolve its units again."""
        found = self._owners.get(owner)
        if found is None:
            return False
        found.until_ms = now_ms + self._lease_ms
        return True

    def release(self, destination: Destination, owner: str, units: Iterable[str] | None = None) -> None:
        """The producer does not use these units (None: any) of the destination any more; unknown ones are ignored."""
        found = self._owners.get(owner)
        if found is None:
            return
        held = found.held.get(destination, {})
        for unit in list(held) if units is None else [unit for unit in units if unit in held]:
            del held[unit]
            self._let_go(destination, unit, owner)
        if not held:
            found.held.pop(destination, None)
        if not found.held:
            del self._owners[owner]

    def expire(self, now_ms: int) -> list[str]:
        """Producers whose lease is over lose their units; their ids."""
        gone = [owner for owner, found in self._owners.items() if found.until_ms <= now_ms]
        for owner in gone:
            for destination in list(self._owners[owner].held):
                self.release(destination, owner)
        return gone

    def _let_go(self, destination: Destination, unit: str, owner: str) -> None:
        path = self._paths.get(destination, {}).get(unit)
        if path is not None:
            path.owners.pop(owner, None)
            if not path.owners:
                self._free[destination, unit] = None

    # ---- the end of a path

    def candidates(self, now_ms: int, units_max: int = UNITS_MAX) -> list[RouteCandidate]:
        """Units that no producer holds, those that wait longest first; none in the lease after a restart."""
        if now_ms < self._grace_until_ms:
            return []
        found: dict[tuple[Destination, str], list[str]] = {}
        for (destination, unit), _ in zip(self._free, range(units_max), strict=False):
            found.setdefault((destination, self._paths[destination][unit].member), []).append(unit)
        return [
            RouteCandidate(d, member, tuple(units), tuple(self._paths[d][unit].stamp for unit in units))
            for (d, member), units in found.items()
        ]

    def settle_units(self, asked: RouteCandidate, live: Iterable[str]) -> tuple[bytes, ...]:
        """The member's answer: units with live messages. The others are forgotten, but for those used since.

        Returns the frames to log; they need not be durable before anything.
        """
        paths = self._paths.get(asked.destination, {})
        living = set(live)
        gone = []
        for unit, stamp in zip(asked.units, asked.stamps, strict=True):
            path = paths.get(unit)
            if path is None or path.owners or path.stamp != stamp:
                continue
            self._free.pop((asked.destination, unit), None)
            if unit in living:
                self._free[asked.destination, unit] = None
            else:
                gone.append(unit)
        return self._forget(asked.destination, gone)

    def drop_member(self, member: str) -> tuple[bytes, ...]:
        """An administrator removed the broker for good: its units start anew elsewhere; frames to log."""
        frames: list[bytes] = []
        for destination, paths in list(self._paths.items()):
            frames += self._forget(destination, [unit for unit, path in paths.items() if path.member == member])
        return tuple(frames)

    def _forget(self, destination: Destination, units: list[str]) -> tuple[bytes, ...]:
        if not units:
            return ()
        paths = self._paths[destination]
        for unit in units:
            for owner in paths.pop(unit).owners:
                self._owners[owner].held[destination].pop(unit, None)
            self._free.pop((destination, unit), None)
        if not paths:
            del self._paths[destination]
        self.count -= len(units)
        self._logged += len(units)
        return (_frame("forget", destination, units),)

    # ---- the log

    @staticmethod
    def load(frames: Iterable[bytes], now_ms: int, *, lease_ms: int = LEASE_MS) -> PathMap:
        """What the log says; raises StoreDamagedError naming the frame."""
        paths = PathMap(lease_ms=lease_ms)
        for index, frame in enumerate(frames):
            try:
                what, type_, name, content = json.loads(frame)
                paths._replay(what, (type_, name), content)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise StoreDamagedError(f"frame {index} of the path map cannot be read: {error!r}") from None
        paths._free = {(d, unit): None for d, table in paths._paths.items() for unit in table}
        paths.count = len(paths._free)
        paths._grace_until_ms = now_ms + lease_ms
        return paths

    def _replay(self, what: str, destination: Destination, content: object) -> None:
        if what == "assign" and isinstance(content, Mapping):
            table = self._paths.setdefault(destination, {})
            for unit, member in content.items():
                table[unit] = _Path(member)
        elif what == "forget" and isinstance(content, list):
            table = self._paths[destination]
            for unit in content:
                del table[unit]
            if not table:
                del self._paths[destination]
        else:
            raise ValueError(f"{what!r} is no entry of a path map")
        self._logged += len(content)

    @property
    def compaction_due(self) -> bool:
        """The log is mostly history: replace it by :meth:`snapshot`."""
        return self._logged > COMPACT_MIN + 2 * self.count

    def snapshot(self) -> tuple[bytes, ...]:
        """Frames that replace all written so far."""
        self._logged = self.count
        frames = []
        for destination, paths in self._paths.items():
            rows = [(unit, path.member) for unit, path in paths.items()]
            frames += [_assigned(destination, dict(rows[i : i + UNITS_MAX])) for i in range(0, len(rows), UNITS_MAX)]
        return tuple(frames)

    # ---- what is shown

    def member_of(self, destination: Destination, unit: str) -> str | None:
        """The member of a unit; None when it has no path."""
        path = self._paths.get(destination, {}).get(unit)
        return path.member if path is not None else None


def _assigned(destination: Destination, new: Mapping[str, str]) -> bytes:
    return _frame("assign", destination, new)


def _frame(what: str, destination: Destination, content: object) -> bytes:
    return json.dumps([what, *destination, content], separators=(",", ":")).encode("ascii")
