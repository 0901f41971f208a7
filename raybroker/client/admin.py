"""``conn.admin()``: every administrative verb as a method.

The blocking face returns results; the asynchronous one returns awaitables of the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Admin:
    """``call(verb, arguments)`` carries a verb to the broker. Type is "queue" (or "q")."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any]) -> None:
        self._call = call

    def create_destination(self, type: str, name: str, **attributes: Any) -> Any:  # noqa: A002 - public name
        """Create a destination with attributes such as consumerFlowLimit=20 (D-03, F-03).

        Raises InvalidDestinationError (bad name, or it exists) or ConfigError (unknown attribute, value out of bounds).
        """
        return self._call("create_destination", {"type": type, "name": name, "attributes": attributes})

    def destroy_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Remove a destination and its messages."""
        return self._call("destroy_destination", {"type": type, "name": name})

    def update_destination(self, type: str, name: str, **changes: Any) -> Any:  # noqa: A002
        """Change attributes, all or none; raises ConfigError for one that is fixed at creation."""
        return self._call("update_destination", {"type": type, "name": name, "changes": changes})

    def list_destinations(self, type: str | None = None) -> Any:  # noqa: A002
        """One dict a destination, by name, as :meth:`query_destination` gives it."""
        return self._call("list_destinations", {"type": type})

    def query_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Attributes, state and counts: messages, bytes, waiting, unacknowledged, producers, active_consumers, …"""
        return self._call("query_destination", {"type": type, "name": name})

    def purge_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Discard the messages that no consumer holds."""
        return self._call("purge_destination", {"type": type, "name": name})

    def list_consumers(self, destination: str | None = None) -> Any:
        """One dict a consumer: id, destination, active, flow, limit, granted, unacknowledged, sent."""
        return self._call("list_consumers", {"name": destination})

    def query_consumer(self, id: int) -> Any:  # noqa: A002
        """One consumer by id."""
        return self._call("query_consumer", {"id": id})

    def query_broker(self) -> Any:
        """The broker's hosts: destinations, connections, messages, bytes, store."""
        return self._call("query_broker", {})
