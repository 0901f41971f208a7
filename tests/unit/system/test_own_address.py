"""Addresses of this machine, as the system routes them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from raybroker.system.own_address import is_own


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.8.7", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_loopback_is_this_machine(address: str) -> None:
    assert is_own(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        "8.8.8.8",
        "203.0.113.9",
        "2001:db8::1",
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "224.0.0.1",
        "1",
    ],
)
def test_others_are_not_nor_what_is_no_address(address: str) -> None:
    assert not is_own(address)


def test_an_address_of_an_interface_is_this_machine_and_its_neighbour_is_not() -> None:
    """Also where sockets may have foreign addresses."""
    told = (
        "ip link set lo up && ip addr add 10.9.8.7/24 dev lo && "
        '(echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind || true) 2>/dev/null && exec "$0" -c "$1"'
    )
    asked = "from raybroker.system.own_address import is_own\nprint([is_own(a) for a in %r])"
    addresses = ["10.9.8.7", "::ffff:10.9.8.7", "10.9.9.7", "192.0.2.1"]
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("unshare and ip make a network of its own")
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", told, sys.executable, asked % addresses],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"network namespaces are not permitted: {done.stderr.strip():.200}")
    assert done.stdout.strip() == "[True, True, False, False]"
