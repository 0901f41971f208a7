"""The broker of STOMP clients: passcodes that others could read on their way are not taken."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.model.errors import BrokerError, SecurityError
from raybroker.services.stomp.broker import StompBroker
from raybroker.services.stomp.limits import StompLimits


class ReachedError(BrokerError):
    """The gateway was asked."""


async def core_as(*args: Any, **named: Any) -> Any:
    raise ReachedError("the password has come this far")


def connect(peer: str, *, unencrypted: bool = False, tls: bool = False) -> None:
    gateway: Any = SimpleNamespace(core_as=core_as)
    broker = StompBroker(gateway, StompLimits(1000, 30.0, unencrypted), "1.0", lambda peer, why: None, tls=tls)
    asyncio.run(broker.connect(peer, "ann", "secret", None, "1.2", lambda error: None))


@pytest.mark.parametrize("peer", ["192.0.2.1:5000", "::ffff:192.0.2.1:5000", "2001:db8::1:5000"])
def test_a_passcode_in_clear_from_another_machine_is_refused(peer: str) -> None:
    with pytest.raises(SecurityError, match="use the service sslstomp, or set"):
        connect(peer)
    with pytest.raises(ReachedError):
        connect(peer, unencrypted=True)
    with pytest.raises(ReachedError):
        connect(peer, tls=True)


def test_one_from_this_machine_is_taken() -> None:
    with pytest.raises(ReachedError):
        connect("127.0.0.1:5000")
