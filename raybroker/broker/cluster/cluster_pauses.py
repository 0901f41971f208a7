"""Pauses over all brokers of a cluster, kept in the configuration change record.

A broker that restarts, or was down when the pause was made, carries the record out and is paused as well.  Temporary
destinations, which are in no record, are paused where they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from raybroker.broker.destinations.destination_registry import DMQ, Key
from raybroker.broker.destinations.destinations import named
from raybroker.cluster.change_record import Change
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.definitions.kinds.pause import PAUSE
from raybroker.model.definitions.pauses import WORK, check_pause, paused_by, resumed_by
from raybroker.model.errors import IllegalStateError, InvalidDestinationError
from raybroker.model.naming.names import check_destination_type, is_temporary_name

Everywhere = Callable[[str, Row], Awaitable[list[tuple[str, Any]]]]


class Pausing:
    """``propose`` makes changes on all brokers, ``everywhere`` asks them; ``recorded``: what the record has paused."""

    def __init__(
        self,
        propose: Callable[[Sequence[Change]], Awaitable[None]],
        everywhere: Everywhere,
        recorded: Callable[[], Mapping[tuple[str, ...], Mapping[str, object]]],
    ) -> None:
        self._propose = propose
        self._everywhere = everywhere
        self._recorded = recorded

    def pauses_of(self, key: Key) -> dict[str, int]:
        """What of a destination is paused, and until when in milliseconds, 0 until resumed."""
        return {which: int(str(until_ms)) for which, until_ms in self._recorded().get(key, {}).items()}

    async def pause_destination(
        self, type: str | None = None, name: str | None = None, which: str = "all", until_ms: int = 0
    ) -> int:
        """Do what Destinations.pause does, on all brokers, those that are down included; return how many destinations.

        Raises MasterUnavailableError while no change of the record can be made.
        """
        check_pause(which, until_ms, "paused")
        keys = await self._chosen(type, name, "paused")
        fields = dict.fromkeys(paused_by(which), until_ms)
        lasting = [key for key in keys if not is_temporary_name(key[1])]
        await self._propose([Change(PAUSE.recorded.make, key, fields) for key in lasting])
        for key in keys:
            if is_temporary_name(key[1]):
                args = {"type": key[0], "name": key[1], "which": which, "until_ms": until_ms}
                await self._everywhere("pause_destination", args)
        return len(keys)

    async def resume_destination(self, type: str | None = None, name: str | None = None, which: str = "all") -> int:
        """Do what Destinations.resume does, on all brokers; return how many destinations. Raises as
        :meth:`pause_destination`."""
        check_pause(which, 0, "resumed")
        kept = name is not None and type is not None and bool(self.pauses_of((check_destination_type(type), name)))
        keys = await self._chosen(type, name, "resumed", kept=kept)
        ended = {key: {word: 0 for word in resumed_by(which) if word in self.pauses_of(key)} for key in keys}
        await self._propose([Change(PAUSE.recorded.end, key, fields) for key, fields in ended.items() if fields])
        # What is paused at each start is in no record.
        try:
            await self._everywhere("resume_destination", {"type": type, "name": name, "which": which})
        except InvalidDestinationError:
            if not kept:
                raise
        return len(keys)

    async def _chosen(self, type_: str | None, name: str | None, done: str, *, kept: bool = False) -> list[Key]:
        """The destinations that are meant; ``kept``: it need not be on any broker now."""
        if name is None:
            rows = await self._everywhere("list_destinations", {"type": type_, "temporary": True})
            found = {(check_destination_type(row["type"]), str(row["name"])) for _, some in rows for row in some}
            return sorted(found - {DMQ})
        key = (check_destination_type(named(type_, name)), name)
        if key == DMQ:
            raise IllegalStateError(f"{DMQ[1]} cannot be {done}: dead messages always have a place")
        if not kept:
            await self._everywhere("query_destination", {"type": key[0], "name": name})
        return [key]


class PausesHere:
    """Pauses of the record, carried out on one broker; ``find``: the host of a destination. Where there is no such
    destination now, it is paused when it comes: see Placement.create."""

    def __init__(self, find: Callable[[str, str], HostPort | None]) -> None:
        self._find = find

    async def make(self, change: Change) -> None:
        key = (check_destination_type(change.key[0]), change.key[1])
        if (host := self._find(*key)) is not None:
            for which, until_ms in change.attributes.items():
                await host.destinations.pause(*key, which, int(str(until_ms)))

    async def resume(self, change: Change) -> None:
        key = (check_destination_type(change.key[0]), change.key[1])
        if (host := self._find(*key)) is not None:
            for which in change.attributes:
                await host.destinations.resume(*key, which)


def paused_by_hand(row: Row, wanted: Mapping[str, object]) -> dict[str, object]:
    """What of a destination is paused, in the record's words; not what is paused at each start. ``row``: as its host
    shows it."""
    paused, starts_paused = row["paused"], row["starts_paused"]
    return {
        which: paused[work]
        for which, work in WORK.items()
        if work in paused and (which in wanted or work not in starts_paused)
    }
