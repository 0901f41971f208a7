"""The test whether an address is one of this machine's own."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from raybroker.model.naming.addresses import is_loopback

_PORT: Final = 9
"""Of a socket that nothing is sent by."""


def is_own(address: str) -> bool:
    """Whether whoever has the address, which is without a port, is this machine: by its loopback, or by another address
    that it has. The system is asked by which address it would reach that one, which is the same for its own alone; so
    settings that let sockets have foreign addresses change nothing. Nothing is sent."""
    if is_loopback(address):
        return True
    try:
        found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    family = socket.AF_INET if found.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((str(found), _PORT))
            return ipaddress.ip_address(asked.getsockname()[0].partition("%")[0]) == found
    except OSError:
        return False
