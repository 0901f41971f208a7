"""Limits of one connection of AMQP 1.0."""

from __future__ import annotations

from typing import Final, NamedTuple

FRAME_BYTES_MAX: Final = 128 << 10
LOGIN_FRAME_BYTES_MAX: Final = 16 << 10
"""Largest frame until the peer has opened the connection: tokens are longer than 512 bytes, which every peer takes."""
LOGIN_BYTES_MAX: Final = 64 << 10
"""Bytes that are kept of a peer that has sent on without waiting for the outcome of its login."""
CHANNEL_MAX: Final = 1023
HANDLE_MAX: Final = 1023
INCOMING_WINDOW: Final = 2048
MESSAGE_BYTES_MAX: Final = 70 << 20
INCOMPLETE_BYTES_MAX: Final = 140 << 20


class AmqpLimits(NamedTuple):
    """``message_bytes_max``: of a message on a link that says nothing else; 0 is without limit.
    ``incomplete_bytes_max``: of the deliveries of all links that are not whole."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    login_frame_bytes_max: int = LOGIN_FRAME_BYTES_MAX
    login_bytes_max: int = LOGIN_BYTES_MAX
    channel_max: int = CHANNEL_MAX
    handle_max: int = HANDLE_MAX
    incoming_window: int = INCOMING_WINDOW
    message_bytes_max: int = MESSAGE_BYTES_MAX
    incomplete_bytes_max: int = INCOMPLETE_BYTES_MAX


class IncompleteBytes:
    """How many bytes of deliveries that are not whole a connection holds."""

    __slots__ = ("most", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
