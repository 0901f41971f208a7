"""Listening sockets on the first free port of a range."""

from __future__ import annotations

import socket

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import PortRange


def bound_socket(ip: str, ports: PortRange, range_name: str, *, backlog: int | None = None) -> socket.socket:
    """A TCP socket that listens with ``backlog``, or without one a UDP socket, on the first free port of the range.

    Raises ConfigError with ``range_name`` when no port is free. A TCP socket listens before the range counts as
    searched, because two processes may bind one port as long as neither listens on it.
    """
    last: OSError | None = None
    for port in range(ports.low, ports.high + 1):
        found = socket.socket(
            socket.AF_INET6 if ":" in ip else socket.AF_INET,
            socket.SOCK_DGRAM if backlog is None else socket.SOCK_STREAM,
        )
        try:
            if backlog is not None:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((ip, port))
            if backlog is not None:
                found.listen(backlog)
            return found
        except OSError as error:
            found.close()
            last = error
    raise ConfigError(f"no free port {range_name}{ports} on {ip}: {last}")
