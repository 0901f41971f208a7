"""Bounds of one AMQP connection, with what happens at the edge."""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.model.settings.setting_listeners import PREFETCH_BYTES_MAX
from raybroker.services.listening.bounds import Bounds
from raybroker.wire.amqp.limits import AmqpLimits

PRODUCER_CREDIT: Final = 1000
"""Messages of a link that are not stored yet; it gets credit for as many, topped up at half."""
LINK_MESSAGES_MAX: Final = 1000
"""Messages that a receiver's link asks of the broker at a time, whatever credit the client grants."""
UNSETTLED_MAX: Final = 10_000
"""Messages of a link that the client has and has not settled; further ones are sent when there are fewer."""
BATCH_BYTES: Final = 256 << 10
"""Written at once for one link; the next batch follows when the kernel has taken it."""
UNSENT_BYTES_HIGH: Final = 1 << 20
"""Written and not taken by the client: nothing more of it is read until it has."""
PENDING_BYTES_HIGH: Final = 8 << 20
"""Messages whose destinations have no room: nothing more of the client is read while there are more."""
DRAIN_TIMEOUT_S: Final = 20.0
"""A drain is answered after so long, whatever the broker has said: clients wait for a minute at most."""
TRANSACTIONS_MAX: Final = 100
"""Open at the same time; one more is refused."""
TRANSACTION_MESSAGES_MAX: Final = 100_000
"""Messages sent and settled in one transaction; one more is rejected."""
SESSION_WORK_MAX: Final = 4096
"""Links of a session that wait to be attached or detached; a session with more is ended."""
LINGER_S: Final = 2.0
"""After a close a client has so much time to read it and to end the connection."""
IDLE_GRACE: Final = 2.0
"""A client is gone after so many of the times that it was told without a byte."""


class AmqpServiceLimits(NamedTuple):
    """``wire``: of frames, channels, links and messages; ``handshake_s``: for login and open; ``unencrypted``:
    passwords are taken from other machines without TLS (raybroker.authentication.unencrypted); ``idle_s``: told to
    clients, 0: none; ``frames_bytes_max``: of all clients' messages that have not ended; ``prefetch_bytes``: of bodies
    that wait for one client; ``redirects``: clients are sent to another broker when the service takes no new ones."""

    wire: AmqpLimits
    handshake_s: float
    unencrypted: bool
    idle_s: float = 60.0
    unsettled_max: int = UNSETTLED_MAX
    frames_bytes_max: int = 128 << 20
    prefetch_bytes: int = PREFETCH_BYTES_MAX
    bounds: Bounds = Bounds()
    redirects: bool = True
