"""Bodies that travel compressed because a property of their message says so."""

from __future__ import annotations

from typing import Final

from raybroker.content.bodies import COMPRESS, deflated
from raybroker.content.headers import decode_header, encode_header

_KEY: Final = COMPRESS.encode()


def compressed(kind: int, data: bytes, header: bytes) -> tuple[int, bytes, bytes]:
    """(kind, body, headers) as they travel: compressed when JMS_SUN_COMPRESS is True, else what was given."""
    if _KEY not in header:
        return kind, data, header
    found = decode_header(header)
    if found.properties.get(COMPRESS) is not True:
        return kind, data, header
    kind, data, marked = deflated(kind, data, found.properties)
    return kind, data, encode_header(*found._replace(properties=marked))
