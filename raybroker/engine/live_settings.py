"""What a host has copied out of its configuration, taken anew when that has changed.

Everything else is read where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.model.bounds import message_bytes_max

if TYPE_CHECKING:
    from raybroker.core.destination import Destination
    from raybroker.engine.host import Host


def take(host: Host) -> None:
    """The configuration has changed."""
    host.message_bytes_max = message_bytes_max(host.config["imq.message.max_size"])
    host.transactions.configure()
    now_ms = host.clock.now_ms()
    for home in host.destinations.values():
        give(host, home)
        if home.block_index.messages and home.expiry.scan_ms:
            home.expiry.next_scan_ms = now_ms
            host.wake(home.number, now_ms)


def give(host: Host, home: Destination) -> None:
    """To a destination, which reads no configuration itself."""
    home.policy.message_bytes_max = host.message_bytes_max
    home.policy.rollbacks_max = host.config["imq.transaction.message.maxConsecutiveRollbacks"]
    home.expiry.scan_ms = host.config["imq.message.expiration.interval"] * 1000
    host.meters.thresholds.take(home)
