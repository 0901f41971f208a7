"""Logins: who gets in, what is told to whom, and who has to wait."""

from __future__ import annotations

import asyncio

import pytest

from raybroker.errors import ProtocolError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.digest import DigestExchange
from raybroker.security.lockout import FAILURES_MAX, LOCKED_S, REMEMBERED_MAX, Lockout
from raybroker.security.mechanism import WRONG
from raybroker.security.user_file import UserEntry
from raybroker.wire.scram import SHA256, SHA512, ScramClient, ScramServer, Verifier

VERIFIER = str(Verifier.from_password("secret", b"s" * 16, 1))
HASH = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$aGFzaA"
USERS = {
    "new": UserEntry(HASH),
    "ann": UserEntry(VERIFIER),
    "old": UserEntry(VERIFIER, active=False),
    "root": UserEntry(VERIFIER, "admin"),
    "both": UserEntry(f"{VERIFIER},{Verifier.from_password('secret', b't' * 16, 1, SHA512)}"),
}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def log_in(
    lockout: Lockout, name: str, password: str = "secret", address: str = "10.0.0.1", algorithm: str = SHA256
) -> tuple[DigestExchange, User]:
    login = DigestExchange(
        USERS, lockout, address=address, scram=ScramServer("theirs"), secret=b"x" * 32, algorithm=algorithm
    )
    client = ScramClient(name, password, "ours", algorithm)
    identity, signature = asyncio.run(login.finish(client.final(login.make_challenge(client.first()))))
    client.check(signature)
    assert identity.until_s is None
    return login, identity.user


def test_a_user_gets_in_with_the_groups_of_the_file() -> None:
    _, user = log_in(Lockout(Clock()), "root")
    assert user == User("root", frozenset({"admin"}))


def test_a_user_whose_password_is_kept_for_both_gets_in_by_either_and_others_by_the_older_one() -> None:
    for algorithm in (SHA256, SHA512):
        assert log_in(Lockout(Clock()), "both", algorithm=algorithm)[1].name == "both"
        with pytest.raises(SecurityError):
            log_in(Lockout(Clock()), "both", "wrong", algorithm=algorithm)
    with pytest.raises(SecurityError, match=WRONG):
        log_in(Lockout(Clock()), "ann", algorithm=SHA512)


@pytest.mark.parametrize(
    ("name", "password", "why"),
    [
        ("ann", "x", "has a wrong password"),
        ("eve", "secret", "is unknown"),
        ("old", "secret", "is not active"),
        ("new", "secret", "has a password for basic alone"),
    ],
)
def test_why_not_is_for_the_log_alone(name: str, password: str, why: str) -> None:
    login = DigestExchange(
        USERS, Lockout(Clock()), address="10.0.0.1", scram=ScramServer("theirs"), secret=b"x" * 32, algorithm=SHA256
    )
    verifier = Verifier.parse(VERIFIER) if name in ("ann", "old") else Verifier.nobody(name, b"x" * 32)
    client = ScramClient(name, password, "ours")
    challenge = login.make_challenge(client.first())
    assert f"i={verifier.iterations}" in challenge
    # Who is unknown has a verifier of many rounds; a proof of any other is as wrong.
    final = client.final(challenge.replace(f"i={verifier.iterations}", "i=1"))
    with pytest.raises(SecurityError, match=WRONG):
        asyncio.run(login.finish(final))
    assert login.why.startswith(f"user {name!r} {why} (1 in a row)")


def test_a_malformed_proof_counts_as_a_wrong_one() -> None:
    lockout = Lockout(Clock())
    login = DigestExchange(
        USERS, lockout, address="10.0.0.1", scram=ScramServer("theirs"), secret=b"x" * 32, algorithm=SHA256
    )
    login.make_challenge(ScramClient("ann", "secret", "ours").first())
    with pytest.raises(SecurityError, match=WRONG):
        asyncio.run(login.finish("nothing"))
    assert "malformed" in login.why
    with pytest.raises(ProtocolError):
        DigestExchange(
            USERS, lockout, address="10.0.0.1", scram=ScramServer("theirs"), secret=b"x" * 32, algorithm=SHA256
        ).make_challenge("nothing")


def test_after_some_failures_a_user_waits_and_others_do_not() -> None:
    clock = Clock()
    lockout = Lockout(clock)
    for _ in range(FAILURES_MAX):
        with pytest.raises(SecurityError, match=WRONG):
            log_in(lockout, "ann", "x")
    with pytest.raises(SecurityError, match="too many failed logins"):
        log_in(lockout, "ann")
    log_in(lockout, "root")
    log_in(lockout, "ann", address="10.0.0.2")
    clock.now_s += LOCKED_S
    log_in(lockout, "ann")
    assert lockout.failed("ann", "10.0.0.1") == 1, "a success forgets what was before"


def test_the_memory_of_failures_is_bounded() -> None:
    lockout = Lockout(Clock())
    for number in range(REMEMBERED_MAX + 10):
        lockout.failed(str(number), "a")
    assert len(lockout._failed) == REMEMBERED_MAX
