"""Overrides of headers: what an administrator says of all messages of a connection, whatever its program says.

They are put on where the options of a send are read, so that a send which is overridden to be persistent waits as one.
A connection without overrides has :class:`CommonOptions` itself, and pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raybroker.client.destinations import Destination, destination_of
from raybroker.client.options import MessageOptions
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_many import Each
from raybroker.client.producer.send_options import CommonOptions, Options
from raybroker.model.naming.names import is_temporary_name
from raybroker.model.settings.settings import ConfigView

PERSISTENT = 2
"""As JMS numbers delivery modes."""


class HeaderOverrides(NamedTuple):
    """What holds for all messages; None: what the program says. ``temporary``: of temporary destinations too."""

    persistent: bool | None
    ttl_ms: int | None
    priority: int | None
    temporary: bool

    @classmethod
    def from_attributes(cls, attributes: ConfigView) -> HeaderOverrides | None:
        """Those of a connection with these attributes; None where it has none."""
        mode, ttl_ms, priority = (
            attributes[f"imqJMS{name}"] if attributes[f"imqOverrideJMS{name}"] else None
            for name in ("DeliveryMode", "Expiration", "Priority")
        )
        if mode is None and ttl_ms is None and priority is None:
            return None
        temporary: bool = attributes["imqOverrideJMSHeadersToTemporaryDestinations"]
        return cls(None if mode is None else mode == PERSISTENT, ttl_ms, priority, temporary)

    def hold_for(self, destination: Destination | str) -> bool:
        """Whether they hold for messages to this destination."""
        return self.temporary or not is_temporary_name(destination_of(destination).name)

    def put_on(self, shared: Shared) -> Shared:
        persistent, ttl_ms, priority, _ = self
        return shared._replace(
            persistent=shared.persistent if persistent is None else persistent,
            ttl_ms=shared.ttl_ms if ttl_ms is None else ttl_ms,
            priority=shared.priority if priority is None else priority,
        )


class OverriddenOptions(CommonOptions):
    """The options of sends with overrides; ``destination``: that of the producer, None where each send names one."""

    __slots__ = ("_destination", "_latest", "_overrides")

    def __init__(self, overrides: HeaderOverrides, destination: Destination | None) -> None:
        super().__init__()
        self._overrides = overrides
        self._destination = destination
        self._latest: tuple[Shared, Shared] | None = None
        """Most messages are like those before them: then they share one object, as without overrides."""

    def find(
        self,
        shared: Shared,
        properties: Mapping[str, Any] | None,
        options: MessageOptions,
        destination: Destination | str | None = None,
    ) -> Options:
        header, own = super().find(shared, properties, options)
        return header, self._overridden(own, destination)

    def of_many(
        self, shared: Shared, each: Each | None, destination: Destination | str | None
    ) -> tuple[Shared, Each | None]:
        overridden = self._overridden(shared, destination)
        if each is not None and overridden is not shared:
            each.leave_out(
                priority=self._overrides.priority is not None,
                ttl_ms=self._overrides.ttl_ms is not None,
            )
        return overridden, each

    def _overridden(self, shared: Shared, destination: Destination | str | None) -> Shared:
        to = self._destination if destination is None else destination
        if to is None or not self._overrides.hold_for(to):
            return shared
        latest = self._latest
        if latest is None or latest[0] is not shared:
            latest = self._latest = shared, self._overrides.put_on(shared)
        return latest[1]


def common_options(attributes: ConfigView, destination: Destination | None) -> CommonOptions:
    """How the options of a producer's sends are read."""
    overrides = HeaderOverrides.from_attributes(attributes)
    return CommonOptions() if overrides is None else OverriddenOptions(overrides, destination)
