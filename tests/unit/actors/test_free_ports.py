"""A broker that was taken over: the ports of the configuration belong to the broker beside it."""

from __future__ import annotations

from raybroker.actors.connection_services import FreePorts
from raybroker.config import Config


def test_services_and_port_mapper_take_any_free_port_and_all_else_is_as_configured() -> None:
    given = {"imq.portmapper.port": 7676, "imq.jms.tcp.port": 7001, "imq.hostname": "127.0.0.1"}
    config = FreePorts(Config.from_values(given))
    assert [config[name] for name in given] == [0, 0, "127.0.0.1"]
