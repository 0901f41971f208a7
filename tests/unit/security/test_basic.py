"""Mechanism basic by itself: its repository is a fake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raybroker.errors import ProtocolError, SecurityError
from raybroker.model.definitions.user import NAME_CHARS_MAX
from raybroker.security.access_rules import User
from raybroker.security.basic import Basic, BasicExchange
from raybroker.security.checks import CheckThreads
from raybroker.security.lockout import FAILURES_MAX, LOCKED_S, Lockout
from raybroker.security.mechanism import WRONG, LoginPeer, LoginRefusedError
from raybroker.security.user_file import PASSWORD_CHARS_MAX

ANN = User("ann", frozenset({"user"}))


class World:
    """A repository that knows ann, and a clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[tuple[str, str]] = []
        self.checks = CheckThreads(1)
        self.lockout = Lockout(lambda: self.now_s)
        self.basic = Basic(self, self.lockout, self.checks)

    def check(self, name: str, password: str) -> User:
        self.asked.append((name, password))
        if (name, password) != ("ann", "secret"):
            raise LoginRefusedError("has a wrong password")
        return ANN

    def exchange(self, address: str = "127.0.0.1") -> BasicExchange:
        return self.basic.exchange(LoginPeer(address))

    def login(self, name: str, password: str) -> BasicExchange:
        """One that fails."""
        exchange = self.exchange()
        assert exchange.make_challenge(name) == ""
        with pytest.raises(SecurityError) as caught:
            asyncio.run(exchange.finish(password))
        assert str(caught.value) == WRONG
        return exchange


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.checks.close()


def test_the_repository_says_who_it_is(world: World) -> None:
    exchange = world.exchange()
    exchange.make_challenge("ann")
    identity, proof = asyncio.run(exchange.finish("secret"))
    assert (identity.user, identity.until_s, proof, world.asked) == (ANN, None, "", [("ann", "secret")])


def test_the_log_has_the_reason_and_the_client_has_not(world: World) -> None:
    assert world.login("ann", "wrong").why == "user 'ann' has a wrong password (1 in a row)"
    assert world.login("ann", "").why == "user 'ann' sent a password of 0 characters (2 in a row)"
    assert "xxx" not in world.login("ann", "x" * (PASSWORD_CHARS_MAX + 1)).why
    assert world.asked == [("ann", "wrong")], "what cannot be a password is not looked up"


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARS_MAX + 1)])
def test_what_cannot_be_a_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(ProtocolError, match="1 to"):
        world.exchange().make_challenge(name)


def test_who_fails_too_often_waits_also_in_the_middle_of_a_login(world: World) -> None:
    early = world.exchange()
    early.make_challenge("ann")
    for _ in range(FAILURES_MAX):
        world.login("ann", "wrong")
    with pytest.raises(SecurityError, match="too many failed logins"):
        asyncio.run(early.finish("secret"))
    assert (early.locked, world.asked.count(("ann", "secret"))) == (True, 0)
    world.exchange("127.0.0.2").make_challenge("ann")
    world.now_s += LOCKED_S
    exchange = world.exchange()
    exchange.make_challenge("ann")
    assert asyncio.run(exchange.finish("secret"))[0].user == ANN


def test_a_success_begins_counting_anew(world: World) -> None:
    for _ in range(2):
        for _ in range(FAILURES_MAX - 1):
            world.login("ann", "wrong")
        exchange = world.exchange()
        exchange.make_challenge("ann")
        asyncio.run(exchange.finish("secret"))


def test_passwords_are_taken_where_nobody_else_reads_them(world: World) -> None:
    far = "192.0.2.7"
    with pytest.raises(SecurityError, match="takes no passwords over a connection that is not encrypted"):
        world.exchange(far)
    world.basic.exchange(LoginPeer(far, encrypted=True))
    Basic(world, world.lockout, world.checks, unencrypted=True).exchange(LoginPeer(far))
