"""A log with copies, as the configuration change record has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from raybroker.broker.destinations.destination_registry import Key
from raybroker.cluster.change_record import VERSION
from raybroker.hosting.host_port import Row
from raybroker.model.naming.names import check_destination_type


@dataclass(frozen=True, slots=True)
class PlacedLog:
    """The log of one destination.

    log          names it, for good: the broker at which it was made, and a word that no other log has
    brokers      those that keep a copy, the one at which it was made first
    ids          the copy that each of them has; one whose disk is new has another id, and is brought up to date first
    min_in_sync  as of the destination
    leaving      those of ``brokers`` whose copy is to go, once the others have everything
    sources      brokers with a part of the destination that is not in the log yet, from before it had copies
    opened       clients are served from the log, whatever is still to come from ``sources``
    version      how often this was changed: a change that was made of an older one is refused
    """

    key: Key
    log: str
    brokers: tuple[str, ...]
    ids: tuple[str, ...]
    min_in_sync: int = 0
    leaving: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    opened: bool = True
    version: int = 0

    @property
    def staying(self) -> tuple[str, ...]:
        """The brokers that are to keep a copy."""
        return tuple(name for name in self.brokers if name not in self.leaving)

    def after(self, **changes: Any) -> PlacedLog:
        """Return it with these changes, as the next version."""
        return replace(self, version=self.version + 1, **changes)

    @property
    def home(self) -> str:
        return self.brokers[0]

    def attributes(self) -> Row:
        """Return it as the record has it."""
        return {
            "log": self.log,
            "brokers": list(self.brokers),
            "ids": list(self.ids),
            "min_in_sync": self.min_in_sync,
            "leaving": list(self.leaving),
            "sources": list(self.sources),
            "opened": self.opened,
            VERSION: self.version,
        }

    @staticmethod
    def of_record(key: tuple[str, ...], row: Mapping[str, Any]) -> PlacedLog:
        return PlacedLog(
            (check_destination_type(key[0]), key[1]),
            str(row["log"]),
            tuple(row["brokers"]),
            tuple(row["ids"]),
            int(row["min_in_sync"]),
            tuple(row.get("leaving", ())),
            tuple(row.get("sources", ())),
            bool(row.get("opened", True)),
            int(row.get(VERSION, 0)),
        )
