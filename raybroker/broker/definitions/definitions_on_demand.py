"""Export and import of definitions, imported and made when the first of these verbs is asked for, as few are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raybroker.hosting.host_port import Row

if TYPE_CHECKING:
    from raybroker.broker.definitions.definition_transfer import Transfer


class DefinitionsOnDemand:
    """The two verbs, see ``definition_transfer.py``; ``make`` makes what carries them out, once."""

    def __init__(self, make: Callable[[], Transfer]) -> None:
        self._make = make
        self._made: Transfer | None = None

    async def export_definitions(self, users: bool = False) -> Row:
        return await self._transfer().export_definitions(users)

    async def import_definitions(
        self,
        definitions: Row,
        dry_run: bool = False,
        prune: bool = False,
        keep_going: bool = False,
        users: bool = False,
    ) -> Row:
        return await self._transfer().import_definitions(definitions, dry_run, prune, keep_going, users)

    def _transfer(self) -> Transfer:
        if self._made is None:
            self._made = self._make()
        return self._made
