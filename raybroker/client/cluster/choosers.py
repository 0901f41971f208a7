"""Choosers: positions among the members of distributed destinations, shared by all handles of a connection."""

from __future__ import annotations

from typing import Final

from raybroker.client.destinations import Destination
from raybroker.model.balancing import Chooser
from raybroker.system.entropy import token

NUMBER_BYTES: Final = 4


class Choosers:
    """The choosers of one connection."""

    def __init__(self) -> None:
        self._choosers: dict[tuple[Destination, str], Chooser] = {}

    def chooser_for(self, destination: Destination, policy: str, whose: str) -> Chooser:
        """The position among the members of a destination, for its "producers" or "consumers": each goes round by
        itself."""
        found = self._choosers.get((destination, whose))
        if found is None or found.policy != policy:
            found = Chooser(policy, lambda: int.from_bytes(token(NUMBER_BYTES), "little"))
            self._choosers[destination, whose] = found
        return found
