"""Addresses of machines."""

from __future__ import annotations

import pytest

from raybroker.model.naming.addresses import is_loopback


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_this_machine_is_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["192.0.2.1", "::ffff:192.0.2.1", "fe80::1%eth0", "", "localhost"])
def test_what_is_not_known_is_another_machine(address: str) -> None:
    assert not is_loopback(address)
