"""A listener tells the authentication how its client sends: encrypted, or so that others may read it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from raybroker.security.mechanism import LoginPeer
from raybroker.services.listening.arrivals import ITSELF, Origin
from raybroker.services.listening.bounds import Bounds
from raybroker.services.listening.listener import ServiceListener
from raybroker.services.native.control import Control


class Services:
    """Those of a broker, as far as a login asks them."""

    broker, life, address_max, user_max, handshake_s, proof_s = "b1", "0", -1, -1, 1.0, 1.0
    bounds = Bounds()

    def __init__(self) -> None:
        self.peers: list[LoginPeer] = []
        self.security = self
        self.probes: set[str] = set()
        self.security = self
        self.told: list[str] = []

    def login(self, service: str, mechanism: str, peer: LoginPeer) -> Any:
        self.peers.append(peer)

    def is_probe(self, peer: str) -> bool:
        return peer in self.probes

    def client_refused(self, peer: str, why: str) -> None:
        self.told.append(peer)


@pytest.mark.parametrize(
    ("service", "origin", "encrypted"),
    [
        ("httpjms", Origin(encrypted=False), False),
        ("httpsjms", Origin(encrypted=True), True),
        ("stomp", ITSELF, True),
        ("jms", ITSELF, False),
        ("ssljms", ITSELF, True),
    ],
)
def test_whether_others_may_read_what_a_client_sends(service: str, origin: Origin, encrypted: bool) -> None:
    services: Any = Services()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        listener = ServiceListener(services, service, bound, 5)
        control = Control(listener, "c", "192.0.2.1:7", first_s=1, proof_s=1, origin=origin)
        listener.login(control, "basic")
    assert services.peers == [LoginPeer("192.0.2.1", encrypted=encrypted)]


def test_the_brokers_own_probe_is_no_refused_client() -> None:
    services: Any = Services()
    with socket.create_server(("0.0.0.0", 0)) as bound:
        listener = ServiceListener(services, "jms", bound, 5)
    assert listener.address == ("127.0.0.1", listener.port)
    services.probes.add("127.0.0.1:7")
    listener.client_refused("127.0.0.1:7", "it said nothing")
    listener.client_refused("127.0.0.1:8", "it said nothing")
    assert (services.told, listener.service_row()["refused"]) == (["127.0.0.1:8"], 1)
