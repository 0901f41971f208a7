"""The preamble: what a client says first on the port of a connection service, before TLS and before the protocol.

    magic 4 | length u8 | key

``key`` names the host that the connection is for, "" for the broker itself; whoever listens on the port hands the
connection on to that host, and reads nothing behind the preamble.  A key is no secret and no proof of anything.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.errors import ProtocolError

MAGIC: Final = b"RBS\x01"
HEAD_BYTES: Final = len(MAGIC) + 1
KEY_BYTES_MAX: Final = 255


def preamble(key: str) -> bytes:
    """What to send for the host with that key."""
    encoded = key.encode()
    if len(encoded) > KEY_BYTES_MAX:
        raise ProtocolError(f"a key of {len(encoded)} bytes; at most {KEY_BYTES_MAX}")
    return MAGIC + bytes([len(encoded)]) + encoded


def key_length(head: bytes) -> int:
    """How many bytes of key follow these HEAD_BYTES; raises ProtocolError."""
    if len(head) != HEAD_BYTES or head[: len(MAGIC)] != MAGIC:
        raise ProtocolError("it does not speak the native protocol")
    return head[len(MAGIC)]


def key_of(encoded: bytes) -> str:
    """Raises ProtocolError for what is no key."""
    try:
        key = encoded.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a key is text") from None
    if not key.isprintable():
        raise ProtocolError("a key is printable text")
    return key
