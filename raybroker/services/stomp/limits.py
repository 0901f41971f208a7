"""Bounds of one STOMP connection, with what happens at the edge."""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.model.settings.setting_listeners import PREFETCH_BYTES_MAX
from raybroker.services.listening.bounds import Bounds
from raybroker.wire.stomp.parser import HEAD_BYTES_MAX

HEAD_BYTES_UNKNOWN: Final = 8192
"""Of a frame before the login: it is refused with an ERROR, as all of these but the last four."""
SUBSCRIPTIONS_MAX: Final = 1000
TRANSACTIONS_MAX: Final = 100
"""Open at the same time."""
TRANSACTION_FRAMES_MAX: Final = 100_000
"""SEND, ACK and NACK of one transaction."""
PREFETCH_DEFAULT: Final = 100
"""Messages that a subscription without a prefetch header has unacknowledged, or on their way."""
PREFETCH_MAX: Final = 100_000
SENDS_MAX: Final = 1000
"""Messages that are not stored yet; further frames are read when there are fewer."""
BATCH_BYTES: Final = 256 << 10
"""Written at once for one subscription; the next batch follows when the kernel has taken it."""
READ_BYTES_HIGH: Final = 256 << 10
"""Read and not handled, unless they are one frame; more is read when there are fewer. A frame of more bytes counts
among those of all clients until it has ended, see ``frames_bytes_max``."""


class StompLimits(NamedTuple):
    """``body_bytes_max``: imq.message.max_size; ``handshake_s``: for the login; ``unencrypted``: passcodes are taken
    from other machines without TLS (raybroker.authentication.unencrypted); ``login_bytes_max``: of the frame CONNECT,
    ``head_bytes_max``: of command and headers of every other one; ``frames_bytes_max``: of all clients' frames that
    have not ended; ``prefetch_bytes``: of bodies that wait for one client."""

    body_bytes_max: int
    handshake_s: float
    unencrypted: bool
    login_bytes_max: int = HEAD_BYTES_UNKNOWN
    head_bytes_max: int = HEAD_BYTES_MAX
    frames_bytes_max: int = 128 << 20
    prefetch_bytes: int = PREFETCH_BYTES_MAX
    bounds: Bounds = Bounds()
