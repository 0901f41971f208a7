"""Hosts of a broker that answer, and do not start: why, and what they must have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from raybroker.model.naming.names import DestinationType

NOT_ASKED: Final = "it has not answered since the broker started"


class AwayHosts:
    """``key_of``: the key of a host that is known by its name.

    refused   host → why it does not start: nobody waits for it but who wants what it may have
    awaited   destinations that the configuration change record has, and that must be on one of those hosts
    """

    def __init__(self, key_of: Callable[[str], str]) -> None:
        self._key_of = key_of
        self.refused: dict[str, str] = {}
        self.awaited: set[tuple[DestinationType, str]] = set()

    def reasons(self, names: Iterable[str]) -> dict[str, str]:
        """Keys of hosts that could not be asked what they serve → why."""
        return {self._key_of(name): self.refused.get(name, NOT_ASKED) for name in names}

    def told(self, names: Iterable[str]) -> str:
        """Why those of them do not start that say so; "" when none does."""
        return "; ".join(self.refused[name] for name in sorted(names) if name in self.refused)
