"""Floods of logins, at every door: many at once get no more guesses than one after another, and an address whose logins
fail is refused cheaply, while those who are known there, and others elsewhere, come in."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from argon2 import PasswordHasher

import raybroker as rb
from raybroker.errors import LoginLimitError, SecurityError
from raybroker.security import lockout
from raybroker.security.lockout import FAILURES_MAX, OF_ADDRESS_MAX
from raybroker.security.mechanism import WRONG
from raybroker.security.user_file import UserEntry
from raybroker.wire import scram
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import TOKEN_BYTES, preface
from raybroker.wire.native.preamble import preamble
from raybroker.wire.scram import ScramClient
from tests.contracts.stomp_socket import StompSocket
from tests.contracts.test_services import VERIFIER, Outside

AT_ONCE = 40
QUICK_HASH = PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash("secret")
QUICK_ROUNDS = 20_000
"""Both take a twentieth of the time that what the broker makes itself does: forty of those at once are a minute of work
on a slow machine, in threads of a low priority."""
HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    monkeypatch.setattr(lockout, "OF_ADDRESS_S", 90.0)  # A slow machine needs more than ten seconds for all of them.
    monkeypatch.setattr(lockout, "LOCKED_S", 90.0)
    monkeypatch.setattr(
        scram, "ITERATIONS", dict.fromkeys(scram.ALGORITHMS, QUICK_ROUNDS)
    )  # For whom there is no verifier.
    with ExitStack() as opened:
        services = {"imq.service.activelist": "jms,stomp,httpjms,httpadmin", "imq.hostname": "127.0.0.1"}
        made = Outside(tmp_path, opened, **{**services, "raybroker.handshake.timeout_ms": 60_000})
        for number in range(2 * AT_ONCE):
            made.users.add(f"user{number}", UserEntry(VERIFIER))
        made.users.add("hashed", UserEntry(QUICK_HASH))
        yield made


def by_http(service: str) -> Callable[[Outside, str, str, str], str]:
    def login(outside: Outside, user: str, password: str, address: str) -> str:
        given = base64.b64encode(f"{user}:{password}".encode()).decode()
        path = "/queues/q/messages" if service == "httpjms" else "/destinations"
        made = socket.create_connection((HERE, outside.ports[service]), timeout=60, source_address=(address, 0))
        with closing(made):
            made.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic {given}\r\n\r\n".encode()
            )
            answer = b""
            while data := made.recv(65_536):
                answer += data
        status = int(answer.split(b" ", 2)[1])
        if status == 200:
            return ""
        told = json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
        assert status == (429 if "have failed within" in told or "are logging in" in told else 401), answer
        return str(told)

    return login


def by_stomp(outside: Outside, user: str, password: str, address: str) -> str:
    made = socket.create_connection((HERE, outside.ports["stomp"]), timeout=60, source_address=(address, 0))
    with closing(StompSocket(made)) as client:
        client.send("CONNECT", {"login": user, "passcode": password, "accept-version": "1.2"})
        found = client.receive()
        assert found is not None
        return "" if found.command == "CONNECTED" else found.headers["message"]


def by_native(outside: Outside, user: str, password: str, address: str) -> str:
    try:
        rb.connect(outside.url(), username=user, password=password).close()
    except (SecurityError, LoginLimitError) as error:
        return str(error)
    return ""


DOORS = {"stomp": by_stomp, "httpjms": by_http("httpjms"), "httpadmin": by_http("httpadmin"), "native": by_native}


def at_once(outside: Outside, login: Callable[..., str], users: list[str], password: str) -> list[str]:
    with ThreadPoolExecutor(len(users)) as threads:
        passwords = [f"{password}{number}" for number in range(len(users))]
        return list(threads.map(lambda user, given: login(outside, user, given, HERE), users, passwords))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("user", ["ann", "hashed"])
def test_many_at_once_get_as_many_guesses_as_one_after_another(outside: Outside, door: str, user: str) -> None:
    if door == "native" and user == "hashed":
        pytest.skip("digest does not check such a password")
    told = at_once(outside, DOORS[door], [user] * AT_ONCE, "wrong")
    guesses = [text for text in told if WRONG in text]
    assert len(guesses) <= FAILURES_MAX, told
    assert all("too many failed logins" in text or "are logging in" in text for text in set(told) - set(guesses))
    assert "too many failed logins" in DOORS[door](outside, user, "secret", HERE), "not even with the right one"


@pytest.mark.parametrize("door", DOORS)
def test_an_address_whose_logins_fail_is_refused_but_for_those_who_are_known_there(outside: Outside, door: str) -> None:
    login = DOORS[door]
    user = "root" if door == "httpadmin" else "ann"
    assert login(outside, user, "secret", HERE) == ""
    for attack in range(5):
        at_once(outside, login, [f"user{number}" for number in range(12 * attack, 12 * attack + 12)], "wrong")
    refusal = login(outside, "bob", "secret", HERE)
    assert f"{OF_ADDRESS_MAX} logins from {HERE} have failed within 90 s" in refusal
    assert login(outside, user, "secret", HERE) == "", "she has logged in from there before"
    if door != "native":
        assert login(outside, user, "secret", THERE) == "", "other addresses are not held to it"


def open_login() -> bytes:
    """A native login that has begun, and whose proof does not come."""
    first = ScramClient("ann", "x", "n" * 24).first()
    asked = wire.call(1, "login", {"mechanism": "digest", "first": first})
    return b"".join([preamble(""), preface(bytes(TOKEN_BYTES)), bytes(asked)])


SILENT: dict[str, tuple[str, bytes]] = {
    "native": ("jms", b""),
    "native, half a preamble": ("jms", b"RB"),
    "native, logging in": ("jms", open_login()),
    "stomp": ("stomp", b""),
    "stomp, half a frame": ("stomp", b"CONNECT\nlogin:ann\n"),
    "httpjms": ("httpjms", b""),
    "httpadmin, half a head": ("httpadmin", b"GET / HTTP/1.1\r\n"),
}


@pytest.mark.parametrize("what", SILENT)
def test_silent_connections_of_many_addresses_keep_nobody_out(tmp_path: Path, what: str) -> None:
    service, said = SILENT[what]
    with ExitStack() as opened:
        outside = Outside(
            tmp_path,
            opened,
            **{
                "imq.service.activelist": "jms,stomp,httpjms,httpadmin",
                "raybroker.handshake.timeout_ms": 60_000,
                "raybroker.service.arriving_max": 16,
                "raybroker.service.address_arriving_max": 4,
                "raybroker.http.connections_max": 16,
                "raybroker.http.address_connections_max": 4,
            },
        )
        door = "native" if service == "jms" else service
        for round_ in range(3):
            for number in range(20):
                made = socket.create_connection(
                    (HERE, outside.ports[service]), timeout=20, source_address=(f"127.0.1.{number + 1}", 0)
                )
                opened.callback(made.close)
                made.sendall(said)
            user = "root" if service == "httpadmin" else "ann"
            assert DOORS[door](outside, user, "secret", THERE) == "", round_
        if door == "native":
            (jms,) = [row for row in outside.admin.list_services() if row["service"] == "jms"]
            assert jms["refused"] >= 3 * 20 - 16, "each one that has made room counts"
