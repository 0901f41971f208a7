"""The first free port of a range is taken, for streams and datagrams."""

from __future__ import annotations

import socket

import pytest

from raybroker.errors import ConfigError
from raybroker.model.settings.setting import PortRange
from raybroker.transport.ports import bound_socket

HERE = "127.0.0.1"


@pytest.mark.parametrize("backlog", [None, 5], ids=["datagrams", "streams"])
def test_a_port_that_is_taken_is_passed_over(backlog: int | None) -> None:
    with bound_socket(HERE, PortRange(0, 0), "in x=", backlog=backlog) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"no free port in x={port} on {HERE}"):
            bound_socket(HERE, PortRange(port, port), "in x=", backlog=backlog)
        with bound_socket(HERE, PortRange(port, port + 50), "in x=", backlog=backlog) as second:
            assert port < second.getsockname()[1] <= port + 50


def test_a_socket_for_streams_takes_connections_at_once() -> None:
    with bound_socket(HERE, PortRange(0, 0), "in x=", backlog=5) as listening:
        socket.create_connection(listening.getsockname(), timeout=10).close()
