"""Live settings: copies of configuration values that a host renews when the configuration changes.

Everything else is read where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.path.wakeups import Wakeups
from raybroker.model.bounds import message_bytes_max
from raybroker.model.settings.settings import ConfigView


class LiveSettings:
    """``given``: called in order with each destination that has new settings."""

    def __init__(
        self,
        config: ConfigView,
        time: MeasuredTime,
        registry: DestinationRegistry,
        wakeups: Wakeups,
        given: Sequence[Callable[[Destination], None]],
    ) -> None:
        self._config = config
        self._time = time
        self._registry = registry
        self._wakeups = wakeups
        self._given = given
        self.message_bytes_max = message_bytes_max(config["imq.message.max_size"])

    def apply_changes(self) -> None:
        """The configuration has changed."""
        self.message_bytes_max = message_bytes_max(self._config["imq.message.max_size"])
        now_ms = self._time.now_ms()
        for destination in self._registry.destinations.values():
            self.give(destination)
            if destination.block_index.messages and destination.expiry.scan_ms:
                destination.expiry.next_scan_ms = now_ms
                self._wakeups.wake(destination.number, now_ms)

    def give(self, destination: Destination) -> None:
        """Give the settings to a destination, which reads no configuration itself."""
        destination.policy.set_host_limits(
            message_bytes_max=self.message_bytes_max,
            reference_bytes_max=self._config["raybroker.reference.max_size"],
            rollbacks_max=self._config["imq.transaction.message.maxConsecutiveRollbacks"],
            auto_created_bytes=(
                self._config["imq.autocreate.destination.maxBytesPerMsg"] if destination.reap_ms is not None else None
            ),
        )
        destination.expiry.scan_ms = self._config["imq.message.expiration.interval"] * 1000
        for given in self._given:
            given(destination)
