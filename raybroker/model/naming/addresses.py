"""Addresses of machines."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

KNOWN_MAX: Final = 1024


@lru_cache(KNOWN_MAX)
def is_loopback(address: str) -> bool:
    """Whether an address without a port, such as ``127.0.0.1`` or ``[::1]``, is that of this machine to itself."""
    try:
        found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
