"""The table of verbs.  Types of destinations are "queue" and "topic", or "q" and "t".

All verbs raise the errors of ``raybroker.errors``: InvalidDestinationError for what does not exist, ConfigError for
arguments that cannot be right.  A row is a dict of plain values.  A ``Listing`` is a list of rows with an attribute
``missing``: hosts and brokers that cannot be asked now → why; it is empty when the list is whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.admin.broker_verbs import BrokerVerbs
from raybroker.admin.definition_verbs import DefinitionVerbs
from raybroker.admin.destination_verbs import DestinationVerbs
from raybroker.admin.transaction_verbs import ManagerVerbs, TransactionVerbs
from raybroker.admin.verb import declared_in


class AdminVerbs(DestinationVerbs, TransactionVerbs, BrokerVerbs, DefinitionVerbs):
    """What ``conn.admin()`` can do."""


VERBS: Final = declared_in(AdminVerbs, ManagerVerbs)


def implementations(*parts: object) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Verb → the method of its name; a part carries out the verbs that its class has methods for."""
    return {name: getattr(part, name) for part in parts for name in VERBS if hasattr(type(part), name)}
